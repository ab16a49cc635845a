"""Sites and candidates -> problem -> plan: the order in which every site runs, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, repeat
from operator import ne
from typing import NamedTuple

import onnx_ir as ir

from relayout.infer.candidates import (
    Candidates,
    candidates,
    identity,
    passing_on,
    placement,
    source_numbers,
    stored_order_numbers,
)
from relayout.infer.graph_sites import Sites
from relayout.infer.presolve import Aggregation, following, result
from relayout.infer.sites import Label, Order, Port, Root, Site, order_of
from relayout.infer.strided_copies import SPAN, is_run, is_scattered, scattering, span, stretches_elements
from relayout.rules import is_transposed
from relayout.solve import Problem, Solution, Value, ValueEnd, solve, transposed_orders

INNERMOST = 8
"""What it weighs, in operators that run in another order than the source's, that a Transpose moves the innermost axis:
a runtime copies single elements there, and whole runs otherwise."""
SEVERAL = 2
"""What it weighs, likewise, that several operators stand for one."""

MOST_PAIRS = 40_000
"""Pairs of orders up to which single elements have a price: with more the program takes minutes."""

AVOIDED = 16
"""What it weighs, in bytes for each reader, to move a byte of a value that no Transpose takes: more than what is
quantized to it, and what each reader makes of it, whose elements are wider.
"""


class Weights(NamedTuple):
    """One integer for three aims, in order: bytes, number of Transposes, closeness to the source and whole runs."""

    per_byte: int
    per_transpose: int

    def of(self, size: int) -> int:
        """The price of one Transpose of `size` bytes."""
        return size * self.per_byte + self.per_transpose

    def bytes_in(self, cost: int) -> int:
        """The bytes in a cost: all else together weighs less than one of them."""
        return cost // self.per_byte


Part = tuple[Root, Sequence[ValueEnd], Sequence[Order]]
"""A value of the problem: its root, its ends (the producer, then the readers), order number -> order."""


class Formulation(NamedTuple):
    """A graph as a problem in numbers, and what the numbers stand for.

    Args:
        sites: the graph; node `i` of the problem is `sites.sites[i]`.
        labels: site -> the labels it may take; none where it follows another: such a node has no choice and no values.
        problem: the numbers; its first values are those of the graph.
        roots: value of the problem -> root.
        orders: value of the problem -> order number -> order.
        sizes: value of the problem -> bytes.
        weights: how bytes, counts and closeness share one integer.
        capped: whether candidate orders were dropped.
        follow: which sites follow others.
    """

    sites: Sites
    labels: list[list[Label]]
    problem: Problem
    roots: list[Root]
    orders: list[Sequence[Order]]
    sizes: list[int]
    weights: Weights
    capped: bool
    follow: Aggregation

    def stands(self, root: Root) -> Root:
        """The value that stands for another in the problem."""
        return self.sites.roots[self.follow.stands[root.index]]

    @property
    def parts(self) -> Iterator[Part]:
        """The values with their roots and orders."""
        for root, value, orders in zip(self.roots, self.values, self.orders, strict=True):
            yield root, (value.producer, *value.readers), orders

    @property
    def values(self) -> tuple[Value, ...]:
        """The values of the graph. In the problem they come first; behind them stands what moves the innermost axis."""
        return self.problem.values[: len(self.roots)]

    def moved_bytes(self, choice: Sequence[int]) -> int:
        """The bytes that a choice transposes."""
        return sum(
            size * len(transposed_orders(value, choice)) for size, value in zip(self.sizes, self.values, strict=True)
        )

    def least_bytes(self, proved: int, cost: int, size: int) -> int:
        """The bytes below which no choice can go that costs as much besides as this one: for its operators beside their
        best orders, and for each Transpose by itself. What a choice moves above them is what it may cost too much:
        they are below nothing where it pays more in prices than was proved of the whole.

        Args:
            proved: the cost that the checker proved.
            cost: what a choice costs.
            size: the bytes that it moves.
        """
        return self.weights.bytes_in(proved) - (self.weights.bytes_in(cost) - size)


class Crossing(NamedTuple):
    """A value that has to exist in one more order.

    Args:
        root: the value.
        given: the order that its producer gives.
        order: the order that readers want.
        size: bytes of the value.
        producer: the site that gives it otherwise.
        readers: the sites that want `order`.
    """

    root: Root
    given: Order
    order: Order
    size: int
    producer: Site
    readers: tuple[Site, ...]


@dataclass(frozen=True)
class Plan:
    """A choice for a graph, and its proof.

    Args:
        formulation: the graph as a problem.
        solution: the choice in numbers, with its certificate.
        labels: site -> the label chosen.
        crossings: the Transposes that remain.
        size: bytes they move in one inference.
        bound: bytes below which no choice can go, as the checker proved.
        source_count: Transposes of the source graph that move data.
        source_size: bytes they move.
    """

    formulation: Formulation
    solution: Solution
    labels: tuple[Label, ...]
    crossings: tuple[Crossing, ...]
    size: int
    bound: int
    source_count: int
    source_size: int

    @property
    def sites(self) -> Sites:
        """The graph."""
        return self.formulation.sites

    @cached_property
    def scattered(self) -> int:
        """The bytes that are taken element by element: by Transposes, and where operators stretch an operand."""
        moved = [each.size for each in self.crossings if is_scattered(each.root, each.given, each.order)]
        pairs = zip(self.sites.sites, self.labels, strict=True)
        stretched = [scattered_by(self.sites, site, label) for site, label in pairs if site.signature.broadcast]
        return sum(moved) + sum(stretched)

    @cached_property
    def source_scattered(self) -> int:
        """The same bytes of the source."""
        sites = self.sites
        moving = [(read, order_of(given.form)) for _, read, given in sites.viewing if not read.root.constant]
        moved = [read.root for read, order in moving if is_scattered(read.root, order_of(read.form), order)]
        stretching = (site for site in sites.sites if site.signature.broadcast)
        stretched = [scattered_by(sites, site, identity(site)) for site in stretching]
        return sum([size_of(root, {}, sites.likely) for root in moved]) + sum(stretched)

    @property
    def proved(self) -> bool:
        """Whether no choice among all orders that a pin demands moves fewer bytes."""
        return self.bound == self.size and not self.formulation.capped


def size_of(root: Root, dims: Mapping[str, int], likely: Mapping[str, int] | None = None) -> int:
    """Bytes that one Transpose of a value moves in an inference.

    Args:
        root: the value.
        dims: extents that dynamic dimensions count with.
        likely: the same for those that are not in `dims`; any other counts as 1.
    """
    known = dims if not likely else {**likely, **dims}
    count = math.prod(extent.value(known) for extent in root.extents) * root.runs
    return math.ceil(count * _bits(root.value.dtype) / 8)


UNKNOWN_BITS = 32
"""What an element counts as whose type has no width: a string, or a type that is not known."""


def _bits(dtype: ir.DataType | None) -> int:
    try:
        return UNKNOWN_BITS if dtype is None else dtype.bitwidth
    except TypeError:
        return UNKNOWN_BITS


def formulate(sites: Sites, *, dims: Mapping[str, int] | None = None, among: Candidates | None = None) -> Formulation:
    """The problem of a graph.

    Args:
        sites: the graph.
        dims: extents that dynamic dimensions count with; 1 where not named.
        among: the labels to choose from (default: all that some pin demands).
    """
    follow = following(sites.sites, sites.roots)
    found = candidates(sites, follow) if among is None else among
    labels = [[] if number in follow.leads else choice for number, choice in enumerate(found.labels)]
    stored = [
        [stored_order_numbers(site, label) for label in choice]
        for site, choice in zip(sites.sites, labels, strict=True)
    ]
    ends = _ends(sites, follow)
    parts: list[Part] = []
    for root, (producer, readers) in zip(sites.roots, ends, strict=True):
        if producer is None or not readers or root.constant or root.is_empty:
            continue
        dense: dict[int, int] = {}
        ports = _each_once(_dense(index, port, stored[index], dense) for index, port in (producer, *readers))
        if len(ports) > 1 and len(dense) > 1:
            parts.append((root, ports, [root.space.orders[number] for number in dense]))
    apart = [_all_part_runs(root, orders) for root, _, orders in parts]
    parting = 0 if all(apart) else INNERMOST
    stretched = [_stretching(site, choice) for site, choice in zip(sites.sites, labels, strict=True)]
    aside = list(map(_aside, sites.sites, labels, stored))
    weights = _weights(aside, parts, parting, sum(map(any, stretched)))
    costs = tuple(map(_costs, sites.sites, labels, stretched, aside, repeat(weights)))
    hard = hard_pairs(parts) if sites.per_scattered else None
    each = 0 if hard is None else sites.per_scattered * weights.per_byte
    if each:
        costs = tuple(map(_with_scattered, repeat(sites), sites.sites, labels, costs, repeat(each)))
    sizes = [size_of(root, dims or {}, sites.likely) * sites.repeats.get(root, 1) for root, _, _ in parts]
    version = sites.graph.opset_imports.get("", 1)
    still = [1 if is_transposed(root.value.dtype, version) else AVOIDED * len(ports) for root, ports, _ in parts]
    # Where the source has a Transpose, one costs a little less: what a runtime fuses there stays together.
    moved_roots = {follow.stands[root.index] for _, root, _ in sites.moves}
    values = [
        Value(
            weights.of(size + sites.per_transpose) * avoided + (root.index not in moved_roots) + parting * all_part,
            ports[0],
            tuple(ports[1:]),
            pairs,
            size * each,
        )
        for (root, ports, _), size, all_part, avoided, pairs in zip(
            parts, sizes, apart, still, hard or [frozenset()] * len(parts), strict=True
        )
    ]
    again = [_innermost(*part) for part, all_part in zip(parts, apart, strict=True) if not all_part]
    values += [value for value in again if value.readers]
    numbered = [root for root, _, _ in parts], [found for _, _, found in parts]
    problem = Problem(costs, tuple(values), weights.per_transpose)
    return Formulation(sites, labels, problem, *numbered, sizes, weights, found.capped, follow)


def _each_once(ports: Iterable[ValueEnd]) -> list[ValueEnd]:
    """The ends of a value, each once: what has the same order as another end under every label costs nothing more."""
    return list(dict.fromkeys(ports))


def hard_pairs(parts: Iterable[Part]) -> list[frozenset[tuple[int, int]]] | None:
    """The pairs of orders of each value between which a Transpose takes single elements; None where they are many."""
    found, count = [], 0
    for part in parts:
        found.append(scattering(*part))
        count += len(found[-1])
        if count > MOST_PAIRS:
            return None
    return found


def _weights(
    aside: Sequence[Sequence[int]],
    parts: Sequence[Part],
    parting: int,
    stretching: int,
) -> Weights:
    """Weights under which no sum of a lesser aim reaches one of a greater; `aside` is how far the labels of each
    site are from the source, `parting` what it costs to part runs, `stretching` how many operators may stretch an
    operand in short ones.
    """
    most = sum(min(len(ports) - 1, len(orders) - 1) for _, ports, orders in parts)
    labelled = sum(map(max, filter(None, aside)))
    closeness = labelled + most * (1 + parting) + INNERMOST * stretching
    per_transpose = closeness + 1
    return Weights(per_byte=(most + 1) * per_transpose, per_transpose=per_transpose)


def _all_part_runs(root: Root, orders: Sequence[Order]) -> bool:
    """Whether no two of the orders have the same runs: no Transpose from one to another moves whole ones."""
    return root.space.of(_part_runs, tuple(orders), root, orders)


def _part_runs(root: Root, orders: Sequence[Order]) -> bool:
    return len({_run(root, order) for order in orders}) == len(orders)


def _innermost(root: Root, ports: Sequence[ValueEnd], orders: Sequence[Order]) -> Value:
    """A value again, in orders that differ only in the runs that lie together: what it costs to part these."""
    number: dict[Order, int] = {}
    runs = [number.setdefault(_run(root, order), len(number)) for order in orders]
    ends = [ValueEnd(port.node, tuple([runs[order] for order in port.orders])) for port in ports]
    producer, *readers = _each_once(ends)
    return Value(INNERMOST, producer, tuple(readers) if len(number) > 1 else ())


def _run(root: Root, order: Order) -> Order:
    """The factor that is innermost in an order; the whole order where that is too short for a run."""
    return order[-1:] if is_run([root.extents[order[-1]]]) else order


def plan(
    sites: Sites,
    *,
    dims: Mapping[str, int] | None = None,
    time_limit: float | None = None,
    among: Candidates | None = None,
) -> Plan:
    """The plan with the fewest transposed bytes, then the fewest Transposes, then the closest to the source that
    moves few innermost axes. Where Transposes cost something by themselves, bytes and that cost count together.

    Args:
        sites: the graph.
        dims: extents that dynamic dimensions count with; 1 where not named.
        time_limit: seconds for the solver.
        among: the labels to choose from (default: all that some pin demands).
    """
    formulation = formulate(sites, dims=dims, among=among)
    found = plan_of(formulation, solve(formulation.problem, time_limit=time_limit), dims)
    if among is None and not sites.chosen and _is_dearer(found):
        wider = with_source(sites, formulation)
        return plan(sites, dims=dims, time_limit=time_limit, among=wider)
    return found


def _is_dearer(found: Plan) -> bool:
    """Whether a plan costs more than the source does."""
    sites, more = found.sites, found.size - found.source_size
    more += sites.per_transpose * (len(found.crossings) - found.source_count)
    if sites.per_scattered:
        more += sites.per_scattered * (found.scattered - found.source_scattered)
    return more > 0


def plan_of(formulation: Formulation, solution: Solution, dims: Mapping[str, int] | None = None) -> Plan:
    """A choice as a plan.

    Args:
        formulation: the graph as a problem.
        solution: the choice in numbers.
        dims: extents that dynamic dimensions count with; 1 where not named.
    """
    sites = formulation.sites
    labels = _labels(formulation, solution.choice)
    crossings = tuple(_crossings(formulation, solution.choice, labels))
    size = sum(crossing.size for crossing in crossings)
    return Plan(
        formulation,
        solution,
        tuple(labels),
        crossings,
        size,
        formulation.least_bytes(solution.bound, solution.cost, size),
        len(sites.moves),
        sum(size_of(root, dims or {}, sites.likely) * times for _, root, times in sites.moves),
    )


def _labels(formulation: Formulation, choice: Sequence[int]) -> list[Label]:
    """The label of every site, also of those that follow others."""
    sites, leads = formulation.sites.sites, formulation.follow.leads
    found = [labels[taken] if labels else None for labels, taken in zip(formulation.labels, choice, strict=True)]
    for number, (lead, position) in leads.items():
        label = found[lead]
        assert label is not None
        order = stored_order_numbers(sites[lead], label)[position]
        found[number] = passing_on(sites[number], order)
    return [label for label in found if label is not None]


def _crossings(formulation: Formulation, choice: Sequence[int], labels: list[Label]) -> list[Crossing]:
    """The Transposes that remain; followers on the way get other labels where a Transpose stands better before them."""
    sites = formulation.sites.sites
    found = []
    for index, value in enumerate(formulation.values):
        if not transposed_orders(value, choice):
            continue
        given = value.producer.orders[choice[value.producer.node]]
        wanting: dict[int, dict[int, None]] = {}
        for reader in value.readers:
            wanting.setdefault(reader.orders[choice[reader.node]], {})[reader.node] = None
        for order in sorted(wanting.keys() - {given}):
            root, size, orders = formulation.roots[index], formulation.sizes[index], formulation.orders[index]
            producer, readers = value.producer.node, tuple(wanting[order])
            if formulation.follow.leads:
                between = orders[given], orders[order]
                root, producer, readers = _slid(formulation, labels, root, between, alone=len(wanting) == 1)
            ends = sites[producer], tuple(sites[node] for node in readers)
            found.append(Crossing(root, orders[given], orders[order], size, *ends))
    return found


def _slid(
    formulation: Formulation, labels: list[Label], root: Root, orders: tuple[Order, Order], *, alone: bool
) -> tuple[Root, int, tuple[int, ...]]:
    """Where among followers a Transpose stands best: value, producer, readers.

    Each runs in the one order or in the other, nearer to the source or farther from it (`_far`).

    Args:
        formulation: the graph.
        labels: of all sites; followers that come to be on its other side get others.
        root: the value that stands for those between them: there it stands at first.
        orders: the one that is given, and the one that is wanted.
        alone: everybody wants that one.
    """
    sites, follow = formulation.sites.sites, formulation.follow
    given, wanted = map(root.space.orders.number, orders)
    reading = [n for n, end in follow.readers[root.index] if stored_order_numbers(sites[n], labels[n])[end] == wanted]
    before, behind = follow.before(root.index) if alone else [], follow.behind(reading)
    made = follow.producers[root.index]
    assert made is not None
    # Each place: the value there, who gives it, and who reads it.
    places: list[tuple[Root, int, tuple[int, ...]]] = []
    for number in before:
        lead, position = follow.leads[number]
        places.append((sites[lead].ports[position].view.root, lead, (number,)))
    places.append((root, made[0], tuple(dict.fromkeys(reading))))
    for number, reader in zip(behind, (*behind[1:], *(follow.leads[first][0] for first in behind[:1])), strict=True):
        places.append((result(sites[number]).view.root, number, (reader,)))
    passing = [*before, *behind]
    farther = [_far(sites[number], given) - _far(sites[number], wanted) for number in passing]
    first, costs = len(before), list(accumulate(farther, initial=0))
    best = min(range(len(places)), key=lambda place: (costs[place], abs(place - first)))
    for number in passing[best:first]:
        labels[number] = passing_on(sites[number], wanted)
    for number in passing[first:best]:
        labels[number] = passing_on(sites[number], given)
    return places[best]


def with_source(sites: Sites, formulation: Formulation) -> Candidates:
    """The labels with the source's own order added: whatever else fails, the result is no worse than the source."""
    pairs = zip(sites.sites, formulation.labels, strict=True)
    return Candidates([list(dict.fromkeys([*labels, identity(site)])) for site, labels in pairs], formulation.capped)


