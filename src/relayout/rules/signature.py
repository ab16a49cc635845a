"""What a rule says: an operator's axis signature, or that it is only a view. Values, with no graph in them.

A signature names the axes of every operand by letters. Equal letters are the same axis: it has the same factors on
every operand that holds it, in the same relative order. Which orders are possible follows from three facts:

* `variants`: the operator exists for these orders of axes only (Conv: `n c h w`, `o i kh kw`); none means any order.
* `whole`: axes that must be one dimension with its elements in order (a sliced axis, a spatial axis).
* `block`: axes that must be one dimension, in any order of its factors (a channel that is summed over: the constant
  on the other side is re-laid to match). All other axes may lie in pieces.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.layout import Dim, Extent
from relayout.light_dataclass import dataclass

Letters = tuple[str, ...]
Attribute = int | float | str | tuple[int, ...] | tuple[float, ...]


class Changes(NamedTuple):
    """The differences of a node once its operands are stored in another order.

    Args:
        attributes: name -> new value; None removes the attribute.
        inputs: input index -> new constant; None removes the input.
        gathered: input index -> (axis, indices): a parameter whose items along `axis` follow the new order; it is
            folded where it is constant, else a Gather of a few elements.
        looked_up: input index -> table: a parameter holds axes, each of which becomes the table's item of that number;
            it is folded where it is constant, else a Gather of a few elements.
        extents: output index -> groups: the output lists the extents of an operand as it is stored, and each extent of
            the source is the product of a group of them (Shape).
        op_type: another operator.
        domain: its domain; None: the node's own.
        exchanged: the first two inputs change places.
    """

    attributes: Mapping[str, Attribute | None] = {}
    inputs: Mapping[int, NDArray[np.generic] | None] = {}
    gathered: Mapping[int, tuple[int, tuple[int, ...]]] = {}
    looked_up: Mapping[int, tuple[int, ...]] = {}
    extents: Mapping[int, tuple[tuple[int, ...], ...]] = {}
    op_type: str | None = None
    domain: str | None = None
    exchanged: bool = False


class Placement(NamedTuple):
    """The places of the axes of a node's operands in the order that was chosen.

    A dimension that holds only what a grain of an axis `c` leaves free is named `c%`: the axis itself lies in the one
    that is named `c`.
    """

    # per input the (letter, extent) of each stored dimension; None for an absent input or a parameter
    inputs: tuple[tuple[tuple[str, Extent], ...] | None, ...]
    outputs: tuple[tuple[tuple[str, Extent], ...] | None, ...]  # the same per output
    runs: int = 1  # how often the node runs in an inference: in the body of a loop once a trip

    def axes(self, letters: Sequence[str], index: int = 0, *, output: bool = False) -> tuple[int, ...]:
        """Return the dimensions of one operand that hold any of `letters`, ascending."""
        dims = (self.outputs if output else self.inputs)[index] or ()
        return tuple(position for position, (letter, _) in enumerate(dims) if letter in letters)

    def axis(self, letter: str, index: int = 0, *, output: bool = False) -> int:
        """Return the one dimension that holds `letter`."""
        (axis,) = self.axes((letter,), index, output=output)
        return axis

    def extent(self, letter: str, index: int = 0, *, output: bool = False) -> Extent:
        """Return the extent of the one dimension that holds `letter`."""
        return self.extents(index, output=output)[self.axis(letter, index, output=output)]

    def letters(self, index: int = 0, *, output: bool = False) -> Letters:
        """Return the letter of each stored dimension of one operand."""
        return tuple(letter for letter, _ in (self.outputs if output else self.inputs)[index] or ())

    def extents(self, index: int = 0, *, output: bool = False) -> tuple[Extent, ...]:
        """Return the extent of each stored dimension of one operand."""
        return tuple(extent for _, extent in (self.outputs if output else self.inputs)[index] or ())


def unchanged(_: Placement) -> Changes:
    """Nothing in the node counts axes."""
    return Changes()


def renumbered_axis(letter: str, index: int = 0, *, output: bool = False) -> Callable[[Placement], Changes]:
    """Return the changes of a node whose attribute `axis` is the dimension of an operand that holds a letter."""
    return lambda placement: Changes({"axis": placement.axis(letter, index, output=output)})


def costs_nothing(_: Placement) -> int:
    """Every order of a node costs the same: a price that nobody need ask for."""
    return 0


class Written(NamedTuple):
    """A variant, written as a node."""

    domain: str  # the node's domain
    op_type: str  # its operator
    attributes: Mapping[str, Attribute | None] = {}  # name -> value, where it differs; None removes the attribute
    # the variant that the standard operator has, where the node calls a model-local function: that operator between the
    # Transposes that lead there and back
    body: "Variant | None" = None
    # the node states the shapes of its operands with each tile joined to its axis (`n c h w`), though they lie in tiles
    joined: bool = False


class Step(NamedTuple):
    """One operator of several that stand for a node; what the last gives is what the node gives.

    Args:
        op_type: an operator of the standard.
        inputs: a number is that operand of the node, a word the result of the step before that has this name, an
            array a constant.
        name: what its one result is, in a word.
        attributes: its attributes.
    """

    op_type: str
    inputs: tuple[int | str | NDArray[np.generic], ...]
    name: str
    attributes: Mapping[str, Attribute] = {}


Constants = Sequence[NDArray[np.generic] | None]
"""The operands of a node that are constants, as they are stored; None for any other."""


@dataclass(frozen=True)
class Variant:
    """One way a layout-sensitive operator exists: the order of axes of every operand.

    A letter may lie in two dimensions: `c/16` is the outer part of an axis `c` in tiles of 16, `c%16` the tile.
    Several letters may lie in one: `h*d` is one dimension with an axis `h` and, inside of it, an axis `d`.
    """

    inputs: tuple[Letters | None, ...]  # the stored order of each input's letters; None where the signature has None
    outputs: tuple[Letters | None, ...]  # the same for the outputs
    name: str = "standard"  # how reports call it
    written: Written | None = field(default=None, compare=False)  # the node that runs it; None: the node as it is
    # the operators that stand for the node, of where its axes lie and its constants; None: it is one node
    steps: Callable[[Placement, Constants], Iterable[Step]] | None = field(default=None, compare=False)
    free: bool = False  # its axes may lie in any order, and in pieces, whatever the operands' letters say
    # nobody asks for it: another variant has its axes turned on every operand, and an operand must come so
    follows: bool = False
    exchanged: bool = False  # it runs with its first two operands exchanged
    costly: bool = False  # a CPU takes longer for it than for a Transpose before the operator and one behind it

    @cached_property
    def tiles(self) -> tuple[tuple[str, int], ...]:
        """(letter, extent of its tile) of the axes that lie in two dimensions, in the operands' order."""
        tokens = (token for letters in (*self.inputs, *self.outputs) for token in letters or ())
        parts = (part for token in tokens for part in parts_of(token))
        return tuple(dict.fromkeys((part.letter, part.tile) for part in parts if part.tile))

    def holds(self, letters: Sequence[str]) -> bool:
        """Tell whether an operand of this variant has these axes in this order."""
        operands = [operand for operand in (*self.inputs, *self.outputs) if operand and set(letters) <= set(operand)]
        return any([letter for letter in operand if letter in letters] == list(letters) for operand in operands)


