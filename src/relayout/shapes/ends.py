"""The part of a graph up to which a dimension opens, where an operator binds it: what `--outputs` may name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from relayout.graph.source_names import SOURCE, is_made
from relayout.graph.subgraphs import reads
from relayout.layout.stored_as import TENSOR
from relayout.shapes.binding import Binding
from relayout.shapes.bound import OpeningError
from relayout.shapes.following import Following
from relayout.shapes.parts import Parts

MOST = 8
"""Names that an error lists."""


def last_opened(model: ir.Model, seeds: Mapping[ir.Value, Parts], what: str, binding: Binding) -> list[str]:
    """Return the source's names of the last values that can be opened; none where they are too many, or inputs.

    What binds the dimension, and whatever reads what that gives, lies behind them.

    Args:
        model: the model.
        seeds: inputs and their opened axes.
        what: the dimension, as the user asked for it.
        binding: what says why an operator binds an axis.
    """
    following = Following(model, seeds, what, {}, binding)
    nodes = list(model.graph)
    bound: set[object] = set()
    for node in nodes:
        try:
            following.follow(node)
        except OpeningError:
            bound.add(_operator(node))
    behind = _behind(nodes, bound)
    read = {value: None for node in behind for value in reads(node) if value.producer() not in behind}
    fed = _fed(model.graph)
    opened = [value for value in (*read, *model.graph.outputs) if value in fed and following.parts.get(value)]
    ends = dict.fromkeys(value for value in opened if value.producer() not in behind)
    if any(value.producer() is None or is_made(value) for value in ends) or len(ends) > MOST:
        return []
    return [value.metadata_props.get(TENSOR) or value.name or "" for value in ends]


def _operator(node: ir.Node) -> object:
    """Return what stands for one operator of the source: a `.tflite`'s may be several nodes, and is cut whole."""
    return node.metadata_props.get(SOURCE) or node


def _fed(graph: ir.Graph) -> set[ir.Value]:
    """Return the inputs, and what depends on one: what follows from constants is no end."""
    found = set(graph.inputs)
    for node in graph:
        if not found.isdisjoint(reads(node)):
            found.update(node.outputs)
    return found


def _behind(nodes: Sequence[ir.Node], bound: set[object]) -> dict[ir.Node, None]:
    """Return the nodes of some operators, and of all that read what these give, in order."""
    while True:
        found: dict[ir.Node, None] = {}
        for node in nodes:
            if _operator(node) in bound or any(value.producer() in found for value in reads(node)):
                found[node] = None
        operators = set(map(_operator, found))
        if operators <= bound:
            return found
        bound = bound | operators
