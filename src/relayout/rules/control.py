"""Operators that run subgraphs: what is carried across their border is one value in one order."""

from __future__ import annotations

import onnx_ir as ir

from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Body, Fact, Letters, Nested, Signature

UNKNOWN_RUNS = 2
"""How often a loop counts whose trip count is computed: more than once, or it would be no loop."""


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _shared(letters: str, *ranks: int | None) -> Letters | None:
    """Letters for a value that crosses a border, where both sides have one rank."""
    rank = ranks[0]
    return axis_letters(rank, letters) if rank is not None and all(other == rank for other in ranks) else None


@rule("If", kind="layout-agnostic")
def if_(operator: Operator) -> Fact:
    """Any order, output by output, the same in both branches."""
    node = operator.node
    graphs = [node.attributes.get_graph(name) for name in ("then_branch", "else_branch")]
    if any(graph is None for graph in graphs):
        return None
    outputs: list[Letters | None] = []
    for index, shape in enumerate(operator.outputs):
        ranks = [_rank(graph.outputs[index]) for graph in graphs if graph is not None]
        outputs.append(_shared(f"o{index}.", None if shape is None else len(shape), *ranks))
    bodies = tuple(Body(name, (), tuple(outputs)) for name in ("then_branch", "else_branch"))
    return Nested(Signature((None,), tuple(outputs)), bodies)


@rule("Loop", kind="layout-agnostic")
def loop(operator: Operator) -> Fact:
    """Any order for each carried value, the same before, inside and after; stacked outputs keep their order."""
    node = operator.node
    body = node.attributes.get_graph("body")
    carried = len(node.inputs) - 2
    if body is None or len(body.inputs) != carried + 2:
        return None
    letters: list[Letters | None] = []
    for index in range(carried):
        ends = (node.inputs[index + 2], body.inputs[index + 2], body.outputs[index + 1], node.outputs[index])
        letters.append(_shared(f"v{index}.", *map(_rank, ends)))
    stacked = (None,) * (len(node.outputs) - carried)
    trips = operator.integers(0) if operator.has(0) else None
    runs = max(1, min(trips[0], 1 << 20)) if trips else UNKNOWN_RUNS
    inside = Body("body", (None, None, *letters), (None, *letters, *stacked))
    return Nested(Signature((None, None, *letters), (*letters, *stacked)), (inside,), runs)
