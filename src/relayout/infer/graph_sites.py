"""A graph as the engine sees it: its roots, sites and views, and the source's Transposes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

import onnx_ir as ir

from relayout.infer.open_extents import Relation
from relayout.infer.sites import Order, Root, Site, View
from relayout.layout import Extent
from relayout.light_dataclass import dataclass

# Bodies of nodes: how often they run, and what a conversion that only they want costs.
#
# A conversion of an outer value that only one body wants stands in it: a branch that is not taken then moves nothing,
# nor does a loop that makes no trip. A loop that surely runs has it before it, once. So does one for whose sake the
# source moves the value there. What a loop that may make no trip moves in the source counts once: were it more, it
# would be cheaper to move what the value is made of, before the loop.


class Inner(NamedTuple):
    """A body of a node."""

    outer: ir.Graph  # the graph in which the node is
    runs: int  # how often it runs each time that the node does
    surely: bool  # it runs at least once


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


def repeated(
    inners: Inners,  # the bodies of the graph
    sites: Iterable[Site],  # the sites of all graphs
    moved: set[Root],  # the values that the source transposes: there, or in the loop
) -> dict[Root, int]:
    """Find the values whose conversions stand in loops that may not run, and how often these run."""
    reading_graphs: dict[Root, set[ir.Graph | None]] = {}
    for site in sites if inners else ():
        for port in site.ports:
            if not port.output:
                reading_graphs.setdefault(port.view.root, set()).add(site.graph)
    runs_by_root: dict[Root, int] = {}
    for root, graphs in reading_graphs.items():
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
            runs_by_root[root] = runs
    return runs_by_root


class Move(NamedTuple):
    """A Transpose of the source that moves data."""

    name: str  # of the value that it gives
    root: Root  # what it moves
    before: Order  # the order that it reads, of the factors of `of`
    order: Order  # the order that it gives
    of: Root  # the value whose factors are put in another order: real numbers, where integers of them are moved
    times: int = 1  # how often it moves each time that this is computed


@dataclass(eq=False)
class Sites:
    """A graph as the engine sees it."""

    graph: ir.Graph  # the source graph
    roots: list[Root] = field(default_factory=list)  # all roots, in the order of their producers
    sites: list[Site] = field(default_factory=list)  # interface, nodes and pins, in the order of the graph
    views: dict[ir.Value, View] = field(default_factory=dict)  # every value of the graph as a view of its root
    moves: list[Move] = field(default_factory=list)  # the source's own Transposes that move data
    inners: dict[ir.Graph, Inner] = field(default_factory=dict)  # the bodies that are part of the problem
    # value whose conversions stand in a loop -> how often that runs
    repeats: dict[Root, int] = field(default_factory=dict)
    originals: dict[Root, list[ir.Value]] = field(default_factory=dict)  # root -> the values that are views of it
    # the source's nodes that are views: (node, what it reads, what it gives)
    viewing: list[tuple[ir.Node, View, View]] = field(default_factory=list)
    permuting: set[ir.Node] = field(default_factory=set)  # those of them that are Transposes
    # the source's nodes that make integers again of what was made of them, moved or not: views, too; and those that
    # made it, where nobody else reads it
    requantizing: list[ir.Node] = field(default_factory=list)
    idle: int = 0  # how many Transposes of the source move nothing: axes of one element, or no elements
    # the source's nodes that no output needs. Their Transposes are among `moves`.
    unneeded: list[ir.Node] = field(default_factory=list)
    # an extent as the product that it is -> the name that the source has for it
    named: dict[Extent, str] = field(default_factory=dict)
    # dynamic dimension that nobody named -> the extent that an operand beside it has there, or those that an operator
    # makes it of have at least: a price only
    likely: dict[str, int] = field(default_factory=dict)
    # dynamic dimension -> the extent that a user asks bytes for, and those that follow from these
    at: dict[str, int] = field(default_factory=dict)
    # what is known of dynamic dimensions that nobody named, in the order of the graph
    relations: list[Relation] = field(default_factory=list)
    declared: frozenset[str] = frozenset()  # what the inputs call their open extents
    is_open: bool = False  # some extents are not numbers
    chosen: bool = False  # a target has given some node other variants: the source itself is none of the choices
    # Reshapes split an axis in ways that do not agree: the first is free, and the others are barriers
    contested: bool = False
    per_transpose: int = 0  # what each Transpose costs besides the bytes that it moves, in bytes
    per_scattered: int = 0  # what each byte costs besides, in bytes, that is taken element by element
    most_axes: int = 0  # axes that one Transpose moves at most, those that stay beside each other as one; 0: any number

    @property
    def seen_through(self) -> list[ir.Node]:
        """The source's nodes that are none of the problem: views, and what makes the same integers again."""
        return [*(node for node, _, _ in self.viewing), *self.requantizing]
