"""A component made smaller before it is solved, by two laws of values that have one reader.

1. A node that such values connect with one other only hangs on it: what the node and the values cost at best is a price
   of the other's labels. So trees are taken down leaf by leaf, as in dynamic programming, and nothing is lost. Where
   there are several, each must tell apart what the next does, and more: then prices that each finds for itself, the
   one that tells least apart first, add up to what they cost together.
2. A node follows such a value that weighs at least what all others at the node do together, with the most that the
   node's labels differ in price. Whatever the other end gives or wants, nothing is lost if this end does the same: the
   value is not moved, and what is moved instead weighs no more. The two become one node with the labels of the other.

In networks most operators have one reader and results as large as their operands; what is left are the places where
values branch and join, and of a small component often nothing.

Weights may count in whole `Problem.unit`s, below which ties are broken: then more follows, and of choices that cost the
same in units one that breaks ties best may be lost. Where a value is moved, ties are broken again afterwards, node by
node (`breaking_ties`).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from relayout.solve.certificate import Prices
from relayout.solve.problem import Problem, ValueEnd

if TYPE_CHECKING:
    from fractions import Fraction

SWEEPS = 4  # how often all values are looked at: what follows makes the others lighter, but soon for a few only

MOST_LINKS = 8  # how many values may connect a node with what it hangs on

Place = tuple[int, int]  # a value, and one of its ends: 0 the producer, 1 on the readers


class _Followed(NamedTuple):
    """A node that follows another along a value."""

    node: int  # the node that has become part of another
    leader: int  # the other
    value: int
    produces: bool  # whether `node` is the value's producer
    orders: tuple[int, ...]  # label of `node` -> order of the value
    follows: tuple[int, ...]  # label of `leader` -> label of `node`
    costs: tuple[int, ...]  # label of `node` -> price, with all that followed it before
    places: tuple[tuple[Place, tuple[int, ...]], ...]  # all other ends at `node`, with label -> order


class _Link(NamedTuple):
    """A value between two nodes: its weight, and label -> order at the one that hangs, and at the other."""

    weight: int
    own: tuple[int, ...]
    other: tuple[int, ...]


class _Hung(NamedTuple):
    """A node that values connect with one other only."""

    node: int
    other: int  # what it hangs on
    links: tuple[_Link, ...]  # the values
    costs: tuple[int, ...]  # label of `node` -> price, with all that hangs on it or followed it

    def label(self, label: int) -> int:
        """Return the best label, the first of several, for one of the other node."""
        paid = list(self.costs)
        for weight, own, other in self.links:
            paid = [cost + weight * (order != other[label]) for cost, order in zip(paid, own, strict=True)]
        return paid.index(min(paid))


class Contraction:
    """A component in which nodes follow others or hang on them, and the way back from there."""

    def __init__(
        self,
        problem: Problem,  # the whole problem
        nodes: Sequence[int],  # the nodes of the component
        values: Sequence[int],  # the values that touch them
        unit: int = 1,  # what weights are counted in
    ) -> None:
        self.whole, self.unit = problem, unit
        self.costs = {node: problem.costs[node] for node in nodes}
        self.ends = {
            index: [problem.values[index].producer, *problem.values[index].readers]
            for index in values
            if problem.values[index].weight or problem.values[index].hard
        }
        self.weights = {index: problem.values[index].weight // unit for index in self.ends}
        self.places: dict[int, list[Place]] = {node: [] for node in nodes}
        self.heavy, self.degree = dict.fromkeys(nodes, 0), dict.fromkeys(nodes, 0)
        for index, ports in self.ends.items():
            for position, port in enumerate(ports):
                if port.node in self.places:
                    self.places[port.node].append((index, position))
                    self.heavy[port.node] += self.weights[index]
                    self.degree[port.node] += 1
        hard = [index for index in self.ends if problem.values[index].hard]
        self.leaders_only = {port.node for index in hard for port in self.ends[index]}
        """Nodes that follow no other: what is beside them is not one price alone."""
        self.gone: list[_Followed | _Hung] = []
        self.paid: Prices = {}
        self._pay()
        self._contract()

    def _pay(self) -> None:
        """Turn values into prices of labels: one whose producer or reader has a single order is a price of the other
        end.
        """
        alone = [index for index, ports in self.ends.items() if len(ports) == 2 and not self.whole.values[index].hard]
        for index in alone:
            weight, (producer, reader) = self.whole.values[index].weight, self.ends[index]
            known, port = (producer, reader) if len(set(producer.orders)) == 1 else (reader, producer)
            if len(set(known.orders)) > 1:
                continue
            order = known.orders[0]
            paid_orders = set(port.orders) - {order} if port is reader else {order}
            self.paid.update(dict.fromkeys([(index, each, 0) for each in paid_orders], weight))
            if port.node in self.costs:
                pays = [weight * (each != order) for each in port.orders]
                self.costs[port.node] = tuple(map(add, self.costs[port.node], pays))
            self._release(index)

    def _release(self, index: int) -> None:
        """Take a value away: its ends have one less."""
        for port in self.ends.pop(index):
            if port.node in self.costs:
                self.heavy[port.node] -= self.weights[index]
                self.degree[port.node] -= 1

    def _contract(self) -> None:
        self._hang(list(self.costs))
        alone = [index for index, ports in self.ends.items() if len(ports) == 2 and self.weights[index]]
        alone.sort(key=lambda index: -self.whole.values[index].weight)
        for _ in range(SWEEPS):
            remaining = [index for index in alone if index in self.ends and not self._follow(index)]
            if len(remaining) == len(alone):
                return
            alone = remaining

    def _hang(
        self,
        nodes: list[int],  # where to look; empty afterwards
    ) -> None:
        """Take away those of the nodes that hang on another, and what hangs then."""
        while nodes:
            node = nodes.pop()
            if not 0 < self.degree.get(node, 0) <= MOST_LINKS:
                continue
            self.places[node] = places = [place for place in self.places[node] if place[0] in self.ends]
            others = {port.node for index, _ in places for port in self.ends[index]} - {node}
            if len(others) != 1 or any(
                len(self.ends[index]) != 2 or self.whole.values[index].hard for index, _ in places
            ):
                continue
            (other,) = others
            links = {index: self._link(index, position) for index, position in places}
            if len(links) == len(places) and other in self.costs and (ordered := _nested(links)):
                self._hang_on(node, other, ordered, dict(places))
                nodes.append(other)

    def _link(self, index: int, position: int) -> _Link:
        ports = self.ends[index]
        return _Link(self.whole.values[index].weight, ports[position].orders, ports[1 - position].orders)

    def _hang_on(self, node: int, other: int, links: dict[int, _Link], positions: Mapping[int, int]) -> None:
        """Price the values so that the node pays alike for all that the other may ask, and the other what that costs.

        Args:
            node: what hangs.
            other: what it hangs on.
            links: value -> link, the one that tells least apart first.
            positions: value -> the position of the node's end.
        """
        own, pays = self.costs[node], self.costs[other]
        self.gone.append(_Hung(node, other, tuple(links.values()), own))
        least = min(own)
        for index, (weight, orders, other_orders) in links.items():
            beyond = dict(sorted(zip(orders, [min(weight, cost - least) for cost in own], strict=True), reverse=True))
            pays = tuple([cost + beyond.get(order, weight) for cost, order in zip(pays, other_orders, strict=True)])
            own = tuple([cost - beyond[order] for cost, order in zip(own, orders, strict=True)])
            # A producer gets what is beyond the least of its labels, a reader pays what lacks to the value's weight.
            for order in set(self.whole.values[index].readers[0].orders):
                price = weight - beyond.get(order, weight) if positions[index] else beyond.get(order, weight)
                if price:
                    self.paid[index, order, 0] = price
            self._release(index)
        self.costs[other] = tuple([cost + least for cost in pays])
        del self.costs[node], self.places[node], self.heavy[node], self.degree[node]

    def _follow(self, index: int) -> bool:
        """Let one end of a value follow the other, if it may; whether it does."""
        producer, reader = self.ends[index]
        if producer.node == reader.node or producer.node not in self.costs or reader.node not in self.costs:
            return False
        for own, other in ((producer, reader), (reader, producer)):
            if own.node in self.leaders_only:
                continue
            lighter = 2 * self.weights[index] - self.heavy[own.node]
            if lighter < 0:
                continue
            costs, unit = self.costs[own.node], self.unit
            if max(costs) // unit - min(costs) // unit > lighter:
                continue
            label_of = {order: label for label, order in enumerate(own.orders)}
            if len(label_of) == len(costs) and all(order in label_of for order in other.orders):
                follows = tuple([label_of[order] for order in other.orders])
                other_ends = self._other_ends(own.node, index)
                step = _Followed(own.node, other.node, index, own is producer, own.orders, follows, costs, other_ends)
                self._join(step)
                self._hang([other.node])
                return True
        return False

    def _other_ends(self, node: int, index: int) -> tuple[tuple[Place, tuple[int, ...]], ...]:
        """Return all ends at a node but those of one value."""
        places = [(value, position) for value, position in self.places[node] if value != index and value in self.ends]
        return tuple([((value, position), self.ends[value][position].orders) for value, position in places])

    def _join(self, step: _Followed) -> None:
        self.gone.append(step)
        del self.ends[step.value], self.costs[step.node], self.places[step.node]
        joined = list[int]()
        for (value, position), orders in step.places:
            moved = tuple([orders[label] for label in step.follows])
            self.ends[value][position] = ValueEnd(step.leader, moved)
            joined.append(value)
        self.places[step.leader] += [place for place, _ in step.places]
        own = self.costs[step.leader]
        self.costs[step.leader] = tuple(
            [cost + step.costs[label] for cost, label in zip(own, step.follows, strict=True)]
        )
        self.heavy[step.leader] += self.heavy.pop(step.node) - 2 * self.weights[step.value]
        self.degree[step.leader] += self.degree.pop(step.node) - 2
        for value in joined:
            if value in self.ends and len(ends := self.ends[value]) == 2 and ends[0] == ends[1]:
                self._release(value)

    def parts(self) -> list[tuple[list[int], list[int]]]:
        """Return the connected parts of the component that remains: the nodes and the values of each."""
        remaining_parts: list[tuple[list[int], list[int]]] = []
        seen: set[int] = set()
        for start in self.costs:
            if start in seen:
                continue
            seen.add(start)
            nodes, values = [start], dict[int, None]()
            for node in nodes:
                for index, _ in self.places[node]:
                    if index in values or index not in self.ends:
                        continue
                    values[index] = None
                    beside = dict.fromkeys(port.node for port in self.ends[index])
                    nodes += [each for each in beside if each in self.costs and each not in seen]
                    seen.update(beside)
            remaining_parts.append((nodes, list(values)))
        return remaining_parts

    def problem(self, nodes: Sequence[int], values: Sequence[int]) -> Problem:
        """Some of what is left as a problem of its own: these nodes, those beside them without a choice, these values.

        Nodes and values are numbered as they are given.
        """
        number = {node: place for place, node in enumerate(nodes)}
        costs = [self.costs[node] for node in nodes]

        def numbered(port: ValueEnd) -> ValueEnd:
            if port.node not in number:
                number[port.node] = len(costs)
                costs.append(self.whole.costs[port.node])
            return ValueEnd(number[port.node], port.orders)

        remaining_values = []
        for index in values:
            producer, *readers = map(numbered, self.ends[index])
            remaining_values.append(self.whole.values[index]._replace(producer=producer, readers=tuple(readers)))
        return Problem(tuple(costs), tuple(remaining_values), self.whole.unit)

    def expand(
        self,
        labels: dict[int, int],  # node -> label of all that is left
    ) -> None:
        """Give all that is gone a label, too, in place."""
        for step in reversed(self.gone):
            if isinstance(step, _Hung):
                labels[step.node] = step.label(labels[step.other])
            else:
                labels[step.node] = step.follows[labels[step.leader]]

    def lift(self, prices: Prices) -> None:
        """Add the prices of all other values, in place.

        What a node pays under each label beyond the least goes along the value to the one that it follows.

        Args:
            prices: those that prove a bound for what is left.
        """
        prices.update(self.paid)
        for step in reversed(self.gone):
            if isinstance(step, _Hung):
                continue
            pays: list[int | Fraction] = list(step.costs)
            for (value, position), orders in step.places:
                readers = range(len(self.whole.values[value].readers)) if position == 0 else (position - 1,)
                for label, order in enumerate(orders):
                    for reader in readers:
                        price = prices.get((value, order, reader), 0)
                        pays[label] += price if position else -price
            self._hand_over(step, pays, prices)

    def _hand_over(self, step: _Followed, pays: "Sequence[int | Fraction]", prices: Prices) -> None:
        """Price a value so that its node pays alike under all labels: a producer saves what is beyond the least, a
        reader pays what lacks to the most of those that are followed.
        """
        weight = self.whole.values[step.value].weight
        least, most = min(pays), max(pays[label] for label in step.follows)
        for label, order in enumerate(step.orders):
            price = min(pays[label] - least if step.produces else most - pays[label], weight)
            if price > 0:
                prices[step.value, order, 0] = price


def _nested(links: Mapping[int, _Link]) -> dict[int, _Link] | None:
    """Values between the same two nodes, each of which tells apart what those before it do; None where one does not."""
    ordered = dict(sorted(links.items(), key=lambda item: len({*item[1].own, *item[1].other})))
    for coarse, fine in pairwise(ordered.values()):
        coarse_of_fine: dict[int, int] = {}
        pairs = zip((*fine.own, *fine.other), (*coarse.own, *coarse.other), strict=True)
        if any(coarse_of_fine.setdefault(order, fine_order) != fine_order for order, fine_order in pairs):
            return None
    return ordered
