"""Which orders each site may take: those that some pin demands, carried along the axes to a fixed point.

An optimal plan exists that uses only such orders: a connected group stored in an order that no pin inside it asks for
can take a neighbour's order at no cost. A label of a site is one order of all of its factors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice

from relayout.infer.graph_sites import Sites
from relayout.infer.presolve import Aggregation, result
from relayout.infer.sites import Form, Label, Order, Placed, Port, Site, order_of
from relayout.layout import Extent, product
from relayout.rules import Letters, Placement
from relayout.rules.signature import Part, Variant, parts_of

CAP = 16384
"""The most labels a site may have; what is dropped is said in the report."""

MOST, EACH = 120_000, 64
"""The most labels of a graph: so many, or so many for each of its sites. Orders of windows, heads and pieces of an axis
multiply where blocks are rolled and merged."""
FEWER = 4
"""Where there are more, nothing can be proved, and so many times fewer are taken: those that are found first, nearest
to what some site demands."""


@dataclass
class Candidates:
    """The labels of every site, none of those that follow others, and whether a cap dropped some."""

    labels: list[list[Label]]
    capped: bool = False


def placed(site: Site, label: Label, port: Port) -> Placed:
    """The stored dimensions of one operand under a label."""
    known = site.pattern.placed.get((label, port.position))
    if known is None:
        dims, form = _placed(site, label, port)
        known = site.pattern.placed[label, port.position] = Placed(dims, form, order_of(form))
    return known


def variant_of(site: Site, label: Label) -> Variant | None:
    """The variant that decides where a site's axes lie under a label; None where they lie as the label says."""
    variant = site.signature.variants[label.variant] if label.variant >= 0 else None
    return None if variant is None or variant.free else variant


def orders(site: Site, label: Label) -> tuple[Order, ...]:
    """The stored order of every operand under a label."""
    return site.pattern.of(_orders, label, site, label)


def _orders(site: Site, label: Label) -> tuple[Order, ...]:
    return tuple([_order(site, label, port) for port in site.ports])


def stored_order_numbers(site: Site, label: Label) -> tuple[int, ...]:
    """The number of the stored order of every operand under a label, in its value's space."""
    known = site.pattern.numbers.get(label)
    if known is None:
        known = site.pattern.numbers[label] = _numbers(site, orders(site, label))
    return known


def source_numbers(site: Site) -> tuple[int, ...]:
    """The number of the order in which the source graph stores each operand."""
    return site.pattern.of(_source_numbers, None, site)


def _source_numbers(site: Site) -> tuple[int, ...]:
    return _numbers(site, [order_of(port.view.form) for port in site.ports])


def _numbers(site: Site, stored: Sequence[Order]) -> tuple[int, ...]:
    return tuple([port.view.root.space.orders.number(order) for port, order in zip(site.ports, stored, strict=True)])


def _order(site: Site, label: Label, port: Port) -> Order:
    """The stored order of one operand under a label: its factors as they come, where no dimension is made of others."""
    if port.pinned or variant_of(site, label) or site.pattern.of(_apart, None, site):
        return placed(site, label, port).order
    lies = port.factors
    return tuple([leaf for factor in label.order if factor in lies for leaf in lies[factor]])


def _apart(site: Site) -> bool:
    """Whether an operand holds in several dimensions an axis that must lie in one."""
    return any(len(port.dims(letter)) > 1 for port in site.ports for letter in site.whole)


def _placed(site: Site, label: Label, port: Port) -> tuple[tuple[tuple[str, Extent], ...], Form]:
    if port.pinned:
        return tuple(zip(port.letters, port.view.extents, strict=True)), port.view.form
    root = port.view.root
    variant = variant_of(site, label)
    dims: list[tuple[str, tuple[int, ...]]] = []
    for letter, run in _runs(site, label, port):
        held = [port.factors.get(factor, ()) for factor in run]
        axes = port.dims(letter.rstrip("%").partition("*")[0])
        if letter in site.whole and len(axes) > 1 and variant is None:
            dims += [(letter, port.view.form[axis]) for axis in axes]
        elif axes or (letter in site.signature.stretched and not port.output):
            dims.append((letter, tuple(index for indices in held for index in indices)))
    if site.signature.broadcast and not site.signature.variants:
        while len(dims) > len(port.letters) and not dims[0][1] and dims[0][0] not in port.letters:
            del dims[0]
    if "*" in site.signature.exchanged and variant is None and _is_exchanged(site, label.order):
        dims = _joined_behind(dims, site.signature.tail)
    extents = tuple((letter, product(root.extents[index] for index in indices)) for letter, indices in dims)
    return extents, tuple(indices for _, indices in dims)


