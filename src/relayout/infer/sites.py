"""Roots, views and sites: a graph with its Transposes and regrouping Reshapes taken out.

A *root* is a value that some node computes; every value behind Transposes and Reshapes is a *view* of its root. A
*site* is a node (or a graph input or output) with its axis signature: one *port* for each operand.

Real graphs have few kinds of values and nodes. What values with the same factors have in common is their *space*, what
sites with the same axes in the same places have in common their *pattern*: it is found once.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

import onnx_ir as ir

from relayout.infer.pieces import Piece, leaves
from relayout.layout import Extent, product
from relayout.light_dataclass import dataclass
from relayout.rules import Letters, Signature

Given = TypeVarTuple("Given")

Order = tuple[int, ...]
"""A stored order: indices of a root's factors, size-1 factors left out. Equal orders need no Transpose."""
Form = tuple[tuple[int, ...], ...]
"""How a value lies in an ONNX tensor: the factors of each stored dimension; () for a size-1 dimension."""
Lies = dict[int, tuple[int, ...]]
"""Where a site's factors lie in one operand: factor of the site -> factors of the operand's root."""
T = TypeVar("T")


class Placed(NamedTuple):
    """The storage of one operand under a label: (letter, extent) of each dimension, the form, and its order."""

    dims: tuple[tuple[str, Extent], ...]
    form: Form
    order: Order


class Label(NamedTuple):
    """One way to run a site: its factors in order, and for a layout-sensitive one the variant."""

    order: tuple[int, ...]
    variant: int = -1


class Memory:
    """Remembers what follows from what it describes and from nothing else; found when it is first asked for."""

    def __init__(self) -> None:
        self._answers: dict[tuple[object, object], Any] = {}

    def of(self, find: Callable[[*Given], T], described: object, *arguments: *Given) -> T:
        """Return what `find` answers to `arguments`; it is asked once for all that are described alike."""
        key = find, described
        answer: T | None = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = find(*arguments)
        return answer


class Orders:
    """The orders that values with equal factors were asked to be in, each in the place that is its number."""

    def __init__(self) -> None:
        self._orders: list[Order] = []
        self._numbers: dict[Order, int] = {}

    def __getitem__(self, number: int) -> Order:
        return self._orders[number]

    def number(self, order: Order) -> int:
        """Return the number of an order: equal orders have one, and it is quick to compare."""
        number = self._numbers.get(order)
        if number is None:
            number = self._numbers[order] = len(self._orders)
            self._orders.append(order)
        return number


class Space(Memory):
    """The factors and orders that values have in common which the source graph stores alike."""

    def __init__(
        self,
        extents: tuple[Extent, ...],  # the extent of each factor
        logical: Form,  # the form in which the source graph stores such a value
        orders: Orders,  # those of all values with such factors
    ) -> None:
        super().__init__()
        self.extents, self.logical, self.orders = extents, logical, orders
        self._shapes: dict[Form, tuple[Extent, ...]] = {}

    def shape(self, form: Form) -> tuple[Extent, ...]:
        """Return the shape of a value under `form`."""
        shape = self._shapes.get(form)
        if shape is None:
            shape = self._shapes[form] = tuple(product(self.extents[index] for index in dim) for dim in form)
        return shape


UNNUMBERED = Space((), (), Orders())


