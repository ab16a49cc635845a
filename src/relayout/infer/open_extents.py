"""Open extents: what is known of those that have no name, and what all of them may be in a run.

Shape inference makes up a name for what it cannot find: what a Tile gives whose repeats are computed. Such an extent is
bounded by those beside it: it is as long as another operand's, at least as long as what the operator repeats, joins or
pads, or at most as long as what it cuts. A price takes the least, and 1 for whatever else is open.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain, combinations
from types import MappingProxyType
from typing import NamedTuple

import onnx_ir as ir

from relayout.infer.sites import Order, Port, Root, Site
from relayout.layout import ONE, Dim, Extent, Learned, product, quotient
from relayout.layout.stored_as import CLAIMED
from relayout.rules.operator import WRAPPING, is_static

# The extents of values: as numbers where they are known, and what the graph tells of the dynamic ones.


class ValueExtents:
    """The extents of the values of one graph.

    A dynamic extent that some Reshape divides by a number is that many times its quotient, everywhere.

    Attributes:
        learned: the same, with what was found.
        symbolic: some extents are not numbers.
        declared: what the inputs call their open extents.
        named: an extent as the product that it is -> the name that the source has for it.
    """

    def __init__(self, known: Learned) -> None:
        self.known = self.learned = known
        self.symbolic = False
        self.declared: set[str] = set()
        self.named: dict[Extent, str] = {}
        self._unknown = 0
        self._static: dict[ir.Value, tuple[int, ...]] = {}
        self._unnamed: dict[tuple[ir.Value, int], str] = {}
        self._aliases: dict[str, Dim] = dict(known.same)
        self._claimed: dict[str, int] = {}

    def of(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """Return the extents of a value; None where its rank is not known."""
        static_dims = self._static.get(value)
        if static_dims is not None:
            return static_dims
        if value.const_value is not None:
            self._static[value] = tuple(value.const_value.shape.numpy())
            return self._static[value]
        if value.shape is None or type(value.type) in WRAPPING:
            return None  # what a sequence is said to have is its elements' shape
        stated_dims = value.shape.dims
        if is_static(stated_dims):
            self._static[value] = stated_dims
            return stated_dims
        dims: list[Dim] = []
        for axis, dim in enumerate(stated_dims):
            if isinstance(dim, int):
                dims.append(dim)
                continue
            self.symbolic = True
            name = str(dim.value) if dim.value is not None else self._unnamed.setdefault((value, axis), self.symbol())
            known = self._known_as(name)
            if (claimed := value.meta.get(CLAIMED)) is not None and isinstance(claimed[axis], int):
                self._claimed.setdefault(name, claimed[axis])
            dims.append(self._in_quotients(known) if self.known.divisors and isinstance(known, str) else known)
        return tuple(dims)

    def _known_as(self, name: str) -> Dim:
        """Return a dynamic extent as it is known; of a product each factor."""
        if name in self._aliases:
            return self._aliases[name]
        whole = Extent.of(name) if self._aliases else None
        if whole is None or self._aliases.keys().isdisjoint({*whole.symbols, *whole.names}):
            return name
        expression = whole.fixed(self._aliases)
        if expression.is_static:
            return expression.number
        self.named.setdefault(expression, name)
        return str(expression) if Extent.of(str(expression)) == expression else name

    def _in_quotients(self, dim: str) -> Dim:
        """Return a dynamic extent, with the quotients of the divided ones in it."""
        whole = Extent.of(dim)
        rewritten = Extent(whole.number)
        for symbol in whole.symbols:
            inner = quotient(symbol)
            extent, by = inner if inner else (Extent(1, (symbol,)), 1)
            # A divided extent as a number times its quotient; any other as it is.
            wholes = ((Extent(self.known.divisors.get(name, 1)), Extent(1, (name,))) for name in extent.symbols)
            parts = [step * (one.floor(step) or ONE) for step, one in wholes]
            divided = (Extent(extent.number) * product(parts)).floor(Extent(by))
            rewritten = rewritten * (divided or Extent(1, (symbol,)))
        if rewritten == whole:
            return dim
        self.named.setdefault(rewritten, dim)
        return str(rewritten)

    def symbol(self) -> str:
        """Return a name for a dimension that has none."""
        self._unknown += 1
        return f"?{self._unknown}"

    def claims(self) -> dict[str, int]:
        """Return the extents that a file states and nobody names: they count as a price only."""
        return {name: extent for name, extent in self._claimed.items() if name not in self.declared}

    def learn(self, source: Sequence[Extent], target: Sequence[Extent]) -> None:
        """Note what a Reshape tells of extents; it is run every time."""
        if self.symbolic:
            self.learned = self.learned.of(source, target)

    def solved(self, source: Sequence[Extent], target: Sequence[Dim], *, always: bool) -> list[Extent]:
        """The extents behind a Reshape, with the one that inference could not name found from the number of elements.

        Args:
            source: the extents before it.
            target: those behind it, as they are stated.
            always: whether it is run in every inference, so that what it tells holds everywhere.
        """
        known = {symbol for extent in source for symbol in extent.symbols}
        extents = [Extent.of(dim) for dim in target]
        unknown = [axis for axis, extent in enumerate(extents) if set(extent.symbols) - known]
        if len(unknown) != 1:
            return extents
        (axis,) = unknown
        rest = product(extent for position, extent in enumerate(extents) if position != axis)
        missing_extent = product(source).divide(rest) if rest.number else None
        if missing_extent is None:
            return extents
        if always and not self.declared.isdisjoint(extents[axis].symbols):
            self.learn(source, extents)
        unnamed, extents[axis] = extents[axis], missing_extent
        if unnamed.number > 1 or len(unnamed.symbols) > 1:
            return extents  # a product: found is more than its symbol stands for
        (name,) = unnamed.symbols
        single = missing_extent.number == len(missing_extent.symbols) == 1
        if missing_extent.is_static:
            self._aliases[name] = missing_extent.number
        elif Extent.of(str(missing_extent)) == missing_extent and (single or name not in self.declared):
            self._aliases[name] = str(missing_extent)
        return extents


LARGE = 64  # the size of a large open extent in a run; a small one counts as 1
TIMES = 4  # how often an operator may repeat, or pad, what it reads
SEVERAL = 8  # names, and values, that are each large by themselves in some run; beyond that, all or none are


class Bound(Enum):
    """The relation of an extent without a name to those beside it."""

    SAME = "same"
    SUM = "all of them together"
    MORE = "at least as long"
    LESS = "at most the longest"


class Relation(NamedTuple):
    """Bounds of an extent, as far as they are known."""

    symbol: str  # its name, or what shape inference calls it
    bound: Bound  # how it compares with the others
    others: tuple[Extent, ...]  # the extents of the same axis on other operands


def relations(
    site: Site,  # the node
    # the names that the model's inputs state: these may be anything but what is added to another extent
    declared: set[str],
) -> Iterator[Relation]:
    """Find what a node tells of extents that nobody named."""
    signature, free = site.signature, site.free_ports()
    for letter in signature.letters:
        read, written = [
            [port.view.extents[axis] for port in free if port.output == output for axis in port.dims(letter)]
            for output in (False, True)
        ]
        bound, others, known = Bound.SAME, [*read, *written], [*read, *written]
        if letter in signature.grows or letter in signature.whole:
            bound = Bound.LESS if letter not in signature.grows else Bound.SUM if len(read) > 1 else Bound.MORE
            others, known = written, read
        for extent in others if known else ():
            named = bound is not Bound.SAME and not declared.isdisjoint(extent.symbols)
            if extent.number == 1 and len(extent.symbols) == 1 and not named:
                yield Relation(extent.symbols[0], bound, tuple(each for each in known if each != extent))


def stacked(
    ports: Sequence[Port],  # the ends of what the loop carries
    axes: frozenset[str],  # the letters of what it reads, or stacks, slice by slice
    trips: int,  # how many trips are counted
) -> Iterator[Relation]:
    """Find the open extents that are as many as a loop has trips: its bodies' bytes count for so many."""
    for port in ports:
        for letter, extent in zip(port.letters, port.view.extents, strict=True):
            if letter in axes and extent.number == 1 and len(extent.symbols) == 1:
                yield Relation(extent.symbols[0], Bound.SAME, (Extent(trips),))


