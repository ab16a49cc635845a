"""Operators of `com.microsoft` on every element or along an axis, as quantized and fused models contain them."""

from __future__ import annotations

from relayout.rules.elementwise import aligned
from relayout.rules.normalization import along, flattened_from
from relayout.rules.operator import Operator
from relayout.rules.registry import rule
from relayout.rules.signature import Fact, Signature, renumbered_axis

DOMAIN = "com.microsoft"


@rule("Gelu", "QuickGelu", "QLinearSigmoid", "QLinearLeakyRelu", kind="layout-agnostic", domain=DOMAIN)
def unary(operator: Operator) -> Fact:
    """Any order: the output is stored as input 0; further inputs are scalars."""
    return _like_input(operator)


def _like_input(operator: Operator) -> Signature:
    letters = operator.letters()
    return Signature(operator.operands({0: letters}), (letters,))


@rule("FastGelu", kind="layout-agnostic", domain=DOMAIN)
def fast_gelu(operator: Operator) -> Fact:
    """Any order without a bias; with `bias[c]`, c last."""
    return bias_gelu(operator) if operator.has(1) else _like_input(operator)


@rule("BiasGelu", kind="axis attributes", domain=DOMAIN)
def bias_gelu(operator: Operator) -> Fact:
    """`x[*d c], bias[c] -> y[*d c]`: c last; d in any order."""
    letters = operator.letters(least=1)
    last = letters[-1:]
    return Signature((letters, last), (letters,), block=frozenset(last), tail=last)


@rule("QLinearAdd", "QLinearMul", kind="layout-agnostic", domain=DOMAIN)
def qlinear_binary(operator: Operator) -> Fact:
    """Any order, the same for both operands; one of lower rank gets size-1 axes in place."""
    return aligned(operator, (0, 3))


@rule("QLinearWhere", kind="layout-agnostic", domain=DOMAIN)
def qlinear_where(operator: Operator) -> Fact:
    """Any order, the same for all operands; one of lower rank gets size-1 axes in place."""
    return aligned(operator, (0, 1, 4))


@rule("QLinearConcat", kind="axis attributes", domain=DOMAIN)
def qlinear_concat(operator: Operator) -> Fact:
    """Any order, the same for all operands; the axis is one dimension in order and is renumbered."""
    letters = operator.letters(2, least=1)
    axis = letters[operator.int("axis", 0) % len(letters)]
    inputs = operator.operands(dict.fromkeys(range(2, len(operator.inputs), 3), letters))
    return Signature(inputs, (letters,), frozenset({axis}), changes=renumbered_axis(axis, 2))


@rule("QLinearSoftmax", kind="axis attributes", domain=DOMAIN)
def qlinear_softmax(operator: Operator) -> Fact:
    """Any order; the axis is one dimension and is renumbered (before opset 13: all from the axis on stay last)."""
    normalizes = flattened_from if operator.int("opset", 0) < 13 else along
    return normalizes(operator, operator.int("axis", -1), ordered=False)
