"""Operators that give one of their operands as it is, whatever the others are.

    Where(IsNaN(x), 0, x)  =  x    where x is dequantized
    x + 0  =  x

PyTorch's exporter writes both into every attention: a mask of nothing, and a guard against rows that are masked whole.
On real numbers each would split a quantized graph, and the guard would have three operators.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants
from relayout.targets.litert.integer_scales import BYTES, SHIFTS, WORDS, Scale, scale_of

INTEGERS = (*BYTES, *WORDS)


def _is_whole(operator: Operator, slot: int) -> bool:
    """Tell whether an operand has the result's shape: else it is broadcast."""
    return operator.shape(slot) is not None and operator.shape(slot) == operator.outputs[0]


def _is_never_met(operator: Operator) -> bool:
    """Tell whether the condition of a Where is IsNaN of integers with a scale."""
    test = _giving(operator.node.inputs[0], "IsNaN")
    scale = None if test is None else _scale_behind(test.inputs[0])
    return scale is not None and _is_whole(operator, 2)


def _scale_behind(value: ir.Value | None) -> Scale | None:
    """Return what the integers mean that are dequantized to a value; None where none are, or where that is computed."""
    node = _giving(value, DEQUANTIZE)
    scale = None if node is None else scale_of(node)
    return scale if scale is not None and scale.dtype in INTEGERS else None


def _giving(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """Return the node that gives a value if it is a standard operator of that type."""
    node = None if value is None else value.producer()
    return node if node is not None and (node.op_type, node.domain) == (op_type, "") else None


def _kept(operator: Operator) -> int | None:
    """Return which operand of a sum is the result; None where neither is."""
    return next((slot for slot in (0, 1) if _is_mask_of_zeros(operator, 1 - slot) and _is_result(operator, slot)), None)


def _is_result(operator: Operator, slot: int) -> bool:
    """Tell whether an operand has the result's shape and, where both are quantized, its scale."""
    before = _giving(operator.node.inputs[slot], DEQUANTIZE)
    if before is None:
        return _is_whole(operator, slot)
    own = scale_of(before)
    behind = [use.node for use in operator.node.outputs[0].uses() if use.node.op_type == QUANTIZE]
    return own is not None and all(own.equals(scale_of(each)) for each in behind) and _is_whole(operator, slot)


def _is_mask_of_zeros(operator: Operator, slot: int) -> bool:
    """Tell whether an operand is constant and 0 in several axes: in one it is a bias, which costs nothing."""
    value = operator.node.inputs[slot]
    if sum(extent != 1 for extent in operator.shape(slot) or ()) < 2:
        return False
    dequantize, scale = _giving(value, DEQUANTIZE), _scale_behind(value)
    if dequantize is None:
        return _has_only(value, 0)
    if scale is None or scale.zero.size != 1:
        return False
    return _has_only(dequantize.inputs[0], int(scale.zero[0]) + SHIFTS.get(scale.dtype, 0))


def _has_only(value: ir.Value | None, number: int) -> bool:
    known = None if value is None else value.const_value
    if known is None or not known.size:
        return False
    array = known.numpy().reshape(-1)
    return bool(array[0] == number and (array == number).all())


def _last_operand(operator: Operator, _: Constants) -> Sequence[Step]:
    return (Step("Identity", (2,), "number"),)


def _other_operand(operator: Operator, _: Constants) -> Sequence[Step]:
    slot = _kept(operator)
    return () if slot is None else (Step("Identity", (slot,), "number"),)


OF_INTEGERS = Condition("its condition is IsNaN of dequantized integers", _is_never_met)
OF_ZEROS = Condition("of zeros", lambda operator: _kept(operator) is not None)
WITHOUT_EFFECT = (
    Expansion("Where", (OF_INTEGERS,), _last_operand),
    Expansion("Add", (OF_ZEROS,), _other_operand),
)
