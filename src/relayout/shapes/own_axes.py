"""Axes of operators whose layout rule says less of them than following one axis needs.

A layout rule may call several axes one (a Gather's indices), or ask for the order along an axis that the node leaves as
it is (a Slice that takes all of it). Here such an operator has a signature for this purpose alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from relayout.rules import Fact, Operator, Regrouped, Signature, axis_letters, normalized

SLICE_INPUTS = 10
"""The opset from which a Slice has its bounds as inputs."""


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


def reverse_sequence(operator: Operator, fact: Fact) -> Fact:
    """`x[t b *d], lengths[b] -> y[t b *d]`: each sequence of the batch is turned by itself."""
    rank = operator.rank()
    if rank is None or rank < 2:
        return fact
    letters = axis_letters(rank)
    batch, time = letters[operator.int("batch_axis", 1) % rank], letters[operator.int("time_axis", 0) % rank]
    return Signature((letters, (batch,)), (letters,), frozenset((time,)))


def one_element(operator: Operator, axis: int) -> bool:
    """Tell whether a Gather takes the one element that an axis has."""
    shape, indices = operator.shape(), operator.integers(1)
    return shape is not None and shape[axis] == 1 and bool(indices) and set(indices or ()) <= {0, -1}


def gather_as_view(operator: Operator, parts: Mapping[int, object]) -> Fact:
    """Return the view that a Gather is where it takes the one element that the opened axis has."""
    rank, output = operator.rank(), operator.outputs[0]
    if not rank or output is None:
        return None
    axis = operator.int("axis", 0) % rank
    alone = len(operator.integers(1) or ()) == 1
    return Regrouped(output) if axis in parts and alone and one_element(operator, axis) else None


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
