"""Operators whose attributes or parameters name axes: reductions, softmax, concatenation, slices, pads, gathers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature

AXES_AS_INPUT = 18
"""Opset from which reductions (13 for ReduceSum) take axes as an input."""


@rule(
    *"ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd".split(),
    *"ReduceSum ReduceSumSquare".split(),
    kind="axis attributes",
)
def reduction(operator: Operator) -> Fact:
    """Any order; the reduced axes are renumbered, even in pieces."""
    rank = operator.rank()
    as_input = operator.version >= (13 if operator.name == "ReduceSum" else AXES_AS_INPUT)
    axes = operator.integers(1) if as_input else operator.ints("axes")
    if rank is None or (as_input and operator.has(1) and axes is None):
        return None
    letters = axis_letters(rank)
    if not axes:
        reduced = () if operator.int("noop_with_empty_axes", 0) else letters
    else:
        reduced = tuple(letters[axis] for axis in normalized(axes, rank))
    keep = operator.int("keepdims", 1)
    output = letters if keep else tuple(letter for letter in letters if letter not in reduced)

    def changes(placement: Placement) -> Changes:
        if not axes:
            return Changes()
        where = placement.axes(reduced)
        return Changes(inputs={1: np.array(where, np.int64)}) if as_input else Changes({"axes": where})

    inputs: tuple[Letters | None, ...] = (letters, *((None,) * (len(operator.inputs) - 1)))
    return Signature(inputs, (output,), changes=changes)


@rule("ArgMax", "ArgMin", kind="axis attributes")
def arg(operator: Operator) -> Fact:
    """Any order; the axis is one dimension in order and is renumbered."""
    rank = operator.rank()
    if not rank:
        return None
    letters = axis_letters(rank)
    axis = letters[operator.int("axis", 0) % rank]
    output = letters if operator.int("keepdims", 1) else tuple(letter for letter in letters if letter != axis)
    return Signature((letters,), (output,), frozenset({axis}), changes=lambda p: Changes({"axis": p.axis(axis)}))


@rule("Softmax", "LogSoftmax", "Hardmax", kind="axis attributes")
def softmax(operator: Operator) -> Fact:
    """Any order; the axis is one dimension and is renumbered (before opset 13 the input is flattened: a barrier)."""
    rank = operator.rank()
    if not rank or operator.version < 13:
        return None
    letters = axis_letters(rank)
    axis = letters[operator.int("axis", -1) % rank]
    one = frozenset({axis})
    ordered = operator.name == "Hardmax"  # the first of equal maxima wins
    return Signature(
        (letters,), (letters,), one if ordered else frozenset(), one, changes=lambda p: Changes({"axis": p.axis(axis)})
    )


@rule("Concat", kind="axis attributes")
def concat(operator: Operator) -> Fact:
    """Any order, the same for all operands; the axis is one dimension in order and is renumbered."""
    rank = operator.rank()
    if not rank or any(shape is None for shape in operator.inputs):
        return None
    letters = axis_letters(rank)
    axis = letters[operator.int("axis", 0) % rank]
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
    inputs: tuple[Letters | None, ...] = (letters, *((None,) * (len(operator.inputs) - 1)))
    outputs = tuple(letters for _ in operator.outputs)
    return Signature(inputs, outputs, frozenset({axis}), changes=lambda p: Changes({"axis": p.axis(axis)}))


def _whole_axes(letters: Letters, axes: tuple[int, ...]) -> frozenset[str]:
    return frozenset(letters[axis] for axis in axes)


@rule("Slice", kind="axis attributes")
def slice_(operator: Operator) -> Fact:
    """Any order; the sliced axes are dimensions in order and are renumbered."""
    rank = operator.rank()
    if rank is None or operator.version < 10:
        return None
    starts = operator.inputs[1]
    if operator.has(3):
        axes = operator.integers(3)
    else:
        axes = tuple(range(int(starts[0]))) if starts and isinstance(starts[0], int) else None
    if axes is None:
        return None
    letters = axis_letters(rank)
    axes = normalized(axes, rank)

    def changes(placement: Placement) -> Changes:
        return Changes(inputs={3: np.array([placement.axis(letters[axis]) for axis in axes], np.int64)})

    inputs: tuple[Letters | None, ...] = (letters, *((None,) * (len(operator.inputs) - 1)))
    return Signature(inputs, (letters,), _whole_axes(letters, axes), changes=changes)


@rule("Pad", kind="axis attributes")
def pad(operator: Operator) -> Fact:
    """Any order; the padded axes are dimensions in order, and the pads follow."""
    rank = operator.rank()
    pads = operator.integers(1) if operator.version >= 11 else operator.ints("pads")
    axes = operator.integers(3) if operator.has(3) else None if rank is None else tuple(range(rank))
    if rank is None or pads is None or axes is None:
        return None
    letters = axis_letters(rank)
    axes = normalized(axes, rank)
    count = len(axes)
    padded = {letters[axis]: (pads[i], pads[i + count]) for i, axis in enumerate(axes) if pads[i] or pads[i + count]}

    def changes(placement: Placement) -> Changes:
        each = [padded.get(letter, (0, 0)) for letter in placement.letters()]
        new = (*(before for before, _ in each), *(after for _, after in each))
        if operator.version < 11:
            return Changes({"pads": new})
        parameters: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None] = {1: np.array(new, np.int64)}
        return Changes(inputs=parameters | ({3: None} if operator.has(3) else {}))

    inputs: tuple[Letters | None, ...] = (letters, *((None,) * (len(operator.inputs) - 1)))
    return Signature(inputs, (letters,), frozenset(padded), changes=changes)


@rule("Tile", kind="axis attributes")
def tile(operator: Operator) -> Fact:
    """Any order; the repeated axes are dimensions in order, and the repeats follow."""
    rank, repeats = operator.rank(), operator.integers(1)
    if rank is None or repeats is None:
        return None
    letters = axis_letters(rank)
    times = dict(zip(letters, repeats, strict=True))

    def changes(placement: Placement) -> Changes:
        return Changes(inputs={1: np.array([times[letter] for letter in placement.letters()], np.int64)})

    return Signature((letters, None), (letters,), frozenset(l for l, t in times.items() if t != 1), changes=changes)


@rule("Expand", kind="axis attributes")
def expand(operator: Operator) -> Fact:
    """Any order; missing axes become size-1 axes in place, and the target shape follows."""
    shape, target = operator.inputs[0], operator.integers(1)
    output = operator.outputs[0]
    if shape is None or target is None or output is None:
        return None
    letters = axis_letters(len(output))

    def changes(placement: Placement) -> Changes:
        # A symbolic extent comes from the input, where 1 asks for nothing.
        sizes = [extent.number if extent.is_static else 1 for extent in placement.extents(0, output=True)]
        return Changes(inputs={1: np.array(sizes, np.int64)})

    return Signature((letters[len(letters) - len(shape) :], None), (letters,), broadcast=True, changes=changes)


@rule("Gather", kind="axis attributes")
def gather(operator: Operator) -> Fact:
    """`x[*a g *b], i[*i] -> y[*a *i *b]`: any order that keeps the indices' axes together; the axis is renumbered."""
    rank, indices = operator.rank(), operator.rank(1)
    if not rank or indices is None:
        return None
    letters = axis_letters(rank)
    axis = operator.int("axis", 0) % rank
    taken = letters[axis]
    inner = axis_letters(indices, "i")
    output = (*letters[:axis], *inner, *letters[axis + 1 :])
    if indices > 1:
        return None
    signature = Signature(
        (letters, inner), (output,), frozenset({taken, *inner}), changes=lambda p: Changes({"axis": p.axis(taken)})
    )
    # One index axis stands where the gathered axis stood: they are one letter with two extents.
    return replace(signature, inputs=(letters, (taken,)), outputs=(letters,)) if indices else signature