def _joined_behind(dims: list[tuple[str, tuple[int, ...]]], tail: Letters) -> list[tuple[str, tuple[int, ...]]]:
    """Stored dimensions with those behind the tail's axes as one."""
    end = 1 + max(place for place, (letter, _) in enumerate(dims) if letter in tail)
    behind = [index for _, indices in dims[end:] for index in indices]
    return [*dims[:end], ("*", tuple(behind))] if end < len(dims) else dims


def _runs(site: Site, label: Label, port: Port) -> Iterator[tuple[str, list[int]]]:
    """Factors of the site that make one stored dimension, in order."""
    variant = variant_of(site, label)
    if variant is not None:
        stored = (variant.outputs if port.output else variant.inputs)[0 if site.node is None else port.slot]
        # What one operand holds in tiles keeps the source's order in all of them.
        kept = site.whole.union(letter for letter, _ in variant.tiles)
        for parts in map(parts_of, dict.fromkeys(stored or ())):
            runs = [_part(site, label, port, part, part.letter in kept) for part in parts]
            yield "*".join(part.letter for part in parts), [factor for run in runs for factor in run]
        return
    for letter, run in groupby(label.order, key=lambda factor: site.factors[factor][0]):
        factors = list(run)
        if letter not in site.grain:
            yield letter, factors
            continue
        # The axis itself begins with what stays together; what a grain holds before it lies in a dimension of its own.
        first = next((place for place, factor in enumerate(factors) if site.factors[factor][1] == 0), len(factors))
        if first:
            yield f"{letter}%", factors[:first]
        if first < len(factors):
            yield letter, factors[first:]


def _part(site: Site, label: Label, port: Port, part: Part, kept: bool) -> list[int]:
    """List the factors of a part of a variant's dimension; `kept`: in the source's order."""
    held = [factor for factor in label.order if site.factors[factor][0] == part.letter]
    if kept:
        held.sort()
    return _tiled(held, part, port) if part.tile else held


def _tiled(held: list[int], part: Part, port: Port) -> list[int]:
    """Of the factors of an axis in tiles, in the source's order, those of the tile, or the others."""
    size, first = 1, len(held)
    while size < part.tile and first:
        first -= 1
        for leaf in port.factors.get(held[first], ()):
            size *= port.view.root.extents[leaf].number
    return held[first:] if part.inner else held[:first]


@dataclass(eq=False, slots=True)
class _Found:
    """What was found for one site so far.

    Args:
        site: the site.
        roots: operand -> the number of the value that stands for it; -1 for a constant.
        labels: numbers of the stored orders of its operands -> the label.
        held: operand -> the numbers of the orders in which some label stores it, as bits.
        bases: factors -> how many labels were looked at, and the orders that differ in the other factors.
    """

    site: Site
    roots: list[int]
    labels: dict[tuple[int, ...], Label]
    held: list[int]
    bases: dict[frozenset[int], tuple[int, dict[Order, Order]]]


class _Search:
    def __init__(self, sites: Sites, follow: Aggregation, most: int) -> None:
        self.found: list[_Found] = []
        self.ends: list[list[tuple[_Found, int]]] = [[] for _ in sites.roots]
        for number, site in enumerate(sites.sites):
            if number in follow.leads:
                continue
            roots = [-1 if port.view.root.constant else follow.stands[port.view.root.index] for port in site.ports]
            found = _Found(site, roots, {}, [0] * len(roots), {})
            self.found.append(found)
            for position, port in enumerate(site.ports):
                if not port.pinned and roots[position] >= 0:
                    self.ends[roots[position]].append((found, position))
        self.known = [0] * len(sites.roots)
        self.queue: deque[tuple[int, int]] = deque()
        self.capped = False
        self.left = most

    def run(self) -> list[list[Label]]:
        """The labels of each site that follows no other, in the order of the sites."""
        for found in self.found:
            for label in seeds(found.site):
                self.add(found, label)
        self.spread()
        for found in self.found:
            if not found.labels:
                self.add(found, identity(found.site))
                self.spread()
        return [list(found.labels.values()) for found in self.found]

    def spread(self) -> None:
        while self.queue:
            root, number = self.queue.popleft()
            for found, position in self.ends[root]:
                if not found.held[position] >> number & 1:
                    for label in _storing(found, position, number):
                        self.add(found, label)

    def add(self, found: _Found, label: Label) -> None:
        key = stored_order_numbers(found.site, label)
        if key in found.labels:
            return
        if found.labels and (len(found.labels) >= CAP or self.left <= 0):
            self.capped = True
            return
        found.labels[key] = label
        self.left -= 1
        for position, number in enumerate(key):
            if found.held[position] >> number & 1:
                continue
            found.held[position] |= 1 << number
            root = found.roots[position]
            if root >= 0 and not self.known[root] >> number & 1:
                self.known[root] |= 1 << number
                self.queue.append((root, number))


