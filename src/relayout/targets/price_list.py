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
        limits: an operator's name -> whether a node of it has the price; without an entry each has.
    """

    def __init__(
        self, by_operator: Mapping[str, Price], limits: Mapping[str, Callable[[Operator], bool]] | None = None
    ) -> None:
        self.by_operator, self.limits = by_operator, limits or {}

    def of(self, operator: Operator) -> Price | None:
        """The price of a node; None where all orders cost the same."""
        limit = self.limits.get(operator.name)
        if operator.node.domain not in ("", "ai.onnx") or (limit is not None and not limit(operator)):
            return None
        return self.by_operator.get(operator.name)

    def __call__(self, operator: Operator, signature: Signature, placement: Placement) -> int:
        """The price of a node in an order; 0 where the list has none."""
        price = self.of(operator)
        return 0 if price is None else price(operator, signature, placement)
