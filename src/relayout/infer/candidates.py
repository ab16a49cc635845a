"""Which orders each site may take: those that some pin demands, carried along the axes to a fixed point.

An optimal plan exists that uses only such orders: a connected group stored in an order that no pin inside it asks for
can take a neighbour's order at no cost. A label of a site is one order of all of its factors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from itertools import chain, groupby, islice

from relayout.infer.allowed_orders import ends_of, identity, repaired
from relayout.infer.graph_sites import Sites
from relayout.infer.presolve import Aggregation, result
from relayout.infer.sites import Label, Order, Site
from relayout.infer.stored_orders import placed, stored_order_numbers
from relayout.layout import Extent
from relayout.light_dataclass import dataclass
from relayout.rules import Placement
from relayout.rules.signature import Variant

CAP = 16384  # the most labels a site may have; what is dropped is said in the report

MOST, EACH = 120_000, 64
"""The most labels of a graph: so many, or so many for each of its sites. Orders of windows, heads and pieces of an axis
multiply where blocks are rolled and merged."""
FEWER = 4
"""Where there are more, nothing can be proved, and so many times fewer are taken: those that are found first, nearest
to what some site demands."""


COMBINED = 6
"""Factors of a site up to which each order of an operand is tried with each order of the axes that it does not have,
whichever was found first: a product's operand has not the other's columns. Where windows and heads are merged there are
more, and orders would multiply."""
FIRST = 12
"""A site with more factors combines orders until it has so many labels. Later orders of an operand are tried with the
source's order of the axes that it does not have."""


@dataclass
class Candidates:
    """The labels of every site, none of those that follow others, and whether a cap dropped some."""

    labels: list[list[Label]]
    capped: bool = False


@dataclass(eq=False, slots=True)
class _SearchedSite:
    """The findings for one site so far."""

    site: Site
    roots: list[int]  # operand -> the number of the value that stands for it; -1 for a constant
    labels: dict[tuple[int, ...], Label]  # numbers of the stored orders of its operands -> the label
    order_bits: list[int]  # operand -> the numbers of the orders in which some label stores it, as bits
    partial: tuple[int, ...]  # operands that some value stands for, and that have not all axes that move
    combined: bool  # whether these are tried with all orders of the axes that they do not have
    # axes -> how many labels were looked at, and the orders that differ in the other axes
    bases: dict[frozenset[str], tuple[int, dict[Order, Order]]] = field(default_factory=dict)
    # operand and number of an order -> with how many of these it was tried
    tried: dict[tuple[int, int], int] = field(default_factory=dict)


class _Search:
    def __init__(self, sites: Sites, follow: Aggregation, most: int) -> None:
        self.searched_sites: list[_SearchedSite] = []
        self.ends: list[list[tuple[_SearchedSite, int]]] = [[] for _ in sites.roots]
        for number, site in enumerate(sites.sites):
            if number in follow.leads:
                continue
            roots = [-1 if port.view.root.constant else follow.stands[port.view.root.index] for port in site.ports]
            partial = tuple(place for place in site.pattern.of(_partial, None, site) if roots[place] >= 0)
            combined = bool(partial) and len(site.factors) <= COMBINED
            searched = _SearchedSite(site, roots, {}, [0] * len(roots), partial, combined)
            self.searched_sites.append(searched)
            for position, port in enumerate(site.ports):
                if not port.pinned and roots[position] >= 0:
                    self.ends[roots[position]].append((searched, position))
        self.known = [0] * len(sites.roots)
        self.queue: deque[tuple[int, int]] = deque()
        self.grown: dict[
            _SearchedSite, None
        ] = {}  # sites with new labels, to be combined with the orders of their operands
        self.capped = False
        self.remaining = most

    def run(self) -> list[list[Label]]:
        """Return the labels of each site that follows no other, in the order of the sites."""
        for searched in self.searched_sites:
            for label in seeds(searched.site):
                self.add(searched, label)
        self.spread()
        for searched in self.searched_sites:
            if not searched.labels:
                self.add(searched, identity(searched.site))
                self.spread()
        return [list(searched.labels.values()) for searched in self.searched_sites]

    def spread(self) -> None:
        while self.queue or self.grown:
            while self.queue:
                root, number = self.queue.popleft()
                for searched, position in self.ends[root]:
                    if searched.combined or not searched.order_bits[position] >> number & 1:
                        self.store(searched, position, number)
            if self.grown:
                self.combine(self.grown.popitem()[0])

    def store(self, searched: _SearchedSite, position: int, number: int) -> None:
        for label in _storing(searched, position, number):
            self.add(searched, label)

    def combine(self, searched: _SearchedSite) -> None:
        """Try the orders of each operand that has not all axes with the site's latest labels."""
        for position in searched.partial:
            numbers = self.known[searched.roots[position]]
            while numbers:
                self.store(searched, position, (numbers & -numbers).bit_length() - 1)
                numbers &= numbers - 1

    def add(self, searched: _SearchedSite, label: Label) -> None:
        key = stored_order_numbers(searched.site, label)
        if key in searched.labels:
            return
        if searched.labels and (len(searched.labels) >= CAP or self.remaining <= 0):
            self.capped = True
            return
        searched.labels[key] = label
        self.remaining -= 1
        if searched.combined:
            self.grown[searched] = None
        for position, number in enumerate(key):
            if searched.order_bits[position] >> number & 1:
                continue
            searched.order_bits[position] |= 1 << number
            root = searched.roots[position]
            if root >= 0 and not self.known[root] >> number & 1:
                self.known[root] |= 1 << number
                self.queue.append((root, number))