def least_extents(
    bounds: Sequence[Relation],  # what is known of extents without a name, in the order of the graph
    claimed: Mapping[str, int] = MappingProxyType({}),  # what the file states of some
) -> dict[str, int]:
    """Return the least that each extent without a name may be, as far as that is known: every other one counts as 1."""
    return _numbers(bounds, claimed, frozenset())


def extents_at(
    bounds: Sequence[Relation],  # what is known of extents without a name, in the order of the graph
    roots: Sequence[Root],  # the values of the graph
    declared: Collection[str],  # the names that the model's inputs state
    at: Mapping[str, int],  # extents that are stated
) -> dict[str, int]:
    """Return the extents that a user states, and those that follow from these: expressions, and bounded ones."""
    symbols = frozenset[str]().union(*map(_symbols_of, roots)) - at.keys()
    numbers = {symbol: _evaluated(symbol, (), at) for symbol in sorted(symbols)}
    known = {**{symbol: number for symbol, number in numbers.items() if number}, **at}
    return _numbers([relation for relation in bounds if relation.symbol not in {*declared, *known}], known, frozenset())


def runs(
    bounds: Sequence[Relation],  # what is known of extents, in the order of the graph
    roots: Sequence[Root],  # the values whose extents are asked for
    declared: Collection[str] = frozenset(),  # the names that the model's inputs state
) -> list[dict[str, int]]:
    """Return what open extents may be, in several runs: symbol -> number.

    What a run does not name is small, and counts as 1. What it names as 1 is exactly that: a Transpose that puts it
    elsewhere moves nothing.
    """
    known, every = _bounded_extents(bounds, roots, declared), list[dict[str, int]]()
    # Some names are large; what one operator gives is large while what others give is small.
    for large in _some([frozenset((name,)) for name in known.names]):
        numbers = known.with_expressions({name: most for name, most in known.names.items() if name in large})
        runs_of_names = (_numbers(known.bounds, numbers, most) for most in _some(known.values))
        every += [{symbol: number for symbol, number in run.items() if number != 1} for run in runs_of_names]
    # Some names are exactly 1 and the others are large: none, one alone, and two together, as a language model reads
    # one token of one sequence. What a Tile gives that repeats nothing is exactly 1 where its operand is.
    few = list(known.names) if len(known.names) <= SEVERAL else []
    for ones in chain.from_iterable(combinations(few, count) for count in range(0 if known.values else 1, 3)):
        numbers = known.with_expressions({**known.names, **dict.fromkeys(ones, 1)})
        for most in (frozenset[str](), frozenset[str]().union(*known.values)):
            every.append(_numbers(known.bounds, numbers, most))
    return every


