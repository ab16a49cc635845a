"""Operators that move no element of the row-major order, or move all of them by a stated perm: views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from relayout.layout import Dim
from relayout.rules.facts import along_computed
from relayout.rules.formula import positional
from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Permuted, Placement, Regrouped, Signature, renumbered_axis

# Operators for which the order along some axes counts: triangles, sequences, spectra, sorted sets.


def last_two(operator: Operator, keep: int) -> Signature:
    """Every matrix of the last two axes alone; `keep` of the two axes are left in the output."""
    letters = operator.letters(least=2)
    output, tail = letters if keep else letters[:-2], letters[-2:]
    return Signature(operator.operands({0: letters}), (output,), frozenset(tail), tail=tail)


@rule("Trilu", kind="axis attributes")
@rule("Trilu", "Inverse", kind="axis attributes", domain="com.microsoft")
def trilu(operator: Operator) -> Fact:
    """`x[*b r c] -> y[*b r c]`: r and c last; batch axes free."""
    return last_two(operator, 2)


@rule("Det", kind="axis attributes")
def det(operator: Operator) -> Fact:
    """`x[*b r c] -> y[*b]`: r and c last; batch axes free."""
    return last_two(operator, 0)


@rule("ReverseSequence", kind="axis attributes")
def reverse_sequence(operator: Operator) -> Fact:
    """`x[t b *d], lengths[b] -> y[t b *d]`: t and b first, in either order; the others stay as they are."""
    rank = operator.needed_rank(least=2)
    batch, time = operator.int("batch_axis", 1), operator.int("time_axis", 0)
    if {batch, time} != {0, 1}:
        return None
    letters = axis_letters(rank)
    b, t = letters[batch], letters[time]
    return Signature(
        (letters, (b,)),
        (letters,),
        frozenset((b, t)),
        tail=letters[2:],
        changes=lambda p: Changes({"batch_axis": p.axis(b), "time_axis": p.axis(t)}),
    )


@rule("DFT", kind="axis attributes")
def dft(operator: Operator) -> Fact:
    """`x[*a s *b r] -> y[*a f *b c]`: the complex axis last, any order of the others; any axis is renumbered."""
    letters = operator.letters(least=2)
    if operator.version < 20:
        axis = operator.int("axis", 1)
    elif not operator.has(2):
        axis = -2
    else:
        axes = operator.integers(2)
        if axes is None:
            signature = along_computed(operator, 2, ordered=True)
            return signature and replace(signature, tail=letters[-1:])
        if not axes:
            return None
        axis = axes[0]
    along = letters[axis % len(letters)]
    tail = letters[-1:]

    def changes(placement: Placement) -> Changes:
        where = placement.axis(along)
        return Changes({"axis": where}) if operator.version < 20 else Changes(inputs={2: np.array(where, np.int64)})

    inputs = operator.operands({0: letters})
    return Signature(inputs, (letters,), frozenset((along, *tail)), tail=tail, changes=changes)


@rule("Unique", kind="axis attributes")
def unique(operator: Operator) -> Fact:
    """Any order for the sorted values alone; along an axis in order of first occurrence: the axis is renumbered."""
    letters = operator.letters()
    others: tuple[Letters | None, ...] = (None,) * (len(operator.outputs) - 1)
    in_order = operator.int("sorted", 1)
    if "axis" not in operator.attributes:
        # Only where an element occurs depends on how the input is flattened.
        alone = in_order and not operator.gives(1) and not operator.gives(2)
        return Signature((letters,), (None, *others)) if alone else None
    if not letters or (in_order and len(letters) > 1):
        return None  # slices are compared in the order in which they lie
    axis = letters[operator.int("axis", 0) % len(letters)]
    return Signature((letters,), (letters, *others), frozenset({axis}), changes=renumbered_axis(axis))


@rule("Size", kind="layout-agnostic")
def size(operator: Operator) -> Fact:
    """Any order: the number of elements."""
    return Signature((operator.letters(),), (None,))


@rule("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", kind="layout-sensitive")
def loss(operator: Operator) -> Fact:
    """`x[n c *d], labels[n *d], w[c] -> y[n *d]`: positions fixed; n and d in any order of their factors."""
    operator.needed_rank(least=2)
    first = "n *d" if operator.string("reduction", "mean") == "none" else ""
    return positional(operator, {0: "n c *d", 1: "n *d", 2: "c"}, f"{first}, n c *d", "n *d")


@rule("Transpose", kind="regrouping")
def transpose(operator: Operator) -> Fact:
    """A relabelling: costs nothing unless two readers disagree about the stored order."""
    reverse = tuple(reversed(range(operator.needed_rank())))
    return Permuted(reverse if (perm := operator.ints("perm")) is None else perm)


@rule("Identity", kind="layout-agnostic")
def identity(operator: Operator) -> Fact:
    """A view: input 0 under another name."""
    return Permuted(tuple(range(operator.needed_rank())))


@rule("Reshape", "Flatten", kind="regrouping")
def reshape(operator: Operator) -> Fact:
    """A regrouping of factors: free where the two shapes have a common refinement, a barrier where not."""
    if operator.inputs[0] is None or operator.outputs[0] is None:
        return None
    return Regrouped(operator.outputs[0])


@rule("Squeeze", kind="regrouping")
def squeeze(operator: Operator) -> Fact:
    """Axes of one element leave; the others keep their extents, whatever the result calls them."""
    dims, gone, count = operator.inputs[0], listed_axes(operator), operator.shape(1)
    if gone is None and dims is not None and all(isinstance(dim, int) for dim in dims):
        # Computed axes must be these, if they are as many as have one element.
        ones = [axis for axis, dim in enumerate(dims) if dim == 1]
        gone = ones if count == (len(ones),) else None
    if dims is None or gone is None:
        return reshape(operator)
    return _stated(operator, [dim for axis, dim in enumerate(dims) if axis not in normalized(gone, len(dims))])


@rule("Unsqueeze", kind="regrouping")
def unsqueeze(operator: Operator) -> Fact:
    """Axes of one element come; the others keep their extents, whatever the result calls them."""
    dims, come = operator.inputs[0], listed_axes(operator)
    if dims is None or come is None:
        return reshape(operator)
    rank, rest = len(dims) + len(come), iter(dims)
    return _stated(operator, [1 if axis in normalized(come, rank) else next(rest, 1) for axis in range(rank)])


def listed_axes(operator: Operator) -> Sequence[int] | None:
    """Return the axes that an operator names, as an attribute or as a constant operand; None where it names none."""
    return operator.integers(1) if operator.has(1) else operator.ints("axes")


def _stated(operator: Operator, shape: Sequence[Dim]) -> Fact:
    """Return a view of that shape, if it is one that the result may have."""
    stated = operator.outputs[0]
    fits = stated is not None and len(stated) == len(shape)
    return Regrouped(tuple(shape)) if fits else reshape(operator)


@rule("Shape", kind="axis attributes")
def shape(operator: Operator) -> Fact:
    """Any order: the extents are read from where the axes lie, in however many pieces."""
    letters = operator.letters()
    window = range(len(letters))[slice(operator.int("start", 0), operator.int("end", len(letters)))]

    def changes(placement: Placement) -> Changes:
        groups = tuple(placement.axes((letters[axis],)) for axis in window)
        return Changes({"start": None, "end": None}, extents={0: groups})

    return Signature((letters,), (None,), changes=changes)
