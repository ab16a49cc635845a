"""Reductions, and what is normalised along one axis."""

from __future__ import annotations

from itertools import permutations, product
from math import factorial

import numpy as np

from relayout.rules.facts import along_computed
from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, Variant, renumbered_axis

AXES_AS_INPUT = 18  # opset from which reductions (13 for ReduceSum) take axes as an input
FLATTENS_BEFORE = 13  # opset before which Softmax flattens its input to two dimensions at `axis`
MOST_ORDERS = 24  # of an operator whose orders are listed; beyond, the flattened axes stay as they are


def reduced_letters(letters: Letters, axes: Letters, keep: int) -> Letters:
    """The output's letters of a reduction."""
    return letters if keep else tuple(letter for letter in letters if letter not in axes)


@rule(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd",
    "ReduceSum ReduceSumSquare",
    kind="axis attributes",
)
def reduction(operator: Operator) -> Fact:
    """Any order; the reduced axes are renumbered, even in pieces; computed ones only where axes are kept."""
    letters = operator.letters()
    as_input = operator.version >= (13 if operator.name == "ReduceSum" else AXES_AS_INPUT)
    axes = operator.integers(1) if as_input else operator.ints("axes")
    if as_input and operator.has(1) and axes is None:
        return along_computed(operator, 1, ordered=False) if operator.int("keepdims", 1) else None
    if not axes:
        gone = () if as_input and operator.int("noop_with_empty_axes", 0) else letters
    else:
        gone = tuple(letters[axis] for axis in normalized(axes, len(letters)))

    def changes(placement: Placement) -> Changes:
        if not axes:
            return Changes()
        where = placement.axes(gone)
        return Changes(inputs={1: np.array(where, np.int64)}) if as_input else Changes({"axes": where})

    output = reduced_letters(letters, gone, operator.int("keepdims", 1))
    return Signature(operator.operands({0: letters}), (output,), changes=changes, across=frozenset(gone))


@rule("ArgMax", "ArgMin", kind="axis attributes")
def arg(operator: Operator) -> Fact:
    """Any order; the axis is one dimension in order and is renumbered."""
    letters = operator.letters(least=1)
    axis = letters[operator.int("axis", 0) % len(letters)]
    output = reduced_letters(letters, (axis,), operator.int("keepdims", 1))
    return Signature((letters,), (output,), frozenset({axis}), changes=renumbered_axis(axis))


@rule("Softmax", "LogSoftmax", "Hardmax", kind="axis attributes")
def softmax(operator: Operator) -> Fact:
    """Any order; the axis is one dimension and is renumbered (before opset 13: all from the axis on stay last)."""
    ordered = operator.name == "Hardmax"  # the first of equal maxima wins
    if operator.version < FLATTENS_BEFORE:
        return flattened_from(operator, operator.int("axis", 1), ordered=ordered)
    return along(operator, operator.int("axis", -1), ordered=ordered)


def along(operator: Operator, axis: int, *, ordered: bool) -> Signature:
    """Everything happens along one axis, in order or in any order of its factors."""
    letters = operator.letters(least=1)
    one = frozenset((letter := letters[axis % len(letters)],))
    inputs, whole, changes = (
        operator.operands({0: letters}),
        one if ordered else frozenset[str](),
        renumbered_axis(letter),
    )
    return Signature(inputs, (letters,), whole, one, changes=changes, across=one)


def flattened_from(operator: Operator, axis: int, *, ordered: bool) -> Signature | None:
    """Everything happens along all axes from one on, as if they were one: they stay last, in order or in any order."""
    letters = operator.letters(least=1)
    rank = len(letters)
    if axis >= rank:  # nothing is left to normalise
        return None
    head, tail = letters[: axis % rank], letters[axis % rank :]
    inputs, across = operator.operands({0: letters}), frozenset(tail)

    def changes(placement: Placement) -> Changes:
        return Changes({"axis": placement.axes(tail)[0]})

    if not ordered and not head:
        return Signature(inputs, (letters,), changes=lambda _: Changes({"axis": 0}), across=across)
    orders = factorial(len(head)) * factorial(len(tail))
    if ordered or len(tail) == 1 or orders > MOST_ORDERS:
        whole = frozenset(tail) if ordered else frozenset()
        return Signature(inputs, (letters,), whole, frozenset(tail), tail, changes=changes, across=across)
    variants = tuple(
        Variant(operator.operands({0: (*first, *last)}), ((*first, *last),))
        for first, last in product(permutations(head), permutations(tail))
    )
    return Signature(inputs, (letters,), block=frozenset(letters), variants=variants, changes=changes, across=across)


@rule("LpNormalization", kind="axis attributes")
def lp_normalization(operator: Operator) -> Fact:
    """Any order; the axis is one dimension and is renumbered."""
    return along(operator, operator.int("axis", -1), ordered=False)


@rule("CumSum", "CumProd", kind="axis attributes")
def cumulative(operator: Operator) -> Fact:
    """Any order; the axis is one dimension in order and is renumbered, even where it is computed."""
    rank, axes = operator.rank(), operator.integers(1)
    parameter = operator.constant(1)
    if parameter is None:
        return along_computed(operator, 1, ordered=True)
    if not rank or not axes:
        return None
    letters = axis_letters(rank)
    axis = letters[axes[0] % rank]

    def changes(placement: Placement) -> Changes:
        return Changes(inputs={1: np.full(parameter.shape, placement.axis(axis), parameter.dtype)})

    return Signature((letters, None), (letters,), frozenset({axis}), changes=changes)


@rule("TopK", kind="axis attributes")
def top_k(operator: Operator) -> Fact:
    """Any order, the same for values and indices; the axis is one dimension in order and is renumbered."""
    letters = operator.letters(least=1)
    axis = letters[operator.int("axis", -1) % len(letters)]
    inputs, outputs = operator.operands({0: letters}), operator.results(letters)
    return Signature(inputs, outputs, frozenset({axis}), changes=renumbered_axis(axis))