@dataclass(eq=False, slots=True)
class Root:
    """A value that is computed or given: what can be stored in one order or another."""

    index: int  # position among all roots
    value: ir.Value
    dims: tuple[Piece, ...]  # its dimensions as pieces
    constant: bool  # whether it is known when the model is converted
    graph: ir.Graph  # the graph that it belongs to
    # how often it is computed in an inference: as often as that graph runs, where it is a loop's body; 0 where it
    # follows from constants alone
    runs: int = 1
    space: Space = UNNUMBERED  # its factors in order, once all splits are known; until then it has none
    where: dict[Piece, int] = field(init=False, repr=False)  # factor -> index

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The extent of each factor."""
        return self.space.extents

    @property
    def logical(self) -> Form:
        """The form in which the source graph stores this value."""
        return self.space.logical

    @property
    def is_empty(self) -> bool:
        """True if it has no elements, and all of its extents are known: a constant, whatever computes it."""
        extents = [piece.extent for piece in self.dims]
        return any(extent.number == 0 for extent in extents) and all(extent.is_static for extent in extents)

    def shape(self, form: Form) -> tuple[Extent, ...]:
        """Return the shape of this value under `form`."""
        return self.space.shape(form)


@dataclass(eq=False, slots=True)
class View:
    """A value as an order of its root's factors; `itself`: it is the root's own value."""

    root: Root
    dims: tuple[tuple[Piece, ...], ...]
    itself: bool = False
    numbered: Form | None = field(default=None, repr=False)

    @property
    def form(self) -> Form:
        """The factors of each dimension, as the source graph has them, once the root's are numbered."""
        if self.itself:
            return self.root.space.logical
        if self.numbered is None:
            where = self.root.where
            self.numbered = tuple([tuple([where[leaf] for leaf in leaves(dim)]) for dim in self.dims])
        return self.numbered

    @property
    def pieces(self) -> tuple[Piece, ...] | None:
        """The piece of each dimension; None where one has several, or two are the same."""
        if self.itself:
            return self.root.dims
        pieces = tuple([dim[0] for dim in self.dims if len(dim) == 1])
        return pieces if len(pieces) == len(self.dims) == len(set(pieces)) else None

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The extent of each dimension."""
        return tuple(product(leaf.extent for leaf in leaves(dim)) for dim in self.dims)


@lru_cache(4096)
def order_of(form: Form) -> Order:
    """Return the stored order of a form."""
    return tuple([index for dim in form for index in dim])


@cache
def axes_of(letters: Letters) -> dict[str, tuple[int, ...]]:
    """Letter -> the dimensions that hold it."""
    axes: dict[str, tuple[int, ...]] = {}
    for axis, letter in enumerate(letters):
        axes[letter] = (*axes.get(letter, ()), axis)
    return axes


@dataclass(eq=False, slots=True)
class Port:
    """One operand of a site."""

    view: View  # the value
    letters: Letters  # the letter of each of its dimensions
    output: bool  # whether the site gives the value
    slot: int  # the operand's index at the node, or at the body; -1 for a value that a subgraph captures
    pinned: bool = False  # it keeps the source's order, whatever the node does
    # which of the node's subgraphs it is an input (`output` is set: the site gives it) or output of; -1: none
    body: int = -1
    position: int = 0  # its index among the site's ports
    factors: Lies = field(init=False, repr=False)  # where the site's factors lie in it

    @property
    def axes(self) -> dict[str, tuple[int, ...]]:
        """Letter -> the dimensions that hold it."""
        return axes_of(self.letters)

    def dims(self, letter: str) -> tuple[int, ...]:
        """Return the dimensions that hold `letter`."""
        return self.axes.get(letter, ())

    def pieces(self, letter: str) -> list[Piece]:
        """Return the pieces of all dimensions that hold `letter`."""
        return [piece for axis in self.dims(letter) for piece in self.view.dims[axis]]


class Pattern(Memory):
    """The traits of sites that are alike in all that decides where their axes lie."""

    def __init__(
        self,
        factors: tuple[tuple[str, int], ...] = (),  # the sites' own factors: (letter, which of its factors)
        lies: tuple[Lies, ...] = (),  # where they lie in each operand
    ) -> None:
        super().__init__()
        self.factors, self.lies = factors, lies
        self.placed: dict[tuple[Label, int], Placed] = {}
        self.numbers: dict[Label, tuple[int, ...]] = {}


UNMATCHED = Pattern()


@dataclass(eq=False, slots=True)
class Site:
    """A node, or an end of the interface, with its signature.

    A node that runs subgraphs follows the sites of its bodies. Each value that it carries across their borders is a
    `border` site, whose ports are that value's ends on all sides; an `enter` site stands before each body.
    """

    operator: str  # the node's, behind its domain where that is not the standard's; else what stands there
    label: str  # how reports call the node, or the value
    node: ir.Node | None  # the node; None for the interface and for a pin
    signature: Signature  # its axes; letters of pinned ports are not in it
    ports: list[Port]  # the operands that are laid out
    kind: str = "node"  # `node`, `input`, `output`, `pin`, `enter` or `border`
    reason: str = ""  # why it is a barrier, if it is one
    graph: ir.Graph | None = None  # the graph that it belongs to
    bodies: tuple[ir.Graph, ...] = ()
    carried: tuple[Port, ...] = ()
    whole: frozenset[str] = frozenset()  # axes that lie in one dimension, in order
    # axis in `whole` -> elements in a run that may lie apart from the others
    grain: dict[str, int] = field(default_factory=dict)
    # what it has in common with sites like it, once all splits are known
    pattern: Pattern = field(default=UNMATCHED, repr=False)

    @property
    def name(self) -> str:
        """The site's name in reports: its operator and its label."""
        return f"{self.operator.rpartition(':')[2]} {self.label}"

    @property
    def factors(self) -> tuple[tuple[str, int], ...]:
        """The node's own factors: those of its letters."""
        return self.pattern.factors

    @property
    def runs(self) -> int:
        """The number of times that the node runs in an inference: as often as its results are computed."""
        return max((port.view.root.runs for port in self.ports if port.output), default=1)

    def free_ports(self) -> list[Port]:
        """Return the ports that the signature describes."""
        return [port for port in self.ports if not port.pinned]


