"""The nodes that some output needs. The others are none of the problem, and not in the result."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from relayout.graph.subgraphs import bodies, captured
from relayout.rules import may_go


def needed_nodes(graph: ir.Graph, is_entered: Callable[[ir.Node], bool]) -> set[ir.Node]:
    """Find the nodes of a graph, and of the bodies in it, on which an output depends.

    An operator without a rule is needed, whoever reads what it gives: nobody knows what it does besides.

    Args:
        graph: the graph, its nodes in order.
        is_entered: whether a node's bodies are part of the problem; of any other node's bodies all nodes are needed.
    """
    found: set[ir.Node] = set()
    _collect(graph, is_entered, found)
    return found


def _collect(graph: ir.Graph, is_entered: Callable[[ir.Node], bool], found: set[ir.Node]) -> set[ir.Value | None]:
    """Collect the nodes that a graph's outputs need; return the values that these read."""
    wanted: set[ir.Value | None] = set(graph.outputs)
    for node in reversed(graph):
        if wanted.isdisjoint(node.outputs) and may_go(node):
            continue
        found.add(node)
        wanted.update(node.inputs)
        inner = bodies(node) if node.attributes else []
        if inner and not is_entered(node):
            wanted.update(captured(node))
            inner = []
        for body in inner:
            wanted |= _collect(body, is_entered, found)
    return wanted
