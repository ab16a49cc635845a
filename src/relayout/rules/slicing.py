"""Operators that cut, join, repeat and stretch along named axes, or gather along them."""

from collections.abc import Mapping, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.layout import Dim, Extent
from relayout.rules.facts import along_computed
from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, renumbered_axis

AXIS_REQUIRED = 4  # opset from which Concat has no default axis (1 before)
SLICE_INPUTS = 10  # opset from which a Slice has its bounds as inputs


@rule("Concat", kind="axis attributes")
def concat(operator: Operator) -> Fact:
    """Any order, the same for all operands; the axis is one dimension in order and is renumbered."""
    letters = operator.letters(least=1)
    axis = letters[operator.int("axis", 1 if operator.version < AXIS_REQUIRED else 0) % len(letters)]
    inputs = tuple(letters for _ in operator.inputs)
    parts = [
        (shape[letters.index(axis)] if shape and len(shape) == len(letters) else 0) or "?" for shape in operator.inputs
    ]
    one, runs = frozenset({axis}), granularity({axis: parts})
    return Signature(inputs, (letters,), one, grain=runs, changes=renumbered_axis(axis), grows=one)


def granularity(
    # axis -> where it is cut and how long the parts are; no integer where that is not known
    cuts: Mapping[str, Sequence[Dim]],
) -> tuple[tuple[str, int], ...]:
    """Return the longest runs of elements that no cut divides."""
    known = {axis: [place for place in places if isinstance(place, int)] for axis, places in cuts.items()}
    sizes = {axis: gcd(*places) for axis, places in known.items() if len(places) == len(cuts[axis])}
    return tuple((axis, size) for axis, size in sizes.items() if size > 1)


