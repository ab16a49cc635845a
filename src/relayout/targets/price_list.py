"""Prices of a few operators, so that nobody need ask for those of all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from relayout.rules import Letters, Operator, Placement, Signature, Variant

# Signatures for kernels that work on the last axis: the orders in which that axis comes last.

MOST_ORDERED = 3  # axes beside one that comes last whose orders are all listed


def in_which_it_is_last(signature: Signature, letters: Letters, letter: str) -> Signature:
    """Return a signature in the orders in which an axis comes last."""
    if letter == letters[-1]:
        return replace(signature, tail=(letter,), block=signature.block | {letter})
    # The kernel does not have the source's order: list the orders that it has.
    rest = [each for each in letters if each != letter]
    orders = permutations(rest) if len(rest) <= MOST_ORDERED else iter((tuple(rest),))
    return replace(signature, variants=tuple(_in_order(signature, (*order, letter)) for order in orders))


def in_which_one_stays_last(signature: Signature, operator: Operator, letters: Letters) -> Signature:
    """Return a reduction's signature in the orders in which an axis that it leaves comes last, and the first stays."""
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


Price = Callable[[Operator, Signature, Placement], int]
"""The cost of running a node in an order, beside its best one, in bytes that might be moved instead."""


class PriceList:
    """A price for each of a few of the standard's operators; any other costs the same in every order."""

    def __init__(
        self,
        by_operator: Mapping[str, Price],  # an operator's name -> its price
        # an operator's name -> whether a node of it has the price; without an entry each has
        limits: Mapping[str, Callable[[Operator], bool]] | None = None,
    ) -> None:
        self.by_operator, self.limits = by_operator, limits or {}

    def of(self, operator: Operator) -> Price | None:
        """Return the price of a node; None where all orders cost the same."""
        limit = self.limits.get(operator.name)
        if operator.domain not in ("", "ai.onnx") or (limit is not None and not limit(operator)):
            return None
        return self.by_operator.get(operator.name)

    def __call__(self, operator: Operator, signature: Signature, placement: Placement) -> int:
        """The price of a node in an order; 0 where the list has none."""
        price = self.of(operator)
        return 0 if price is None else price(operator, signature, placement)
