"""Sites and candidates -> problem -> plan: the order in which every site runs, and what that costs."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import ne
from typing import NamedTuple

import onnx_ir as ir

from relayout.infer.allowed_orders import identity
from relayout.infer.candidates import Candidates, candidates, passing_on, placement
from relayout.infer.graph_sites import Sites
from relayout.infer.open_extents import orders_alike
from relayout.infer.presolve import Aggregation, following
from relayout.infer.sites import Label, Order, Port, Root, Site
from relayout.infer.stored_orders import source_numbers, stored_order_numbers
from relayout.infer.strided_copies import SPAN, is_run, scattering, span, stretches_elements, transposes_needed
from relayout.layout.stored_as import ELEMENT_BITS
from relayout.rules import is_transposed
from relayout.solve.problem import Problem, Value, ValueEnd, transposed_orders

INNERMOST = 8
"""What it weighs, in operators that run in another order than the source's, that a Transpose moves the innermost axis:
a runtime copies single elements there, and whole runs otherwise."""
SEVERAL = 2  # what it weighs, likewise, that several operators stand for one

MOST_PAIRS = 1_000_000  # pairs of orders up to which single elements have a price: 100 MB
MOST_MOVES = 60_000
"""Pairs of orders up to which Transposes beyond the first have a price: more take seconds, and it seldom decides."""

AVOIDED = 16
"""What it weighs, in bytes for each reader, to move a byte of a value that no Transpose takes: more than what is
quantized to it, and what each reader makes of it, whose elements are wider.
"""


class Weights(NamedTuple):
    """One integer for three aims, in order: bytes, number of Transposes, closeness to the source and whole runs."""

    per_byte: int
    per_transpose: int

    def of(self, size: int) -> int:
        """Return the price of one Transpose of `size` bytes."""
        return size * self.per_byte + self.per_transpose

    def bytes_in(self, cost: int) -> int:
        """Return the bytes in a cost: all else together weighs less than one of them."""
        return cost // self.per_byte


Part = tuple[Root, Sequence[ValueEnd], Sequence[Order]]
"""A value of the problem: its root, its ends (the producer, then the readers), order number -> order."""


class Formulation(NamedTuple):
    """A graph as a problem in numbers, and what the numbers stand for."""

    sites: Sites  # the graph; node `i` of the problem is `sites.sites[i]`
    # site -> the labels it may take; none where it follows another: such a node has no choice and no values
    labels: list[list[Label]]
    problem: Problem  # the numbers; its first values are those of the graph
    roots: list[Root]  # value of the problem -> root
    orders: list[Sequence[Order]]  # value of the problem -> order number -> order
    sizes: list[int]  # value of the problem -> bytes
    weights: Weights  # how bytes, counts and closeness share one integer
    capped: bool  # whether candidate orders were dropped
    follow: Aggregation  # which sites follow others
    most_axes: int = 0  # axes that one Transpose moves at most, where more Transposes have a price; 0: each move is one

    def stands(self, root: Root) -> Root:
        """Return the value that stands for another in the problem."""
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
        """Return the bytes that a choice transposes."""
        return sum(
            self.moved_by(index, value.producer.orders[choice[value.producer.node]], order)
            for index, value in enumerate(self.values)
            for order in transposed_orders(value, choice)
        )

    def moved_by(self, index: int, producer_order: int, order: int) -> int:
        """The bytes that are moved to have a value in one order, by its number, besides the one that is given."""
        orders = self.orders[index]
        times = transposes_needed(self.roots[index], orders[producer_order], orders[order], self.most_axes)
        return self.sizes[index] * times

    def least_bytes(self, proved: int, cost: int, size: int) -> int:
        """The bytes below which no choice can go that costs as much besides as this one: for its operators beside their
        best orders, and for each Transpose by itself. What a choice moves above them is what it may cost too much:
        they are below nothing where it pays more in prices than was proved of the whole.
        """
        return self.weights.bytes_in(proved) - (self.weights.bytes_in(cost) - size)


def size_of(
    root: Root,  # the value
    dims: Mapping[str, int],  # extents that dynamic dimensions count with
    likely: Mapping[str, int] | None = None,  # the same for those that are not in `dims`; any other counts as 1
) -> int:
    """Bytes that one Transpose of a value moves in an inference."""
    known = dims if not likely else {**likely, **dims}
    count = math.prod(extent.value(known) for extent in root.extents) * root.runs
    return math.ceil(count * _bits(root.value) / 8)


UNKNOWN_BITS = 32  # what an element counts as whose type has no width: a string, or a type that is not known


def _bits(value: ir.Value) -> int:
    if ELEMENT_BITS in value.meta:
        return int(value.meta[ELEMENT_BITS])
    try:
        return UNKNOWN_BITS if value.dtype is None else value.dtype.bitwidth
    except TypeError:
        return UNKNOWN_BITS


# Complexity: a list of what the problem is made of, each once, in the order in which one needs the other.
def formulate(sites: Sites, *, dims: Mapping[str, int] | None = None, among: Candidates | None = None) -> Formulation:
    """Return the problem of a graph.

    Args:
        sites: the graph.
        dims: extents that dynamic dimensions count with; small where not named, and exactly 1 where named so.
        among: the labels to choose from (default: all that some pin demands).
    """
    follow = following(sites.sites, sites.roots)
    considered = candidates(sites, follow) if among is None else among
    labels = [[] if number in follow.leads else choice for number, choice in enumerate(considered.labels)]
    stored = [
        [stored_order_numbers(site, label) for label in choice]
        for site, choice in zip(sites.sites, labels, strict=True)
    ]
    parts = _parts(sites, follow, stored, dims or {})
    # No two of the orders have the same runs: no Transpose from one to another moves whole ones.
    always_parting = [root.space.of(_part_runs, tuple(orders), root, orders) for root, _, orders in parts]
    parting = 0 if all(always_parting) else INNERMOST
    stretched = [_stretching(site, choice) for site, choice in zip(sites.sites, labels, strict=True)]
    aside = list(map(_aside, sites.sites, labels, stored))
    # Under these weights no sum of a lesser aim reaches one of a greater.
    most = sum(min(len(ports) - 1, len(orders) - 1) for _, ports, orders in parts)
    closeness = sum(map(max, filter(None, aside))) + most * (1 + parting) + INNERMOST * sum(map(any, stretched))
    weights = Weights(per_byte=(most + 1) * (closeness + 1), per_transpose=closeness + 1)
    costs = tuple(map(_costs, sites.sites, labels, stretched, aside, repeat(weights)))
    hard = hard_pairs(parts) if sites.per_scattered else None
    each = 0 if hard is None else sites.per_scattered * weights.per_byte
    if each:
        costs = tuple(
            tuple([cost + each * scattered_by(sites, site, label) for cost, label in zip(prices, choice, strict=True)])
            if choice
            else prices
            for site, choice, prices in zip(sites.sites, labels, costs, strict=True)
        )
    sizes = [
        size_of(root, sites.at if dims is None else dims, sites.likely) * sites.repeats.get(root, 1)
        for root, _, _ in parts
    ]
    version = sites.graph.opset_imports.get("", 1)
    still = [1 if is_transposed(root.value.dtype, version) else AVOIDED * len(ports) for root, ports, _ in parts]
    # Where the source has a Transpose, one costs a little less: what a runtime fuses there stays together.
    moved_roots = {follow.stands[move.root.index] for move in sites.moves}
    values = [
        Value(
            weights.of(size + sites.per_transpose) * avoided + (root.index not in moved_roots) + parting * all_part,
            ports[0],
            tuple(ports[1:]),
            pairs,
            size * each,
        )
        for (root, ports, _), size, all_part, avoided, pairs in zip(
            parts, sizes, always_parting, still, hard or [frozenset()] * len(parts), strict=True
        )
    ]
    values += [
        again
        for part, all_part in zip(parts, always_parting, strict=True)
        if not all_part and (again := _innermost(*part)).readers
    ]
    most_axes = sites.most_axes if sum(_moves(*part[1:], sites.most_axes) for part in parts) <= MOST_MOVES else 0
    for part, size in zip(parts, sizes, strict=True):
        values += _further_moves(part, most_axes, size * weights.per_byte)
    numbered = [root for root, _, _ in parts], [considered for _, _, considered in parts]
    problem = Problem(costs, tuple(values), weights.per_transpose)
    return Formulation(sites, labels, problem, *numbered, sizes, weights, considered.capped, follow, most_axes)


def _parts(sites: Sites, follow: Aggregation, stored: "Sequence[Stored]", dims: Mapping[str, int]) -> list[Part]:
    """Return the values that may have to be transposed: computed, read, and in several orders under some labels.

    Orders that differ in axes of one element are one.
    """
    parts: list[Part] = []
    for root, (producer, readers) in zip(sites.roots, _ends(sites, follow), strict=True):
        if producer is None or not readers or root.constant or root.is_empty:
            continue
        dense: dict[int, int] = {}
        alike = orders_alike(root, dims)
        ends = (_dense(index, port, stored[index], dense, alike) for index, port in (producer, *readers))
        # Each once: what has the same order as another end under every label costs nothing more.
        ports = list(dict.fromkeys(ends))
        if len(ports) > 1 and len(dense) > 1:
            parts.append((root, ports, [root.space.orders[number] for number in dense]))
    return parts


def hard_pairs(parts: Iterable[Part]) -> list[frozenset[tuple[int, int]]] | None:
    """The pairs of orders of each value between which a Transpose takes single elements; None where they are many."""
    pairs_by_value, count = [], 0
    for part in parts:
        pairs_by_value.append(scattering(*part))
        count += len(pairs_by_value[-1])
        if count > MOST_PAIRS:
            return None
    return pairs_by_value


def _moves(ports: Sequence[ValueEnd], orders: Sequence[Order], most: int) -> int:
    """Count the pairs of orders of a value between which it may take more than one Transpose."""
    if not 0 < most < max(map(len, orders)):
        return 0
    producer, *readers = ports
    return len(set(producer.orders)) * len({number for reader in readers for number in reader.orders})


def _further_moves(
    part: Part,  # the value
    most: int,  # axes that one Transpose moves at most; 0: any number
    price: int,  # of moving it once
) -> Iterator[Value]:
    """Yield a value again, once for each Transpose beyond the first that some pair of its orders takes."""
    root, (producer, *readers), orders = part
    if not _moves(part[1], orders, most):
        return
    reader_orders = {number for reader in readers for number in reader.orders}
    needed = {
        (start, order): transposes_needed(root, orders[start], orders[order], most)
        for start in set(producer.orders)
        for order in reader_orders
    }
    for count in range(2, max(needed.values()) + 1):
        dear = frozenset(pair for pair, times in needed.items() if times >= count)
        yield Value(0, producer, tuple(readers), dear, price)


def _part_runs(root: Root, orders: Sequence[Order]) -> bool:
    return len({_run(root, order) for order in orders}) == len(orders)


def _innermost(root: Root, ports: Sequence[ValueEnd], orders: Sequence[Order]) -> Value:
    """Return a value again, in orders that differ only in the runs that lie together: what it costs to part these."""
    number: dict[Order, int] = {}
    runs = [number.setdefault(_run(root, order), len(number)) for order in orders]
    ends = [ValueEnd(port.node, tuple([runs[order] for order in port.orders])) for port in ports]
    producer, *readers = dict.fromkeys(ends)
    return Value(INNERMOST, producer, tuple(readers) if len(number) > 1 else ())


def _run(root: Root, order: Order) -> Order:
    """Return the factor that is innermost in an order; the whole order where that is too short for a run."""
    return order[-1:] if is_run([root.extents[order[-1]]]) else order


def with_source(sites: Sites, formulation: Formulation) -> Candidates:
    """The labels with the source's own order added: whatever else fails, the result is no worse than the source."""
    pairs = zip(sites.sites, formulation.labels, strict=True)
    return Candidates([list(dict.fromkeys([*labels, identity(site)])) for site, labels in pairs], formulation.capped)


