"""Axes of operators whose layout rule says less of them than following one axis needs.

A layout rule may call several axes one (a Gather's indices), or ask for the order along an axis that the node leaves as
it is (a Slice that takes all of it). Here such an operator has a signature for this purpose alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import onnx_ir as ir

from relayout.graph.domains import RESIZE
from relayout.layout import Extent
from relayout.rules import Fact, Operator, Permuted, Regrouped, Signature, axis_letters, draws
from relayout.rules.slicing import slice_bounds
from relayout.shapes.parts import OpenedFactor, ways

# Operators whose result depends on how many elements an opened axis has.
#
# A batch is opened where every row is computed by itself. Any other dimension, such as the length of a sequence, may
# also be computed along: the result is the same graph at another extent, and rows are nothing that could be compared.

Binding = Callable[[Signature, Operator, str, OpenedFactor], str]
"""Say why a letter of a node cannot be opened; nothing if it can."""


def of_rows(fact: Signature, operator: Operator, letter: str, part: OpenedFactor) -> str:
    """Say what an operator does along an axis but compute each element by itself."""
    if letter in fact.whole:
        return "slices, pads, joins or picks along it"
    if letter in fact.across:
        return "computes along it"
    for index, (names, shape) in enumerate(zip(fact.outputs, operator.outputs, strict=True)):
        value = operator.node.outputs[index]
        if not (value.uses() or value.is_graph_output()):
            continue
        if names is None:
            return "makes one result of all its elements"
        if letter not in names:
            return "adds up along it" if index == 0 else f"leaves it out of output {index}"
        if shape is not None and Extent.of(shape[names.index(letter)]) != part.source_extent:
            return f"changes its extent from {part.source_extent} to {shape[names.index(letter)]}"
    return ""


def of_lengths(fact: Signature, operator: Operator, letter: str, part: OpenedFactor) -> str:
    """Say what an operator does along an axis that counts its elements: cut it, or make it longer."""
    computes = letter in fact.across or any(letter not in names for names in fact.outputs if names is not None)
    if computes and part.source_extent.is_one:
        return "computes along its one element"
    node = operator.node
    lengths = SEQUENCES.get(node.op_type)
    counts = node.domain or node.op_type not in SEQUENCES or (lengths is not None and operator.has(lengths))
    if letter in fact.whole and counts:
        return "slices, pads, joins or picks along it by number"
    for names, shape in zip(fact.outputs, operator.outputs, strict=True):
        if names is None or shape is None or letter not in names:
            continue
        extent = Extent.of(shape[names.index(letter)])
        if extent != part.source_extent and not (extent.is_one and letter in fact.across):
            return f"changes its extent from {part.source_extent} to {extent}"
    return ""


SEQUENCES: Mapping[str, int | None] = {
    **dict.fromkeys(("ArgMax", "ArgMin", "CumProd", "CumSum", "Hardmax", "Trilu")),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), 4),
}
"""Operators that treat an axis as a sequence, of whatever length -> the input of lengths, with which they do not."""

# Values of fixed extents that hold the same for every step of an axis: more steps are as good.

Look = Callable[[ir.Node], tuple[Operator, Fact]]  # the facts about a node
MOST_STEPS = 64  # operators between a value and the constants that it follows from


def repeats_along(
    value: ir.Value,  # the value, of known shape
    axis: int,  # one of its axes
    part: OpenedFactor,  # what is opened of it
    look: Look,  # what gives the operator and the fact of a node
) -> bool:
    """Tell whether a value of fixed extents holds the same for every step of a part of an axis."""
    return _Repeating(look).holds(value, axis, part, MOST_STEPS)


class _Repeating:
    """A walk back from a value, in which each value is looked at once, however many paths lead to it."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.known: dict[tuple[ir.Value, int, OpenedFactor], bool] = {}

    def holds(self, value: ir.Value, axis: int, part: OpenedFactor, steps: int) -> bool:
        """Tell whether a value repeats, of which so many operators may lie before it."""
        key = value, axis, part
        if key not in self.known:
            self.known[key] = self._holds(value, axis, part, steps)
        return self.known[key]

    def _holds(self, value: ir.Value, axis: int, part: OpenedFactor, steps: int) -> bool:
        if value.is_graph_input() or value.shape is None or not steps:
            return False
        if value.const_value is not None:
            return _holds_the_same(value.const_value, axis, part)
        node = value.producer()
        if node is None or draws(node) or any(each.type is ir.AttributeType.GRAPH for each in node.attributes.values()):
            return False
        operator, fact = self.look(node)
        repeats = REPEATED.get((node.domain, node.op_type))
        if repeats is not None and repeats(operator, axis, part):
            return True
        return all(
            operand is not None and self.holds(operand, place, own, steps - 1)
            for operand, place, own in sources(node, value, axis, part, fact) or [(None, 0, part)]
        )


def _holds_the_same(tensor: ir.TensorProtocol, axis: int, part: OpenedFactor) -> bool:
    if not all(extent.is_static for extent in (part.outer, part.before, part.inner)):
        return False
    array = tensor.numpy()
    split = (part.outer.number, part.before.number, part.inner.number)
    split_array = array.reshape(*array.shape[:axis], *split, *array.shape[axis + 1 :])
    return bool((split_array == split_array.take([0], axis + 1)).all())


def stretched(operator: Operator, axis: int, part: OpenedFactor) -> bool:
    """An Expand repeats what has 1 element along the axis, or no such axis."""
    shape, output = operator.shape(), operator.outputs[0]
    if shape is None or output is None:
        return False
    place = axis - len(output) + len(shape)
    return place < 0 or (shape[place] == 1 and Extent.of(output[axis]) == part.source_extent)


