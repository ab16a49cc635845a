"""Operators that work on each element by itself: one operand, or two that broadcast; their bits."""

import math
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.activation import clip
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.convolution import vector, widened_from
from relayout.formats.tflite.importing.operators.slicing import unsqueeze
from relayout.formats.tflite.importing.registry import Unsupported, each_operator, operator
from relayout.formats.tflite.same_operators import ARITHMETIC, LOGICAL, UNARY


@each_operator({**UNARY, "ELU": "Elu", "RELU": "Relu"}, "{}.")
def unary_of_reals(op: Operation, op_type: str) -> None:
    """An operator of one operand, by what its integers mean."""
    op.result(op.each(op_type, op.real(0)))


@each_operator({"ABS": "Abs", "SIGN": "Sign"}, "{}.")
def _unary(op: Operation, op_type: str) -> None:
    """Of integers without a scale the kernels know no other operators of one operand."""
    op.result(op.each(op_type, op.plain(0)))


@each_operator({**LOGICAL, "POW": "Pow"}, "{}, broadcast from the right.")
def _binary(op: Operation, op_type: str) -> None:
    op.result(op.each(op_type, op.plain(0), op.plain(1)))


@each_operator({"MAXIMUM": "Max", "MINIMUM": "Min"}, "{}, broadcast from the right.")
def _extreme(op: Operation, op_type: str) -> None:
    if op.alike(0, 1):
        _binary(op, op_type)
    else:  # the kernel compares integers, whatever they mean
        op.result_whole(op.each(op_type, op.whole(0), op.whole(1)))


@each_operator({"BITWISE_XOR": "BitwiseXor"}, "{}, broadcast from the right.")
def bitwise(op: Operation, op_type: str) -> None:
    """An operator on the bits of two operands."""
    op.result_stored(op.each(op_type, op.raw(0), op.raw(1)))


@each_operator(
    {**ARITHMETIC, "DIV": "Div"}, "{}, broadcast from the right, then the fused activation.", options="{}Options"
)
def _arithmetic(op: Operation, op_type: str) -> None:
    # Of narrow integers without a scale the kernels add and multiply those of 16 bits.
    plain = op.input(0).type == TensorType.INT16 and op_type in ("Add", "Mul")
    a, b = (op.plain(0), op.plain(1)) if plain else (op.real(0), op.real(1))
    op.result(op.each(op_type, a, b), fused=op.options.fused_activation_function)


@operator("NEG")
def neg(op: Operation) -> None:
    """Neg; of integers whatever they mean, since the kernel takes no notice of scales."""
    op.result_whole(op.each("Neg", op.whole(0)))


@operator("SQUARE")
def square(op: Operation) -> None:
    """Mul of the operand with itself."""
    x = op.real(0)
    op.result(op.each("Mul", x, x))


@operator("SQUARED_DIFFERENCE")
def squared_difference(op: Operation) -> None:
    """Mul of the difference with itself."""
    difference = op.each("Sub", op.real(0), op.real(1))
    op.result(op.each("Mul", difference, difference))


@operator("ADD_N")
def add_n(op: Operation) -> None:
    """A chain of Add."""
    total = op.real(0)
    for i in range(1, len(op.operator.inputs)):
        total = op.each("Add", total, op.real(i))
    op.result(total)


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


@operator("FLOOR_DIV")
def floor_div(op: Operation) -> None:
    """Floor of Div; for integers, Div less one where the floored and the truncated remainder differ."""
    # The kernel takes no notice of scales.
    a, b = op.whole(0), op.whole(1)
    quotient = op.each("Div", a, b)
    if _is_float(a):
        op.result(op.each("Floor", quotient))
        return
    floored, truncated = op.emit("Mod", [a, b]), op.emit("Mod", [a, b], fmod=1)
    inexact = op.each("Not", op.each("Equal", floored, truncated))
    op.result_whole(op.each("Sub", quotient, op.cast(inexact, a.dtype or ir.DataType.INT32)))


@operator("FLOOR_MOD")
def floor_mod(op: Operation) -> None:
    """Mod; for real numbers the truncated remainder, plus the divisor where their signs differ."""
    a, b = op.whole(0), op.whole(1)  # the kernel takes no notice of scales
    if not _is_float(a):
        op.result_whole(op.emit("Mod", [a, b]))
        return
    remainder, zero = op.emit("Mod", [a, b], fmod=1), op.number(0, a, "zero")
    signs = op.each("Xor", op.each("Less", remainder, zero), op.each("Less", b, zero))
    wrong = op.each("And", signs, op.each("Not", op.each("Equal", remainder, zero)))
    op.result(op.emit("Where", [wrong, op.each("Add", remainder, b), remainder]))


