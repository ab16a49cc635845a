"""Operators that move no element of the row-major order, or move all of them by a stated perm: views."""

from __future__ import annotations

from collections.abc import Sequence

from relayout.layout import Dim
from relayout.rules.operator import Operator, axis_letters, normalized
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


@rule("Reshape", "Flatten", kind="regrouping")
def reshape(operator: Operator) -> Fact:
    """A regrouping of factors: free where the two shapes have a common refinement, a barrier where not."""
    if operator.inputs[0] is None or operator.outputs[0] is None:
        return None
    return Regrouped(operator.outputs[0])


@rule("Squeeze", kind="regrouping")
def squeeze(operator: Operator) -> Fact:
    """Axes of one element leave; the others keep their extents, whatever the result calls them."""
    dims, gone = operator.inputs[0], _listed(operator)
    gone = _only(operator) if gone is None else gone
    if dims is None or gone is None:
        return reshape(operator)
    return _stated(operator, [dim for axis, dim in enumerate(dims) if axis not in normalized(gone, len(dims))])


@rule("Unsqueeze", kind="regrouping")
def unsqueeze(operator: Operator) -> Fact:
    """Axes of one element come; the others keep their extents, whatever the result calls them."""
    dims, come = operator.inputs[0], _listed(operator)
    if dims is None or come is None:
        return reshape(operator)
    rank, rest = len(dims) + len(come), iter(dims)
    return _stated(operator, [1 if axis in normalized(come, rank) else next(rest, 1) for axis in range(rank)])


def _listed(operator: Operator) -> Sequence[int] | None:
    """The axes that an operator names, as an attribute or as a constant operand; None where it names none."""
    return operator.integers(1) if operator.has(1) else operator.ints("axes")


def _only(operator: Operator) -> Sequence[int] | None:
    """List the axes that computed ones must be: as many as have one element, where every extent is known."""
    dims, count = operator.inputs[0], operator.shape(1)
    if dims is None or not count or not all(isinstance(dim, int) for dim in dims):
        return None
    ones = [axis for axis, dim in enumerate(dims) if dim == 1]
    return ones if count == (len(ones),) else None


def _stated(operator: Operator, shape: Sequence[Dim]) -> Fact:
    """A view of that shape, if it is one that the result may have."""
    stated = operator.outputs[0]
    fits = stated is not None and len(stated) == len(shape)
    return Regrouped(tuple(shape)) if fits else reshape(operator)


@rule("Shape", kind="axis attributes")
def shape(operator: Operator) -> Fact:
    """Any order: the extents are read from where the axes lie, in however many pieces."""
    rank = operator.rank()
    if rank is None:
        return None
    letters = axis_letters(rank)
    window = range(rank)[slice(operator.int("start", 0), operator.int("end", rank))]

    def changes(placement: Placement) -> Changes:
        groups = tuple(placement.axes((letters[axis],)) for axis in window)
        return Changes({"start": None, "end": None}, extents={0: groups})

    return Signature((letters,), (None,), changes=changes)
