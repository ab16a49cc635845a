"""Operators for which the order along some axes counts: triangles, sequences, spectra, sorted sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.renumbering import along_computed
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature


def last_two(operator: Operator, keep: int) -> Signature | None:
    """Every matrix of the last two axes alone; `keep` of the two axes are left in the output."""
    rank = operator.rank()
    if rank is None or rank < 2:
        return None
    letters = axis_letters(rank)
    tail = letters[-2:]
    output = letters if keep else letters[:-2]
    return Signature(operator.operands({0: letters}), (output,), frozenset(tail), tail=tail)


@rule("Trilu", kind="axis attributes")
def trilu(operator: Operator) -> Fact:
    """`x[*b r c] -> y[*b r c]`: r and c last; batch axes free."""
    return last_two(operator, 2)


@rule("Trilu", "Inverse", kind="axis attributes", domain="com.microsoft")
def contributed(operator: Operator) -> Fact:
    """`x[*b r c] -> y[*b r c]`: r and c last; batch axes free."""
    return last_two(operator, 2)


@rule("Det", kind="axis attributes")
def det(operator: Operator) -> Fact:
    """`x[*b r c] -> y[*b]`: r and c last; batch axes free."""
    return last_two(operator, 0)


@rule("ReverseSequence", kind="axis attributes")
def reverse_sequence(operator: Operator) -> Fact:
    """`x[t b *d], lengths[b] -> y[t b *d]`: t and b first, in either order; the others stay as they are."""
    rank = operator.rank()
    if rank is None or rank < 2:
        return None
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
    rank = operator.rank()
    if rank is None or rank < 2:
        return None
    letters = axis_letters(rank)
    if operator.version < 20:
        axis = operator.int("axis", 1)
    elif not operator.has(2):
        axis = -2
    else:
        given = operator.integers(2)
        if given is None:
            found = along_computed(operator, 2, ordered=True)
            return found and replace(found, tail=letters[-1:])
        if not given:
            return None
        axis = given[0]
    along = letters[axis % rank]
    tail = letters[-1:]

    def changes(placement: Placement) -> Changes:
        where = placement.axis(along)
        return Changes({"axis": where}) if operator.version < 20 else Changes(inputs={2: np.array(where, np.int64)})

    inputs = operator.operands({0: letters})
    return Signature(inputs, (letters,), frozenset((along, *tail)), tail=tail, changes=changes)


@rule("Unique", kind="axis attributes")
def unique(operator: Operator) -> Fact:
    """Any order for the sorted values alone; along an axis in order of first occurrence: the axis is renumbered."""
    rank = operator.rank()
    if rank is None:
        return None
    letters = axis_letters(rank)
    others: tuple[Letters | None, ...] = (None,) * (len(operator.outputs) - 1)
    in_order = operator.int("sorted", 1)
    if "axis" not in operator.node.attributes:
        # Only where an element occurs depends on how the input is flattened.
        alone = in_order and not operator.gives(1) and not operator.gives(2)
        return Signature((letters,), (None, *others)) if alone else None
    if not rank or (in_order and rank > 1):
        return None  # slices are compared in the order in which they lie
    axis = letters[operator.int("axis", 0) % rank]
    return Signature(
        (letters,), (letters, *others), frozenset({axis}), changes=lambda p: Changes({"axis": p.axis(axis)})
    )


@rule("Size", kind="layout-agnostic")
def size(operator: Operator) -> Fact:
    """Any order: the number of elements."""
    rank = operator.rank()
    return None if rank is None else Signature((axis_letters(rank),), (None,))


@rule("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", kind="layout-sensitive")
def loss(operator: Operator) -> Fact:
    """`x[n c *d], labels[n *d], w[c] -> y[n *d]`: positions fixed; n and d in any order of their factors."""
    rank = operator.rank()
    if rank is None or rank < 2:
        return None
    d = axis_letters(rank - 2)
    x: Letters = ("n", "c", *d)
    y: Letters = ("n", *d)
    first = y if operator.string("reduction", "mean") == "none" else ()
    inputs = operator.operands({0: x, 1: y, 2: ("c",)})
    return Signature(inputs, (first, x)[: len(operator.outputs)], frozenset("c"), frozenset(y)).positional()
