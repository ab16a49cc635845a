"""The graph as a reader sees it, before and after: operators, values with their layouts, Transposes, regions.

A *region* is a set of connected operators whose values are stored in one order: two operators belong together where one
reads the other's value without a Transpose in between. Transposes lead from one region to another, never back into
the same.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from relayout.graph.source_names import SOURCE
from relayout.infer.formulation import size_of
from relayout.infer.plans import Plan
from relayout.infer.sites import Port, Root, Site
from relayout.infer.stored_orders import placed
from relayout.reports.drawing import Source
from relayout.reports.layouts import Axes

# Regions: connected operators whose values are stored in one order. Numbers in, numbers out.


class Link(NamedTuple):
    """A node reads another's value."""

    producer: int  # the node that gives the value
    reader: int  # the node that reads it
    factors: int  # how many factors of the value are not of size 1: with fewer than two it has one order only
    crosses: bool  # whether a Transpose lies in between


def regions(count: int, links: Sequence[Link]) -> list[tuple[int, ...]]:
    """Return the regions of nodes 0 … count-1, each in ascending order, by their first node.

    1. Two nodes with a Transpose between them are in different regions.
    2. Nodes that a link without one connects are in one region, as far as 1 allows; values of many axes come first.
    3. A value with one order only says nothing of its region's: it joins regions of which one has no other values.
    """
    parts = _Parts(count)
    for link in links:
        if link.crosses:
            parts.separate(link.producer, link.reader)
    connecting = sorted((link for link in links if not link.crosses), key=lambda link: -link.factors)
    for link in connecting:
        if link.factors > 1:
            parts.join(link.producer, link.reader)
            parts.ordered.add(parts.find(link.producer))
            parts.ordered.add(parts.find(link.reader))
    for link in connecting:
        if link.factors < 2 and not {parts.find(link.producer), parts.find(link.reader)} <= parts.ordered:
            parts.join(link.producer, link.reader)
    nodes_by_part: dict[int, list[int]] = {}
    for node in range(count):
        nodes_by_part.setdefault(parts.find(node), []).append(node)
    return [tuple(nodes) for nodes in nodes_by_part.values()]


