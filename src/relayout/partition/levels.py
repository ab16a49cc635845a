"""How often a path through a graph changes between target and host: nodes of one level and side can run in one go.

A quantized unit counts as one node, so that no cut goes through it. A unit whose result comes back into it by way of
others cannot be whole: its nodes count one by one, and the host runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from graphlib import CycleError, TopologicalSorter

import onnx_ir as ir

from relayout.graph.quantized_unit import QuantizedUnit
from relayout.graph.subgraphs import captured


def levels_of(
    nodes: Sequence[ir.Node],
    claims: MutableMapping[ir.Node, bool],
    units: Mapping[ir.Node, QuantizedUnit | None],
) -> dict[ir.Node, int]:
    """Return how often the side has changed on the longest way to each node: even on the host, odd on the target.

    Two nodes of one level and side never wait for each other through the other side.

    Args:
        nodes: the nodes of a graph, in order.
        claims: which of them the target runs; those of units that cannot be whole become the host's, in place.
        units: their quantized units.
    """
    heads = {node: node if unit is None else unit.node for node, unit in ((node, units.get(node)) for node in nodes)}
    while True:
        groups: dict[ir.Node, list[ir.Node]] = {}
        for node in nodes:
            groups.setdefault(heads[node], []).append(node)
        waits = {head: _before(head, members, heads) for head, members in groups.items()}
        try:
            return _in_order(groups, waits, claims)
        except CycleError as error:
            cycle = [head for head in error.args[1] if len(groups[head]) > 1]
            if not cycle:
                raise
            of_host = [head for head in cycle if not claims[groups[head][0]]]
            for node in (node for head in of_host or cycle for node in groups[head]):
                heads[node], claims[node] = node, False


def _before(head: ir.Node, members: Sequence[ir.Node], heads: Mapping[ir.Node, ir.Node]) -> list[ir.Node]:
    """Return the groups for which a group waits, by their heads."""
    read = dict.fromkeys(heads[each] for node in members for each in producers(node) if each in heads)
    return [each for each in read if each is not head]


def _in_order(
    groups: Mapping[ir.Node, Sequence[ir.Node]],
    waits: Mapping[ir.Node, Sequence[ir.Node]],
    claims: Mapping[ir.Node, bool],
) -> dict[ir.Node, int]:
    levels: dict[ir.Node, int] = {}
    for head in TopologicalSorter(waits).static_order():
        level = max((levels[each] for each in waits[head]), default=0)
        levels[head] = level + (level + claims[groups[head][0]]) % 2
    return {node: levels[head] for head, members in groups.items() for node in members}


def producers(node: ir.Node) -> Iterator[ir.Node]:
    """Return the nodes that give what a node and its bodies read."""
    for value in (*node.inputs, *captured(node)):
        producer = None if value is None else value.producer()
        if producer is not None:
            yield producer
