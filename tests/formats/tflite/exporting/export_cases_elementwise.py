"""Operators on each element by itself: the types that rules do not tell apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import b, f, ints, positive
from rules.law import Array, Case

INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64)


def cases() -> Iterator[Case]:
    yield Case("Identity", {"x": f(2, 3)})
    for kind in INTEGERS:
        yield from of(kind)
    for name in ("Add", "Mul", "Max", "Less", "Pow"):
        yield Case(name, {"x": positive(2, 3).astype(np.float16), "y": positive(3).astype(np.float16)})
    yield Case("Sqrt", {"x": positive(2, 3).astype(np.float16)})
    yield Case("Cast", {"x": f(2, 3) * 9}, attributes={"to": 10})
    yield Case("Cast", {"x": f(2, 3).astype(np.float16)}, attributes={"to": 1})
    yield Case("Cast", {"x": ints(2, 3, low=-9)}, attributes={"to": 9})
    yield Case("Cast", {"x": b(2, 3)}, attributes={"to": 7})
    yield from shifts()
    yield from whole()
    yield from halves()
    yield from unsigned()


def of(kind: type) -> Iterator[Case]:
    x, y = ints(3, 4, low=1, high=9, dtype=kind), ints(4, low=1, high=9, dtype=kind)
    for name in ("Max", "Min") if kind in (np.int32, np.uint32, np.int64, np.int8) else ():
        yield Case(name, {"x": x, "y": y})
    if kind in (np.int32, np.int64, np.uint8, np.int8):
        for name in ("Add", "Sub", "Mul", "Mod"):
            yield Case(name, {"x": x, "y": y})
    if kind in (np.int32, np.int64):
        for name in ("Equal", "Less", "GreaterOrEqual", "Div"):
            yield Case(name, {"x": x, "y": y})
    for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Case(name, {"x": x, "y": y})
    yield Case("BitwiseNot", {"x": x})


def shifts() -> Iterator[Case]:
    for kind in (np.uint8, np.uint16, np.uint32, np.uint64):
        amounts: Array = np.array([0, 1, 3, 5], kind)
        for direction in ("LEFT", "RIGHT"):
            x = ints(3, 4, low=1, high=250, dtype=kind)
            yield Case("BitShift", {"x": x, "y": amounts}, attributes={"direction": direction})
            yield Case("BitShift", {"x": x, "y": amounts}, ("y",), {"direction": direction})
    amounts = np.array([0, 1, 31, 32, 33, 63], np.uint64)
    x = np.array([1, 2**63 + 5, 2**64 - 1, 2**40 + 2**33 + 3, 2**32, 0x89ABCDEF01234567], np.uint64)[:, None]
    yield Case("BitShift", {"x": x, "y": amounts}, attributes={"direction": "RIGHT"})
    yield Case("BitShift", {"x": x, "y": amounts}, ("y",), {"direction": "RIGHT"})


def whole() -> Iterator[Case]:
    """Integers of 64 bits, which LiteRT has few kernels for."""
    x: Array = np.array([7, -7, 2**40 + 3, -(2**40) - 3, 2**62, 5, 0, 2**53 + 1])
    y: Array = np.array([2, 2, 3, 3, 10**9 + 7, -3, 4, -7])
    for name in ("Div", "Mod"):
        yield Case(name, {"x": x, "y": y})
    for kind in (np.int64, np.int32, np.int8, np.uint8, np.float32):
        low, high = (each.clip(1 if kind == np.uint8 else -120, 120).astype(kind) for each in (x, y))
        yield Case("Mod", {"x": low, "y": high}, attributes={"fmod": 1})
    for kind in (np.int32, np.int64):
        for exponent in (0, 1, 2, 3):
            yield Case("Pow", {"x": y.clip(-9, 9).astype(kind), "e": np.array(exponent, kind)}, ("e",))
    for exponent in (-4, -2.5, -2, -1.5, -1, -0.5, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4):
        yield Case("Pow", {"x": abs(f(2, 3)) + 0.1, "e": np.array(exponent, np.float32)}, ("e",))
    yield Case("Pow", {"x": np.arange(1, 5, dtype=np.int32), "e": np.arange(4, dtype=np.int32)})
    yield Case("Pow", {"x": f(2, 3), "e": np.array([2, 3, 1])})
    bases: Array = np.array([[3], [-2], [1], [-1], [7]])
    exponents: Array = np.array([0, 1, 5, 18, -1, -2, 64, 65])
    few = exponents[:6]
    yield Case("Pow", {"x": bases[:, :, None] * [1, 1], "e": few[:, None]})
    yield Case("Pow", {"x": bases[2:4], "e": exponents})
    yield Case("Pow", {"x": bases, "e": few.astype(np.int32)}, ("e",))
    yield Case("Pow", {"x": bases.astype(np.int32), "e": few[[0, 1, 2, 4, 5]]}, ("e",))
    yield Case("Pow", {"x": bases.astype(np.int32), "e": few[[0, 1, 2, 4, 5]].astype(np.int32)})
    for kind in (np.int32, np.int64):
        yield Case("Pow", {"x": abs(bases).astype(kind) + 2, "e": np.array([0, 2, 3, 0.5, 1.25, -1], np.float32)})
    yield Case("ReduceMax", {"x": b(3, 4), "a": np.array([1])}, ("a",), opset=20)
    yield Case("ReduceMin", {"x": b(3, 4), "a": np.array([1])}, ("a",), opset=20)


def halves() -> Iterator[Case]:
    """Networks in half precision: LiteRT computes them in single."""
    x, w = f(1, 4, 6, 5).astype(np.float16), f(8, 4, 3, 3).astype(np.float16)
    yield Case("Conv", {"x": x, "w": w}, ("w",), {"pads": [1, 1, 1, 1]})
    yield Case("MaxPool", {"x": x}, attributes={"kernel_shape": [2, 2]})
    yield Case("Gemm", {"x": x.reshape(4, 30), "w": f(30, 7).astype(np.float16)}, ("w",))
    yield Case("Softmax", {"x": x}, attributes={"axis": 1})
    yield Case("Concat", {"x": x, "y": x}, attributes={"axis": 1})
    yield Case("Transpose", {"x": x}, attributes={"perm": [0, 2, 3, 1]})


def unsigned() -> Iterator[Case]:
    """Unsigned integers of 64 bits, which LiteRT adds as signed ones."""
    x, y = (np.array(each, np.uint64) for each in ([1, 2**63 + 5, 2**64 - 1, 7], [3, 2**63, 1, 2**63 + 9]))
    for name in ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "GreaterOrEqual"):
        yield Case(name, {"x": x, "y": y})
    yield Case("Concat", {"x": x, "y": y}, attributes={"axis": 0})
    small = ints(3, 4, low=1, high=200, dtype=np.uint32)
    yield Case("Div", {"x": small + np.uint32(2**31), "y": small[0]})
    yield Case("Abs", {"x": np.array([-5, 2**40, 0, -(2**50)])})
