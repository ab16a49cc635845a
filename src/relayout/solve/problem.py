r"""The layout problem in plain numbers.

Nodes choose one label each. Under its label a node gives or wants one *order* at every port. A value costs its
weight once for every order that some reader wants and the producer does not give, and more where one is hard to make
of the other:

    cost(x) = Σ_v cost[v][x_v] + Σ_t Σ_o weight_t + more_t · [(order_p(x_p), o) is hard]
              over all orders o in {order_c(x_c) : c reads t} \\ {order_p(x_p)}

Nothing here knows of graphs, axes or ONNX.
"""

from collections.abc import Mapping, Sequence
from math import inf
from time import monotonic
from typing import NamedTuple

from relayout.light_dataclass import dataclass

Choice = Sequence[int] | Mapping[int, int]  # node -> label


class ValueEnd(NamedTuple):
    """One end of a value at a node: the order that each of the node's labels gives or wants there."""

    node: int  # index of the node
    orders: tuple[int, ...]  # label -> order; orders are numbered per value

    def labels_by_order(self) -> dict[int, list[int]]:
        """Return order -> the labels of the node that give or want it."""
        labels: dict[int, list[int]] = {}
        for label, order in enumerate(self.orders):
            labels.setdefault(order, []).append(label)
        return labels


class Value(NamedTuple):
    """A value with a producer, readers, and the price of holding it in one more order."""

    weight: int  # what one more order costs
    producer: ValueEnd  # the end that gives it
    readers: tuple[ValueEnd, ...]  # the ends that want it
    hard: frozenset[tuple[int, int]] = frozenset()  # pairs of orders, the one that is given and another, that cost more
    more: int = 0  # how much more

    def price(self, producer_order: int, order: int) -> int:
        """Return the cost of having the value in an order besides its producer's; 0 if that is the same."""
        if producer_order == order:
            return 0
        return self.weight + self.more if (producer_order, order) in self.hard else self.weight


class Problem(NamedTuple):
    """Nodes with the price of each label, and the values between them."""

    costs: tuple[tuple[int, ...], ...]  # node -> label -> price (non-negative integers)
    values: tuple[Value, ...]  # the values; weights are non-negative integers
    # what prices and weights leave when divided by it breaks ties: all of it together never reaches one unit
    unit: int = 1

    def evaluate(self, choice: Choice, nodes: Sequence[int] | None = None, values: Sequence[int] | None = None) -> int:
        """Return the cost of a choice of labels: of everything, or of some nodes and values."""
        paid = range(len(self.costs)) if nodes is None else nodes
        counted_values = self.values if values is None else [self.values[index] for index in values]
        return sum(self.costs[node][choice[node]] for node in paid) + sum(
            value.weight * len(transposed_orders(value, choice)) if not value.hard else _hard(value, choice)
            for value in counted_values
        )

    def most(self, nodes: Sequence[int] | None = None, values: Sequence[int] | None = None) -> int:
        """Return a cost that no choice exceeds: of everything, or of some nodes and values; no node is negative."""
        paid = range(len(self.costs)) if nodes is None else nodes
        counted_values = self.values if values is None else [self.values[index] for index in values]
        moved = sum(len(value.readers) * (value.weight + value.more) for value in counted_values)
        return moved + sum(max(self.costs[node], default=0) for node in paid if node >= 0)


def _hard(value: Value, choice: Choice) -> int:
    """Return the cost of a value some of whose pairs of orders are hard."""
    producer_order = value.producer.orders[choice[value.producer.node]]
    return sum([value.price(producer_order, order) for order in transposed_orders(value, choice)])


def transposed_orders(value: Value, choice: Choice) -> set[int]:
    """Return the orders in which `value` has to exist besides the one that its producer gives."""
    reader_orders = {port.orders[choice[port.node]] for port in value.readers}
    return reader_orders - {value.producer.orders[choice[value.producer.node]]}


# Limits of the search for the best labels, counted in work: how busy the machine is decides nothing.


MOST_PRICES = 1_000_000
"""Prices of all relaxations in branches, which are what a proof takes: some ten seconds, and 70 MB."""

MOST_STEPS, STEPS_OF_LABEL = 200_000, 20
"""Iterations of the simplex method in all relaxations: so many, and some for each label. Networks take a hundredth."""


@dataclass
class Limits:
    """The work and time that the search through all components may still take."""

    prices: int  # how many prices of relaxations in branches
    steps: int  # iterations of the simplex method in all relaxations
    deadline: float = inf  # `time.monotonic()` at which the search ends, where the user asks for a limit of time

    @staticmethod
    def of(
        labels: int,  # how many the whole problem has
        seconds: float | None = None,  # a limit of time; None for none
        prices: int | None = None,  # how many prices of relaxations in branches; by default `MOST_PRICES`
    ) -> "Limits":
        """Return the limits of a search that begins now."""
        deadline = inf if seconds is None else monotonic() + seconds
        return Limits(MOST_PRICES if prices is None else prices, MOST_STEPS + STEPS_OF_LABEL * labels, deadline)

    @property
    def seconds(self) -> float:
        """The remaining time."""
        return self.deadline - monotonic()

    @property
    def reached(self) -> bool:
        """Tell whether nothing more may be looked at."""
        return self.prices <= 0 or self.steps <= 0 or self.seconds < 0
