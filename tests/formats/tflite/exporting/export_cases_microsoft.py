"""Operators of ONNX Runtime's own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import f, i, ints
from rules.law import Case

DOMAIN = "com.microsoft"


def cases() -> Iterator[Case]:
    yield from attentions()
    yield from rotations()
    yield from gathered_blocks()
    yield from few_bits()
    yield from grouped()
    yield Case("Inverse", {"x": f(2, 3, 3)}, domain=DOMAIN)
    yield Case("InstanceNormalization", {"x": f(2, 3, 4, 5), "s": f(3), "b": f(3)})
    yield Case("InstanceNormalization", {"x": f(2, 3, 4), "s": f(3), "b": f(3)}, ("s", "b"))


def attentions() -> Iterator[Case]:
    heads = {"num_heads": 2}
    three = {"q": f(2, 3, 8), "k": f(2, 5, 8), "v": f(2, 5, 8)}
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    yield Case("MultiHeadAttention", three, attributes=heads, domain=DOMAIN)
    yield Case("MultiHeadAttention", {**three, "b": f(24)}, ("b",), {**heads, "scale": 0.3}, domain=DOMAIN)
    masked = {**three, "b": None, "m": mask, "a": f(2, 2, 3, 5)}
    yield Case("MultiHeadAttention", masked, attributes=heads, domain=DOMAIN)
    own = {"x": f(2, 5, 8), "w": f(8, 24), "b": f(24)}
    yield Case("Attention", own, ("w", "b"), heads, domain=DOMAIN)
    yield Case("Attention", {**own, "m": mask}, ("w", "b"), heads, domain=DOMAIN)
    for other_mask in (np.array([3, 5], np.int32), ints(2, 5, 5, high=2)):
        yield Case("Attention", {**own, "m": other_mask}, ("w", "b"), heads, domain=DOMAIN)
    yield Case("Attention", own, ("w", "b"), {**heads, "unidirectional": 1}, domain=DOMAIN)


def grouped() -> Iterator[Case]:
    few = {"q": f(2, 5, 48), "k": f(2, 5, 16), "v": f(2, 5, 16), "pk": None, "pv": None}
    few |= {"n": np.array([4, 2], np.int32), "t": i(5).astype(np.int32)}
    options = {"num_heads": 6, "kv_num_heads": 2}
    yield Case("GroupQueryAttention", few, ("t",), options, 3, domain=DOMAIN)
    yield Case("GroupQueryAttention", few, ("t",), {**options, "scale": 0.7}, 3, domain=DOMAIN)
    later = {"q": f(2, 1, 48), "k": f(2, 1, 16), "v": f(2, 1, 16), "pk": f(2, 2, 5, 8), "pv": f(2, 2, 5, 8)}
    later |= {"n": np.array([5, 3], np.int32), "t": i(6).astype(np.int32)}
    yield Case("GroupQueryAttention", later, ("t",), options, 3, domain=DOMAIN)
    yield Case("GroupQueryAttention", later, (), options, 3, domain=DOMAIN)


def few_bits() -> Iterator[Case]:
    """Three blocks to a row, the last of them cut short."""
    rows, columns, block = 6, 40, 16
    for bits in (4, 8):
        size = {"N": rows, "K": columns, "bits": bits, "block_size": block}
        packed = ints(rows, 3, block * bits // 8, high=255, dtype=np.uint8)
        given = {"x": f(2, 5, columns), "w": packed, "s": f(rows, 3)}
        yield Case("MatMulNBits", given, ("w", "s"), size, domain=DOMAIN)
        zeros = ints(rows, -(-3 * bits // 8), high=255, dtype=np.uint8)
        yield Case("MatMulNBits", {**given, "z": zeros}, ("w", "s", "z"), size, domain=DOMAIN)
    with_bias = {**given, "z": None, "g": None, "b": f(rows)}
    yield Case("MatMulNBits", {**with_bias, "x": f(5, columns)}, ("w", "s", "b"), size, domain=DOMAIN)


def rotations() -> Iterator[Case]:
    tables = {"c": f(9, 4), "s": f(9, 4)}
    for places in (i(2), ints(2, 3, high=9, dtype=np.int64)):
        for interleaved in (0, 1):
            options = {"interleaved": interleaved}
            given = {"x": f(2, 2, 3, 8), "p": places, **tables}
            yield Case("RotaryEmbedding", given, ("c", "s"), options, domain=DOMAIN)
            yield Case("RotaryEmbedding", {**given, "x": f(2, 3, 16)}, attributes=options, domain=DOMAIN)


def gathered_blocks() -> Iterator[Case]:
    """Two blocks to a row, of bytes that hold one integer or two."""
    chosen, scales = ints(3, 2, high=12, dtype=np.int64), np.linspace(0.1, 2, 24, dtype=np.float32).reshape(12, 2)
    for bits in (4, 8):
        options = {"bits": bits, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
        given = {"x": ints(12, 4 * bits, high=255, dtype=np.uint8), "i": chosen, "s": scales}
        yield Case("GatherBlockQuantized", given, ("x", "s"), options, opset=21, domain=DOMAIN)
        zeros = ints(12, bits // 4, high=255, dtype=np.uint8)
        yield Case("GatherBlockQuantized", {**given, "z": zeros}, ("x", "s", "z"), options, opset=21, domain=DOMAIN)