@rule("CumSum", kind="axis attributes")
def cumsum(operator: Operator) -> Fact:
    """Any order; the axis is one dimension in order and is renumbered."""
    rank, axes = operator.rank(), operator.integers(1)
    if not rank or axes is None:
        return None
    letters = axis_letters(rank)
    axis = letters[axes[0] % rank]
    parameter = operator.constant(1)
    assert parameter is not None

    def changes(placement: Placement) -> Changes:
        return Changes(inputs={1: np.full(parameter.shape, placement.axis(axis), parameter.dtype)})

    return Signature((letters, None), (letters,), frozenset({axis}), changes=changes)


@rule("TopK", kind="axis attributes")
def top_k(operator: Operator) -> Fact:
    """Any order, the same for values and indices; the axis is one dimension in order and is renumbered."""
    rank = operator.rank()
    if not rank:
        return None
    letters = axis_letters(rank)
    axis = letters[operator.int("axis", -1) % rank]
    return Signature(
        (letters, None), (letters, letters), frozenset({axis}), changes=lambda p: Changes({"axis": p.axis(axis)})
    )


@rule("Resize", kind="layout-sensitive")
def resize(operator: Operator) -> Fact:
    """Any order of the standard: sizes, scales, roi and `axes` follow; the resized axes are dimensions in order."""
    rank = operator.rank()
    output = operator.outputs[0]
    if rank is None or output is None or operator.version < 11:
        return None
    letters = axis_letters(rank)
    axes = normalized(operator.ints("axes") or tuple(range(rank)), rank)
    # Runtimes resize the last axes of an n c *s tensor only, so the standard's positions are kept.
    return Signature(
        (letters, *((None,) * (len(operator.inputs) - 1))),
        (letters,),
        _whole_axes(letters, axes),
        frozenset(letters),
    ).positional()
