"""Expands whose readers broadcast by themselves: these read what was expanded.

    m -> Expand -> Div(x, ·)    becomes    m -> Div(x, ·)

Which operators broadcast, and which operands, is what their rules say.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes
from relayout.layout import Dim
from relayout.rules import Facts, Operator, Signature
from relayout.rules.facts import operator_of

EXPAND = "Expand"


def drop_expand(model: ir.Model) -> dict[str, int]:
    """Let operators read what an Expand reads, in place, where they broadcast it to the same shape.

    Returns:
        `Expand` -> how many operands are no longer expanded before they are read.
    """
    facts, count = Facts(), 0
    for expand in [node for node in all_nodes(model.graph) if (node.op_type, node.domain) == (EXPAND, "")]:
        before = operator_of(model, expand).shape(0)
        for reader, slot in list(expand.outputs[0].uses()):
            operator = operator_of(model, reader)
            if before is not None and _broadcasts(operator, facts.of(operator), slot, before):
                reader.replace_input_with(slot, expand.inputs[0])
                count += 1
    return {EXPAND: count} if count else {}


def _broadcasts(operator: Operator, fact: object, slot: int, shape: Sequence[Dim]) -> bool:
    """Tell whether an operator gives the same with an operand of another shape."""
    if not isinstance(fact, Signature) or not fact.broadcast or (fact.unidirectional and not slot):
        return False
    result, letters = operator.outputs[0], fact.outputs[0] or ()
    aligned = all(each is None or each == letters[len(letters) - len(each) :] for each in fact.inputs)
    shapes = [shape if place == slot else operator.shape(place) for place in range(len(operator.inputs))]
    return aligned and fact.inputs[slot] is not None and result is not None and _broadcast(shapes) == result


def _broadcast(shapes: Sequence[Sequence[Dim] | None]) -> tuple[Dim, ...] | None:
    """Return the shape that operands are broadcast to; None where it is not known."""
    rank = max((len(shape) for shape in shapes if shape is not None), default=0)
    result: list[Dim] = []
    for place in range(-rank, 0):
        extents = {1 if -place > len(shape) else shape[place] for shape in shapes if shape is not None} - {1}
        if len(extents) > 1:
            return None
        result.append(extents.pop() if extents else 1)
    return None if None in shapes else tuple(result)
