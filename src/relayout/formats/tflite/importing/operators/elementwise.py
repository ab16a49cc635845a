"""Operators that work on each element by itself: one operand, or two that broadcast."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.activation import clip
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.weights import vector, widened_from
from relayout.formats.tflite.importing.registry import Unsupported, each_operator, operator
from relayout.formats.tflite.same_operators import ARITHMETIC, LOGICAL, UNARY


def rounded_away(op: Operation, x: ir.Value) -> ir.Value:
    """Round to the nearest integer, halves away from zero (Round takes them to the even one)."""
    up = op.each("Floor", op.each("Add", op.each("Abs", x), op.number(0.5, x, "half")))
    return op.each("Mul", up, op.each("Sign", x))


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


@operator("BITWISE_XOR")
def bitwise_xor(op: Operation) -> None:
    """BitwiseXor, broadcast from the right."""
    op.result_stored(op.each("BitwiseXor", op.raw(0), op.raw(1)))


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
        raise ReadError(f"{options.num_bits} bits between {low} and {high}", where=op.place)
    first, last = np.float32(0), np.float32((1 << options.num_bits) - 1)
    scale = (high - low) / (last - first)
    if not 1e-30 < scale < 1e30:
        raise ReadError(f"steps of {scale}", where=op.place)
    zero = np.floor(np.clip(first - low / scale, first, last) + np.float32(0.5))
    low, high = (first - zero) * scale, (last - zero) * scale
    op.result(rounded_to_steps(op, clip(op, x, float(low), float(high)), low, scale))


def rounded_to_steps(op: Operation, x: ir.Value, low: npt.ArrayLike, scale: npt.ArrayLike) -> ir.Value:
    """Numbers from `low` on, rounded to steps from there; one for all, or one for each channel."""

    def constant(numbers: npt.ArrayLike, name: str) -> ir.Value:
        return op.builder.array(op.hint(name), np.asarray(numbers, np.float32))

    steps = op.each("Sub", x, constant(low, "low"))
    steps = op.each("Mul", steps, constant(1 / np.asarray(scale), "inverse"))
    rounded = op.each("Floor", op.each("Add", steps, op.number(0.5, x, "half")))
    return op.each("Add", op.each("Mul", rounded, constant(scale, "step")), constant(low, "low"))