def _ends(sites: Sites, follow: Aggregation) -> Iterator[tuple[tuple[int, Port] | None, list[tuple[int, Port]]]]:
    """The producer and the readers of every root; those of all that it stands for."""
    producers: list[tuple[int, Port] | None] = [None] * len(sites.roots)
    readers: list[list[tuple[int, Port]]] = [[] for _ in sites.roots]
    for index, site in enumerate(sites.sites):
        if index in follow.leads:
            continue
        for port in site.ports:
            root = follow.stands[port.view.root.index]
            if port.output:
                producers[root] = (index, port)
            else:
                readers[root].append((index, port))
    return zip(producers, readers, strict=True)


Stored = Sequence[tuple[int, ...]]
"""Label of a site -> the number of the stored order of each operand."""


def _dense(index: int, port: Port, stored: Stored, dense: dict[int, int]) -> ValueEnd:
    """An operand of the problem; of the orders of its value only those count that some end may have."""
    wanted = [operands[port.position] for operands in stored]
    return ValueEnd(index, tuple([dense.setdefault(number, len(dense)) for number in wanted]))


def _far(follower: Site, order: int) -> int:
    """How far a follower is from the source in an order: by that order, and by stretching an operand in short runs."""
    return follower.pattern.of(_is_far, order, follower, order)