class Part(NamedTuple):
    """One dimension of a variant: a whole axis, or the outer part or the tile of one."""

    letter: str
    tile: int = 0
    inner: bool = False


@cache
def part_of(token: str) -> Part:
    """Read `c`, `c/16` (outer part) or `c%16` (tile)."""
    for sign in "/%":
        letter, separator, tile = token.partition(sign)
        if separator:
            return Part(letter, int(tile), sign == "%")
    return Part(token)


@cache
def parts_of(token: str) -> tuple[Part, ...]:
    """Read the parts of one dimension, from outer to inner: `h*d` has two, any other token one."""
    return tuple(map(part_of, token.split("*")))


@cache
def _in_order(operands: tuple[Letters | None, ...]) -> Letters:
    """Letters in an order that every operand agrees with; as first named where there is none."""
    named = list(dict.fromkeys(letter for letters in operands for letter in letters or ()))
    before: dict[str, set[str]] = {letter: set() for letter in named}
    for letters in operands:
        for first, second in pairwise(letters or ()):
            if first != second:
                before[second].add(first)
    ordered: list[str] = []
    while len(ordered) < len(named):
        ready = (letter for letter in named if letter not in ordered and before[letter] <= set(ordered))
        following = next(ready, None)
        if following is None:
            return tuple(named)
        ordered.append(following)
    return tuple(ordered)