@rule("Split", kind="axis attributes")
def split(operator: Operator) -> Fact:
    """Any order, the same for all outputs; the axis is one dimension in order and is renumbered."""
    letters = operator.letters(least=1)
    where = operator.int("axis", 0) % len(letters)
    axis = letters[where]
    inputs = operator.operands({0: letters})
    parts = [(shape[where] if shape and len(shape) == len(letters) else 0) or "?" for shape in operator.outputs]
    sizes, whole = operator.integers(1) or operator.ints("split"), operator.extent(0, where)
    as_input = operator.has(1)

    def changes(placement: Placement) -> Changes:
        extent = placement.extent(axis)
        if sizes is None or extent == whole or whole is None:
            return Changes({"axis": placement.axis(axis)})
        over, under = _length(whole, extent)
        fewer = tuple(size * over // under for size in sizes)
        if as_input:
            return Changes({"axis": placement.axis(axis)}, inputs={1: np.array(fewer, np.int64)})
        return Changes({"axis": placement.axis(axis), "split": fewer})

    return Signature(
        inputs, operator.results(letters), frozenset({axis}), grain=granularity({axis: parts}), changes=changes
    )


@rule("Slice", kind="axis attributes")
def slice_(operator: Operator) -> Fact:
    """Any order; the sliced axes are dimensions in order and are renumbered, even where they are computed."""
    rank = operator.rank()
    as_input = operator.version >= SLICE_INPUTS
    axes = _sliced_axes(operator)
    if axes is None and operator.has(3):
        return along_computed(operator, 3, ordered=True)
    if rank is None or axes is None or len(axes) > rank:
        return None
    letters = axis_letters(rank)
    where = normalized(axes, rank)
    sliced = tuple(letters[axis] for axis in where)
    bounds = _bounds(operator, where)
    shape = operator.shape() or ()

    def changes(placement: Placement) -> Changes:
        places = tuple(placement.axis(letter) for letter in sliced)
        axis_changes = (
            Changes(inputs={3: np.array(places, operator.dtype(1))}) if as_input else Changes({"axes": places})
        )
        extents = [placement.extent(letter) for letter in sliced]
        if bounds is None or extents == [Extent.of(shape[axis]) for axis in where]:
            return axis_changes
        starts, ends = _scaled(bounds, [Extent.of(shape[axis]) for axis in where], extents)
        if not as_input:
            return Changes({"axes": places, "starts": tuple(starts), "ends": tuple(ends)})
        dtype = operator.dtype(1)
        return Changes(inputs={1: np.array(starts, dtype), 2: np.array(ends, dtype), **axis_changes.inputs})

    cuts: dict[str, list[Dim]] = {}
    for letter, axis, bound in zip(sliced, where, bounds or (), strict=False):
        cuts[letter] = [shape[axis], bound.first, bound.last] if bound.plain else ["?"]
    return Signature(
        operator.operands({0: letters}), (letters,), frozenset(sliced), grain=granularity(cuts), changes=changes
    )


def _sliced_axes(operator: Operator) -> tuple[int, ...] | None:
    """Return the axes that a Slice names, or the first ones, as many as it has bounds; None if they are not known."""
    if operator.version < SLICE_INPUTS:
        starts, axes = operator.ints("starts"), operator.ints("axes")
        return tuple(range(len(starts))) if axes is None and starts is not None else axes
    if operator.has(3):
        return operator.integers(3)
    lengths = operator.shape(1)
    count = lengths[0] if lengths is not None and len(lengths) == 1 else None
    return tuple(range(count)) if isinstance(count, int) else None


class Bound(NamedTuple):
    """First and last element (exclusive) of a slice; `plain` if they are those, in steps of one, and not as written."""

    first: int
    last: int
    plain: bool


def slice_bounds(operator: Operator) -> dict[int, tuple[int, int, int]] | None:
    """Return the start, end and step of each axis that a Slice names; None where they are computed."""
    rank = operator.rank()
    if operator.version < SLICE_INPUTS:
        starts, ends, axes, steps = operator.ints("starts"), operator.ints("ends"), operator.ints("axes"), None
        known = True
    else:
        starts, ends, axes, steps = (operator.integers(slot) for slot in (1, 2, 3, 4))
        known = all(operator.integers(slot) is not None for slot in (3, 4) if operator.has(slot))
    if rank is None or starts is None or ends is None or not known:
        return None
    named = normalized(tuple(range(len(starts))) if axes is None else axes, rank)
    counts = (1,) * len(starts) if steps is None else steps
    return {axis: (start, end, step) for axis, start, end, step in zip(named, starts, ends, counts, strict=False)}


def _bounds(operator: Operator, axes: Sequence[int]) -> list[Bound] | None:
    """Return the bounds of each sliced axis; None where they are computed."""
    said, shape = slice_bounds(operator), operator.shape() or ()
    if said is None or tuple(said) != tuple(axes):
        return None
    bounds: list[Bound] = []
    for axis, (start, end, step) in said.items():
        extent = shape[axis]
        first, last, _ = slice(start, end).indices(extent) if isinstance(extent, int) else (0, 0, 0)
        plain = step == 1 and first < last
        bounds.append(Bound(first, last, plain) if plain else Bound(start, end, plain))
    return bounds


def _length(before: Extent, after: Extent) -> tuple[int, int]:
    """Return the part of an axis that is left, as two numbers: what its grains hold lies elsewhere.

    Of one that is open here alone all is left: a node's shapes may say more than those that its operands come with.
    """
    return (after.number, before.number) if before.symbols == after.symbols and before != after else (1, 1)


def _scaled(bounds: Sequence[Bound], old: Sequence[Extent], new: Sequence[Extent]) -> tuple[list[int], list[int]]:
    """Starts and ends in axes that have become shorter, since what their grains hold lies elsewhere."""
    starts, ends = [], []
    for bound, before, after in zip(bounds, old, new, strict=True):
        over, under = _length(before, after)
        starts.append(bound.first * over // under)
        ends.append(bound.last * over // under)
    return starts, ends


@rule("Pad", kind="axis attributes")
@rule("Pad", kind="axis attributes", domain="com.microsoft")
def pad(operator: Operator) -> Fact:
    """Any order; the padded axes are dimensions in order, and the pads follow, even where they are computed."""
    letters, as_input = operator.letters(), operator.version >= 11 or operator.domain == "com.microsoft"
    pads = operator.integers(1) if as_input else operator.ints("pads") or operator.ints("paddings")
    chosen = operator.integers(3) if operator.has(3) else tuple(range(len(letters)))
    if chosen is None:
        return along_computed(operator, 3, ordered=True)
    if len(chosen) > len(letters):
        return None
    axes = tuple(letters[axis] for axis in normalized(chosen, len(letters)))
    inputs = operator.operands({0: letters})
    if pads is None:
        whole = frozenset(axes)

        def follow(placement: Placement) -> Changes:
            """The axes that the pads are for are renumbered, or they change places themselves."""
            if operator.has(3):
                return Changes(inputs={3: np.array([placement.axis(axis) for axis in axes], operator.dtype(3))})
            places = [axes.index(letter) for letter in placement.letters()]
            return Changes(gathered={1: (0, (*places, *(place + len(axes) for place in places)))})

        return Signature(inputs, (letters,), whole, changes=follow, grows=whole)
    count = len(axes)
    padded = {axis: (pads[i], pads[i + count]) for i, axis in enumerate(axes) if pads[i] or pads[i + count]}

    def changes(placement: Placement) -> Changes:
        each = []
        for letter, extent in zip(placement.letters(), placement.extents(), strict=True):
            before, after = padded.get(letter, (0, 0))
            if letter in padded:
                over, under = _length(shape[letter], extent)
                before, after = before * over // under, after * over // under
            each.append((before, after))
        new = (*(before for before, _ in each), *(after for _, after in each))
        if not as_input:
            return Changes({"pads": new})
        # Whoever turns the operator once more has no `axes` to think of: all are written out.
        parameters: dict[int, NDArray[np.generic] | None] = {3: None} if operator.has(3) else {}
        return Changes(inputs={1: np.array(new, np.int64), **parameters})

    shape = dict(zip(letters, map(Extent.of, operator.shape() or ()), strict=True))
    zeros = operator.string("mode", "constant") == "constant"
    cuts: dict[str, list[Dim]] = {}
    for letter, pair in padded.items():
        cuts[letter] = [shape[letter].number, *pair] if zeros and shape[letter].is_static else ["?"]
    longer = frozenset(letter for letter, pair in padded.items() if min(pair) >= 0)
    return Signature(inputs, (letters,), frozenset(padded), grain=granularity(cuts), changes=changes, grows=longer)


@rule("Tile", kind="axis attributes")
def tile(operator: Operator) -> Fact:
    """Any order; the repeated axes are dimensions in order, and the repeats follow, even where they are computed."""
    letters, repeats = operator.letters(), operator.integers(1)
    if operator.version < 6:
        return None
    if repeats is None:
        return Signature(
            (letters, None),
            (letters,),
            frozenset(letters),
            changes=lambda p: Changes(gathered={1: (0, tuple(map(letters.index, p.letters())))}),
            grows=frozenset(letters),
        )
    times = dict(zip(letters, repeats, strict=True))

    def changes(placement: Placement) -> Changes:
        return Changes(inputs={1: np.array([times[letter] for letter in placement.letters()], np.int64)})

    repeated = frozenset(axis for axis in letters if times[axis] != 1)
    return Signature((letters, None), (letters,), repeated, changes=changes, grows=repeated)


@rule("Expand", kind="axis attributes")
def expand(operator: Operator) -> Fact:
    """Any order; missing axes become size-1 axes in place; the target shape follows, even where it is computed."""
    shape, target, output = operator.shape(), operator.integers(1), operator.outputs[0]
    if shape is None or output is None or len(shape) > len(output):
        return None
    letters = axis_letters(len(output))
    inputs = (letters[len(letters) - len(shape) :], None)
    # What is stretched to more than 1 element is known to have so many, unless the shapes of the graph fall behind.
    stretched = zip(reversed(output), reversed(target or ()), strict=False)
    if target is None or any(not isinstance(dim, int) and item > 1 for dim, item in stretched):
        if operator.shape(1) != (len(output),):
            return None
        return Signature(
            inputs,
            (letters,),
            block=frozenset(letters),
            broadcast=True,
            changes=lambda p: Changes(gathered={1: (0, tuple(map(letters.index, p.letters(output=True))))}),
            grows=frozenset(letters),
        )

    # A symbolic extent comes from the input, where 1 asks for nothing; where the source asks for nothing, nobody does:
    # what a window gives with `ceil_mode` is one element less in some runtimes.
    requested_letters = {letter for letter, item in zip(reversed(letters), reversed(target), strict=False) if item != 1}

    def changes(placement: Placement) -> Changes:
        dims = zip(placement.letters(output=True), placement.extents(output=True), strict=True)
        sizes = [extent.number if extent.is_static and letter in requested_letters else 1 for letter, extent in dims]
        return Changes(inputs={1: np.array(sizes, np.int64)})

    return Signature(inputs, (letters,), broadcast=True, changes=changes)


@rule("CenterCropPad", kind="axis attributes")
def center_crop_pad(operator: Operator) -> Fact:
    """Any order; the axes cut or padded are dimensions in order and are renumbered."""
    letters = operator.letters()
    axes = tuple(
        letters[axis] for axis in normalized(operator.ints("axes") or tuple(range(len(letters))), len(letters))
    )

    def changes(placement: Placement) -> Changes:
        return Changes({"axes": tuple(placement.axis(axis) for axis in axes)})

    return Signature((letters, None), (letters,), frozenset(axes), changes=changes)


# Operators that pick or place elements by index.


@rule("Gather", kind="axis attributes")
def gather(operator: Operator) -> Fact:
    """`x[*a g *b], i[*i] -> y[*a *i *b]`: any order that keeps the indices' axes together; the axis is renumbered.

    Of a list any order of the indices, `x[g], i[*i] -> y[*i]`: a table of results.
    """
    letters, indices = operator.letters(least=1), operator.needed_rank(1)
    if len(letters) == 1:
        free = axis_letters(indices, "i")
        return Signature((letters, free), (free,), frozenset(letters))
    axis = operator.int("axis", 0) % len(letters)
    gathered_axis = letters[axis]
    # The axes of the indices stand where the gathered axis stood: one letter, of another extent and in several
    # dimensions, which stay together.
    inner = (gathered_axis,) * indices
    output = (*letters[:axis], *inner, *letters[axis + 1 :])
    return Signature((letters, inner), (output,), frozenset({gathered_axis}), changes=renumbered_axis(gathered_axis))


@rule("GatherElements", "ScatterElements", "Scatter", kind="axis attributes")
def elements_by_index(operator: Operator) -> Fact:
    """Any order, the same for data, indices and updates; the axis is one dimension in order and is renumbered."""
    data, indices = operator.shape(), operator.shape(1)
    if not data or indices is None or len(data) != len(indices):
        return None
    letters = axis_letters(len(data))
    axis = letters[operator.int("axis", 0) % len(data)]
    # Where the indices cover only the first items of an axis, its order counts.
    partly = {letter for letter, whole, part in zip(letters, data, indices, strict=True) if whole != part}
    operands = operator.operands(dict.fromkeys(range(3), letters))
    return Signature(operands, (letters,), frozenset({axis} | partly), changes=renumbered_axis(axis))


@rule("GatherND", kind="axis attributes")
@rule("GatherND", kind="axis attributes", domain="com.microsoft")
def gather_nd(operator: Operator) -> Fact:
    """`x[*g *r], i[*i t] -> y[*i *r]`: g and i in any order, the index tuples t follow; r last (batch axes first)."""
    batch = operator.int("batch_dims", 0)
    axis_groups = _tuples(operator, batch)
    if axis_groups is None:
        return None
    shared, indexed, rest, items = axis_groups
    data, indices, output = (*shared, *indexed, *rest), (*shared, *items, "t"), (*shared, *items, *rest)
    whole = frozenset((*indexed, "t"))

    def changes(placement: Placement) -> Changes:
        return Changes({"batch_dims": len(placement.axes(shared))}) if batch else _follow(indexed, placement)

    # Indexed axes and indices' axes come after the shared ones, if there are any, so they keep their order.
    tail = (*indexed, *items, *rest, "t") if batch else (*rest, "t")
    return Signature((data, indices), (output,), whole, tail=tail, changes=changes)


@rule("ScatterND", kind="axis attributes")
def scatter_nd(operator: Operator) -> Fact:
    """`x[*g *r], i[*i t], u[*i *r] -> y[*g *r]`: g and i in any order, the index tuples t follow; r last."""
    axis_groups = _tuples(operator, 0)
    if axis_groups is None:
        return None
    _, indexed, rest, items = axis_groups
    data = (*indexed, *rest)
    return Signature(
        (data, (*items, "t"), (*items, *rest)),
        (data,),
        frozenset((*indexed, "t")),
        tail=(*rest, "t"),
        changes=lambda p: _follow(indexed, p),
    )


def _tuples(operator: Operator, batch: int) -> tuple[Letters, Letters, Letters, Letters] | None:
    """Return the axes that data and indices share, those that are indexed, those copied, and those of the indices."""
    data, indices = operator.shape(), operator.shape(1)
    if data is None or not indices or not isinstance(indices[-1], int) or not 0 <= batch < len(indices):
        return None
    end, letters = batch + indices[-1], axis_letters(len(data))
    if end > len(data):
        return None
    return letters[:batch], letters[batch:end], letters[end:], axis_letters(len(indices) - 1 - batch, "i")


def _follow(indexed: Letters, placement: Placement) -> Changes:
    stored = tuple(indexed.index(letter) for letter in placement.letters() if letter in indexed)
    if stored == tuple(range(len(indexed))):
        return Changes()
    return Changes(gathered={1: (placement.axis("t", 1), stored)})


@rule("Compress", kind="axis attributes")
def compress(operator: Operator) -> Fact:
    """Any order; the axis is one dimension in order and is renumbered (without one: flattened, a barrier)."""
    letters = operator.letters(least=1)
    if "axis" not in operator.attributes:
        return None
    axis = letters[operator.int("axis", 0) % len(letters)]
    return Signature((letters, None), (letters,), frozenset({axis}), changes=renumbered_axis(axis))


@rule("OneHot", kind="axis attributes")
def one_hot(operator: Operator) -> Fact:
    """`i[*a *b] -> y[*a o *b]`: any order; the axis of the new one is renumbered."""
    letters = operator.letters()
    axis = operator.int("axis", -1) % (len(letters) + 1)
    inputs, output = operator.operands({0: letters}), (*letters[:axis], "o", *letters[axis:])
    changes = renumbered_axis("o", output=True)
    return Signature(inputs, (output,), frozenset("o"), changes=changes) if operator.gives(0) else None


@rule("TensorScatter", kind="layout-sensitive")
def tensor_scatter(operator: Operator) -> Fact:
    """`x[n *a s *b], u[n *a s *b], i[n] -> y[n *a s *b]`: n first; the axis s is one dimension and is renumbered."""
    letters = operator.letters(least=2)
    axis = letters[operator.int("axis", -2) % len(letters)]
    inputs = operator.operands({0: letters, 1: letters, 2: letters[:1]})
    return Signature(inputs, (letters,), frozenset({axis}), frozenset(letters)).positional()
