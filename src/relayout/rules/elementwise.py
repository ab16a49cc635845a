"""Operators that act on every element alone, with numpy's broadcasting where they take several inputs."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from relayout.graph.walks import known_tensor
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Fact, Signature

BROADCASTS_SINCE = 8  # opset from which all variadic operators broadcast as numpy does (7 for those of two inputs)


def aligned(operator: Operator, inputs: tuple[int, ...]) -> Signature | None:
    """Return the signature of inputs that broadcast against each other; further inputs are parameters."""
    shapes = [operator.shape(index) for index in inputs if operator.has(index)]
    output = operator.outputs[0]
    if output is None or any(shape is None or len(shape) > len(output) for shape in shapes):
        return None
    letters = axis_letters(len(output))
    letters_of = {index: letters[len(letters) - (operator.rank(index) or 0) :] for index in inputs}
    return Signature(operator.operands(letters_of), operator.results(letters), broadcast=True)


@rule(
    "Abs Acos Acosh Affine Asin Asinh Atan Atanh BitCast BitwiseNot Cast Ceil Celu Clip Cos Cosh Elu Erf Exp Floor",
    "Gelu HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Not ParametricSoftplus Reciprocal Relu Round Scale",
    "ScaledTanh Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu",
    kind="layout-agnostic",
)
@rule("Binarizer", "LabelEncoder", kind="layout-agnostic", domain="ai.onnx.ml")
def unary(operator: Operator) -> Fact:
    """Any order: the output is stored as input 0; further inputs are scalars."""
    return aligned(operator, (0,))


@rule(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual",
    "Max Mean Min Mod Mul Or Pow StringConcat Sub Sum SwiGLU Where Xor",
    kind="layout-agnostic",
)
def broadcasting(operator: Operator) -> Fact:
    """Any order, the same for all operands; an operand of lower rank gets size-1 axes in place."""
    as_numpy = operator.version == BROADCASTS_SINCE - 1 and len(operator.inputs) == 2
    if operator.version < BROADCASTS_SINCE and len(set(operator.inputs)) > 1 and not as_numpy:
        return None  # an `axis` attribute says where the lower operand goes, or nothing broadcasts
    return aligned(operator, tuple(range(len(operator.inputs))))


@rule("PRelu", kind="layout-agnostic")
def prelu(operator: Operator) -> Fact:
    """Any order, the same for both operands; slopes of lower rank get size-1 axes in place, and stretch no operand."""
    fact = broadcasting(operator)
    return replace(fact, unidirectional=True) if isinstance(fact, Signature) else fact


@rule("CastLike", kind="layout-agnostic")
def cast_like(operator: Operator) -> Fact:
    """Any order: the output is stored as input 0; of the other input only the type is read, so it lies as it likes."""
    letters = operator.letters()
    return Signature((letters, axis_letters(operator.needed_rank(1), "t")), (letters,))


def _trains(node: ir.Node) -> bool:
    """Tell whether a Dropout's training mode is on: a constant says so, or the graph computes it."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    known = known_tensor(mode)
    return mode is not None and (known is None or bool(known.numpy().any()))


@rule("Dropout", kind="layout-agnostic", draws=_trains)
def dropout(operator: Operator) -> Fact:
    """Any order, the same for the mask; in training the draws follow the source's order: a barrier."""
    if operator.version < 7:
        training = not operator.int("is_test", 0)
    else:
        mode = operator.constant(2)
        training = operator.has(2) and (mode is None or bool(mode.any()))
    return None if training else aligned(operator, (0,))
