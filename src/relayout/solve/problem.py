r"""The layout problem in plain numbers.

Nodes choose one label each. Under its label a node gives or wants one *order* at every port. A value costs its
weight once for every order that some reader wants and the producer does not give:

    cost(x) = Σ_v cost[v][x_v] + Σ_t weight_t · |{order_c(x_c) : c reads t} \\ {order_p(x_p)}|

Nothing here knows of graphs, axes or ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Choice = Sequence[int] | Mapping[int, int]
"""node -> label"""


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a value at a node: the order that each of the node's labels gives or wants there.

    Args:
        node: index of the node.
        orders: label -> order; orders are numbered per value.
    """

    node: int
    orders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A value with a producer, readers, and the price of holding it in one more order."""

    weight: int
    producer: Port
    readers: tuple[Port, ...]


@dataclass(frozen=True)
class Problem:
    """Nodes with the price of each label, and the values between them.

    Args:
        costs: node -> label -> price (non-negative integers).
        values: the values; weights are non-negative integers.
        unit: what prices and weights leave when divided by it breaks ties: all of it together never reaches one unit.
    """

    costs: tuple[tuple[int, ...], ...]
    values: tuple[Value, ...]
    unit: int = 1

    def evaluate(self, choice: Choice, nodes: Sequence[int] | None = None, values: Sequence[int] | None = None) -> int:
        """The cost of a choice of labels: of everything, or of some nodes and values."""
        paid = range(len(self.costs)) if nodes is None else nodes
        held = self.values if values is None else [self.values[index] for index in values]
        return sum(self.costs[node][choice[node]] for node in paid) + sum(
            value.weight * len(moved(value, choice)) for value in held
        )


def moved(value: Value, choice: Choice) -> set[int]:
    """The orders in which `value` has to exist besides the one that its producer gives."""
    wanted = {port.orders[choice[port.node]] for port in value.readers}
    return wanted - {value.producer.orders[choice[value.producer.node]]}
