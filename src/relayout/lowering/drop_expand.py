"""Expands whose readers broadcast by themselves: these read what was expanded.

m -> Expand -> Div(x, ·)    becomes    m -> Div(x, ·)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes
from relayout.layout import Dim
from relayout.rules.in_graph import operator_of

EXPAND = frozenset({"Expand"})


def drop_expand(model: ir.Model, broadcasting: Collection[str]) -> dict[str, int]:
    """Let operators read what an Expand reads, in place, where they broadcast it to the same shape.

    Args:
        model: the model.
        broadcasting: the operators, of ONNX's own domain, whose operands may be of different shapes.

    Returns:
        `Expand` -> how many operands are no longer expanded before they are read.
    """
    counts: Counter[str] = Counter()
    for node in all_nodes(model.graph) if broadcasting else ():
        if node.op_type not in broadcasting or node.domain not in ("", "ai.onnx"):
            continue
        for slot, value in enumerate(node.inputs):
            expand = None if value is None else value.producer()
            if expand is None or expand.op_type not in EXPAND or expand.domain not in ("", "ai.onnx"):
                continue
            operator, before = operator_of(model, node), operator_of(model, expand).shape(0)
            shapes = [before if place == slot else operator.shape(place) for place in range(len(node.inputs))]
            if operator.outputs[0] is not None and _broadcast(shapes) == operator.outputs[0]:
                node.replace_input_with(slot, expand.inputs[0])
                counts[expand.op_type] += 1
    return dict(counts)


def _broadcast(shapes: Sequence[Sequence[Dim] | None]) -> tuple[Dim, ...] | None:
    """Return the shape that operands are broadcast to; None where it is not known."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max(map(len, known), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in known]
    result: list[Dim] = []
    for dims in zip(*padded, strict=True):
        others = {dim for dim in dims if dim != 1}
        if len(others) > 1:
            return None
        result.append(others.pop() if others else 1)
    return tuple(result)