def _ends(sites: Sites, follow: Aggregation) -> Iterator[tuple[tuple[int, Port] | None, list[tuple[int, Port]]]]:
    """Return the producer and the readers of every root; those of all that it stands for."""
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


Stored = Sequence[tuple[int, ...]]  # label of a site -> the number of the stored order of each operand


def _dense(
    index: int, port: Port, stored: Stored, dense: dict[int, int], alike: Callable[[int], int] | None
) -> ValueEnd:
    """Return an operand of the problem; of the orders of its value only those count that some end may have."""
    numbers = [operands[port.position] for operands in stored]
    if alike is not None:
        numbers = list(map(alike, numbers))
    return ValueEnd(index, tuple([dense.setdefault(number, len(dense)) for number in numbers]))


def far(follower: Site, order: int) -> int:
    """Return how far a follower is from the source in an order: by that order, and by stretching an operand in short
    runs.
    """
    return follower.pattern.of(_is_far, order, follower, order)


def _is_far(follower: Site, order: int) -> int:
    label = passing_on(follower, order)
    short = follower.signature.broadcast and span(follower, label) < SPAN
    return (stored_order_numbers(follower, label) != source_numbers(follower)) + INNERMOST * short


def _costs(
    site: Site, choice: Sequence[Label], stretched: Sequence[bool], aside: Sequence[int], weights: Weights
) -> tuple[int, ...]:
    """Return what each label costs by itself: its price in bytes, and a little for being far from the source, or if it
    stretches an operand in short runs.
    """
    if not choice:
        return (0,)
    price = site.signature.price
    prices = [0] * len(choice)
    if price is not None and site.signature.is_priced:
        prices = [site.runs * price(placement(site, label)) for label in choice]
    if len(choice) == 1:
        return (prices[0] * weights.per_byte,)
    costs = [cost * weights.per_byte + far for cost, far in zip(prices, aside, strict=True)]
    return tuple(
        [cost + INNERMOST * short for cost, short in zip(costs, stretched, strict=True)] if stretched else costs
    )


