"""A certificate taken apart into paths: which two demands meet in a value, and what therefore crosses between them.

A price z of (value, order, reader) says: the reader pays z for wanting the order, the producer saves z by giving it.
Where the choice is optimal and the prices prove it, all that crosses is paid in full by prices, and a node keeps its
label although another would spare it such a price, because under that other label it would pay (or no longer save) as
much elsewhere. So a price that crosses is followed away from the crossing on both sides, from node to node, to a node
that has no other label there: a pin. For two labels this is the decomposition of the maximum flow into paths, each of
which crosses the minimum cut once; no price is used beyond its amount. For more labels a price is there for every
label that a node might take instead, so that it may serve several paths.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from relayout.light_dataclass import dataclass
from relayout.solve.certificate import Branch, Certificate, JoinedProofs, Leaf, Price
from relayout.solve.problem import Problem, ValueEnd, transposed_orders

PARTS = 200  # the most paths that one reader's price of one crossing is dealt out to; a tenth where it is no flow

HOPS = 1_000_000  # the most steps of all searches together; what is left then ends where it stands


class End(NamedTuple):
    """The end of a path: a node, and the order in which it holds a value."""

    node: int
    value: int  # the value through which the path reaches it
    order: int  # the order that the node gives or wants of that value
    # it has no other order there (of those that the certificate's branch allows); else it keeps its label for that
    # label's own price, or nothing was found
    fixed: bool = True


class Path(NamedTuple):
    """Two demands, and what must cross between them.

    Args:
        amount: the part of the crossing's cost that these two demands account for.
        value: the value that crosses.
        order: the order in which it has to exist besides its producer's.
        reader: the position of the reader that pays.
        first: the demand on the producer's side.
        last: the demand on the reader's side.
        above: the prices from the producer up to `first`, nearest first.
        below: the prices from the reader down to `last`, nearest first.
    """

    amount: Fraction
    value: int
    order: int
    reader: int
    first: End
    last: End
    above: tuple[Price, ...] = ()
    below: tuple[Price, ...] = ()

    @property
    def complete(self) -> bool:
        """True if both ends are demands."""
        return self.first.fixed and self.last.fixed


def paths(
    problem: Problem,
    choice: Sequence[int],  # node -> label
    certificate: Certificate,  # prices that prove the choice's cost
) -> list[Path]:
    """Return the paths of a choice that a certificate proves, crossing by crossing.

    The amounts of a crossing's paths sum to what it costs, whatever the certificate; where it proves less than the
    choice costs, paths may end where nothing holds them (`End.fixed`).
    """
    return _Paths(problem, choice, certificate).run()


class _Walk(NamedTuple):
    """A way from a crossing to an end: the prices on it, the most that may go along it, the label it ends before."""

    steps: tuple[Price, ...]
    end: End
    amount: int
    own: tuple[int, int] | None = None


class _Beside(NamedTuple):
    """A price that a node may have to pay under another label than its own."""

    key: Price
    orders: tuple[int, ...]  # label of the node -> the order that it wants or gives of the price's value
    order: int  # the order that is paid for
    # whether the node is the reader, which pays where it wants that order; a producer where it gives another
    wants: bool


@dataclass
class _Paths:
    """Amounts are integers here: parts of the prices' common denominator."""

    problem: Problem
    choice: Sequence[int]
    certificate: Certificate
    beside: dict[int, list[_Beside]] = field(default_factory=dict)
    own: dict[tuple[int, int], int] = field(default_factory=dict)
    labels: dict[tuple[int, int], dict[int, list[int]]] = field(default_factory=dict)
    hops: int = HOPS

    def __post_init__(self) -> None:
        self.allowed = [list(range(len(labels))) for labels in self.problem.costs]
        leaf, count = self._leaf(self.certificate), len(self.problem.values)
        paid = {key: leaf.prices[key] for key in sorted(leaf.prices) if key[0] < count and leaf.prices[key] > 0}
        self.unit = lcm(*(price.denominator for price in paid.values()))
        self.prices = {key: int(price * self.unit) for key, price in paid.items()}
        self.capacities = dict(self.prices)
        self.is_flow = all(len(labels) <= 2 for labels in self.allowed)
        for key in self.prices:
            index, order, place = key
            producer, reader = self.problem.values[index].producer, self.problem.values[index].readers[place]
            if producer.node == reader.node:
                continue
            # A node's other label pays a price that its own does not: it wants what is paid for, or gives it no longer.
            if self._now(producer) == order:
                self.beside.setdefault(producer.node, []).append(_Beside(key, producer.orders, order, wants=False))
            if self._now(reader) != order:
                self.beside.setdefault(reader.node, []).append(_Beside(key, reader.orders, order, wants=True))

    def _leaf(self, certificate: Certificate) -> Leaf:
        """Return the leaf whose labels hold the choice, of every part; branches narrow what is allowed."""
        if isinstance(certificate, JoinedProofs):
            return Leaf({key: paid for part in certificate.parts for key, paid in self._leaf(part).prices.items()})
        while isinstance(certificate, Branch):
            node = certificate.node
            part = next(i for i, labels in enumerate(certificate.parts) if self.choice[node] in labels)
            self.allowed[node] = sorted(certificate.parts[part])
            certificate = certificate.children[part]
        return Leaf(certificate.prices)

    def _now(self, port: ValueEnd) -> int:
        return port.orders[self.choice[port.node]]

    def run(self) -> list[Path]:
        paths: list[Path] = []
        for index, value in enumerate(self.problem.values):
            for order in sorted(transposed_orders(value, self.choice)) if value.weight or value.hard else ():
                paths += self._crossing(index, order)
        return paths

    def _crossing(self, index: int, order: int) -> list[Path]:
        value = self.problem.values[index]
        readers = [r for r, port in enumerate(value.readers) if self._now(port) == order]
        owed = value.price(self._now(value.producer), order) * self.unit
        paths: list[Path] = []
        for reader in readers:
            paid = min(owed, self.prices.get((index, order, reader), 0))
            owed -= paid
            paths += self._split(index, order, reader, paid)
        # What no price explains: a dual is rounded, and an unproved choice may cost more than its prices.
        if owed and paths:
            paths[-1] = paths[-1]._replace(amount=paths[-1].amount + Fraction(owed, self.unit))
        elif owed:
            paths += self._split(index, order, readers[0], owed)
        return paths

    def _split(self, index: int, order: int, reader: int, paid: int) -> Iterator[Path]:
        for last in (*[False] * ((PARTS if self.is_flow else PARTS // 10) - 1), True):
            if not paid:
                return
            above = self._above(index, order)
            below = self._below(index, order, reader, above.end.node)
            amount = paid if last else min(paid, above.amount, below.amount)
            for walk in (above, below):
                for key in walk.steps:
                    self.capacities[key] = max(0, self.capacities[key] - amount)
                if walk.own is not None:
                    self.own[walk.own] = self.own.get(walk.own, 0) + amount
            paid -= amount
            share = Fraction(amount, self.unit)
            yield Path(share, index, order, reader, above.end, below.end, above.steps, below.steps)

    def _above(self, index: int, order: int) -> _Walk:
        """Return the walk that says why the producer does not give the order that is wanted."""
        port = self.problem.values[index].producer
        return self._walk(port, End(port.node, index, self._now(port)), self._giving(index, order), -1)

    def _below(self, index: int, order: int, reader: int, other: int) -> _Walk:
        """Return the walk that says why the reader does not take the order that is given."""
        value = self.problem.values[index]
        port = value.readers[reader]
        labels = self._other(index, reader, order, self._now(value.producer))
        return self._walk(port, End(port.node, index, order), labels, other)

    def _giving(self, index: int, order: int) -> list[int]:
        """Return the labels of a value's producer that give an order."""
        return self._labels(index, -1).get(order, [])

    def _other(self, index: int, reader: int, order: int, liked: int) -> list[int]:
        """Return the labels of a reader that want another order: those that want `liked`, where there are any."""
        labels = self._labels(index, reader)
        if liked != order and liked in labels:
            return labels[liked]
        return sorted(label for each, labels_of_order in labels.items() if each != order for label in labels_of_order)

    def _labels(self, index: int, place: int) -> dict[int, list[int]]:
        """Order of a value -> the labels under which one of its ends gives or wants it; -1 is the producer."""
        if (index, place) not in self.labels:
            value = self.problem.values[index]
            port = value.producer if place < 0 else value.readers[place]
            labels_by_order = self.labels[index, place] = {}
            for label in self.allowed[port.node]:
                labels_by_order.setdefault(port.orders[label], []).append(label)
        return self.labels[index, place]

    def _walk(self, port: ValueEnd, start: End, labels: list[int], avoid: int) -> _Walk:
        """From a port whose node could take `labels` instead to an end, best not at the node `avoid`.

        A flow is followed along what is left of it. The prices of a program are there for every label, so that going
        over one again is better than to come back to where the other side of the path ends.
        """
        crossing = self.problem.values[start.value]
        enough = (crossing.weight + crossing.more) * self.unit
        if not labels:
            return _Walk((), start, enough)
        tries = [(self.capacities, avoid), (self.capacities, -1), (self.prices, -1)]
        if not self.is_flow:
            tries = [(self.capacities, avoid), (self.prices, avoid), (self.prices, -1)]
        for capacities, avoided in tries:
            if (walk := self._search(port.node, labels, start, capacities, avoided)) is not None:
                return walk if capacities is self.capacities else walk._replace(amount=enough)
        return _Walk((), start._replace(fixed=False), enough)

    def _search(
        self, node: int, labels: list[int], start: End, capacities: dict[Price, int], avoid: int
    ) -> _Walk | None:
        """Return the nearest end, breadth first from (node, a label it might take instead)."""
        came: dict[tuple[int, int], tuple[Price, tuple[int, int]] | None] = {(node, label): None for label in labels}
        arrived = dict.fromkeys(came, start)
        queue = deque(came)
        own: _Walk | None = None
        while queue and self.hops > 0:
            state = queue.popleft()
            label, beside = state[1], self.beside.get(state[0], ())
            self.hops -= len(beside) + 1
            for key, orders, order, wants in beside:
                if (orders[label] == order) is not wants or capacities[key] <= 0:
                    continue
                end, others = self._hop(label, key, wants)
                if not others and end.node != avoid:
                    steps = (*self._steps(came, state), key)
                    return _Walk(steps, end, min(capacities[step] for step in steps))
                for other in ((end.node, label) for label in others):
                    if other not in came:
                        came[other], arrived[other] = (key, state), end
                        queue.append(other)
            if own is None and (spare := self._preference(*state)) > 0:
                steps = self._steps(came, state)
                own = _Walk(
                    steps, arrived[state]._replace(fixed=False), min([spare, *(capacities[s] for s in steps)]), state
                )
        return own

    def _steps(
        self, came: dict[tuple[int, int], tuple[Price, tuple[int, int]] | None], state: tuple[int, int]
    ) -> tuple[Price, ...]:
        steps = []
        while (step := came[state]) is not None:
            key, state = step
            steps.append(key)
        return tuple(reversed(steps))

    def _hop(self, label: int, key: Price, wants: bool) -> tuple[End, list[int]]:
        """The other end of a price that a node would pay under `label`, and the labels which spare it that price."""
        index, order, place = key
        value = self.problem.values[index]
        producer, reader = value.producer, value.readers[place]
        if wants:
            return End(producer.node, index, self._now(producer)), self._giving(index, order)
        return End(reader.node, index, self._now(reader)), self._other(index, place, order, producer.orders[label])

    def _preference(self, node: int, label: int) -> int:
        """Return what the node's other label costs more by itself, as far as no path has used it."""
        costs = self.problem.costs[node]
        return (costs[label] - costs[self.choice[node]]) * self.unit - self.own.get((node, label), 0)