def _is_far(follower: Site, order: int) -> int:
    label = passing_on(follower, order)
    short = follower.signature.broadcast and span(follower, label) < SPAN
    return (stored_order_numbers(follower, label) != source_numbers(follower)) + INNERMOST * short


def _costs(
    site: Site,
    choice: Sequence[Label],
    stretched: Sequence[bool],
    aside: Sequence[int],
    weights: Weights,
) -> tuple[int, ...]:
    """What each label costs by itself: its price in bytes, and a little for being far from the source, or if it
    stretches an operand in short runs.
    """
    if not choice:
        return (0,)
    price = site.signature.price
    prices = [0] * len(choice)
    if price is not None:
        prices = [site.runs * price(placement(site, label)) for label in choice]
    if len(choice) == 1:
        return (prices[0] * weights.per_byte,)
    costs = [cost * weights.per_byte + far for cost, far in zip(prices, aside, strict=True)]
    return tuple(
        [cost + INNERMOST * short for cost, short in zip(costs, stretched, strict=True)] if stretched else costs
    )


def _aside(site: Site, choice: Sequence[Label], stored: Stored) -> tuple[int, ...]:
    """How far each label is from the source: from its order, from its variant (a matrix keeps its transposition where
    its columns move), from its one operator; () where there is no choice.
    """
    if len(choice) <= 1:
        return ()
    source = source_numbers(site)
    if choice[0].variant < 0:
        return tuple([int(found != source) for found in stored])
    variants = site.signature.variants
    return tuple(
        [
            _otherwise(found, source) + (label.variant > 0) + SEVERAL * (variants[label.variant].steps is not None)
            for found, label in zip(stored, choice, strict=True)
        ]
    )


