from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import f, ints
from rules.law import Array, Case

CONTRIBUTED = "com.microsoft"


def cases() -> Iterator[Case]:
    yield from attentions()
    yield from embeddings()
    yield from contributed()
    yield from word_embeddings()
    yield from quantized_attentions()


def packed(array: Array) -> Array:
    """`b h s d` as `b s h*d`."""
    batch, heads, length, size = array.shape
    return array.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def attentions() -> Iterator[Case]:
    q, k, v = f(4, 6, 5, 9), f(4, 3, 7, 9), f(4, 3, 7, 8)
    past = {"pk": f(4, 3, 2, 9), "pv": f(4, 3, 2, 8)}
    counts = {"q_num_heads": 6, "kv_num_heads": 3}
    for heads, said in ((lambda array: array, {}), (packed, counts)):
        given = {"q": heads(q), "k": heads(k), "v": heads(v)}
        yield Case("Attention", given, attributes=said, opset=23)
        yield Case("Attention", given, attributes={**said, "is_causal": 1, "scale": 0.3, "softcap": 2.0}, opset=24)
        for mask in (f(5, 9), f(6, 5, 9), f(4, 1, 5, 9), f(4, 6, 5, 9)):
            yield Case("Attention", {**given, "m": mask, **past}, attributes=said, outputs=3, opset=23)
        last = {**said, "qk_matmul_output_mode": 3}
        yield Case("Attention", {**given, "m": f(5, 9) > 0, **past}, attributes=last, outputs=4, opset=23)
        absent = {"m": None, "pk": None, "pv": None, "n": np.array([3, 7, 1, 5], np.int64)}
        yield Case("Attention", {**given, **absent}, attributes=said, opset=24)


def embeddings() -> Iterator[Case]:
    x, angles, where = f(4, 3, 5, 8), f(11, 4), ints(4, 5, high=11, dtype=np.int64)
    for given, said in ((x, {}), (packed(x), {"num_heads": 3})):
        found = {"x": given, "c": angles, "s": angles - 1, "p": where}
        yield Case("RotaryEmbedding", found, attributes=said, opset=23)
        yield Case("RotaryEmbedding", found, ("c", "s", "p"), {**said, "interleaved": 1}, opset=24)
        partial = {"x": given, "c": f(4, 5, 2), "s": f(4, 5, 2)}
        yield Case("RotaryEmbedding", partial, attributes={**said, "rotary_embedding_dim": 4}, opset=23)
        order = {"x": given, "p": where, "c": angles, "s": angles - 1}
        yield Case("RotaryEmbedding", order, attributes=said, domain=CONTRIBUTED)
    start = {"x": packed(x), "p": np.array([2], np.int64), "c": angles, "s": angles - 1}
    yield Case("RotaryEmbedding", start, domain=CONTRIBUTED)


def contributed() -> Iterator[Case]:
    q, k, v, heads = packed(f(4, 6, 5, 9)), f(4, 6, 7, 9), f(4, 6, 7, 9), {"num_heads": 6}
    mask = {"b": None, "m": ints(4, 7, high=2)}
    bias = {**mask, "m": None, "a": f(4, 6, 5, 7)}
    for more in ({}, mask, bias):
        for given in ({"q": q, "k": packed(k), "v": packed(v)}, {"q": q, "k": k, "v": v}):
            yield Case("MultiHeadAttention", {**given, **more}, (), heads, domain=CONTRIBUTED)
    given = {"q": q, "k": packed(k), "v": packed(f(4, 6, 7, 4))}
    yield Case("MultiHeadAttention", given, (), heads, domain=CONTRIBUTED)
    known = {**given, "v": packed(v), "b": f(162)}
    yield Case("MultiHeadAttention", known, ("b",), heads, domain=CONTRIBUTED)
    past = {"b": None, "m": None, "a": None, "pk": f(4, 6, 2, 9), "pv": f(4, 6, 2, 9)}
    yield Case("MultiHeadAttention", {**given, "v": packed(v), **past}, (), heads, 3, domain=CONTRIBUTED)
    few = {"q": packed(f(4, 6, 5, 8)), "k": packed(f(4, 3, 5, 8)), "v": packed(f(4, 3, 5, 8)), "pk": None, "pv": None}
    ends = {"n": np.full(4, 4, np.int32), "t": np.array([5], np.int32)}
    grouped = {"num_heads": 6, "kv_num_heads": 3}
    yield Case("GroupQueryAttention", {**few, **ends}, ("t",), grouped, 3, domain=CONTRIBUTED)
    given = {"x": f(4, 5, 6), "w": f(6, 72), "b": f(72)}
    heads = {"num_heads": 3}
    yield Case("Attention", given, ("w", "b"), heads, domain=CONTRIBUTED)
    yield Case("Attention", {**given, "m": ints(4, 5, high=2)}, ("w", "b"), heads, domain=CONTRIBUTED)
    yield Case("Attention", {**given, "m": None, "p": f(2, 4, 3, 7, 8)}, ("w", "b"), heads, 2, domain=CONTRIBUTED)


def word_embeddings() -> Iterator[Case]:
    """Words, segments, positions and a mask, each with a table."""
    tables = {"w": f(20, 8), "p": f(9, 8), "g": f(2, 8), "scale": f(8), "shift": f(8)}
    given = {"x": ints(2, 5, high=20), "s": ints(2, 5, high=2), **tables}
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    for opset in (11, 21):
        yield Case("EmbedLayerNormalization", {**given, "m": mask}, (*tables,), {}, 2, opset=opset, domain=CONTRIBUTED)
    options = {"epsilon": 1e-5}
    placed = {**given, "m": None, "o": ints(2, 5, high=9)}
    yield Case("EmbedLayerNormalization", placed, (*tables,), options, 3, domain=CONTRIBUTED)
    without = {**given, "s": None, "g": None}
    yield Case("EmbedLayerNormalization", without, ("w", "p", "scale", "shift"), {}, 2, domain=CONTRIBUTED)


def quantized_attentions() -> Iterator[Case]:
    """Weights of one scale, and of one for each column; weights of 7 bits, whose products saturate on no processor."""
    weights = {"w": ints(8, 24, low=-60, high=60, dtype=np.int8), "b": f(24)}
    scales = {"xs": np.array(0.02, np.float32), "ws": np.array(0.01, np.float32)}
    zeros = {"xz": np.array(120, np.uint8), "wz": np.array(0, np.int8)}
    given = {
        "x": ints(2, 5, 8, high=255, dtype=np.uint8),
        **weights,
        **scales,
        "m": np.array([3, 5], np.int32),
        **zeros,
    }
    heads = {"num_heads": 2}
    for opset in (11, 21):
        yield Case("QAttention", given, ("w", "b", "ws", "wz"), heads, opset=opset, domain=CONTRIBUTED)
    columns = {"ws": np.linspace(0.01, 0.03, 24, dtype=np.float32), "wz": np.zeros(24, np.int8), "m": None}
    later = {**heads, "unidirectional": 1}
    yield Case("QAttention", {**given, **columns}, ("w", "b", "ws", "wz"), later, domain=CONTRIBUTED)