def tiled(operator: Operator, axis: int, part: OpenedFactor) -> bool:
    """A Tile repeats the whole axis, so the part leads it and what the operand has is its inside."""
    shape, repeats_ = operator.shape(), operator.integers(1)
    if shape is None or repeats_ is None or axis >= len(repeats_):
        return False
    inside = part.inner.divide(Extent.of(shape[axis]))
    return inside is not None and repeats_[axis] % (part.outer * part.before * inside).number == 0


def resized(operator: Operator, axis: int, _part: OpenedFactor) -> bool:
    """A Resize repeats the one element that an axis has, but where it crops."""
    shape, mode = operator.shape(), operator.string("coordinate_transformation_mode", "half_pixel")
    return shape is not None and shape[axis] == 1 and mode != "tf_crop_and_resize"


REPEATED: Mapping[tuple[str, str], Callable[[Operator, int, OpenedFactor], bool]] = {
    ("", "ConstantOfShape"): lambda *_: True,
    ("", "Expand"): stretched,
    ("", RESIZE): resized,
    ("", "Tile"): tiled,
}
"""(domain, operator) -> whether it repeats along an axis of its result, whatever its operand holds."""


def sources(
    node: ir.Node, value: ir.Value, axis: int, part: OpenedFactor, fact: Fact
) -> list[tuple[ir.Value | None, int, OpenedFactor]]:
    """List the axes of a node's operands that are an axis of what it gives; None in place of one that is not known."""
    first = node.inputs[0] if node.inputs else None
    if isinstance(fact, Permuted) and first is not None:
        return [(first, fact.perm[axis], part)]
    if isinstance(fact, Regrouped) and first is not None and first.shape is not None and value.shape is not None:
        back = ways(extents_of(value), {axis: part}, extents_of(first))
        return [(first, place, source_part) for place, source_part in back[0].items()] if back else []
    names = fact.outputs[list(node.outputs).index(value)] if isinstance(fact, Signature) else None
    if not isinstance(fact, Signature) or names is None or names[axis] in fact.whole | fact.across:
        return []
    return [
        (operand, place, part)
        for operand, letters in zip(node.inputs, fact.inputs, strict=True)
        for place, letter in enumerate(letters or ())
        if operand is not None and letter == names[axis] and extents_of(operand)[place] == part.source_extent
    ]


def extents_of(value: ir.Value) -> tuple[Extent, ...]:
    """Return the extents of a value of known rank."""
    assert value.shape is not None
    return tuple(Extent.of(dim if isinstance(dim, int) else str(dim.value)) for dim in value.shape)


def gather(operator: Operator, _: Fact) -> Fact:
    """`x[*a g *b], i[*i] -> y[*a *i *b]`; of one element the first is all, and the Gather is a Squeeze."""
    rank, indices = operator.rank(), operator.rank(1)
    if not rank or indices is None:
        return None
    letters, places = axis_letters(rank), axis_letters(indices, "i")
    axis = operator.int("axis", 0) % rank
    before, after = letters[:axis], letters[axis + 1 :]
    return Signature((letters, places), ((*before, *places, *after),), frozenset((letters[axis],)))


def slice_(operator: Operator, fact: Fact) -> Fact:
    """An axis of which all is taken is as free as one that is not sliced."""
    bounds = slice_bounds(operator)
    shape = operator.shape()
    if not isinstance(fact, Signature) or bounds is None or shape is None:
        return fact
    letters = fact.inputs[0] or ()
    free = {
        letters[axis]
        for axis, (start, end, step) in bounds.items()
        if isinstance(extent := shape[axis], int) and slice(start, end, step).indices(extent) == (0, extent, 1)
    }
    return replace(fact, whole=fact.whole - free)


def reverse_sequence(operator: Operator, fact: Fact) -> Fact:
    """`x[t b *d], lengths[b] -> y[t b *d]`: each sequence of the batch is turned by itself."""
    rank = operator.rank()
    if rank is None or rank < 2:
        return fact
    letters = axis_letters(rank)
    batch, time = letters[operator.int("batch_axis", 1) % rank], letters[operator.int("time_axis", 0) % rank]
    return Signature((letters, (batch,)), (letters,), frozenset((time,)))


def gather_as_view(operator: Operator, parts: Mapping[int, object]) -> Fact:
    """Return the view that a Gather is where it takes the one element that the opened axis has."""
    rank, output, indices = operator.rank(), operator.outputs[0], operator.integers(1) or ()
    if not rank or output is None:
        return None
    axis = operator.int("axis", 0) % rank
    takes_all = len(indices) == 1 and indices[0] in (0, -1) and (operator.shape() or ())[axis] == 1
    return Regrouped(output) if axis in parts and takes_all else None


OWN: Mapping[tuple[str, str], Callable[[Operator, Fact], Fact]] = {
    ("", "Gather"): gather,
    ("", "ReverseSequence"): reverse_sequence,
    ("", "Slice"): slice_,
}
"""(domain, operator) -> its axes for this purpose, by the node and what its layout rule says."""


def split_as_view(operator: Operator, parts: Mapping[int, object]) -> Fact:
    """Return the view that a Split into one part is."""
    rank, output = operator.rank(), operator.outputs[0]
    if not rank or output is None or len(operator.outputs) != 1:
        return None
    return Regrouped(output) if operator.int("axis", 0) % rank in parts else None


VIEWS: Mapping[tuple[str, str], Callable[[Operator, Mapping[int, object]], Fact]] = {
    ("", "Gather"): gather_as_view,
    ("", "Split"): split_as_view,
}
"""(domain, operator) -> the view that it is, where the opened axis has one element."""