@operator("ATAN2")
def atan2(op: Operation) -> None:
    """Atan of y / x, turned by pi where x is negative; 0 where both are 0."""
    op.result(_angle(op, op.real(0), op.real(1)))


@operator("CUSTOM FlexAngle")
def angle(op: Operation) -> None:
    """Of complex numbers, as ATAN2 of the imaginary and the real parts."""
    from relayout.formats.tflite.importing.operators.complexes import halves

    x, y = halves(op)
    op.result(_angle(op, y, x))


def _angle(op: Operation, y: ir.Value, x: ir.Value) -> ir.Value:
    zero = op.number(0, x, "zero")
    angle = op.each("Atan", op.each("Div", y, x))
    half_turn = op.emit(
        "Where", [op.each("Less", y, zero), op.number(-math.pi, x, "minus_pi"), op.number(math.pi, x, "pi")]
    )
    angle = op.emit("Where", [op.each("Less", x, zero), op.each("Add", angle, half_turn), angle])
    return op.emit("Where", [op.each("And", op.each("Equal", y, zero), op.each("Equal", x, zero)), zero, angle])


@operator("CAST", options="CastOptions")
def cast(op: Operation) -> None:
    """Cast of what is stored: TFLite's cast takes no notice of scales. Of a complex number its real part counts."""
    if TensorType.STRING in (op.input(0).type, op.output().type):
        raise Unsupported("strings")
    target = op.output()
    if TensorType.COMPLEX64 not in (op.input(0).type, target.type):
        op.result_stored(op.cast(op.raw(0), op.tensors.plain_dtype(target)))
        return
    from relayout.formats.tflite.importing.operators.complexes import halves, is_complex, result_real

    x = halves(op)[0] if is_complex(op) else op.raw(0)
    if target.type == TensorType.COMPLEX64:
        result_real(op, x)
    else:
        op.result_stored(op.cast(x, op.tensors.plain_dtype(target)))


