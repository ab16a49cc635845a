"""Operators on the bits of integers."""

import math
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.slicing import unsqueeze
from relayout.formats.tflite.importing.registry import Unsupported, operator

_UINT64 = ir.DataType.UINT64


@operator("RIGHT_SHIFT")
def right_shift(op: Operation) -> None:
    """BitShift; of a negative number x, the complement of the shifted complement."""
    op.result_stored(shifted_right(op, op.raw(0), op.raw(1)))


def shifted_right(op: Operation, x: ir.Value, count: ir.Value) -> ir.Value:
    """Integers shifted by so many bits, their signs kept."""
    dtype = x.dtype or ir.DataType.INT32
    wide = _UINT64 if dtype in (ir.DataType.INT64, _UINT64) else ir.DataType.UINT32
    if dtype.is_signed():
        negative = op.each("Less", x, op.number(0, x, "zero"))
        mask = op.emit("Neg", [op.cast(negative, dtype)])  # all bits set where x is negative
        x = op.each("BitwiseXor", x, mask)
    y = op.emit("BitShift", [op.cast(x, wide), op.cast(count, wide)], direction="RIGHT")
    y = op.cast(y, dtype)
    return op.each("BitwiseXor", y, mask) if dtype.is_signed() else y


class _Layout(NamedTuple):
    """The parts of a float in memory: sign, exponent, fraction, from the highest bit down."""

    dtype: ir.DataType  # the float
    integer: ir.DataType  # the integer of its width
    computed: ir.DataType  # the float that its arithmetic is done with
    whole: ir.DataType  # the integer, likewise
    fraction: int  # how many bits
    bias: int  # the number of the exponent 0

    @property
    def powers(self) -> npt.NDArray[Any]:
        """Return what the last bit of the fraction is worth, by the exponent's number; 0 has the same as 1."""
        exponents = np.maximum(np.arange(2 * self.bias + 1), 1) - self.bias - self.fraction
        worth: npt.NDArray[Any] = np.ldexp(1.0, exponents).astype(self.computed.numpy())
        return worth


_F32, _F64, _I32, _I64 = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64
_LAYOUTS = {
    layout.dtype: layout
    for layout in (
        _Layout(ir.DataType.FLOAT16, ir.DataType.INT16, _F32, _I32, 10, 15),
        _Layout(_F32, _I32, _F32, _I32, 23, 127),
        _Layout(_F64, _I64, _F64, _I64, 52, 1023),
    )
}


def _bits_of(op: Operation, x: ir.Value) -> ir.Value:
    """The bits of floats as integers of their width: all but the payload of what is not a number.

    The exponent's number is how many powers of two, from the second on, the magnitude reaches: guessed by a logarithm,
    then moved by one where the guess is off. Magnitude over the worth of a last bit is then a whole number.
    """
    layout = _LAYOUTS[x.dtype or ir.DataType.FLOAT]
    x, whole = op.cast(x, layout.computed), layout.whole
    table = op.builder.shared(op.hint("powers"), layout.powers)
    infinite = op.each("IsInf", x)
    strange = op.each("Or", op.each("IsNaN", x), infinite)
    magnitude = op.emit("Where", [strange, op.number(1, x, "one"), op.each("Abs", x)])
    least = op.number(2.0 ** (1 - layout.bias), x, "least")
    logarithm = op.each("Div", op.each("Log", op.each("Max", magnitude, least)), op.number(math.log(2), x, "log_two"))
    exponent = op.each("Add", op.cast(op.each("Floor", logarithm), whole), _whole(op, whole, layout.bias))
    exponent = op.each("Min", exponent, _whole(op, whole, 2 * layout.bias))

    def fraction(number: ir.Value) -> ir.Value:
        worth = op.emit("Gather", [table, op.each("Max", number, _whole(op, whole, 0))], axis=0)
        return op.cast(op.each("Div", magnitude, worth), whole)

    lead = _whole(op, whole, 1 << layout.fraction)
    low = op.cast(op.each("Less", fraction(exponent), lead), whole)
    exponent = op.each("Sub", exponent, low)
    high = op.cast(op.each("GreaterOrEqual", fraction(exponent), op.each("Add", lead, lead)), whole)
    exponent = op.each("Max", op.each("Add", exponent, high), _whole(op, whole, 1))
    # The leading 1 of the fraction adds one to the exponent's number; the smallest numbers have none.
    bits = op.each("Mul", op.each("Sub", exponent, _whole(op, whole, 1)), lead)
    bits = op.each("Add", bits, fraction(exponent))
    top = (2 * layout.bias + 1) << layout.fraction
    quiet = top | 1 << layout.fraction - 1
    odd = op.emit("Where", [infinite, _whole(op, whole, top), _whole(op, whole, quiet)])
    bits = op.emit("Where", [strange, odd, bits])
    inverse = op.each("Reciprocal", x)
    zero = op.number(0, x, "zero")
    below = op.each("Or", op.each("Less", x, zero), op.each("Less", inverse, zero))
    sign = _whole(op, whole, -(1 << layout.dtype.bitwidth - 1))
    return op.cast(op.emit("Where", [below, op.each("BitwiseOr", bits, sign), bits]), layout.integer)


