"""Einsums of two operands as products of matrices, with the Transposes around them in the open.

ONNX Runtime transposes inside an Einsum, whatever stands beside it; a Transpose that is seen may vanish.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, takewhile
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.layout import Dim
from relayout.rules import Letters, Operator, Signature, Step, facts
from relayout.rules.signature import Constants

Groups = Sequence[Sequence[str]]
"""The letters of each dimension."""
OPEN = -1
"""In the shape of a Reshape: the one extent that is not said."""


class _Product(NamedTuple):
    """An Einsum as one product of matrices: `left inner` by `inner right`, for each place of the batch.

    Args:
        order: the operands; the one comes first whose axes come first in the result.
        batches: the batch letters of each side; a side that lacks some is stretched along them.
        batch: the batch letters of the product.
        left: letters of the first side alone.
        inner: letters that are summed.
        right: letters of the second side alone.
    """

    order: tuple[int, int]
    batches: Groups
    batch: list[str]
    left: list[str]
    inner: list[str]
    right: list[str]


def einsum(operator: Operator, given: Constants) -> Sequence[Step]:
    """`bqhd,bkhd->bhqk` and its like: each letter in two of the three, or in all."""
    fact = facts(operator)
    if not isinstance(fact, Signature) or len(fact.inputs) != 2:
        return ()
    first, second, result = (letters or () for letters in (*fact.inputs, *fact.outputs))
    extents = _extents((first, second), operator.inputs)
    product = _product(first, second, result)
    return () if extents is None or product is None else _steps(product, (first, second), result, extents)


def _extents(terms: Sequence[Letters], shapes: Sequence[Sequence[Dim] | None]) -> dict[str, Dim] | None:
    """Return the extent of each letter; None where an operand is stretched along one."""
    extents: dict[str, Dim] = {}
    for letters, shape in zip(terms, shapes, strict=False):
        for letter, extent in zip(letters, shape or (), strict=True):
            if extents.setdefault(letter, extent) != extent:
                return None
    return extents


def _product(first: Letters, second: Letters, result: Letters) -> _Product | None:
    """Return the product that computes an Einsum; None where there is none."""
    batch = [letter for letter in result if letter in first and letter in second]
    inner = _exclude(first, result)
    if not inner or {*inner} != {*_exclude(second, result)}:
        return None
    own = [[letter for letter in _exclude(result, batch) if letter in term] for term in (first, second)]
    # Axes of one operand alone that come first in the result: the other is stretched along them, and nothing moves.
    # Beside a batch that would be many small products, which take longer than to move the axes.
    leading = int(bool(result) and result[0] in own[1])
    lead = [] if batch else list(takewhile(own[leading][:-1].__contains__, result))
    own[leading] = _exclude(own[leading], lead)
    # The one whose axes come first in the result is the first of the product.
    places = [result.index(letters[0]) if letters else -1 for letters in own]
    order = (0, 1) if places[0] <= places[1] else (1, 0)
    left, right = (own[number] for number in order)
    batches = [[*lead, *batch] if number == leading else batch for number in order]
    return _Product(order, batches, [*lead, *batch], left, inner, right)


def _exclude(letters: Sequence[str], others: Sequence[str]) -> list[str]:
    return [letter for letter in letters if letter not in others]


def _steps(product: _Product, terms: Sequence[Letters], result: Letters, extents: Mapping[str, Dim]) -> Sequence[Step]:
    """Return the steps of a product; none where an extent that they need is not known."""
    order, batches, batch, left, inner, right = product
    groups = [batches[0], left, inner], [batches[1], inner, right]
    sides = [_side(number, terms[number], held, extents) for number, held in zip(order, groups, strict=True)]
    made, alone = [*batch, *left, *right], [[letter] for letter in batch]
    apart = _shape([[letter] for letter in made], [*alone, left, right], extents)
    if apart is None or any(side is None for side in sides):
        return ()
    steps = list(chain.from_iterable(side for side in sides if side is not None))
    read = [side[-1].name if side else number for side, number in zip(sides, order, strict=True)]
    steps.append(Step("MatMul", (read[0], read[1]), "product"))
    if len(left) != 1 or len(right) != 1:
        steps.append(Step("Reshape", ("product", apart), "parted"))
    if made != [*result]:
        perm = tuple(made.index(letter) for letter in result)
        steps.append(Step("Transpose", (steps[-1].name,), "y", {"perm": perm}))
    return steps


def _side(number: int, letters: Letters, groups: Groups, extents: Mapping[str, Dim]) -> list[Step] | None:
    """What brings an operand into matrices: each axis of the first group by itself, then each of two groups as one.

    None where its shape is not known enough.
    """
    batch, *matrix = groups
    wanted = list(chain.from_iterable(groups))
    read: int | str = number
    steps = []
    if wanted != [*letters]:
        perm = tuple(letters.index(letter) for letter in wanted)
        steps.append(Step("Transpose", (read,), f"turned{number}", {"perm": perm}))
        read = steps[-1].name
    if any(len(group) != 1 for group in matrix):
        shape = _shape([*([letter] for letter in batch), *matrix], [[letter] for letter in wanted], extents)
        if shape is None:
            return None
        steps.append(Step("Reshape", (read, shape), f"matrix{number}"))
    return steps


def _shape(groups: Groups, source: Groups, extents: Mapping[str, Dim]) -> NDArray[np.int64] | None:
    """A shape with each group as one extent, of a value in other groups; None where several are not known."""
    shape = []
    for place, group in enumerate(groups):
        known = [extent for extent in (extents[letter] for letter in group) if isinstance(extent, int)]
        same = place < len(source) and [*source[place]] == [*group]
        shape.append(prod(known) if len(known) == len(group) else 0 if same else OPEN)
    return np.array(shape, np.int64) if shape.count(OPEN) <= 1 else None
