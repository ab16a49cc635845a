"""Axes that a graph computes: whichever they are, they are renumbered when the model runs."""

from __future__ import annotations

from relayout.rules.operator import Letters, Operator
from relayout.rules.signature import Changes, Placement, Signature


def along_computed(operator: Operator, slot: int, *, ordered: bool) -> Signature | None:
    """Let an operator run in any order of axes, along those that input `slot` holds; each is one dimension.

    Args:
        operator: the node.
        slot: the input that holds the axes.
        ordered: whether the elements of such an axis have an order.
    """
    letters = operator.letters(least=1)
    inputs, outputs = operator.operands({0: letters}), operator.results(letters)
    whole = frozenset(letters) if ordered else frozenset()
    block = frozenset(letters)
    return Signature(inputs, outputs, whole, block, changes=lambda p: renumbered(slot, letters, p), across=block)


def renumbered(slot: int, letters: Letters, placement: Placement) -> Changes:
    """Renumber the axes in input `slot`, of an operand whose axes are `letters`."""
    return Changes(looked_up={slot: tuple(placement.axis(letter) for letter in letters)})
