"""Operators of TensorFlow on each element by itself that TFLite does not have: they are left to the Flex delegate."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import broadcast, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.bits import shifted_right
from relayout.formats.tflite.importing.operators.elementwise import one, two
from relayout.formats.tflite.importing.operators.gathering import chosen
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.registry import Translation, described, operator

_BOOL, _INT64, _UINT32, _UINT64 = ir.DataType.BOOL, ir.DataType.INT64, ir.DataType.UINT32, ir.DataType.UINT64


def _bitwise(op_type: str) -> Translation:
    def translate(op: Operation) -> None:
        op.result(two(op, op_type, op.stored(0), op.stored(1)))

    return described(translate, op_type.lower(), f"{op_type}, broadcast from the right.")


operator("CUSTOM FlexBitwiseAnd")(_bitwise("BitwiseAnd"))
operator("CUSTOM FlexBitwiseOr")(_bitwise("BitwiseOr"))


@operator("CUSTOM FlexInvert")
def invert(op: Operation) -> None:
    """BitwiseNot."""
    op.result(one(op, "BitwiseNot", op.stored(0)))


def _count(op: Operation) -> ir.Value:
    """By how many bits operand 0 is shifted: not below 0, nor by all there are."""
    x, count = op.stored(0), op.cast(op.stored(1), _INT64)
    most = op.number((x.dtype or _INT64).bitwidth - 1, count, "most")
    return two(op, "Max", two(op, "Min", count, most), op.number(0, count, "least"))


@operator("CUSTOM FlexLeftShift")
def left_shift(op: Operation) -> None:
    """BitShift of integers without a sign; by at most all bits but one."""
    x, count = op.stored(0), _count(op)
    wide = _UINT64 if x.dtype in (_INT64, _UINT64) else _UINT32
    operands = [op.cast(x, wide), op.cast(count, wide)]
    op.result_whole(op.emit("BitShift", operands, broadcast(dims(x), dims(count)), direction="LEFT"))


@operator("CUSTOM FlexRightShift")
def right_shift(op: Operation) -> None:
    """As RIGHT_SHIFT; by at most all bits but one."""
    op.result(shifted_right(op, op.stored(0), _count(op)))


@operator("CUSTOM FlexIsNan")
def is_nan(op: Operation) -> None:
    """IsNaN."""
    op.result(one(op, "IsNaN", op.stored(0), _BOOL))


@operator("CUSTOM FlexIsFinite")
def is_finite(op: Operation) -> None:
    """Neither IsInf nor IsNaN."""
    x = op.stored(0)
    op.result(one(op, "Not", two(op, "Or", one(op, "IsInf", x, _BOOL), one(op, "IsNaN", x, _BOOL))))


def _unless(op_type: str, name: str) -> Translation:
    """An operator that is 0 where its second operand is."""

    def translate(op: Operation) -> None:
        a, b = op.stored(0), op.stored(1)
        zero = op.number(0, b, "zero")
        nothing = two(op, "Equal", b, zero, _BOOL)
        # A quotient of integers by 0 ends the process, though it is not chosen.
        by = chosen(op, nothing, op.number(1, b, "one"), b)
        op.result(chosen(op, nothing, zero, two(op, op_type, a, by)))

    return described(translate, name, f"{op_type}; 0 where the second operand is 0.")


operator("CUSTOM FlexDivNoNan")(_unless("Div", "div_no_nan"))
operator("CUSTOM FlexMulNoNan")(_unless("Mul", "mul_no_nan"))


@operator("CUSTOM FlexTruncateDiv")
def truncate_div(op: Operation) -> None:
    """Div; of real numbers what is before the point."""
    quotient = two(op, "Div", op.plain(0), op.plain(1))
    if quotient.dtype is not None and quotient.dtype.is_floating_point():
        down = one(op, "Floor", one(op, "Abs", quotient))
        quotient = two(op, "Mul", down, one(op, "Sign", quotient))
    op.result(quotient)


@operator("CUSTOM FlexFakeQuantWithMinMaxVarsPerChannel")
def fake_quant_per_channel(op: Operation) -> None:
    """Clip, and rounding to steps, of each channel by its own ends; these are moved so that 0 is one of the steps."""
    given, x = attributes(op), op.stored(0)
    low, high = (op.constant(i).astype(np.float32) for i in (1, 2))
    bits, extent = given.number("num_bits"), dims(x)[-1] if dims(x) else None
    if not low.shape == high.shape == (extent,) or not 2 <= bits <= 16 or not np.all(low <= high):
        raise ReadError(f"{bits} bits between {low.shape} and {high.shape} of {extent}", where=op.place)
    first, last = np.float32(given.number("narrow_range")), np.float32((1 << bits) - 1)
    some = high > low
    with np.errstate(over="ignore"):
        scale = np.where(some, (high - low) / (last - first), np.float32(1))
    if not np.all((scale > 1e-30) & (scale < 1e30)):
        raise ReadError(f"steps between {scale.min()} and {scale.max()}", where=op.place)
    start = first - low / scale
    zero = np.where(start < first, first, np.where(start > last, last, np.floor(start + np.float32(0.5))))
    low, high = (np.where(some, (end - zero) * scale, np.float32(0)).astype(np.float32) for end in (first, last))

    def each(numbers: npt.NDArray[Any], name: str) -> ir.Value:
        return op.builder.array(op.hint(name), numbers.astype(np.float32))

    clipped = two(op, "Min", two(op, "Max", x, each(low, "low")), each(high, "high"))
    steps = two(op, "Mul", two(op, "Sub", clipped, each(low, "low")), each(1 / scale, "inverse"))
    rounded = one(op, "Floor", two(op, "Add", steps, op.number(0.5, x, "half")))
    op.result(two(op, "Add", two(op, "Mul", rounded, each(scale, "step")), each(low, "low")))
