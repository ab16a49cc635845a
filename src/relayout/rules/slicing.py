"""Operators that cut, join, repeat and stretch along named axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature

AXIS_REQUIRED = 4
"""Opset from which Concat has no default axis (1 before)."""


@rule("Concat", kind="axis attributes")
def concat(operator: Operator) -> Fact:
    """Any order, the same for all operands; the axis is one dimension in order and is renumbered."""
    rank = operator.rank()
    if not rank:
        return None
    letters = axis_letters(rank)
    axis = letters[operator.int("axis", 1 if operator.version < AXIS_REQUIRED else 0) % rank]
    inputs = tuple(letters for _ in operator.inputs)
    return Signature(inputs, (letters,), frozenset({axis}), changes=lambda p: Changes({"axis": p.axis(axis)}))


@rule("Split", kind="axis attributes")
def split(operator: Operator) -> Fact:
    """Any order, the same for all outputs; the axis is one dimension in order and is renumbered."""
    rank = operator.rank()
    if not rank:
        return None
    letters = axis_letters(rank)
    axis = letters[operator.int("axis", 0) % rank]
    inputs = operator.operands({0: letters})
    return Signature(
        inputs, operator.results(letters), frozenset({axis}), changes=lambda p: Changes({"axis": p.axis(axis)})
    )


@rule("Slice", kind="axis attributes")
def slice_(operator: Operator) -> Fact:
    """Any order; the sliced axes are dimensions in order and are renumbered."""
    rank = operator.rank()
    as_input = operator.version >= 10
    starts = operator.ints("starts")
    if as_input:
        axes = operator.integers(3)
        lengths = operator.shape(1)
        known = lengths is not None and len(lengths) == 1 and isinstance(lengths[0], int)
        count = lengths[0] if lengths and known and not operator.has(3) else None
    else:
        axes = operator.ints("axes")
        count = None if starts is None or axes is not None else len(starts)
    if axes is None and isinstance(count, int):
        axes = tuple(range(count))
    if rank is None or axes is None or len(axes) > rank:
        return None
    letters = axis_letters(rank)
    sliced = tuple(letters[axis] for axis in normalized(axes, rank))

    def changes(placement: Placement) -> Changes:
        where = tuple(placement.axis(letter) for letter in sliced)
        return Changes(inputs={3: np.array(where, operator.dtype(1))}) if as_input else Changes({"axes": where})

    return Signature(operator.operands({0: letters}), (letters,), frozenset(sliced), changes=changes)


@rule("Pad", kind="axis attributes")
def pad(operator: Operator) -> Fact:
    """Any order; the padded axes are dimensions in order, and the pads follow, even where they are computed."""
    return padding(operator, as_input=operator.version >= 11)


@rule("Pad", kind="axis attributes", domain="com.microsoft")
def contributed_pad(operator: Operator) -> Fact:
    """Any order; the padded axes are dimensions in order, and the pads follow, even where they are computed."""
    return padding(operator, as_input=True)


def padding(operator: Operator, *, as_input: bool) -> Signature | None:
    """The signature of a Pad whose pads are an attribute or an input."""
    rank = operator.rank()
    if rank is None:
        return None
    letters = axis_letters(rank)
    pads = operator.integers(1) if as_input else operator.ints("pads") or operator.ints("paddings")
    chosen = operator.integers(3) if operator.has(3) else tuple(range(rank))
    if chosen is None or len(chosen) > rank:
        return None
    axes = tuple(letters[axis] for axis in normalized(chosen, rank))
    inputs = operator.operands({0: letters})
    if pads is None:
        return Signature(inputs, (letters,), frozenset(axes), changes=lambda p: _renumbered(operator, axes, p))
    count = len(axes)
    padded = {axis: (pads[i], pads[i + count]) for i, axis in enumerate(axes) if pads[i] or pads[i + count]}

    def changes(placement: Placement) -> Changes:
        each = [padded.get(letter, (0, 0)) for letter in placement.letters()]
        new = (*(before for before, _ in each), *(after for _, after in each))
        if not as_input:
            return Changes({"pads": new})
        # ONNX Runtime's own transpose optimizer forgets `axes`, so all axes are written out.
        parameters: dict[int, NDArray[np.generic] | None] = {3: None} if operator.has(3) else {}
        return Changes(inputs={1: np.array(new, np.int64), **parameters})

    return Signature(inputs, (letters,), frozenset(padded), changes=changes)


def _renumbered(operator: Operator, axes: Letters, placement: Placement) -> Changes:
    """Pads that are not known: the axes they are for are renumbered, or they change places themselves."""
    if operator.has(3):
        return Changes(inputs={3: np.array([placement.axis(axis) for axis in axes], operator.dtype(3))})
    places = [axes.index(letter) for letter in placement.letters()]
    return Changes(gathered={1: (0, (*places, *(place + len(axes) for place in places)))})


@rule("Tile", kind="axis attributes")
def tile(operator: Operator) -> Fact:
    """Any order; the repeated axes are dimensions in order, and the repeats follow, even where they are computed."""
    rank, repeats = operator.rank(), operator.integers(1)
    if rank is None or operator.version < 6:
        return None
    letters = axis_letters(rank)
    if repeats is None:
        return Signature(
            (letters, None),
            (letters,),
            frozenset(letters),
            changes=lambda p: Changes(gathered={1: (0, tuple(map(letters.index, p.letters())))}),
        )
    times = dict(zip(letters, repeats, strict=True))

    def changes(placement: Placement) -> Changes:
        return Changes(inputs={1: np.array([times[letter] for letter in placement.letters()], np.int64)})

    return Signature(
        (letters, None), (letters,), frozenset(axis for axis in letters if times[axis] != 1), changes=changes
    )


@rule("Expand", kind="axis attributes")
def expand(operator: Operator) -> Fact:
    """Any order; missing axes become size-1 axes in place; the target shape follows, even where it is computed."""
    shape, target, output = operator.shape(), operator.integers(1), operator.outputs[0]
    if shape is None or output is None or len(shape) > len(output):
        return None
    letters = axis_letters(len(output))
    inputs = (letters[len(letters) - len(shape) :], None)
    if target is None:
        if operator.shape(1) != (len(output),):
            return None
        return Signature(
            inputs,
            (letters,),
            block=frozenset(letters),
            broadcast=True,
            changes=lambda p: Changes(gathered={1: (0, tuple(map(letters.index, p.letters(output=True))))}),
        )

    def changes(placement: Placement) -> Changes:
        # A symbolic extent comes from the input, where 1 asks for nothing.
        sizes = [extent.number if extent.is_static else 1 for extent in placement.extents(0, output=True)]
        return Changes(inputs={1: np.array(sizes, np.int64)})

    return Signature(inputs, (letters,), broadcast=True, changes=changes)


@rule("CenterCropPad", kind="axis attributes")
def center_crop_pad(operator: Operator) -> Fact:
    """Any order; the axes cut or padded are dimensions in order and are renumbered."""
    rank = operator.rank()
    if rank is None:
        return None
    letters = axis_letters(rank)
    axes = tuple(letters[axis] for axis in normalized(operator.ints("axes") or tuple(range(rank)), rank))

    def changes(placement: Placement) -> Changes:
        return Changes({"axes": tuple(placement.axis(axis) for axis in axes)})

    return Signature((letters, None), (letters,), frozenset(axes), changes=changes)
