"""A large component made smaller before it is solved: a node that one value holds more than all others follows it.

Let a value have one reader, and a weight of at least what all other values at one of its two ends weigh together, with
the most that this end's labels differ in price. Whatever the other end gives or wants, nothing is lost if this end does
the same: the value is not moved, and what is moved instead weighs no more. The two become one node with the labels of
the other. In networks most operators have one reader and results as large as their operands; what is left are the
places where values branch and join.

Weights count in whole `Problem.unit`s here, below which ties are broken: of choices that cost the same in units, one
that breaks ties best may be lost. Where a value is moved, ties are broken again afterwards, node by node (`settle`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from relayout.solve.certificate import Prices
from relayout.solve.problem import Port, Problem, moved

if TYPE_CHECKING:
    from fractions import Fraction

SWEEPS = 4
"""How often all values are looked at: what follows makes the others lighter, but soon for a few only."""

Place = tuple[int, int]
"""A value, and one of its ends: 0 the producer, 1 on the readers."""


class _Followed(NamedTuple):
    """A node that follows another along a value.

    Args:
        node: the node that has become part of another.
        leader: the other.
        value: the value.
        produces: whether `node` is the value's producer.
        orders: label of `node` -> order of the value.
        follows: label of `leader` -> label of `node`.
        costs: label of `node` -> price, with all that followed it before.
        places: all other ends at `node`, with label -> order.
    """

    node: int
    leader: int
    value: int
    produces: bool
    orders: tuple[int, ...]
    follows: tuple[int, ...]
    costs: tuple[int, ...]
    places: tuple[tuple[Place, tuple[int, ...]], ...]


class Contraction:
    """A component in which nodes follow others, and the way back from there.

    Args:
        problem: the whole problem.
        nodes: the nodes of the component.
        values: the values that touch them.
    """

    def __init__(self, problem: Problem, nodes: Sequence[int], values: Sequence[int]) -> None:
        self.whole = problem
        self.costs = {node: problem.costs[node] for node in nodes}
        self.ends = {
            index: [problem.values[index].producer, *problem.values[index].readers]
            for index in values
            if problem.values[index].weight or problem.values[index].hard
        }
        self.weights = {index: problem.values[index].weight // problem.unit for index in self.ends}
        self.places: dict[int, list[Place]] = {node: [] for node in nodes}
        self.heavy = dict.fromkeys(nodes, 0)
        for index, ports in self.ends.items():
            for position, port in enumerate(ports):
                if port.node in self.places:
                    self.places[port.node].append((index, position))
                    self.heavy[port.node] += self.weights[index]
        hard = [index for index in self.ends if problem.values[index].hard]
        self.kept = {port.node for index in hard for port in self.ends[index]}
        """Nodes that follow no other: what is beside them is not one price alone."""
        self.followed: list[_Followed] = []
        self.paid: Prices = {}
        self._pay()
        self._contract()

    def _pay(self) -> None:
        """Where one end of a value is known and the other has a choice, the value is a price of its labels."""
        alone = [index for index, ports in self.ends.items() if len(ports) == 2 and not self.whole.values[index].hard]
        for index in alone:
            weight, (producer, reader) = self.whole.values[index].weight, self.ends[index]
            known, port = (producer, reader) if reader.node in self.costs else (reader, producer)
            if known.node in self.costs:
                continue
            order = known.orders[0]
            wanted = set(port.orders) - {order} if port is reader else {order}
            self.paid.update(dict.fromkeys([(index, each, 0) for each in wanted], weight))
            pays = [
                cost + weight * (each != order) for cost, each in zip(self.costs[port.node], port.orders, strict=True)
            ]
            self.costs[port.node] = tuple(pays)
            self.heavy[port.node] -= self.weights[index]
            del self.ends[index]

    def _contract(self) -> None:
        alone = [index for index, ports in self.ends.items() if len(ports) == 2 and self.weights[index]]
        alone.sort(key=lambda index: -self.whole.values[index].weight)
        for _ in range(SWEEPS):
            left = [index for index in alone if not self._follow(index)]
            if len(left) == len(alone):
                return
            alone = left

    def _follow(self, index: int) -> bool:
        """Let one end of a value follow the other, if it may; whether it does."""
        producer, reader = self.ends[index]
        if producer.node == reader.node or producer.node not in self.costs or reader.node not in self.costs:
            return False
        for own, other in ((producer, reader), (reader, producer)):
            if own.node in self.kept:
                continue
            lighter = 2 * self.weights[index] - self.heavy[own.node]
            if lighter < 0:
                continue
            costs, unit = self.costs[own.node], self.whole.unit
            if max(costs) // unit - min(costs) // unit > lighter:
                continue
            label_of = {order: label for label, order in enumerate(own.orders)}
            if len(label_of) == len(costs) and all(order in label_of for order in other.orders):
                follows = tuple([label_of[order] for order in other.orders])
                held = self._held(own.node, index)
                step = _Followed(own.node, other.node, index, own is producer, own.orders, follows, costs, held)
                self._join(step)
                return True
        return False

    def _held(self, node: int, index: int) -> tuple[tuple[Place, tuple[int, ...]], ...]:
        """All ends at a node but those of one value."""
        places = [(value, position) for value, position in self.places[node] if value != index and value in self.ends]
        return tuple([((value, position), self.ends[value][position].orders) for value, position in places])

    def _join(self, step: _Followed) -> None:
        self.followed.append(step)
        del self.ends[step.value], self.costs[step.node], self.places[step.node]
        for (value, position), orders in step.places:
            moved = tuple([orders[label] for label in step.follows])
            self.ends[value][position] = Port(step.leader, moved)
        self.places[step.leader] += [place for place, _ in step.places]
        own = self.costs[step.leader]
        self.costs[step.leader] = tuple(
            [cost + step.costs[label] for cost, label in zip(own, step.follows, strict=True)]
        )
        self.heavy[step.leader] += self.heavy.pop(step.node) - 2 * self.weights[step.value]

    def problem(self) -> Problem:
        """The whole problem with what is left of the component; nodes and values keep their numbers."""
        costs, values = list(self.whole.costs), list(self.whole.values)
        for node, labels in self.costs.items():
            costs[node] = labels
        for index, (producer, *readers) in self.ends.items():
            values[index] = values[index]._replace(producer=producer, readers=tuple(readers))
        return Problem(tuple(costs), tuple(values), self.whole.unit)

    def expand(self, labels: dict[int, int]) -> None:
        """Give all that follows a label, too, in place.

        Args:
            labels: node -> label of all that is left.
        """
        for step in reversed(self.followed):
            labels[step.node] = step.follows[labels[step.leader]]

    def lift(self, prices: Prices) -> None:
        """Add the prices of all other values, in place.

        What a node pays under each label beyond the least goes along the value to the one that it follows.

        Args:
            prices: those that prove a bound for what is left.
        """
        prices.update(self.paid)
        for step in reversed(self.followed):
            pays: list[int | Fraction] = list(step.costs)
            for (value, position), orders in step.places:
                readers = range(len(self.whole.values[value].readers)) if position == 0 else (position - 1,)
                for label, order in enumerate(orders):
                    for reader in readers:
                        price = prices.get((value, order, reader), 0)
                        pays[label] += price if position else -price
            self._hand_over(step, pays, prices)

    def _hand_over(self, step: _Followed, pays: Sequence[int | Fraction], prices: Prices) -> None:
        """Price a value so that its node pays alike under all labels: a producer saves what is beyond the least, a
        reader pays what lacks to the most of those that are followed.
        """
        weight = self.whole.values[step.value].weight
        least, most = min(pays), max(pays[label] for label in step.follows)
        for label, order in enumerate(step.orders):
            price = min(pays[label] - least if step.produces else most - pays[label], weight)
            if price > 0:
                prices[step.value, order, 0] = price


def settle(problem: Problem, values: Sequence[int], labels: dict[int, int]) -> None:
    """Gives nodes beside a moved value better labels, one at a time, until no label of one node is better.

    Args:
        problem: the whole problem.
        values: the values that touch the component.
        labels: node of the component -> label; never dearer afterwards.
    """
    choice = defaultdict(int, labels)
    beside: dict[int, list[int]] = {node: [] for node in labels}
    waiting: dict[int, None] = {}
    for index in values:
        value = problem.values[index]
        held = {value.producer.node, *[port.node for port in value.readers]} & beside.keys()
        for node in held:
            beside[node].append(index)
        if (value.weight or value.hard) and moved(value, choice):
            waiting.update(dict.fromkeys(sorted(held)))
    while waiting:
        node = next(iter(waiting))
        del waiting[node]
        chosen = choice[node]
        costs = _by_label(problem, node, beside[node], choice)
        best = min(costs)
        choice[node] = chosen if costs[chosen] == best else costs.index(best)
        if choice[node] != chosen:
            for index in beside[node]:
                value = problem.values[index]
                ends = dict.fromkeys(port.node for port in (value.producer, *value.readers))
                waiting.update({end: None for end in ends if end in beside and end != node})
    labels.update({node: choice[node] for node in labels})


def _by_label(problem: Problem, node: int, values: Sequence[int], choice: Mapping[int, int]) -> list[int]:
    """What a node and the values beside it cost under each of its labels, all other nodes' as they are."""
    costs = list(problem.costs[node])
    for index in values:
        value = problem.values[index]
        wanted = {port.orders[choice[port.node]] for port in value.readers if port.node != node}
        own = [port.orders for port in value.readers if port.node == node]
        maker, given = value.producer.node, value.producer.orders
        # By label: the order that is given, and those that are wanted.
        ends = zip(
            given if maker == node else repeat(given[choice[maker]], len(costs)),
            map(wanted.union, zip(*own, strict=True)) if own else repeat(wanted, len(costs)),
            strict=True,
        )
        if value.hard:
            pays = [sum([value.price(order, each) for each in held]) for order, held in ends]
        else:
            pays = [value.weight * (len(held) - (order in held)) for order, held in ends]
        costs = list(map(add, costs, pays))
    return costs