def _storing(searched: _SearchedSite, position: int, number: int) -> Sequence[Label]:
    """Labels of a site that store one operand in that order, as far as its signature allows."""
    site = searched.site
    factors, labels = site.pattern.of(_alone, (position, number), site, position, number)
    if labels is not None:
        return labels
    bases: Sequence[Order] = (identity(site).order,)
    if searched.combined or len(searched.labels) < FIRST:
        bases = _bases(searched, frozenset([site.factors[factor][0] for factor in factors]))
    tried = searched.tried.get((position, number), 0)
    searched.tried[position, number] = len(bases)
    new = tuple(bases[tried:])
    return site.pattern.of(_extended, (factors, new), site, factors, new) if new else ()


def _partial(site: Site) -> tuple[int, ...]:
    """Return the operands that have not all axes that move in some operand."""
    letters = {site.factors[factor][0] for factor in site.pattern.of(_moving_factors, None, site)}
    places = ((place, port) for place, port in enumerate(site.ports) if not port.pinned)
    return tuple(place for place, port in places if not letters <= {site.factors[f][0] for f in port.factors})


def _alone(site: Site, position: int, number: int) -> tuple[tuple[int, ...], list[Label] | None]:
    """Return the site's factors as that order of an operand holds them; the labels, if they follow from that alone."""
    port = site.ports[position]
    order = port.view.root.space.orders[number]
    owner = {leaf: factor for factor, leaves in port.factors.items() for leaf in leaves}
    if not owner.keys() >= set(order):  # a file states another shape than the value has
        return (), []
    factors = tuple(owner[leaf] for leaf in order)
    if site.pattern.of(_moving_factors, None, site) <= set(factors):
        return factors, _extended(site, factors, [identity(site).order])
    return factors, None


def _bases(searched: _SearchedSite, axes: frozenset[str]) -> Sequence[Order]:
    """Return the orders that a site has so far, one of those in which all other axes lie alike."""
    seen, alike = searched.bases.get(axes, (0, {}))
    new = islice(searched.labels.values(), seen, None)
    letters = [letter for letter, _ in searched.site.factors]
    for order in chain(() if seen else (identity(searched.site).order,), (label.order for label in new)):
        alike.setdefault(tuple([-1 if letters[factor] in axes else factor for factor in order]), order)
    searched.bases[axes] = len(searched.labels), alike
    return list(alike.values())


def _moving_factors(site: Site) -> frozenset[int]:
    """Return the factors in which some operand may move."""
    return frozenset(factor for port in site.free_ports() for factor, leaves in port.factors.items() if leaves)


def _extended(site: Site, factors: Sequence[int], bases: Sequence[Order]) -> list[Label]:
    """Return the labels that hold `factors` in that order, and the other axes as one of `bases` does."""
    distinct_factors = list(dict.fromkeys(factors))
    if site.signature.variants:
        letters = [letter for letter, _ in groupby(site.factors[factor][0] for factor in distinct_factors)]
        orders = dict.fromkeys(_slotted(site, base, distinct_factors) for base in bases)
        return [Label(order, variant) for order in orders for variant in _offered(site.signature.variants, letters)]
    # An axis that must be one dimension is gathered where its first factor lies, and where its last does: which of
    # the two suits the other readers is not known here.
    orders_of_labels = [repaired(site, _slotted(site, base, distinct_factors)) for base in bases]
    if len(distinct_factors) < len(factors) or site.signature.block:
        late = list(reversed(dict.fromkeys(reversed(factors))))
        orders_of_labels += [repaired(site, _slotted(site, base, late), late=True) for base in bases]
    return [Label(order) for order in dict.fromkeys(orders_of_labels)]