class _BoundedExtents(NamedTuple):
    """The extents of some values, and their bounds."""

    bounds: Sequence[Relation]  # what is known of those without a name, in the order of the graph
    names: Mapping[str, int]  # those that have one: what they may be at most
    stated: Collection[str]  # symbols that are expressions of names
    values: Sequence[frozenset[str]]  # for each value with extents without a name, these and what bounds them

    def with_expressions(self, named_numbers: Mapping[str, int]) -> dict[str, int]:
        """Return what names are in a run, and the symbols that are expressions of names."""
        numbers = ((symbol, _evaluated(symbol, self.names, named_numbers)) for symbol in self.stated)
        return {**named_numbers, **{symbol: number for symbol, number in numbers if number}}


def _bounded_extents(bounds: Sequence[Relation], roots: Sequence[Root], declared: Collection[str]) -> _BoundedExtents:
    """Return what is known of the extents of some values."""
    from relayout.layout.expressions import names_in

    value_symbols = frozenset[str]().union(*map(_symbols_of, roots))
    bounding_symbols = _with_sources(value_symbols, bounds)
    bounding = [relation for relation in bounds if relation.symbol in bounding_symbols]
    likely = _numbers([relation for relation in bounding if relation.symbol in declared], {}, frozenset())
    bounds = [relation for relation in bounding if relation.symbol not in declared]
    unnamed = {relation.symbol for relation in bounds}
    beside = (extent for relation in bounds for extent in relation.others)
    stated = {*value_symbols, *chain.from_iterable(extent.symbols for extent in beside)} - unnamed
    parts = set[str]().union(*(Extent(1, (symbol,)).names | names_in(symbol) for symbol in stated))
    named = {name for name in parts if not names_in(name)} - unnamed
    names = {name: likely.get(name, LARGE) for name in sorted(named)}
    made_up = [_symbols_of(root).intersection(unnamed) for root in roots]
    values = dict.fromkeys(_with_sources(symbols, bounds) for symbols in made_up if symbols)
    return _BoundedExtents(bounds, names, stated, list(values))


def orders_alike(root: Root, dims: Mapping[str, int]) -> Callable[[int], int] | None:
    """Return a map from the number of an order to that of the first order with the same bytes; None: all differ."""
    if not any(_is_single(extent, dims) for extent in root.extents):
        return None
    first: dict[Order, int] = {}
    return lambda number: first.setdefault(moving_factors(root, root.space.orders[number], dims), number)


def moving_factors(root: Root, order: Order, dims: Mapping[str, int]) -> Order:
    """Return an order without the axes of exactly one element, which do not change where bytes lie."""
    return tuple([factor for factor in order if not _is_single(root.extents[factor], dims)])


