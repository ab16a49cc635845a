"""Bodies of nodes: how often they run, and what a conversion that only they want costs.

A conversion of an outer value that only one body wants stands in it: a branch that is not taken then moves nothing, nor
does a loop that makes no trip. A loop that surely runs has it before it, once. So does one for whose sake the source
moves the value there. What a loop that may make no trip moves in the source counts once: were it more, it would be
cheaper to move what the value is made of, before the loop.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import onnx_ir as ir

from relayout.infer.sites import Root, Site


class Inner(NamedTuple):
    """A body of a node.

    Args:
        outer: the graph in which the node is.
        runs: how often it runs each time that the node does.
        surely: it runs at least once.
    """

    outer: ir.Graph
    runs: int
    surely: bool


Inners = Mapping[ir.Graph, Inner]


def entered(inners: Inners, graph: ir.Graph | None, outer: ir.Graph) -> Iterator[ir.Graph]:
    """Yield the bodies that lead from a graph to one around it, innermost first; none where it is not around it."""
    path: list[ir.Graph] = []
    while graph is not None and graph is not outer:
        path.append(graph)
        graph = inners[graph].outer if graph in inners else None
    yield from path if graph is outer else ()


def sure_runs(inners: Inners, graph: ir.Graph | None, outer: ir.Graph) -> int:
    """Return how often a graph surely runs each time that one around it does, or 1."""
    runs = 1
    for body in entered(inners, graph, outer):
        runs *= inners[body].runs if inners[body].surely else 1
    return runs


def repeated(inners: Inners, sites: Iterable[Site], moved: set[Root]) -> dict[Root, int]:
    """Find the values whose conversions stand in loops that may not run, and how often these run.

    Args:
        inners: the bodies of the graph.
        sites: the sites of all graphs.
        moved: the values that the source transposes: there, or in the loop.
    """
    wanted: dict[Root, set[ir.Graph | None]] = {}
    for site in sites if inners else ():
        for port in site.ports:
            if not port.output:
                wanted.setdefault(port.view.root, set()).add(site.graph)
    found: dict[Root, int] = {}
    for root, graphs in wanted.items():
        if root.graph in graphs or root in moved or root.constant:
            continue
        paths = [list(entered(inners, graph, root.graph)) for graph in graphs]
        # The body that all of them are in, as far in as it goes, up to a loop that surely runs.
        runs = 1
        for bodies in zip(*(reversed(path) for path in paths), strict=False):
            if len(set(bodies)) > 1 or inners[bodies[0]].surely:
                break
            runs *= inners[bodies[0]].runs
        if runs > 1:
            found[root] = runs
    return found