def _float_of(op: Operation, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """The floats whose bits these integers of their width are; what is not a number loses its payload."""
    layout = _LAYOUTS[dtype]
    x, whole = op.cast(x, layout.whole), layout.whole
    like = op.builder.array(op.hint("zero"), np.zeros((), layout.computed.numpy()))
    magnitude = op.each("BitwiseAnd", x, _whole(op, whole, (1 << dtype.bitwidth - 1) - 1))
    lead = _whole(op, whole, 1 << layout.fraction)
    exponent = op.each("Div", magnitude, lead)
    rest = op.each("Sub", magnitude, op.each("Mul", exponent, lead))
    normal = op.cast(op.each("Greater", exponent, _whole(op, whole, 0)), whole)
    count = op.cast(op.each("Add", rest, op.each("Mul", normal, lead)), layout.computed)
    last = _whole(op, whole, 2 * layout.bias)
    table = op.builder.shared(op.hint("powers"), layout.powers)
    y = op.each("Mul", count, op.emit("Gather", [table, op.each("Min", exponent, last)], axis=0))
    infinite = op.each("Equal", rest, _whole(op, whole, 0))
    ends = [op.number(math.inf, like, "infinity"), op.number(math.nan, like, "nan")]
    odd = op.emit("Where", [infinite, *ends])
    y = op.emit("Where", [op.each("Greater", exponent, last), odd, y])
    # Multiplied, not chosen: a Where of ONNX Runtime forgets the sign of 0.
    signs = [op.number(-1, like, "minus"), op.number(1, like, "plus")]
    sign = op.emit("Where", [op.each("Less", x, _whole(op, whole, 0)), *signs])
    return op.cast(op.each("Mul", y, sign), dtype)


def _whole(op: Operation, dtype: ir.DataType, number: int) -> ir.Value:
    return op.builder.shared(op.hint("number"), np.array(number, dtype.numpy()))


@operator("BITCAST")
def bitcast(op: Operation) -> None:
    """Cast between integers, which keeps the bits; to narrower ones they are shifted down, to wider ones up.

    A narrower type adds an axis, the lowest bits first; a wider one takes it away. The bits of a float are computed
    from its magnitude, since ONNX has no operator for them: of what is not a number only that is kept.
    """
    x, target = op.raw(0), op.tensors.plain_dtype(op.output())
    source = x.dtype or target
    if source == target:
        op.result_stored(x)
        return
    if any(d.bitwidth < 8 or d == ir.DataType.BFLOAT16 for d in (source, target)):
        raise Unsupported(f"the bits of {source.name} as {target.name}, for which ONNX has no operator")
    if source.is_floating_point():
        x = _bits_of(op, x)
    elif source == ir.DataType.BOOL:
        x = op.cast(x, ir.DataType.UINT8)
    wanted = _LAYOUTS[target].integer if target.is_floating_point() else target
    wanted = ir.DataType.UINT8 if target == ir.DataType.BOOL else wanted
    y = _regrouped(op, x, wanted)
    op.result_stored(_float_of(op, y, target) if target.is_floating_point() else op.cast(y, target))


def _regrouped(op: Operation, x: ir.Value, target: ir.DataType) -> ir.Value:
    """The bits of integers as integers of another width."""
    source = x.dtype or target
    before, after, rank = source.bitwidth, target.bitwidth, len(dims(x))
    if before == after:
        return op.cast(x, target)
    count = max(before, after) // min(before, after)
    steps = op.builder.array(op.hint("steps"), np.arange(count, dtype=np.uint64) * min(before, after))
    narrow = ir.DataType[f"UINT{min(before, after)}"]
    if before > after:
        bits = op.cast(unsqueeze(op, op.cast(x, ir.DataType[f"UINT{before}"]), [rank]), _UINT64)
        y = op.emit("BitShift", [bits, steps], direction="RIGHT")
        mask = op.number((1 << after) - 1, y, "mask")
        return op.cast(op.cast(op.each("BitwiseAnd", y, mask), narrow), target)
    if rank < 1 or dims(x)[-1] != count:
        raise ReadError(f"{dims(x)} has no axis of {count} for wider integers", where=op.place)
    bits = op.cast(op.cast(x, narrow), _UINT64)
    y = op.emit("BitShift", [bits, steps], direction="LEFT")
    # Not a ReduceSum: that of ONNX Runtime keeps 53 bits.
    parts = [op.emit("Gather", [y, op.number(k, op.ints([k]), "part")], axis=rank - 1) for k in range(count)]
    return op.cast(reduce(partial(op.each, "BitwiseOr"), parts), target)