def _aside(site: Site, choice: Sequence[Label], stored: Stored) -> tuple[int, ...]:
    """Return how far each label is from the source: from its order, from its variant (a matrix keeps its transposition
    where its columns move), from its one operator; () where there is no choice.
    """
    if len(choice) <= 1:
        return ()
    source = source_numbers(site)
    if choice[0].variant < 0:
        return tuple([int(label_orders != source) for label_orders in stored])
    variants = site.signature.variants
    return tuple(
        [
            sum(map(ne, label_orders, source))
            + (label.variant > 0)
            + SEVERAL * (variants[label.variant].steps is not None)
            for label_orders, label in zip(stored, choice, strict=True)
        ]
    )


def scattered_by(sites: Sites, site: Site, label: Label) -> int:
    """The bytes that an operator gives element by element, where it stretches an operand; dynamic extents as likely."""
    if not stretches_elements(site, label):
        return 0
    return size_of(next(port.view.root for port in site.ports if port.output), sites.at, sites.likely)


def _stretching(site: Site, choice: Sequence[Label]) -> tuple[bool, ...]:
    """Tell of each label whether an operator then stretches one operand over another in short runs; () where all labels
    do or none does.
    """
    if not site.signature.broadcast or len(choice) <= 1:
        return ()
    return site.pattern.of(_short, tuple(choice), site, choice)


def _short(site: Site, choice: Sequence[Label]) -> tuple[bool, ...]:
    short = tuple([span(site, label) < SPAN for label in choice])
    return short if len(set(short)) > 1 else ()