def _storing(found: _Found, position: int, number: int) -> Sequence[Label]:
    """Labels of a site that store one operand in that order, as far as its signature allows."""
    site = found.site
    factors, labels = site.pattern.of(_alone, (position, number), site, position, number)
    return _extended(site, factors, _bases(found, frozenset(factors))) if labels is None else labels


def _alone(site: Site, position: int, number: int) -> tuple[tuple[int, ...], list[Label] | None]:
    """The site's factors as that order of an operand holds them; the labels, if they follow from that alone."""
    port = site.ports[position]
    factors = _factors(port, port.view.root.space.orders[number])
    if factors is None:
        return (), []
    if site.signature.variants or not _others(site, factors):
        return factors, _extended(site, factors, [identity(site).order])
    return factors, None


def _bases(found: _Found, inside: frozenset[int]) -> list[Order]:
    """The orders that a site has so far, one of those that hold the factors not `inside` alike: these give the same
    labels.
    """
    seen, alike = found.bases.get(inside, (0, {}))
    new = islice(found.labels.values(), seen, None)
    for order in chain(() if seen else (identity(found.site).order,), (label.order for label in new)):
        alike.setdefault(tuple([-1 if factor in inside else factor for factor in order]), order)
    found.bases[inside] = len(found.labels), alike
    return list(alike.values())


def _factors(port: Port, order: Order) -> tuple[int, ...] | None:
    """The site's factors as an order of one operand holds them; None where a file states another shape than it has."""
    owner = {leaf: factor for factor, held in port.factors.items() for leaf in held}
    return tuple(owner[leaf] for leaf in order) if owner.keys() >= set(order) else None


def _others(site: Site, factors: Sequence[int]) -> bool:
    """Whether operands move in factors beside these."""
    return any(held and factor not in factors for port in site.free_ports() for factor, held in port.factors.items())


def _extended(site: Site, factors: Sequence[int], bases: Sequence[Order]) -> list[Label]:
    """The labels that hold `factors` in that order, and the others as one of `bases` does."""
    wanted = list(dict.fromkeys(factors))
    if site.signature.variants:
        order = _slotted(range(len(site.factors)), wanted)
        letters = [letter for letter, _ in groupby(site.factors[factor][0] for factor in wanted)]
        return [Label(order, variant) for variant in _offered(site.signature.variants, letters)]
    # An axis that must be one dimension is gathered where its first factor lies, and where its last does: which of
    # the two suits the other readers is not known here.
    found = [repaired(site, _slotted(base, wanted)) for base in bases]
    if len(wanted) < len(factors) or site.signature.block:
        late = list(reversed(dict.fromkeys(reversed(factors))))
        found += [repaired(site, _slotted(base, late), late=True) for base in bases]
    return [Label(order) for order in dict.fromkeys(found)]


def _offered(variants: Sequence[Variant], letters: Sequence[str]) -> list[int]:
    """The variants to try where an operand comes with its axes in this order, in pieces where one comes twice."""
    named = list(dict.fromkeys(letters))
    found = [number for number, variant in enumerate(variants) if not variant.follows]
    if len(found) == len(variants):
        return found
    if not any(variants[number].holds(named) for number in found):
        found += [
            number for number, each in enumerate(variants) if each.follows and not each.free and each.holds(named)
        ]
    if not any(variants[number].holds(letters) for number in found):
        found += [number for number, each in enumerate(variants) if each.free]
    return found


def placement(site: Site, label: Label) -> Placement:
    """Where the axes of a node's operands lie under a label."""
    assert site.node is not None
    inputs: list[tuple[tuple[str, Extent], ...] | None] = [None] * len(site.node.inputs)
    outputs: list[tuple[tuple[str, Extent], ...] | None] = [None] * len(site.node.outputs)
    for port in site.ports:
        if not port.pinned and port.slot >= 0:
            (outputs if port.output else inputs)[port.slot] = placed(site, label, port).dims
    return Placement(tuple(inputs), tuple(outputs), site.runs)