def nearest_order(
    orders: Sequence[Order],  # those in which the value is there, no two alike
    target: Order,  # the wanted one
    extents: Sequence[Extent],  # of each factor
    # the orders before and behind each Transpose of the value that the source has
    own: Sequence[tuple[Order, Order]] = (),
) -> Order:
    """Return the order from which a value is brought into another one: its producer's, the first.

    Where axes are open there may be a nearer one, from which less is moved where an axis is of one element: the one at
    the other end of a Transpose of the source, or one that differs in where one open axis lies, a batch at best.
    """
    opened = [factor for factor in sorted(target) if not extents[factor].is_static]
    if not opened or len(orders) == 1:
        return orders[0]
    for read, after in own:
        other = read if after == target else after if read == target else None
        if other is not None and other in orders:
            return other
    for factor in opened:
        for order in orders:
            if _without(order, factor) == _without(target, factor):
                return order
    return orders[0]


def made_in_turn(
    first: Order,  # the producer's order
    orders: Sequence[Order],  # the others, in the order in which readers ask for them
    extents: Sequence[Extent],  # of each factor
    # the orders before and behind each Transpose of the value that the source has
    own: Sequence[tuple[Order, Order]] = (),
) -> list[tuple[Order, Order]]:
    """Return from which order a value is brought into each of several, as these are made one after the other.

    If the source makes one of them of another of them, so does the result.
    """
    there, requested, turns = [first], {first}, list[tuple[Order, Order]]()

    def make(order: Order) -> None:
        requested.add(order)
        for before in orders_before(order, own, there):
            if before in orders and before not in requested:
                make(before)
        turns.append((nearest_order(there, order, extents, own), order))
        there.append(order)

    for order in orders:
        if order not in requested:
            make(order)
    return turns


def orders_before(
    order: Order,  # the order that is asked for
    own: Sequence[tuple[Order, Order]],  # the orders before and behind each Transpose of the value that the source has
    there: Container[Order],  # the orders in which the value is there
) -> list[Order]:
    """Return the orders from which the source transposes a value to a given one; none if it has one of them already."""
    before = [read for read, result in own if result == order]
    return [] if any(read in there for read in before) else before


def _without(order: Order, factor: int) -> Order:
    """Return an order without one of its factors."""
    return tuple([other for other in order if other != factor])


def _is_single(extent: Extent, numbers: Mapping[str, int]) -> bool:
    """Tell whether an open extent is exactly 1 in a run."""
    return bool(extent.symbols) and extent.number == 1 and all(numbers.get(symbol) == 1 for symbol in extent.symbols)


def _symbols_of(root: Root) -> frozenset[str]:
    return frozenset(symbol for extent in root.extents for symbol in extent.symbols)


def _with_sources(symbols: frozenset[str], bounds: Sequence[Relation]) -> frozenset[str]:
    """Return some symbols with those that they are bounded by, and so on: relations come in the order of the graph."""
    every = set(symbols)
    for symbol, _, others in reversed(bounds):
        if symbol in every:
            every.update(name for extent in others for name in extent.symbols)
    return frozenset(every)


def _some(groups: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Return none of some groups of names, all of them, and where they are few each by itself."""
    single = groups if 1 < len(groups) <= SEVERAL else ()
    return [frozenset(), *([frozenset().union(*groups)] if groups else []), *single]


def _evaluated(symbol: str, names: Iterable[str], numbers: Mapping[str, int]) -> int | None:
    """Return what a symbol that is an expression of names is in a run."""
    from relayout.layout.expressions import names_in, replace_names

    if not names_in(symbol):
        return None
    number = replace_names(symbol, {**dict.fromkeys(names, 1), **numbers})
    return max(1, number) if isinstance(number, int) else None


def _numbers(bounds: Sequence[Relation], known_numbers: Mapping[str, int], most: frozenset[str]) -> dict[str, int]:
    """Return numbers for extents without a name, those in `most` as large as they may be, the others as small."""
    numbers = dict(known_numbers)
    for symbol, bound, others in bounds:
        if bound in (Bound.SUM, Bound.MORE):
            times = TIMES if bound is Bound.MORE and symbol in most else 1
            numbers[symbol] = max(numbers.get(symbol, 1), times * sum(extent.value(numbers) for extent in others))
        elif bound is Bound.SAME:
            known = {extent.value(numbers) for extent in others if numbers.keys() >= set(extent.symbols)} - {1}
            if len(known) == 1:
                numbers.setdefault(symbol, *known)
        elif symbol in most:
            numbers.setdefault(symbol, max((extent.value(numbers) for extent in others), default=1))
    return numbers
