"""Operators that act on every element alone, with numpy's broadcasting where they take several inputs."""

from __future__ import annotations

from relayout.layout import Extent
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature


def aligned(operator: Operator, inputs: tuple[int, ...]) -> Signature | None:
    """The signature of inputs that broadcast against each other; further inputs are parameters."""
    shapes = [operator.inputs[index] for index in inputs if operator.has(index)]
    output = operator.outputs[0]
    if output is None or any(shape is None for shape in shapes):
        return None
    letters = axis_letters(len(output))
    given: list[Letters | None] = [None] * len(operator.inputs)
    for index in inputs:
        shape = operator.inputs[index]
        if shape is not None:
            given[index] = letters[len(letters) - len(shape) :]
    return Signature(tuple(given), tuple(letters for _ in operator.outputs), broadcast=True)


@rule(
    *"Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid".split(),
    *"HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin".split(),
    *"Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Cast Clip CastLike".split(),
    kind="layout-agnostic",
)
def unary(operator: Operator) -> Fact:
    """Any order: the output is stored as input 0; further inputs are scalars."""
    return aligned(operator, (0,))


@rule(
    *"Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual".split(),
    *"Max Mean Min Mod Mul Or Pow Sub Sum Where Xor".split(),
    kind="layout-agnostic",
)
def broadcasting(operator: Operator) -> Fact:
    """Any order, the same for all operands; an operand of lower rank gets size-1 axes in place."""
    return aligned(operator, tuple(range(len(operator.inputs))))


@rule("PRelu", kind="layout-agnostic")
def prelu(operator: Operator) -> Fact:
    """Any order; the slope broadcasts like an operand of lower rank."""
    return aligned(operator, (0, 1))


@rule("QuantizeLinear", "DequantizeLinear", kind="axis attributes")
def quantization(operator: Operator) -> Fact:
    """Any order; the axis of per-channel scales is one dimension and follows (blocked scales: a barrier)."""
    shape, scale = operator.inputs[0], operator.inputs[1]
    if shape is None or scale is None or operator.int("block_size", 0):
        return None
    letters = axis_letters(len(shape))
    outputs = (letters,)
    if not scale or (len(scale) == 1 and Extent.of(scale[0]).is_one and len(shape) != 1):
        parameters: tuple[Letters | None, ...] = (None,) * (len(operator.inputs) - 1)
        return Signature((letters, *parameters), outputs)
    axis = letters[operator.int("axis", 1) % len(shape)] if len(shape) > 1 else letters[0]

    def changes(placement: Placement) -> Changes:
        return Changes({"axis": placement.axis(axis)})

    channels: tuple[Letters | None, ...] = tuple((axis,) if operator.has(i) else None for i in range(1, len(operator.inputs)))
    return Signature((letters, *channels), outputs, block=frozenset({axis}), changes=changes)
