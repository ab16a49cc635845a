"""Roots, views and sites: a graph with its Transposes and regrouping Reshapes taken out.

A *root* is a value that some node computes; every value behind Transposes and Reshapes is a *view* of its root. A
*site* is a node (or a graph input or output) with its axis signature: one *port* for each operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import onnx_ir as ir

from relayout.infer.pieces import Piece, leaves
from relayout.layout import Extent, product
from relayout.rules import Letters, Signature

Order = tuple[int, ...]
"""A stored order: indices of a root's factors, size-1 factors left out. Equal orders need no Transpose."""
Form = tuple[tuple[int, ...], ...]
"""How a value lies in an ONNX tensor: the factors of each stored dimension; () for a size-1 dimension."""


class Placed(NamedTuple):
    """How one operand is stored under a label: (letter, extent) of each dimension, the form, and its order."""

    dims: tuple[tuple[str, Extent], ...]
    form: Form
    order: Order


@dataclass(eq=False)
class Root:
    """A value that is computed or given: what can be stored in one order or another.

    Args:
        index: position among all roots.
        value: the value.
        dims: its dimensions as pieces.
        constant: whether it is known when the model is converted.
        graph: the graph that it belongs to.
        runs: how often that graph runs, where it is a loop's body.
        factors: its factors in order, once all splits are known.
        where: factor -> index.
    """

    index: int
    value: ir.Value
    dims: tuple[Piece, ...]
    constant: bool
    graph: ir.Graph
    runs: int = 1
    factors: list[Piece] = field(default_factory=list)
    where: dict[Piece, int] = field(default_factory=dict)

    def number(self) -> None:
        """Number the factors, once all splits are known."""
        self.factors = leaves(self.dims)
        self.where = {piece: position for position, piece in enumerate(self.factors)}

    @property
    def extents(self) -> list[Extent]:
        """The extent of each factor."""
        return [factor.extent for factor in self.factors]

    def shape(self, form: Form) -> tuple[Extent, ...]:
        """The shape of this value under `form`."""
        return tuple(product(self.factors[index].extent for index in dim) for dim in form)

    @cached_property
    def logical(self) -> Form:
        """The form in which the source graph stores this value."""
        return View(self, tuple((piece,) for piece in self.dims)).form


@dataclass(frozen=True, eq=False)
class View:
    """A value as an order of its root's factors."""

    root: Root
    dims: tuple[tuple[Piece, ...], ...]

    @cached_property
    def form(self) -> Form:
        """The factors of each dimension, as the source graph has them, once the root's are numbered."""
        return tuple(tuple(self.root.where[leaf] for leaf in leaves(dim)) for dim in self.dims)

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The extent of each dimension."""
        return tuple(product(leaf.extent for leaf in leaves(dim)) for dim in self.dims)


def order_of(form: Form) -> Order:
    """The stored order of a form."""
    return tuple(index for dim in form for index in dim)


@dataclass(eq=False)
class Port:
    """One operand of a site.

    Args:
        view: the value.
        letters: the letter of each of its dimensions.
        output: whether the site gives the value.
        slot: the operand's index at the node, or at the body; -1 for a value that a subgraph captures.
        body: which of the node's subgraphs it is an input (`output` is set: the site gives it) or output of; -1: none.
        pinned: it keeps the source's order, whatever the node does.
    """

    view: View
    letters: Letters
    output: bool
    slot: int
    pinned: bool = False
    body: int = -1
    position: int = 0
    factors: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def axes(self) -> dict[str, tuple[int, ...]]:
        """Letter -> the dimensions that hold it."""
        axes: dict[str, tuple[int, ...]] = {}
        for axis, letter in enumerate(self.letters):
            axes[letter] = (*axes.get(letter, ()), axis)
        return axes

    def dims(self, letter: str) -> tuple[int, ...]:
        """The dimensions that hold `letter`."""
        return self.axes.get(letter, ())

    def pieces(self, letter: str) -> list[Piece]:
        """The pieces of all dimensions that hold `letter`."""
        return [piece for axis in self.dims(letter) for piece in self.view.dims[axis]]


@dataclass(eq=False)
class Site:
    """A node, or an end of the interface, with its signature.

    A node that runs subgraphs follows the sites of its bodies. Each value that it carries across their borders is a
    `border` site, whose ports are that value's ends on all sides; an `enter` site stands before each body.

    Args:
        name: how reports call it.
        node: the node; None for the interface and for a pin.
        signature: its axes; letters of pinned ports are not in it.
        ports: the operands that are laid out.
        kind: `node`, `input`, `output`, `pin`, `enter` or `border`.
        graph: the graph that it belongs to.
        whole: axes that lie in one dimension, in order.
        grain: axis in `whole` -> elements in a run that may lie apart from the others.
        reason: why it is a barrier, if it is one.
        placed: what `candidates.placed` found, by label and port; shared among sites of a kind.
    """

    name: str
    node: ir.Node | None
    signature: Signature
    ports: list[Port]
    kind: str = "node"
    reason: str = ""
    graph: ir.Graph | None = None
    bodies: tuple[ir.Graph, ...] = ()
    carried: tuple[Port, ...] = ()
    whole: set[str] = field(default_factory=set)
    grain: dict[str, int] = field(default_factory=dict)
    factors: list[tuple[str, int]] = field(default_factory=list)
    placed: dict[tuple[object, int], Placed] = field(default_factory=dict, repr=False)

    def number(self, kinds: dict[object, dict[tuple[object, int], Placed]]) -> None:
        """Find the node's own factors: those of its letters, and where each lies in each port's root.

        Args:
            kinds: what is known of sites that are alike in all that decides where their axes lie.
        """
        free = [(port, port.view.form, port.axes) for port in self.free_ports()]
        for letter in self.signature.letters:
            held = [
                (port, [index for axis in axes[letter] for index in form[axis]])
                for port, form, axes in free
                if letter in axes
            ]
            if letter in self.whole:
                cut = [(port, *self._cut(port, letter, indices)) for port, indices in held]
                self._add(letter, 0, [(port, outer) for port, outer, _ in cut])
                for k in range(max((len(free) for _, _, free in cut), default=0)):
                    self._add(letter, k + 1, [(port, free[k : k + 1]) for port, _, free in cut])
                continue
            count = max((len(indices) for _, indices in held), default=0)
            if not count:
                self._add(letter, 0, [])
            for k in range(count):
                self._add(letter, k, [(port, indices[k : k + 1]) for port, indices in held if indices])
        described: list[object] = [self.signature, *sorted(self.whole), *self.grain.items(), *self.factors]
        for position, port in enumerate(self.ports):
            port.position = position
            described += [
                port.letters,
                port.output,
                port.slot,
                port.pinned,
                tuple(port.factors.items()),
                port.view.form,
            ]
            described += port.view.root.extents
        self.placed = kinds.setdefault(tuple(described), {})

    def _cut(self, port: Port, letter: str, indices: list[int]) -> tuple[list[int], list[int]]:
        """The factors of a whole axis in one operand: those that stay together, and those inside of its grain."""
        size, first = self.grain.get(letter, 1), len(indices)
        while size > 1:
            first -= 1
            size //= port.view.root.factors[indices[first]].extent.number
        return indices[:first], indices[first:]

    def _add(self, letter: str, k: int, lies: Sequence[tuple[Port, list[int]]]) -> None:
        index = len(self.factors)
        self.factors.append((letter, k))
        for port, indices in lies:
            port.factors[index] = tuple(indices)

    def free_ports(self) -> list[Port]:
        """The ports that the signature describes."""
        return [port for port in self.ports if not port.pinned]
