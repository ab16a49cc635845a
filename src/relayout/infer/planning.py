"""Sites and candidates -> problem -> plan: the order in which every site runs, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from relayout.infer.build import Sites
from relayout.infer.candidates import Candidates, Label, candidates, identity, placed
from relayout.infer.sites import Order, Port, Root, Site, order_of
from relayout.solve import Problem, Solution, Value, solve
from relayout.solve import Port as NumberPort


@dataclass(frozen=True)
class Crossing:
    """A value that has to exist in one more order.

    Args:
        root: the value.
        order: the order that readers want.
        size: bytes of the value.
        producer: the site that gives it otherwise.
        readers: the sites that want `order`.
    """

    root: Root
    order: Order
    size: int
    producer: Site
    readers: tuple[Site, ...]


@dataclass(frozen=True)
class Plan:
    """A choice for a graph, and its proof.

    Args:
        sites: the graph.
        labels: site -> the label chosen.
        crossings: the Transposes that remain.
        size: bytes they move in one inference.
        bound: bytes below which no choice can go, as the checker proved.
        proved: whether the two are equal.
        source_count: Transposes of the source graph that move data.
        source_size: bytes they move.
        capped: whether candidate orders were dropped.
        finished: whether the solver was let to the end.
    """

    sites: Sites
    labels: tuple[Label, ...]
    crossings: tuple[Crossing, ...]
    size: int
    bound: int
    proved: bool
    source_count: int
    source_size: int
    capped: bool
    finished: bool
    problem: Problem
    solution: Solution


@dataclass(frozen=True)
class Weights:
    """One integer for three aims, in order: bytes, number of Transposes, closeness to the source."""

    per_byte: int
    per_transpose: int

    def of(self, size: int) -> int:
        """The price of one Transpose of `size` bytes."""
        return size * self.per_byte + self.per_transpose


def size_of(root: Root, dims: Mapping[str, int]) -> int:
    """Bytes of a value; a dynamic dimension counts as `dims[name]`, or 1."""
    count = math.prod(extent.value(dims) for extent in root.extents)
    dtype = root.value.dtype
    bits = 8 * 4 if dtype is None else round(dtype.itemsize * 8)
    return math.ceil(count * bits / 8)


def plan(
    sites: Sites,
    *,
    dims: Mapping[str, int] | None = None,
    time_limit: float | None = None,
    among: Candidates | None = None,
) -> Plan:
    """The plan with the fewest transposed bytes, then the fewest Transposes, then closest to the source.

    Args:
        sites: the graph.
        dims: extents that dynamic dimensions count with; 1 where not named.
        time_limit: seconds for the solver.
        among: the labels to choose from (default: all that some pin demands).
    """
    found = candidates(sites) if among is None else among
    labels = found.labels
    ends = _ends(sites)
    sizes = {root: size_of(root, dims or {}) for root, (_, readers) in ends.items() if readers and not root.constant}
    most = 1 + sum(len(site.ports) for site in sites.sites) * (1 + max(map(len, labels), default=0))
    weights = Weights(per_byte=most * (len(labels) + 1), per_transpose=len(labels) + 1)
    costs = tuple(
        tuple(0 if len(choice) == 1 or _as_source(site, label) else 1 for label in choice)
        for site, choice in zip(sites.sites, labels, strict=True)
    )
    values, roots, numbers = [], [], []
    for root, size in sizes.items():
        producer, readers = ends[root]
        if producer is None:
            continue
        number: dict[Order, int] = {}
        ports = [_number(sites, labels, index, port, number) for index, port in (producer, *readers)]
        if len(number) > 1:
            values.append(Value(weights.of(size), ports[0], tuple(ports[1:])))
            roots.append(root)
            numbers.append(list(number))
    problem = Problem(costs, tuple(values))
    solution = solve(problem, time_limit=time_limit)
    crossings = []
    for value, root, orders in zip(values, roots, numbers, strict=True):
        given = value.producer.orders[solution.choice[value.producer.node]]
        wanting: dict[int, dict[int, None]] = {}
        for reader in value.readers:
            wanting.setdefault(reader.orders[solution.choice[reader.node]], {})[reader.node] = None
        for order in sorted(wanting.keys() - {given}):
            crossings.append(
                Crossing(
                    root,
                    orders[order],
                    sizes[root],
                    sites.sites[value.producer.node],
                    tuple(sites.sites[node] for node in wanting[order]),
                )
            )
    size = sum(crossing.size for crossing in crossings)
    source_size = sum(size_of(root, dims or {}) for _, root in sites.moves)
    if size > source_size and among is None:
        return plan(sites, dims=dims, time_limit=time_limit, among=_with_source(sites, found))
    bound = -(-max(solution.bound - len(labels) - weights.per_transpose * most, 0) // weights.per_byte)
    bound = size if solution.proved else min(bound, size)
    return Plan(
        sites,
        tuple(choice[label] for choice, label in zip(labels, solution.choice, strict=True)),
        tuple(crossings),
        size,
        bound,
        solution.proved,
        len(sites.moves),
        source_size,
        found.capped,
        solution.finished,
        problem,
        solution,
    )


def _with_source(sites: Sites, found: Candidates) -> Candidates:
    """The labels with the source's own order added: whatever else fails, the result is no worse than the source."""
    pairs = zip(sites.sites, found.labels, strict=True)
    return Candidates([list(dict.fromkeys([*labels, identity(site)])) for site, labels in pairs], found.capped)


Ends = dict[Root, tuple[tuple[int, Port] | None, list[tuple[int, Port]]]]


def _ends(sites: Sites) -> Ends:
    """The producer and the readers of every root."""
    producers: dict[Root, tuple[int, Port]] = {}
    readers: dict[Root, list[tuple[int, Port]]] = {root: [] for root in sites.roots}
    for index, site in enumerate(sites.sites):
        for port in site.ports:
            if port.output:
                producers[port.view.root] = (index, port)
            else:
                readers[port.view.root].append((index, port))
    return {root: (producers.get(root), readers[root]) for root in sites.roots}


def _number(sites: Sites, labels: list[list[Label]], index: int, port: Port, number: dict[Order, int]) -> NumberPort:
    site = sites.sites[index]
    orders = (order_of(placed(site, label, port)[1]) for label in labels[index])
    return NumberPort(index, tuple(number.setdefault(order, len(number)) for order in orders))


def _as_source(site: Site, label: Label) -> bool:
    """Whether a label stores every operand as the source graph does."""
    return all(order_of(placed(site, label, port)[1]) == order_of(port.view.form) for port in site.ports)