class _Parts:
    """Disjoint sets that know which others they must not be joined with."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))
        self.conflicts: list[set[int]] = [set() for _ in range(count)]
        self.ordered: set[int] = set()

    def find(self, node: int) -> int:
        while self.parent[node] != node:
            self.parent[node] = self.parent[self.parent[node]]
            node = self.parent[node]
        return node

    def separate(self, a: int, b: int) -> None:
        if a != b:
            self.conflicts[a].add(b)
            self.conflicts[b].add(a)

    def join(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a == b or b in self.conflicts[a]:
            return
        if len(self.conflicts[a]) < len(self.conflicts[b]):
            a, b = b, a
        self.parent[b] = a
        for other in self.conflicts[b]:
            self.conflicts[other].discard(b)
            self.conflicts[other].add(a)
        self.conflicts[a] |= self.conflicts[b]
        if b in self.ordered:
            self.ordered.add(a)


class Spot(NamedTuple):
    """An operator, or an end of the interface."""

    name: str  # its name in the source
    operator: str  # its type, `input`, `output` or `pin`
    fixed: bool  # it has one order only
    source: str  # the TensorFlow Lite operator that it comes from
    outputs: tuple[int, ...]  # the values that it gives


class Stored(NamedTuple):
    """A value that is computed, and how it lies in memory."""

    tensor: str  # its name in the source
    dtype: str  # its element type
    shape: tuple[int | str, ...]  # its shape in the source
    layout: str  # its axes in the source's order
    stored: str  # its axes as its producer stores them in the result
    others: tuple[str, ...]  # further orders in which the result has it
    bytes: int  # its size


class Mark(NamedTuple):
    """A Transpose: of which value, between which orders, how many bytes, and why it must be."""

    value: int
    layout: str
    bytes: int
    reason: str = ""


class Edge(NamedTuple):
    """An operator reads a value, through Transposes in this order (indices into the side's)."""

    value: int
    producer: int
    reader: int
    through: tuple[int, ...]


class Region(NamedTuple):
    """Connected operators whose values are stored in one order."""

    layout: str
    spots: tuple[int, ...]
    bytes: int


class Side(NamedTuple):
    """The graph before or after: what is read through which Transposes, and the regions that this makes."""

    edges: tuple[Edge, ...]
    transposes: tuple[Mark, ...]
    regions: tuple[Region, ...]


class Chart(NamedTuple):
    """Operators and values, and how they lie before and after."""

    spots: tuple[Spot, ...]
    values: tuple[Stored, ...]
    before: Side
    after: Side


def drawn(
    plan: Plan,  # the plan, which may have been applied to its graph
    source: Source,  # what the graph said before
    axes: Axes,  # names of axes
    reasons: Sequence[str],  # for each crossing why it remains
) -> Chart:
    """Return the chart of a plan."""
    return _Drawn(plan, source, axes, reasons).run()


class _Drawn:
    def __init__(self, plan: Plan, source: Source, axes: Axes, reasons: Sequence[str]) -> None:
        self.plan, self.source, self.axes, self.reasons = plan, source, axes, reasons
        self.sites = plan.sites
        self.seen = {view: value for value, view in plan.sites.views.items()}
        self.label = dict(zip(plan.sites.sites, plan.labels, strict=True))
        pairs = zip(plan.sites.sites, plan.formulation.labels, strict=True)
        self.fixed = {site for site, labels in pairs if len(labels) == 1}
        transposed_roots = {move.root for move in plan.sites.moves} | {crossing.root for crossing in plan.crossings}
        self.known = _known(plan.sites.sites, transposed_roots)
        self.spot, self.shown_sites = _spots([site for site in plan.sites.sites if site not in self.known])
        self.producers: dict[Root, tuple[Site, Port]] = {}
        for site, port in self._ports(output=True):
            self.producers[port.view.root] = (site, port)
        self.number = {root: index for index, root in enumerate(self.producers)}
        self.sizes = [size_of(root, {}) for root in self.producers]
        self.outputs_of_spot: list[list[int]] = [[] for _ in self.shown_sites]
        for root, (site, _) in self.producers.items():
            self.outputs_of_spot[self.spot[site]].append(self.number[root])
        ends = [(site, port) for site, port, _ in self._readings() if not self.outputs_of_spot[self.spot[site]]]
        self.source_ends = {self.spot[site]: axes.form(port.view.root, port.view.form) for site, port in ends}
        self.result_ends = {
            self.spot[site]: axes.form(port.view.root, placed(site, self.label[site], port).form) for site, port in ends
        }

    def run(self) -> Chart:
        values = tuple(self._values())
        pairs = [(site, tuple(outputs)) for site, outputs in zip(self.shown_sites, self.outputs_of_spot, strict=True)]
        sources = ["" if site.node is None else site.node.metadata_props.get(SOURCE, "") for site, _ in pairs]
        spots = tuple(
            Spot(site.label, site.operator, site in self.fixed, source, outputs)
            for (site, outputs), source in zip(pairs, sources, strict=True)
        )
        return Chart(spots, values, self._before(values), self._after(values))

    def _ports(self, *, output: bool) -> Iterator[tuple[Site, Port]]:
        for site in (site for site in self.sites.sites if site not in self.known):
            for port in site.ports:
                if port.output == output and not port.view.root.constant:
                    yield site, port

    def _readings(self) -> Iterator[tuple[Site, Port, Root]]:
        """Yield every operand that is computed: the site that reads it, the port, the root."""
        for site, port in self._ports(output=False):
            if port.view.root in self.number:
                yield site, port, port.view.root

    def _values(self) -> Iterator[Stored]:
        others: dict[Root, list[str]] = {}
        for crossing in self.plan.crossings:
            others.setdefault(crossing.root, []).append(self.axes.order(crossing.root, crossing.order))
        for root, (site, port) in self.producers.items():
            yield Stored(
                self.source.names[root],
                str(root.value.dtype).lower(),
                tuple(piece.extent.number if piece.extent.is_static else str(piece.extent) for piece in root.dims),
                self.axes.form(root, root.logical),
                self.axes.form(root, placed(site, self.label[site], port).form),
                tuple(others.get(root, ())),
                self.sizes[self.number[root]],
            )

    def _before(self, values: Sequence[Stored]) -> Side:
        """Return the source: its own Transposes lie between a value and what reads it."""
        marks: dict[ir.Value, int] = {}
        mark_list: list[Mark] = []
        edges = []
        for site, port, root in self._readings():
            through = []
            if site.kind == "pin":
                value: ir.Value | None = site.ports[1].view.root.value
            else:  # None: what a subgraph captures
                value = self.seen[port.view] if port.slot >= 0 else None
            while value is not None and value is not root.value:
                if value in self.source.moving:
                    if value not in marks:
                        marks[value] = len(mark_list)
                        ends = (self.source.behind[value], value)
                        forms = [self.axes.form(root, self.sites.views[end].form) for end in ends if end is not None]
                        number = self.number[root]
                        mark_list.append(Mark(number, " -> ".join(forms), self.sizes[number]))
                    through.append(marks[value])
                value = self.source.behind.get(value)
            edges.append(self._edge(site, root, tuple(reversed(through))))
        return self._side(edges, mark_list, [value.layout for value in values], self.source_ends)

    def _after(self, values: Sequence[Stored]) -> Side:
        """Return the result: one Transpose for each further order in which a value has to exist."""
        crossings = {(crossing.root, crossing.order): i for i, crossing in enumerate(self.plan.crossings)}
        edges = []
        for site, port, root in self._readings():
            through = crossings.get((root, placed(site, self.label[site], port).order))
            edges.append(self._edge(site, root, () if through is None else (through,)))
        marks = []
        for crossing, reason in zip(self.plan.crossings, self.reasons, strict=True):
            orders = self.axes.orders(crossing.root, crossing.producer_order, crossing.order)
            marks.append(Mark(self.number[crossing.root], " -> ".join(orders), crossing.size, reason))
        return self._side(edges, marks, [value.stored for value in values], self.result_ends)

    def _edge(self, site: Site, root: Root, through: tuple[int, ...]) -> Edge:
        return Edge(self.number[root], self.spot[self.producers[root][0]], self.spot[site], through)

    def _side(
        self, edges: Sequence[Edge], marks: Sequence[Mark], layouts: Sequence[str], ends: Mapping[int, str]
    ) -> Side:
        """Return one side.

        `ends` are outputs, which give no value -> the layout of what they read, in the dimensions that it has there.
        """
        distinct = tuple(dict.fromkeys(edge for edge in edges if edge.producer != edge.reader))
        factors = [len(root.extents) for root in self.producers]
        ranks = [len([dim for dim in root.logical if dim]) for root in self.producers]
        links = [Link(e.producer, e.reader, factors[e.value], bool(e.through)) for e in distinct]
        spot_layouts = [
            [_Held(layouts[value], ranks[value], self.sizes[value]) for value in values]
            for values in self.outputs_of_spot
        ]
        for edge in distinct:
            if edge.reader in ends:
                spot_layouts[edge.reader].append(_Held(ends[edge.reader], ranks[edge.value], self.sizes[edge.value]))
        side_regions = []
        for spots in regions(len(self.shown_sites), links):
            size = sum(self.sizes[value] for spot in spots for value in self.outputs_of_spot[spot])
            side_regions.append(Region(_majority([each for spot in spots for each in spot_layouts[spot]]), spots, size))
        return Side(distinct, tuple(marks), tuple(side_regions))


class _Held(NamedTuple):
    """A value that an operator gives or an output reads: its layout, how many axes it has, its bytes at run time."""

    layout: str
    rank: int
    bytes: int


def _majority(values: Sequence[_Held]) -> str:
    """The layout of most bytes, of the values with the most axes; kernels that are ready before a run say nothing."""
    at_run_time = [value for value in values if value.bytes] or values
    most = max((value.rank for value in at_run_time), default=0)
    weights: Counter[str] = Counter()
    for value in at_run_time:
        if value.rank == most:
            weights[value.layout] += value.bytes
    return max(weights, key=lambda layout: weights[layout]) if weights else ""


def _known(sites: Sequence[Site], transposed_roots: set[Root]) -> set[Site]:
    """Return nodes that compute from constants only, as a kernel's DequantizeLinear, and give no transposed root."""
    constant_sites: set[Site] = set()
    roots: set[Root] = set()
    for site in sites:
        read = [port.view.root for port in site.ports if not port.output]
        output_roots = {port.view.root for port in site.ports if port.output}
        plain = site.kind == "node" and not site.carried and not output_roots & transposed_roots
        if plain and read and all(root.constant or root in roots for root in read):
            constant_sites.add(site)
            roots |= output_roots
    return constant_sites


def _spots(sites: Sequence[Site]) -> tuple[dict[Site, int], list[Site]]:
    """Site -> operator, and its site. What a node carries into its subgraphs are sites before it: all one operator."""
    number: dict[Site, int] = {}
    operator_sites: list[Site] = []
    waiting: list[Site] = []
    for site in sites:
        if site.kind == "border":
            waiting.append(site)
        elif site.kind != "enter":
            number[site] = len(operator_sites)
            if site.carried:
                number.update((border, len(operator_sites)) for border in waiting if border.name == site.name)
                waiting = [border for border in waiting if border.name != site.name]
            operator_sites.append(site)
    return number, operator_sites