def _offered(variants: Sequence[Variant], letters: Sequence[str]) -> list[int]:
    """The variants to try where an operand comes with its axes in this order, in pieces where one comes twice."""
    named = list(dict.fromkeys(letters))
    offered_variants = [number for number, variant in enumerate(variants) if not variant.follows]
    if len(offered_variants) == len(variants):
        return offered_variants
    if not any(variants[number].holds(named) for number in offered_variants):
        offered_variants += [
            number for number, each in enumerate(variants) if each.follows and not each.free and each.holds(named)
        ]
    if not any(variants[number].holds(letters) for number in offered_variants):
        offered_variants += [number for number, each in enumerate(variants) if each.free]
    return offered_variants


def placement(site: Site, label: Label) -> Placement:
    """Return where the axes of a node's operands lie under a label."""
    assert site.node is not None
    inputs: list[tuple[tuple[str, Extent], ...] | None] = [None] * len(site.node.inputs)
    outputs: list[tuple[tuple[str, Extent], ...] | None] = [None] * len(site.node.outputs)
    for port in site.ports:
        if not port.pinned and port.slot >= 0:
            (outputs if port.output else inputs)[port.slot] = placed(site, label, port).dims
    return Placement(tuple(inputs), tuple(outputs), site.runs)


def candidates(sites: Sites, follow: Aggregation | None = None) -> Candidates:
    """Return the labels of every site."""
    follow = follow or Aggregation.of_none(sites.roots)
    most = max(MOST, EACH * len(sites.sites))
    search = _Search(sites, follow, most)
    labels = search.run()
    if search.capped:
        search = _Search(sites, follow, most // FEWER)
        labels = search.run()
    remaining = iter(labels)
    every = [[] if number in follow.leads else next(remaining) for number in range(len(sites.sites))]
    return Candidates(every, search.capped)


def passing_on(site: Site, number: int) -> Label:
    """Return the label of a site that follows another: what it gives, and what it reads, is in that order."""
    return site.pattern.of(_passing_on, number, site, number)


def _passing_on(site: Site, number: int) -> Label:
    _, labels = _alone(site, result(site).position, number)
    assert labels
    return labels[0]


def seeds(site: Site) -> list[Label]:
    """Return the labels that a site demands by itself: its variants, or its own order where axes must lie last.

    Where orders have prices, each axis may be wanted last.
    """
    everything = tuple(range(len(site.factors)))
    if site.signature.transposed:
        places = site.pattern.of(ends_of, True, site, site.signature.transposed)
        return [identity(site), Label(tuple(sorted(everything, key=lambda factor: places.get(factor, 0))))]
    price = site.signature.price
    if price is not None and not site.signature.variants:
        if not site.signature.is_priced or not price(placement(site, Label(everything))):
            return []
        orders = [everything]
        for letter in site.signature.letters:
            last = [factor for factor in everything if site.factors[factor][0] == letter]
            orders.append((*(factor for factor in everything if factor not in last), *last))
        return list(dict.fromkeys(Label(repaired(site, order)) for order in orders))
    if site.signature.variants:
        variants = enumerate(site.signature.variants)
        return [Label(everything, number) for number, variant in variants if not variant.follows]
    if not site.free_ports() or site.signature.tail or site.signature.head:
        return [Label(repaired(site, everything))]
    return []


def _slotted(site: Site, base: Sequence[int], factors: Sequence[int]) -> tuple[int, ...]:
    """`base` with the factors in `factors` in that order, in the places that they take in `base`.

    A piece of one of their axes that is not among them lies beside the others, as in the source.
    """
    chosen = iter(factors)
    inside = set(factors)
    order = [next(chosen) if factor in inside else factor for factor in base]
    letters = [letter for letter, _ in site.factors]
    for piece in [factor for factor in range(len(letters)) if factor not in inside]:
        beside = [factor for factor in order if factor in inside and letters[factor] == letters[piece]]
        if beside:
            order.remove(piece)
            first = piece < min(beside)
            order.insert(order.index(beside[0]) if first else order.index(beside[-1]) + 1, piece)
    return tuple(order)
