"""Operators that move no element of the row-major order, or move all of them by a stated perm: views."""

from __future__ import annotations

from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Permuted, Placement, Regrouped, Signature


@rule("Transpose", kind="regrouping")
def transpose(operator: Operator) -> Fact:
    """A relabelling: costs nothing unless two readers disagree about the stored order."""
    rank = operator.rank()
    if rank is None:
        return None
    perm = operator.ints("perm")
    return Permuted(perm if perm is not None else tuple(reversed(range(rank))))


@rule("Identity", kind="layout-agnostic")
def identity(operator: Operator) -> Fact:
    """The same value under another name."""
    rank = operator.rank()
    return None if rank is None else Permuted(tuple(range(rank)))


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze", kind="regrouping")
def reshape(operator: Operator) -> Fact:
    """A regrouping of factors: free where the two shapes have a common refinement, a barrier where not."""
    if operator.inputs[0] is None or operator.outputs[0] is None:
        return None
    return Regrouped(operator.outputs[0])


@rule("Shape", kind="axis attributes")
def shape(operator: Operator) -> Fact:
    """Any order: the extents are read from where the axes lie."""
    rank = operator.rank()
    if rank is None:
        return None
    letters = axis_letters(rank)
    window = range(rank)[slice(operator.int("start", 0), operator.int("end", rank))]

    def changes(placement: Placement) -> Changes:
        indices = tuple(placement.axis(letters[axis]) for axis in window)
        return Changes({"start": None, "end": None}, gathered_outputs={0: (0, indices)})

    return Signature((letters,), (None,), block=frozenset(letters), changes=changes)
