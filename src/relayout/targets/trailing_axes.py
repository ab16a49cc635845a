"""Signatures for kernels that work on the last axis: the orders in which that axis comes last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

from relayout.rules import Letters, Operator, Signature, Variant

MOST_ORDERED = 3
"""Axes beside one that comes last whose orders are all listed."""


def in_which_it_is_last(signature: Signature, letters: Letters, letter: str) -> Signature:
    """A signature in the orders in which an axis comes last."""
    if letter == letters[-1]:
        return replace(signature, tail=(letter,), block=signature.block | {letter})
    # The kernel does not have the source's order: list the orders that it has.
    rest = [each for each in letters if each != letter]
    orders = permutations(rest) if len(rest) <= MOST_ORDERED else iter((tuple(rest),))
    return replace(signature, variants=tuple(_in_order(signature, (*order, letter)) for order in orders))


def in_which_one_stays_last(signature: Signature, operator: Operator, letters: Letters) -> Signature:
    """A reduction's signature in the orders in which an axis that it leaves comes last, and the first stays."""
    axes = operator.integers(1) or operator.ints("axes") or ()
    reduced = {letters[axis % len(letters)] for axis in axes}
    if not reduced or reduced == set(letters) or len(letters) > MOST_ORDERED + 1:
        return signature
    orders = (order for order in permutations(letters) if order[-1] not in reduced and order[0] == letters[0])
    return replace(signature, variants=tuple(_in_order(signature, order) for order in orders))


def _in_order(signature: Signature, order: Sequence[str]) -> Variant:
    """Return the variant with every operand in an order of axes; an operand with axes of its own stays as it is."""

    def placed(operands: Sequence[Letters | None]) -> tuple[Letters | None, ...]:
        return tuple(
            letters and (tuple(each for each in order if each in letters) if set(letters) <= set(order) else letters)
            for letters in operands
        )

    return Variant(placed(signature.inputs), placed(signature.outputs), name=f"{order[-1]} last")