def candidates(sites: Sites, follow: Aggregation | None = None) -> Candidates:
    """The labels of every site.

    Args:
        sites: the graph.
        follow: which sites follow others (default: none).
    """
    follow = follow or Aggregation.of_none(sites.roots)
    most = max(MOST, EACH * len(sites.sites))
    search = _Search(sites, follow, most)
    labels = search.run()
    if search.capped:
        search = _Search(sites, follow, most // FEWER)
        labels = search.run()
    left = iter(labels)
    every = [[] if number in follow.leads else next(left) for number in range(len(sites.sites))]
    return Candidates(every, search.capped)


def passing_on(site: Site, number: int) -> Label:
    """The label of a site that follows another: what it gives, and what it reads, is in that order."""
    return site.pattern.of(_passing_on, number, site, number)


def _passing_on(site: Site, number: int) -> Label:
    _, labels = _alone(site, result(site).position, number)
    assert labels
    return labels[0]


def identity(site: Site) -> Label:
    """The label under which the site runs as in the source graph."""
    return Label(tuple(range(len(site.factors))), 0 if site.signature.variants else -1)


def seeds(site: Site) -> list[Label]:
    """The labels that a site demands by itself: its variants, or its own order where axes must lie last.

    Where orders have prices, each axis may be wanted last.
    """
    everything = tuple(range(len(site.factors)))
    if site.signature.price is not None and not site.signature.variants:
        orders = [everything]
        for letter in site.signature.letters:
            last = [factor for factor in everything if site.factors[factor][0] == letter]
            orders.append((*(factor for factor in everything if factor not in last), *last))
        priced = (Label(repaired(site, order)) for order in orders)
        return list(dict.fromkeys(priced)) if site.signature.price(placement(site, Label(everything))) else []
    if site.signature.variants:
        variants = enumerate(site.signature.variants)
        return [Label(everything, number) for number, variant in variants if not variant.follows]
    if not site.free_ports() or site.signature.tail or site.signature.head:
        return [Label(repaired(site, everything))]
    return []


def _slotted(base: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """`base` with the factors in `wanted` in that order, in the places that they take in `base`."""
    chosen = iter(wanted)
    inside = set(wanted)
    return tuple(next(chosen) if factor in inside else factor for factor in base)


def repaired(site: Site, order: Sequence[int], *, late: bool = False) -> tuple[int, ...]:
    """The nearest order that the signature allows: blocks gathered where they begin (or end), head first, tail last."""
    signature = site.signature
    if not (signature.block or signature.head or signature.tail):
        return tuple(order)
    groups = site.pattern.of(_groups, None, site)
    ends = site.pattern.of(_ends, None, site)
    gathered = list(order)
    if groups:
        seen: dict[int, list[int]] = {}
        for factor in reversed(order) if late else order:
            seen.setdefault(groups.get(factor, factor), []).append(factor)
        gathered = list(chain.from_iterable(seen.values()))
        if late:
            gathered.reverse()
    if signature.exchanged and (turned := _turned(site, gathered)):
        return turned
    if not ends:
        return tuple(gathered)
    # A stable sort: what is neither head nor tail keeps its place.
    return tuple(sorted(gathered, key=lambda factor: ends.get(factor, 0)))


def _turned(site: Site, order: Sequence[int]) -> tuple[int, ...] | None:
    """The nearest order in which a product has its operands exchanged; None where the other way is nearer.

    Args:
        site: the product.
        order: its factors, each block together.
    """
    tail, exchanged = site.signature.tail, site.signature.exchanged
    letters = [letter for letter, _ in site.factors]
    held = {letter: [factor for factor in order if letters[factor] == letter] for letter in tail}
    place = min(order.index(factors[0]) for factors in held.values()) if "*" in exchanged else len(order)
    front = [factor for factor in order[:place] if letters[factor] not in tail]
    behind = [factor for factor in order[place:] if letters[factor] not in tail]
    nearer = not behind if "*" in exchanged else not _is_exchanged(site, order)
    return None if nearer else (*front, *chain.from_iterable(held.get(letter, behind) for letter in exchanged))


def _is_exchanged(site: Site, order: Sequence[int]) -> bool:
    """Whether the tail's axes come in another order than the tail's."""
    met = dict.fromkeys(site.factors[factor][0] for factor in order)
    return [letter for letter in met if letter in site.signature.tail] != list(site.signature.tail)


def _groups(site: Site) -> dict[int, int]:
    """Factor of an axis that lies in one block -> the first factor of that axis."""
    first: dict[str, int] = {}
    letters = [letter for letter, _ in site.factors]
    return {f: first.setdefault(letter, f) for f, letter in enumerate(letters) if letter in site.signature.block}


def _ends(site: Site) -> dict[int, int]:
    """Factor of an axis at the head or the tail -> its place: below 0 at the head, above at the tail."""
    head, tail = site.signature.head, site.signature.tail
    place = {letter: 1 + index for index, letter in enumerate(tail)}
    place |= {letter: index - len(head) for index, letter in enumerate(head)}
    return {f: place[letter] for f, (letter, _) in enumerate(site.factors) if letter in place}
