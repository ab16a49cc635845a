"""What LiteRT's kernels of 16 bits look up: functions known at 513 points, with straight lines between them.

Their results lie tens of steps off the function where it is steep, so Exp and the like do not reproduce them. A table
of all 65536 results does: the stored number, counted from the end where it is negative, is the place in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization, Tensor
from relayout.formats.tflite.elementwise import FUNCTIONS
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.registry import Unsupported, each_operator, operator
from relayout.formats.tflite.importing.tensors import fixed_point
from relayout.formats.tflite.same_operators import COMPARISONS

# Operators that change what a tensor's numbers mean.


@operator("QUANTIZE")
def quantize(op: Operation) -> None:
    """QuantizeLinear; of a tensor that is quantized already, DequantizeLinear first.

    ONNX quantizes to no 32 bits, and dequantizes from them only around 0: these are divided and multiplied. Shorter
    integers become them in double precision, which has all of their bits.
    """
    target = op.output()
    if target.type == TensorType.INT32 and op.tensors.quantization(op.input(0)) is not None:
        op.result_stored(op.cast(_lengthened(op, target), ir.DataType.INT32))
        return
    x = op.real(0)
    x = op.cast(x, ir.DataType.FLOAT) if x.dtype == ir.DataType.FLOAT16 else x
    if op.input(0).type == TensorType.INT32:
        x = _scaled(op, op.cast(x, ir.DataType.FLOAT), 0)
    if target.type == TensorType.INT32:
        quantization = _one_scale(target)
        scale = op.array("scale", np.array(quantization.scale[0], np.float32))
        op.result_stored(op.cast(op.each("Round", op.each("Div", x, scale)), ir.DataType.INT32))
        return
    op.result(x)


def _one_scale(tensor: Tensor) -> Quantization:
    quantization = tensor.quantization
    if quantization is None or quantization.per_channel:
        raise Unsupported("32 bits without one scale")
    return quantization


def _lengthened(op: Operation, target: Tensor) -> ir.Value:
    """Return the operand's integers in steps of the result, times the kernel's multiplier of 31 bits."""
    input_quantization, output_quantization = _one_scale(op.input(0)), _one_scale(target)
    if not output_quantization.scale[0]:
        raise op.damaged("a result whose steps are 0")
    multiplier, exponent = fixed_point(float(input_quantization.scale[0]) / float(output_quantization.scale[0]))
    x = op.cast(op.whole(0), ir.DataType.DOUBLE)
    centred = op.each("Sub", x, op.number(float(input_quantization.zero_point[0]), x, "zero_point"))
    return op.each("Round", op.each("Mul", centred, op.number(math.ldexp(multiplier, exponent - 31), x, "scale")))


def _scaled(op: Operation, x: ir.Value, i: int) -> ir.Value:
    quantization = _one_scale(op.input(i))
    centred = op.each("Sub", x, op.number(float(quantization.zero_point[0]), x, "zero_point"))
    return op.each("Mul", centred, op.number(float(quantization.scale[0]), x, "scale"))


@operator("DENSIFY")
def densify(op: Operation) -> None:
    """Nothing: a sparse constant is expanded where it is read."""
    op.result_stored(op.stored(0))


@operator("DEQUANTIZE")
def dequantize(op: Operation) -> None:
    """DequantizeLinear, or Cast where the operand is half precision; a long integer is cast and multiplied."""
    if op.output().type != TensorType.FLOAT32:
        raise Unsupported(f"a result of {op.output().type.name}, in place of which the kernel writes FLOAT32")
    wide = op.input(0).type in (TensorType.INT32, TensorType.INT64) and op.input(0).quantization is not None
    x = op.cast(op.real(0), ir.DataType.FLOAT)
    op.result(_scaled(op, x, 0) if wide else x)


Floats = npt.NDArray[np.float32]
Function = Callable[[Floats], Floats]

STEPS = 512
_LEAST, _GREATEST = -32768, 32767


def _rounded(x: Floats) -> Floats:
    return np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x).astype(np.float32)


def interpolated(
    function: Function,  # of real numbers
    before: tuple[float, int],  # scale and zero point of the operand
    after: tuple[float, int],  # those of the result
) -> npt.NDArray[np.int64]:
    """Return the result for each of -32768 to 32767.

    The points are moved by half of what the straight line between two of them misses in the middle.
    """
    one = np.float32
    (scale, zero), (unit, offset) = before, after
    low, high = one(scale) * one(_LEAST - zero), one(scale) * one(_GREATEST - zero)
    bottom, top = one(unit) * one(_LEAST - offset), one(unit) * one(_GREATEST - offset)
    step = (high - low) / one(STEPS)
    per_unit = one(65536) / (top - bottom)
    places = np.arange(STEPS).astype(one)
    here, there = function(low + places * step) * per_unit, function(low + (places + one(1)) * step) * per_unit
    between = _rounded(function(low + places * step + step / one(2)) * per_unit)
    missed = _rounded((there + _rounded(here)) / one(2)) - between
    last = _rounded(function(np.array([high], one)) * per_unit)
    points = np.append(_rounded(here) - _rounded(missed / one(2)), last)
    table = np.clip(points, _LEAST, _GREATEST).astype(np.int64)
    x = np.arange(65536)
    base, rest = table[x >> 7], x & 127
    result: npt.NDArray[np.int64] = base + ((table[(x >> 7) + 1] - base) * rest + 64 >> 7)
    return result


def looked_up(
    op: Operation, x: ir.Value, results: npt.NDArray[Any], name: str = "table", *, least: int = _LEAST
) -> ir.Value:
    """Return the entry for each integer. Results are listed from the least integer on."""
    table = op.builder.shared(op.hint(name), np.roll(results, least))
    return op.emit("Gather", [table, op.cast(x, ir.DataType.INT32)], axis=0)


def tabulated(
    op: Operation,  # an operation of one operand
    name: str,  # the builtin
    undefined: int | None = None,  # what is stored for 0 and below, where its function has no value
    **options: bool,  # its options
) -> bool:
    """Hand over the result by a table, if that is how the kernel gets it."""
    before, after = op.tensors.quantization(op.input(0)), op.output().quantization
    if before is None or after is None or op.input(0).type != TensorType.INT16:
        return False

    def function(x: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            y = np.asarray(FUNCTIONS[name](options, x), np.float32)
        return y if undefined is None else np.where(x <= 0, np.float32(after.scale[0]) * np.float32(undefined), y)

    results = interpolated(function, scale_and_zero_point(before), scale_and_zero_point(after))
    op.result_stored(looked_up(op, op.stored(0), results.astype(np.int16)))
    return True


@operator("EXP")
def exp(op: Operation) -> None:
    """Exp; of 16 bits a table."""
    if not tabulated(op, "EXP"):
        op.result(op.each("Exp", op.real(0)))


@operator("LOG")
def log(op: Operation) -> None:
    """Log; of 16 bits a table."""
    if not tabulated(op, "LOG", _LEAST):
        op.result(op.each("Log", op.real(0)))


@operator("RSQRT")
def rsqrt(op: Operation) -> None:
    """Reciprocal of Sqrt, or Pow of integers, which is one operator of a quantized unit; of 16 bits a table."""
    if tabulated(op, "RSQRT", _GREATEST):
        return
    x = op.real(0)
    if op.tensors.quantization(op.input(0)) is None:
        op.result(op.each("Reciprocal", op.each("Sqrt", x)))
    else:
        op.result(op.each("Pow", x, op.number(-0.5, x, "exponent")))


@operator("GELU", options="GeluOptions", opset=20)
def gelu(op: Operation) -> None:
    """Gelu from opset 20 on, before that its formula with Erf or Tanh; of 16 bits a table."""
    if tabulated(op, "GELU", approximate=op.options.approximate):
        return
    x = op.real(0)
    if op.builder.opset >= 20:
        kind = "tanh" if op.options.approximate else "none"
        op.result(op.emit("Gelu", [x], approximate=kind))
        return

    def times(value: ir.Value, factor: float) -> ir.Value:
        return op.each("Mul", value, op.array("factor", np.array(factor, np.float32)))

    if op.options.approximate:
        cube = op.each("Mul", op.each("Mul", x, x), x)
        inner = op.each("Tanh", times(op.each("Add", x, times(cube, 0.044715)), math.sqrt(2 / math.pi)))
    else:
        inner = op.each("Erf", times(x, math.sqrt(0.5)))
    op.result(op.each("Mul", times(x, 0.5), op.each("Add", inner, op.number(1, x, "one"))))


@operator("TANH")
def tanh(op: Operation) -> None:
    """Tanh; of 16 bits a table."""
    quantization = op.tensors.quantization(op.input(0))
    if op.input(0).type != TensorType.INT16 or quantization is None:
        op.result(op.each("Tanh", op.real(0)))
        return
    op.result_stored(looked_up(op, op.stored(0), _tanh(scale_and_zero_point(quantization)[0]).astype(np.int16)))


def _tanh(scale: float) -> npt.NDArray[np.int64]:
    """Twice the logistic function of 2 x, less one: known at 256 multiples of 1/24, with straight lines between them.

    The kernel counts in units of 1/12288, of which a scale is so many, rounded down after 16 bits.
    """
    units, shift = scale * 3 * 4096, 0
    while units <= 32767 / 2 and shift <= 30:
        units, shift = units * 2, shift + 1
    x = np.arange(_LEAST, _GREATEST + 1, dtype=np.int64)
    x = (x * int(units) + (1 << shift >> 1)) >> shift
    table = np.minimum(np.round(65536 / (1 + np.exp(-np.arange(257) / 24))), 65535).astype(np.int64)
    place = np.minimum(abs(x) >> 8, 255)
    y = (table[place] << 8) + (abs(x) & 255) * (table[place + 1] - table[place])
    y = np.where(abs(x) >> 8 >= 255, 65535 << 8, y) - (1 << 23)
    result: npt.NDArray[np.int64] = np.where(x >= 0, y + 128, 127 - y) >> 8
    return result


def scale_and_zero_point(quantization: Quantization) -> tuple[float, int]:
    """Return the one scale and the one zero point."""
    if quantization.per_channel:
        raise Unsupported("a table for several scales")
    return float(quantization.scale[0]), int(quantization.zero_point[0])


# Softmax.

_EXPONENT = (10 / 65535, _GREATEST)
_INVERSE = (1 / 65535, _LEAST)
_FRACTION = (2 / 65535, 0)


def softmax(op: Operation, scale: float, beta: float) -> None:
    """Softmax of 16 bits, as the kernel computes it.

    1. The distance from the greatest of its row becomes, by a table, `exp(-distance)`, 32767 being 1.
    2. Their sum, shifted until it has 16 bits behind its first, becomes, by a table, what a fraction of it is worth.
    3. The product of both is shifted back, halves up.
    """
    x = op.cast(op.stored(0), ir.DataType.INT32)
    distance = op.each("Sub", op.emit("ReduceMax", [x, op.ints([-1])], keepdims=1), x)
    step = np.float64(np.float32(beta)) * np.float32(scale) / _EXPONENT[0]
    scaled = np.floor(np.arange(65536) * step + 0.5)
    exponential = interpolated(np.exp, _EXPONENT, _FRACTION)[np.maximum(65535 - scaled, 0).astype(np.int64)]
    table = op.builder.shared(op.hint("exponential"), exponential.astype(np.int32))
    wide = op.cast(op.emit("Gather", [table, distance], axis=0), ir.DataType.INT64)
    total = op.emit("ReduceSum", [wide, op.ints([-1])], keepdims=1)
    # The power of two at or below the sum: one of a short list, found by comparing.
    twos = op.builder.shared(op.hint("twos"), 2 ** np.arange(31, dtype=np.int64))
    reached = op.each("GreaterOrEqual", total, twos)
    size = op.emit("ReduceSum", [op.cast(reached, ir.DataType.INT64), op.ints([-1])], keepdims=1)
    first = op.emit("Gather", [twos, op.each("Sub", size, op.number(1, size, "one"))], axis=0)
    whole = op.each("Div", op.number(1 << 30, first, "whole"), first)
    shifted = op.each("Add", op.each("Mul", total, whole), op.number(1 << 13, total, "half"))
    behind = op.each(
        "Sub", op.each("Div", shifted, op.number(1 << 14, total, "shift")), op.number(1 << 16, total, "lead")
    )
    worth = interpolated(lambda v: (1 / (1 + v)).astype(np.float32), _INVERSE, _FRACTION)
    inverse_table = op.builder.shared(op.hint("inverse"), worth.astype(np.int64))
    inverse = op.emit("Gather", [inverse_table, op.each("Min", behind, op.number(65535, behind, "last"))], axis=0)
    half = op.each("Div", first, op.number(2, first, "two"))
    y = op.each("Div", op.each("Add", op.each("Mul", wide, inverse), half), first)
    op.result_stored(op.emit("Clip", [y, op.number(0, y, "least"), op.number(_GREATEST, y, "greatest")]))


TEXTS_FROM = 19  # the opset from which on Equal compares texts

# Comparisons as LiteRT's kernels make them: of quantized operands seldom by what they mean.
#
# Bytes are brought to a fixed point of 1/256 first, so that numbers nearer than that are equal; so are 16 bits before
# EQUAL and NOT_EQUAL, and the other comparisons of 16 bits take the integers as they are.

TO_ONE = 256  # steps of the fixed point in which the kernels compare

_LIMITS = {TensorType.INT8: (-128, 127), TensorType.UINT8: (0, 255), TensorType.INT16: (-32768, 32767)}


def compared(
    op: Operation,
    op_type: str,  # ONNX's operator
    number: Callable[[int], ir.Value],  # an operand as what it means, where that is what the kernel compares
) -> ir.Value:
    """Both operands under a comparison of ONNX, as the kernel has it."""
    both = [op.tensors.quantization(op.input(i)) for i in (0, 1)]
    kind = op.input(0).type
    if None not in both and kind == TensorType.INT16 and op_type != "Equal":
        return op.each(op_type, op.whole(0), op.whole(1))
    tables = [_table(kind, quantization) for quantization in both]
    first, second = tables
    # Where no two integers become one, integers of equal parameters are compared as they are.
    if first is None or second is None or (np.all(np.diff(first) > 0) and both[0] and both[0].equals(both[1])):
        return op.each(op_type, number(0), number(1))

    def in_steps(i: int, table: npt.NDArray[np.int32]) -> ir.Value:
        least, _ = _LIMITS[op.input(i).type]
        if op.is_constant(i):
            return op.array("steps", table[op.constant(i).astype(np.int64) - least])
        return looked_up(op, op.stored(i), table, "steps", least=least)

    return op.each(op_type, in_steps(0, first), in_steps(1, second))


def _table(kind: TensorType, quantization: Quantization | None) -> npt.NDArray[np.int32] | None:
    """Return what the kernel makes of each integer, from the least on; None where it takes no steps.

    None, too, for a scale of 1 or above, which the kernel's arithmetic does not hold: its answers are arbitrary.
    """
    if kind not in _LIMITS or quantization is None or quantization.per_channel or float(quantization.scale[0]) >= 1:
        return None
    least, greatest = _LIMITS[kind]
    integers = np.arange(least, greatest + 1, dtype=np.int64) - int(quantization.zero_point[0])
    # Times a factor below 1 in 31 bits, rounded twice as the kernels do: halves up, then away from zero.
    multiplier, exponent = fixed_point(float(quantization.scale[0]))
    high, bits = integers * TO_ONE * multiplier + (1 << 30) >> 31, min(-exponent, 62)
    table: npt.NDArray[np.int32] = (np.sign(high) * (np.abs(high) + (1 << bits >> 1) >> bits)).astype(np.int32)
    return table


_SUMMARY = "{} of what the operands mean; of quantized ones as the kernel has it: in 256ths, by a table."


@each_operator({name: op_type for name, op_type in COMPARISONS.items() if op_type != "Equal"}, _SUMMARY)
@each_operator({"EQUAL": "Equal"}, _SUMMARY, texts=TEXTS_FROM)
def _comparison(op: Operation, op_type: str) -> None:
    op.result(compared(op, op_type, op.plain))


@operator("NOT_EQUAL", texts=TEXTS_FROM)
def not_equal(op: Operation) -> None:
    """Not of Equal of what the operands mean; of quantized ones as the kernel has it: in 256ths, by a table."""
    # Narrow integers without a scale are all equal to its kernel, and refused by `real`.
    op.result(op.each("Not", compared(op, "Equal", op.real)))
