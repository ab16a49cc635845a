"""Where nodes stand: in order, and conversions that only a body wants in a branch, or a loop that may not run."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import onnx_ir as ir

from relayout.infer import Root, Sites
from relayout.infer.nesting import entered


def place_inside(
    sites: Sites,
    nodes: dict[ir.Graph, list[ir.Node]],
    conversions: Mapping[ir.Node, Root],
    given: Container[ir.Value],
) -> None:
    """Move conversions into the one body that reads what they give, in place, as far in as that goes.

    Args:
        sites: the source graph.
        nodes: graph -> the nodes of the result; graphs come before those inside of them.
        conversions: node that brings a value into another form -> that value.
        given: the values that graphs give: they stay.
    """
    owner = {node: graph for graph, held in nodes.items() for node in held}
    for graph in list(nodes):
        kept: list[ir.Node] = []
        for node in reversed(nodes[graph]):
            body = _only_body(sites, node, graph, owner) if node in conversions else None
            if (
                body is None
                or any(value in given for value in node.outputs)
                or not _may_enter(sites, body, node, conversions)
            ):
                kept.append(node)
            else:
                nodes[body].insert(0, node)
                owner[node] = body
        nodes[graph] = kept[::-1]


def _only_body(sites: Sites, node: ir.Node, graph: ir.Graph, owner: Mapping[ir.Node, ir.Graph]) -> ir.Graph | None:
    """Return the body in which all readers of a node are, right in its graph; None where there is none."""
    bodies: set[ir.Graph | None] = set()
    for use in (use for value in node.outputs for use in value.uses()):
        *_, outermost = (None, *entered(sites.inners, owner.get(use.node), graph))
        bodies.add(outermost)
    return bodies.pop() if len(bodies) == 1 else None


def _may_enter(sites: Sites, body: ir.Graph, node: ir.Node, conversions: Mapping[ir.Node, Root]) -> bool:
    """Tell whether a conversion may stand in a body: a branch, or a loop that may not run, if it is priced so or the
    source moves the value there.
    """
    inner, root = sites.inners[body], conversions[node]
    if inner.runs == 1:
        return not inner.surely
    moving = [other for other, before, _ in sites.viewing if before.root is root and other in sites.permuting]
    there = any(body in (*entered(sites.inners, other.graph, root.graph),) for other in moving)
    return not inner.surely and (root in sites.repeats or there)


def arrange(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    """Let a graph have these nodes, in this order, in place. What stays where it is is not touched: that is most."""
    kept = set(nodes)
    graph.remove([node for node in graph if node not in kept])
    place = {node: number for number, node in enumerate(graph)}
    last, before, coming = -1, None, list[ir.Node]()
    for node in nodes:
        if place.get(node, -1) <= last:  # new, or of a place behind: to insert it is to move it
            coming.append(node)
            continue
        if coming:
            graph.insert_before(node, coming)
            coming = []
        last, before = place[node], node
    if before is None:
        graph.extend(coming)
    elif coming:
        graph.insert_after(before, coming)