class Numbering:
    """Factors of roots and sites as numbers, once all splits are known; what is alike is found once."""

    def __init__(self) -> None:
        self._roots: dict[tuple[Piece, ...], tuple[Space, dict[Piece, int]]] = {}
        self._factors: dict[frozenset[Piece], dict[Piece, int]] = {}
        self._orders: dict[tuple[Extent, ...], Orders] = {}
        self._spaces: dict[tuple[tuple[Extent, ...], Form], Space] = {}
        self._patterns: dict[tuple[object, ...], Pattern] = {}

    def root(self, root: Root) -> None:
        """Number a root's factors: as those of a value before it that has the same ones, maybe in another order."""
        known = self._roots.get(root.dims)
        if known is None:
            pieces = frozenset(root.dims)
            where = self._factors.get(pieces)
            if where is None:
                where = {piece: position for position, piece in enumerate(leaves(root.dims))}
                self._factors[pieces] = where
            logical = tuple(
                [
                    (where[piece],) if piece in where else tuple([where[leaf] for leaf in leaves((piece,))])
                    for piece in root.dims
                ]
            )
            extents = tuple([piece.extent for piece in where])
            space = self._spaces.get((extents, logical))
            if space is None:
                orders = self._orders.setdefault(extents, Orders())
                space = self._spaces[extents, logical] = Space(extents, logical, orders)
            known = self._roots[root.dims] = space, where
        root.space, root.where = known

    def site(self, site: Site) -> None:
        """Find a site's own factors, and where each lies in each operand's root."""
        ports = site.ports
        key: list[object] = [site.signature, site.whole, tuple(site.grain.items()) if site.grain else ()]
        for port in ports:
            view = port.view
            # A root's own form is in its space.
            key += (port.letters, port.output, port.slot, port.pinned, view.itself or view.form, view.root.space)
        described = tuple(key)
        pattern = self._patterns.get(described)
        if pattern is None:
            pattern = self._patterns[described] = _pattern(site)
        site.pattern = pattern
        for position, (port, lies) in enumerate(zip(ports, pattern.lies, strict=True)):
            port.position, port.factors = position, lies


def _pattern(site: Site) -> Pattern:
    factors: list[tuple[str, int]] = []
    lies: dict[Port, Lies] = {port: {} for port in site.ports}

    def add(letter: str, k: int, indices_by_port: Sequence[tuple[Port, Sequence[int]]]) -> None:
        for port, indices in indices_by_port:
            lies[port][len(factors)] = tuple(indices)
        factors.append((letter, k))

    free = [(port, port.view.form, port.axes) for port in site.free_ports()]
    for letter in site.signature.letters:
        holders = [
            (port, [index for axis in axes[letter] for index in form[axis]])
            for port, form, axes in free
            if letter in axes
        ]
        if letter in site.whole:
            cut = [(port, *_cut(site, port, letter, indices)) for port, indices in holders]
            add(letter, 0, [(port, outer) for port, outer, _ in cut])
            for k in range(max((len(inner) for _, _, inner in cut), default=0)):
                add(letter, k + 1, [(port, inner[k : k + 1]) for port, _, inner in cut])
            continue
        count = max((len(indices) for _, indices in holders), default=0)
        if not count:
            add(letter, 0, [])
        for k in range(count):
            add(letter, k, [(port, indices[k : k + 1]) for port, indices in holders if indices])
    return Pattern(tuple(factors), tuple(lies.values()))


def _cut(site: Site, port: Port, letter: str, indices: list[int]) -> tuple[list[int], list[int]]:
    """Return the factors of a whole axis in one operand: those that stay together, and those inside of its grain."""
    size, first = site.grain.get(letter, 1), len(indices)
    while size > 1:
        first -= 1
        size //= port.view.root.extents[indices[first]].number
    return indices[:first], indices[first:]