def _otherwise(found: Sequence[int], source: Sequence[int]) -> int:
    """In how many operands another order is stored."""
    return sum(map(ne, found, source))


def _with_scattered(
    sites: Sites, site: Site, choice: Sequence[Label], costs: tuple[int, ...], each: int
) -> tuple[int, ...]:
    """What each label costs, with `each` for every byte that the operator gives element by element."""
    if not choice:
        return costs
    return tuple([cost + each * scattered_by(sites, site, label) for cost, label in zip(costs, choice, strict=True)])


def scattered_by(sites: Sites, site: Site, label: Label) -> int:
    """The bytes that an operator gives element by element, where it stretches an operand; dynamic extents as likely."""
    if not stretches_elements(site, label):
        return 0
    return size_of(next(port.view.root for port in site.ports if port.output), {}, sites.likely)


def _stretching(site: Site, choice: Sequence[Label]) -> tuple[bool, ...]:
    """Which labels let an operator stretch one operand over another in runs that are short; () where all do or none."""
    if not site.signature.broadcast or len(choice) <= 1:
        return ()
    return site.pattern.of(_short, tuple(choice), site, choice)


def _short(site: Site, choice: Sequence[Label]) -> tuple[bool, ...]:
    short = tuple([span(site, label) < SPAN for label in choice])
    return short if len(set(short)) > 1 else ()
