from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import bytes_, f, ints, positive, s, u
from rules.law import Case

MS = "com.microsoft"
SHAPES = [
    ((2, 3, 4, 6), (6, 8)),
    ((2, 3, 4, 6), (2, 3, 6, 8)),
    ((4, 6), (2, 3, 6, 8)),
    ((7, 1, 4, 6), (3, 6, 8)),
    ((4, 6), (6, 8)),
    ((6,), (2, 6, 8)),
    ((2, 4, 6), (6,)),
    ((6,), (6, 8)),
    ((6,), (6,)),
]


def cases() -> Iterator[Case]:
    for left, right in SHAPES:
        yield Case("MatMul", {"a": f(*left), "b": f(*right)})
        yield Case("MatMul", {"a": f(*left), "b": f(*right)}, ("b",), opset=9)
        words = {"a": ints(*left, dtype=np.int16), "b": ints(*right, dtype=np.int16)}
        yield Case("MatMulInteger16", words, domain=MS)
        quantized = {"a": bytes_(*left), "b": bytes_(*right)}
        if len(left) > 1 and len(right) > 1:
            yield from quantized_products(quantized)
    yield Case("MatMul", {"a": f(2, 3, 4, 6), "b": f(6, 8)}, dynamic=True)
    yield from gemms()
    yield from fused()
    yield from einsums()
    packed = {"a": f(2, 4, 16), "b": bytes_(6, 1, 8), "s": positive(6, 1)}
    yield Case("MatMulNBits", packed, ("b", "s"), {"K": 16, "N": 6, "bits": 4, "block_size": 16}, domain=MS)
    four = {"a": f(2, 4, 16), "b": bytes_(48), "s": positive(6)}
    yield Case("MatMulBnb4", four, ("b", "s"), {"K": 16, "N": 6, "quant_type": 1, "block_size": 16}, domain=MS)


def quantized_products(quantized: dict[str, np.ndarray]) -> Iterator[Case]:
    a, b = quantized["a"], quantized["b"]
    columns = b.shape[-1]
    yield Case("MatMulInteger", quantized)
    yield Case("MatMulInteger", {**quantized, "az": u(7), "bz": u(9)}, ("b", "az", "bz"))
    scales = {"a": a, "as": s(0.1), "az": u(7), "b": b, "bs": s(0.2), "bz": u(9), "ys": s(40), "yz": u(3)}
    yield Case("QLinearMatMul", scales, ("b",))
    floats = {"a": a, "b": b, "as": s(0.1), "bs": s(0.2), "az": u(7), "bz": u(9), "d": f(columns)}
    yield Case("MatMulIntegerToFloat", floats, ("b", "bz", "d"), domain=MS)
    dynamic = {"a": f(*a.shape), "b": b, "bs": s(0.2), "bz": u(9), "d": f(columns)}
    yield Case("DynamicQuantizeMatMul", dynamic, ("b", "bs", "bz", "d"), domain=MS)
    if b.ndim == 2:
        each = {"bs": positive(columns), "bz": bytes_(columns)}
        yield Case("MatMulInteger", {**quantized, "az": None, "bz": each["bz"]}, ("b", "bz"))
        yield Case("QLinearMatMul", {**scales, **each}, ("b", "bs", "bz"))
        yield Case("MatMulIntegerToFloat", {**floats, **each}, ("b", "bs", "bz"), domain=MS)
        yield Case("DynamicQuantizeMatMul", {**dynamic, **each}, ("b", "bs", "bz", "d"), domain=MS)


def gemms() -> Iterator[Case]:
    for op, domain, more in (("Gemm", "", {}), ("FusedGemm", MS, {"activation": "Relu"})):
        yield Case(op, {"a": f(4, 6), "b": f(6, 8), "c": f(8)}, ("b", "c"), more, domain=domain)
        both = {"transA": 1, "transB": 1, **more}
        yield Case(op, {"a": f(6, 4), "b": f(8, 6), "c": f(4, 1)}, attributes=both, domain=domain)
        one = {"transB": 1, "alpha": 0.5, **more}
        yield Case(op, {"a": f(4, 6), "b": f(8, 6), "c": f(1)}, ("b",), one, domain=domain)
        yield Case(op, {"a": f(4, 6), "b": f(6, 8)}, attributes=more, domain=domain)
    yield Case("Gemm", {"a": f(4, 6), "b": f(6, 8), "c": f()}, ("b", "c"), opset=7)
    quantized = {"a": bytes_(4, 6), "as": s(0.1), "az": u(7), "b": bytes_(6, 8), "bs": positive(8), "bz": bytes_(8)}
    yield Case("QGemm", {**quantized, "c": ints(8)}, ("b", "bs", "bz", "c"), domain=MS)
    result = {"bs": s(0.2), "bz": u(9), "c": None, "ys": s(4), "yz": u(3)}
    yield Case("QGemm", quantized | result, ("b",), domain=MS)


def fused() -> Iterator[Case]:
    for left in (False, True):
        for right in (False, True):
            flags = {"transA": int(left), "transB": int(right), "alpha": 0.5}
            for a, b in (((4, 6), (6, 8)), ((2, 3, 4, 6), (2, 3, 6, 8)), ((2, 3, 4, 6), (6, 8)), ((4, 6), (2, 6, 8))):
                turned = {
                    "a": f(*a[:-2], *(a[:-3:-1] if left else a[-2:])),
                    "b": f(*b[:-2], *(b[:-3:-1] if right else b[-2:])),
                }
                for op in ("FusedMatMul", "TransposeMatMul"):
                    yield Case(op, turned, ("b",), flags, domain=MS)


def einsums() -> Iterator[Case]:
    two = {"a": f(2, 3, 4, 6), "b": f(2, 3, 6, 8)}
    for equation in ("bhqd,bhdk->bhqk", "bhqd,bhdk->kqbh", "b h q d, b h d k -> q", "...qd,...dk->...qk", "bhqd,bhdk"):
        yield Case("Einsum", two, attributes={"equation": equation})
        yield Case("Einsum", two, ("b",), {"equation": equation}, opset=12)
    yield Case("Einsum", {"a": f(2, 3, 4, 6)}, attributes={"equation": "abcd->dba"})
    yield Case("Einsum", {"a": f(2, 3, 4, 6)}, attributes={"equation": "abcd->"})
    yield Case("Einsum", {"a": f(2, 3, 4, 6)}, attributes={"equation": "...cd->d..."})
    yield Case("Einsum", {"a": f(2, 4), "b": f(6, 4), "c": f(2, 6)}, attributes={"equation": "ij,kj,ik->kji"})
    yield Case("Einsum", {"a": f(2, 1, 4), "b": f(6, 4)}, attributes={"equation": "bij,ij->bj"})
    yield Case("Einsum", {"a": f(2, 3, 4), "b": f(6, 4)}, attributes={"equation": "zxy,wy"})
