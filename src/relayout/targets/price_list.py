"""Prices of a few operators, so that nobody need ask for those of all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relayout.rules import Operator, Placement, Signature

Price = Callable[[Operator, Signature, Placement], int]
"""The cost of running a node in an order, beside its best one, in bytes that might be moved instead."""


class PriceList:
    """A price for each of a few of the standard's operators; any other costs the same in every order.

    Args:
        by_operator: an operator's name -> its price.
    """

    def __init__(self, by_operator: Mapping[str, Price]) -> None:
        self.by_operator = by_operator

    def of(self, operator: Operator) -> Price | None:
        """The price of a node; None where all orders cost the same."""
        return None if operator.node.domain not in ("", "ai.onnx") else self.by_operator.get(operator.name)

    def __call__(self, operator: Operator, signature: Signature, placement: Placement) -> int:
        """The price of a node in an order; 0 where the list has none."""
        price = self.of(operator)
        return 0 if price is None else price(operator, signature, placement)