@each_operator({"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}, "Clip between {} and {}.")
def _clamped(op: Operation, low: float, high: float) -> None:
    op.result(clip(op, op.real(0), low, high))


@operator("LEAKY_RELU", options="LeakyReluOptions")
def leaky_relu(op: Operation) -> None:
    """LeakyRelu."""
    op.result(op.each("LeakyRelu", op.real(0), alpha=op.options.alpha))


@operator("PRELU")
def prelu(op: Operation) -> None:
    """PRelu; the slopes broadcast from the right. Those of half precision are stored as they count."""
    require_prelu(op)
    tensor = op.input(1)
    narrow, producer = widened_from(op, tensor), op.tensors.flow.producer(tensor.index)
    if narrow is not tensor and producer is not None:
        op.spare(producer)
        slope = op.builder.array(op.tensors.hint(tensor, "widened"), vector(narrow).reshape(narrow.shape))
    else:
        slope = op.real(1)
    op.result(op.emit("PRelu", [op.real(0), slope]))


def require_prelu(op: Operation) -> None:
    """Refuse data that the kernel takes for other data."""
    if op.input(0).type == TensorType.INT16:
        raise Unsupported("INT16, which the kernel takes for bytes")


@operator("FAKE_QUANT", options="FakeQuantOptions")
def fake_quant(op: Operation) -> None:
    """Clip, and rounding to steps; the ends are moved so that 0 is one of the steps."""
    x, options = op.real(0), op.options
    if op.input(0).type != TensorType.FLOAT32:
        raise Unsupported(f"{op.input(0).type.name}, which the kernel takes for FLOAT32")
    low, high = np.float32(options.min), np.float32(options.max)
    if options.narrow_range:
        raise Unsupported("a narrow range")  # the interpreter refuses it too: it is meant for weights
    if not low <= 0 <= high or low == high or not 2 <= options.num_bits <= 16:
        raise op.damaged(f"{options.num_bits} bits between {low} and {high}")
    first, last = np.float32(0), np.float32((1 << options.num_bits) - 1)
    scale = (high - low) / (last - first)
    if not 1e-30 < scale < 1e30:
        raise op.damaged(f"steps of {scale}")
    zero = np.floor(np.clip(first - low / scale, first, last) + np.float32(0.5))
    low, high = (first - zero) * scale, (last - zero) * scale
    op.result(rounded_to_steps(op, clip(op, x, float(low), float(high)), low, scale))


def rounded_to_steps(op: Operation, x: ir.Value, low: npt.ArrayLike, scale: npt.ArrayLike) -> ir.Value:
    """Numbers from `low` on, rounded to steps from there; one for all, or one for each channel."""

    def constant(numbers: npt.ArrayLike, name: str) -> ir.Value:
        return op.array(name, np.asarray(numbers, np.float32))

    steps = op.each("Sub", x, constant(low, "low"))
    steps = op.each("Mul", steps, constant(1 / np.asarray(scale), "inverse"))
    rounded = op.each("Floor", op.each("Add", steps, op.number(0.5, x, "half")))
    return op.each("Add", op.each("Mul", rounded, constant(scale, "step")), constant(low, "low"))


# Operators on the bits of integers.

_UINT64 = ir.DataType.UINT64


@operator("RIGHT_SHIFT")
def right_shift(op: Operation) -> None:
    """BitShift; of a negative number x, the complement of the shifted complement."""
    op.result_stored(shifted_bits(op, op.raw(0), op.raw(1), "RIGHT"))


def shifted_bits(op: Operation, x: ir.Value, count: ir.Value, direction: str) -> ir.Value:
    """Integers shifted by so many bits, to the right with their signs."""
    dtype = x.dtype or ir.DataType.INT32
    wide = _UINT64 if dtype in (ir.DataType.INT64, _UINT64) else ir.DataType.UINT32
    keeps_sign = dtype.is_signed() and direction == "RIGHT"
    if keeps_sign:
        negative = op.each("Less", x, op.number(0, x, "zero"))
        mask = op.emit("Neg", [op.cast(negative, dtype)])  # all bits set where x is negative
        x = op.each("BitwiseXor", x, mask)
    y = op.emit("BitShift", [op.cast(x, wide), op.cast(count, wide)], direction=direction)
    y = op.cast(y, dtype)
    return op.each("BitwiseXor", y, mask) if keeps_sign else y


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
    """Return the bits of floats as integers of their width: all but the payload of what is not a number.

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
    """Return the floats whose bits these integers of their width are; what is not a number loses its payload."""
    layout = _LAYOUTS[dtype]
    x, whole = op.cast(x, layout.whole), layout.whole
    like = op.array("zero", np.zeros((), layout.computed.numpy()))
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
    integer_type = _LAYOUTS[target].integer if target.is_floating_point() else target
    integer_type = ir.DataType.UINT8 if target == ir.DataType.BOOL else integer_type
    y = _regrouped(op, x, integer_type)
    op.result_stored(_float_of(op, y, target) if target.is_floating_point() else op.cast(y, target))


def _regrouped(op: Operation, x: ir.Value, target: ir.DataType) -> ir.Value:
    """Return the bits of integers as integers of another width."""
    source = x.dtype or target
    before, after, rank = source.bitwidth, target.bitwidth, len(dims(x))
    if before == after:
        return op.cast(x, target)
    count = max(before, after) // min(before, after)
    steps = op.array("steps", np.arange(count, dtype=np.uint64) * min(before, after))
    narrow = ir.DataType[f"UINT{min(before, after)}"]
    if before > after:
        bits = op.cast(unsqueeze(op, op.cast(x, ir.DataType[f"UINT{before}"]), [rank]), _UINT64)
        y = op.emit("BitShift", [bits, steps], direction="RIGHT")
        mask = op.number((1 << after) - 1, y, "mask")
        return op.cast(op.cast(op.each("BitwiseAnd", y, mask), narrow), target)
    if rank < 1 or dims(x)[-1] != count:
        raise op.damaged(f"{dims(x)} has no axis of {count} for wider integers")
    bits = op.cast(op.cast(x, narrow), _UINT64)
    y = op.emit("BitShift", [bits, steps], direction="LEFT")
    # Not a ReduceSum: that of ONNX Runtime keeps 53 bits.
    parts = [op.emit("Gather", [y, op.number(k, op.ints([k]), "part")], axis=rank - 1) for k in range(count)]
    return op.cast(reduce(partial(op.each, "BitwiseOr"), parts), target)