@dataclasses.dataclass(frozen=True)  # the standard one, which fills its many fields in faster: one for each node
class Signature:
    """The axis signature of one node.

    Args:
        inputs: letters of each input's dimensions; None: absent, or a parameter that keeps its own order.
        outputs: letters of each output's dimensions; None: keeps its own order.
        whole: axes that must be one dimension, in order.
        block: axes that must be one dimension, in any order of factors.
        tail: axes that every operand must hold last, in this order.
        head: axes that every operand must hold first, in this order.
        variants: the orders that exist; empty for any order.
        broadcast: an input that lacks an axis, or has extent 1 there, is stretched (numpy's rules).
        with_reader: it belongs to the operator that reads it (a DequantizeLinear): a Reshape goes before both.
        with_producer: it belongs to the operator before it (a QuantizeLinear): a Reshape between them is its own unit.
        changes: attributes and parameters in the chosen order.
        price: what running the operator in an order costs beside its best one, in bytes that might be moved instead.
        grain: (axis in `whole`, elements): what cuts or joins the axis does so at multiples of this many, so that runs
            of that many may lie apart from one another: `c/16` is one dimension in order, `c%16` is free.
        exchanged: the tail's axes in another order, in which the operator exists with its first two operands exchanged
            (a product: `yᵀ = cᵀ aᵀ`). `*` at its end: one or more other axes, which become one dimension.
        freely: exchanged operands are nothing that a runtime minds, as one of them is a vector.
        unidirectional: of a broadcast, the first operand is not stretched: it has the result's dimensions.
        grows: axes along which what is given is at least as long as all operands together, whatever is known of it.
        across: axes that a result has, though each of its elements depends on several along them, in whatever order (a
            Softmax's axis). Axes in `whole` may be such, too; along all others each element is computed by itself.
        transposed: the tail's axes in another order, which another operator has: `changes` says which.
    """

    inputs: tuple[Letters | None, ...]
    outputs: tuple[Letters | None, ...]
    whole: frozenset[str] = frozenset()
    block: frozenset[str] = frozenset()
    tail: Letters = ()
    variants: tuple[Variant, ...] = ()
    broadcast: bool = False
    with_reader: bool = False
    with_producer: bool = False
    changes: Callable[[Placement], Changes] = field(default=unchanged, compare=False)
    price: Callable[[Placement], int] | None = field(default=None, compare=False)
    grain: tuple[tuple[str, int], ...] = ()
    head: Letters = ()
    exchanged: Letters = ()
    freely: bool = False
    grows: frozenset[str] = frozenset()
    unidirectional: bool = False
    across: frozenset[str] = frozenset()
    transposed: Letters = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash of all that is compared, found once: signatures are the keys of what is known of many nodes."""
        tails = self.tail, self.exchanged
        return hash((self.inputs, self.outputs, self.whole, self.block, tails, self.variants, self.grain))

    @cached_property
    def letters(self) -> Letters:
        """All letters in the source's order: one that every operand agrees with, where there is one."""
        return _in_order((*self.inputs, *self.outputs))

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Output -> the inputs that have the same letters in the same order, none of them twice or in `whole`."""
        alike_inputs = []
        for letters in self.outputs:
            is_comparable = letters is not None and len(set(letters)) == len(letters) and self.whole.isdisjoint(letters)
            alike_inputs.append(
                tuple(
                    index
                    for index, input_letters in enumerate(self.inputs)
                    if is_comparable and input_letters == letters
                )
            )
        return tuple(alike_inputs)

    @cached_property
    def stretched(self) -> frozenset[str]:
        """Axes that an input may lack: it then gets a size-1 axis in place."""
        return frozenset(self.outputs[0] or ()) - frozenset(self.tail) if self.broadcast else frozenset()

    @property
    def is_priced(self) -> bool:
        """True if an order of axes may cost more than another one."""
        return self.price is not None and self.price is not costs_nothing

    @property
    def standard(self) -> Variant:
        """The operator in the standard's order, which layouts are said of; the source may have another (a Resize)."""
        return next((each for each in self.variants if each.name == "standard"), Variant(self.inputs, self.outputs))

    @cached_property
    def exchanges(self) -> bool:
        """True if the operator also exists with its first two operands exchanged."""
        return bool(self.exchanged) or any(variant.exchanged for variant in self.variants)

    @cached_property
    def in_place(self) -> "Signature":
        """The signature without the variants that exchange operands."""
        return replace(self, exchanged=(), variants=tuple(each for each in self.variants if not each.exchanged))

    @cached_property
    def untransposed(self) -> "Signature":
        """The signature for matrices that lie as ONNX's MatMul has them."""
        return replace(self, transposed=()) if self.transposed else self

    @cached_property
    def cheap(self) -> "Signature":
        """The signature without variants that cost a CPU more than Transposes: for graphs that a CPU runs whole."""
        cheap = tuple(variant for variant in self.variants if not variant.costly)
        return self if cheap == self.variants else replace(self, variants=cheap)

    def positional(self) -> "Signature":
        """Return the signature of an operator that exists in the standard's order only."""
        return replace(self, variants=(Variant(self.inputs, self.outputs),))


@dataclass(frozen=True)
class Permuted:
    """The output is input 0 with its dimensions in another order: a view."""

    perm: tuple[int, ...]


@dataclass(frozen=True)
class Regrouped:
    """The output is input 0 with the same elements in the same order under another shape: a view where it divides."""

    shape: tuple[Dim, ...]


class Body(NamedTuple):
    """A subgraph of a node, with the letters of its own inputs and outputs."""

    attribute: str  # the node's attribute that holds the graph
    inputs: tuple[Letters | None, ...]  # letters of each of the body's inputs; None: it keeps its own order
    outputs: tuple[Letters | None, ...]  # letters of each of the body's outputs


class Nested(NamedTuple):
    """A node that runs subgraphs: letters are shared across the border, so that orders are chosen jointly.

    Operands of the node and of its bodies that share a letter are one value; its other axes are the node's own.
    """

    signature: Signature  # the node's own operands, with what all of them need: `whole`, `head`, `changes`
    bodies: tuple[Body, ...]  # its subgraphs
    runs: int = 1  # how often the bodies run, where it is known; a price, no promise
    surely: bool = False  # whether they run at least once


Fact = Signature | Permuted | Regrouped | Nested | None
"""What a rule says of a node; None: nothing is known of it here, it is a barrier."""
