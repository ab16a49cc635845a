"""A certificate taken apart into paths: which two demands meet in a value, and what therefore crosses between them.

A price z of (value, order, reader) says: the reader pays z for wanting the order, the producer saves z by giving it.
Where the choice is optimal and the prices prove it, all that crosses is paid in full by prices, and a node keeps its
label although another would spare it such a price, because under that other label it would pay (or no longer save) as
much elsewhere. So a price that crosses is followed away from the crossing on both sides, from node to node, to a node
that has no other label there: a pin. For two labels this is the decomposition of the maximum flow into paths, each of
which crosses the minimum cut once; no price is used beyond its amount. For more labels a price is there for every
label that a node might take instead, so that it may serve several paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from relayout.solve.certificate import Branch, Certificate, Leaf, Price
from relayout.solve.problem import Port, Problem, moved


@dataclass(frozen=True)
class End:
    """Where a path ends: a node, and the order in which it holds a value.

    Args:
        node: the node.
        value: the value through which the path reaches it.
        order: the order that the node gives or wants of that value.
        fixed: it has no other order there; else it keeps its label for that label's own price, or nothing was found.
    """

    node: int
    value: int
    order: int
    fixed: bool = True


@dataclass(frozen=True)
class Path:
    """Two demands, and what must cross between them.

    Args:
        amount: the part of the crossing's weight that these two demands account for.
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
        """Whether both ends are demands."""
        return self.first.fixed and self.last.fixed


def paths(problem: Problem, choice: Sequence[int], certificate: Certificate) -> list[Path]:
    """The paths of a choice that a certificate proves, crossing by crossing.

    The amounts of a crossing's paths sum to its value's weight, whatever the certificate; where it proves less than the
    choice costs, paths may end where nothing holds them (`End.fixed`).

    Args:
        problem: the problem.
        choice: node -> label.
        certificate: prices that prove the choice's cost.
    """
    return _Paths(problem, choice, certificate).run()


@dataclass
class _Walk:
    """A way from a crossing to an end: the prices on it, the most that may go along it, the label it ends before."""

    steps: tuple[Price, ...]
    end: End
    amount: Fraction
    own: tuple[int, int] | None = None


@dataclass
class _Paths:
    problem: Problem
    choice: Sequence[int]
    certificate: Certificate
    beside: dict[int, list[Price]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.allowed = [list(range(len(labels))) for labels in self.problem.costs]
        leaf = self._leaf(self.certificate)
        self.prices = {key: Fraction(leaf.prices[key]) for key in sorted(leaf.prices) if leaf.prices[key] > 0}
        self.left = dict(self.prices)
        self.own: dict[tuple[int, int], Fraction] = {}
        for key in self.prices:
            producer, reader = self._ends(key)
            if producer.node != reader.node:
                self.beside.setdefault(producer.node, []).append(key)
                self.beside.setdefault(reader.node, []).append(key)

    def _leaf(self, certificate: Certificate) -> Leaf:
        """The leaf whose labels hold the choice; its parts narrow what is allowed."""
        while isinstance(certificate, Branch):
            node = certificate.node
            part = next(i for i, labels in enumerate(certificate.parts) if self.choice[node] in labels)
            self.allowed[node] = sorted(certificate.parts[part])
            certificate = certificate.children[part]
        return certificate

    def _ends(self, key: Price) -> tuple[Port, Port]:
        value = self.problem.values[key[0]]
        return value.producer, value.readers[key[2]]

    def _now(self, port: Port) -> int:
        return port.orders[self.choice[port.node]]

    def run(self) -> list[Path]:
        found: list[Path] = []
        for index, value in enumerate(self.problem.values):
            for order in sorted(moved(value, self.choice)) if value.weight else ():
                found += self._crossing(index, order)
        return found

    def _crossing(self, index: int, order: int) -> list[Path]:
        value = self.problem.values[index]
        readers = [r for r, port in enumerate(value.readers) if self._now(port) == order]
        owed = Fraction(value.weight)
        found: list[Path] = []
        for reader in readers:
            paid = min(owed, self.prices.get((index, order, reader), Fraction(0)))
            owed -= paid
            found += self._split(index, order, reader, paid)
        # What no price explains: a dual is rounded, and an unproved choice may cost more than its prices.
        if owed and found:
            found[-1] = replace(found[-1], amount=found[-1].amount + owed)
        elif owed:
            found += self._split(index, order, readers[0], owed)
        return found

    def _split(self, index: int, order: int, reader: int, paid: Fraction) -> Iterator[Path]:
        while paid > 0:
            above = self._above(index, order)
            below = self._below(index, order, reader)
            amount = min(paid, above.amount, below.amount)
            for walk in (above, below):
                for key in walk.steps:
                    self.left[key] = max(Fraction(0), self.left[key] - amount)
                if walk.own is not None:
                    self.own[walk.own] = self.own.get(walk.own, Fraction(0)) + amount
            paid -= amount
            yield Path(amount, index, order, reader, above.end, below.end, above.steps, below.steps)

    def _above(self, index: int, order: int) -> _Walk:
        """Why the producer does not give the order that is wanted."""
        port = self.problem.values[index].producer
        return self._walk(port, End(port.node, index, self._now(port)), self._giving(port, order))

    def _below(self, index: int, order: int, reader: int) -> _Walk:
        """Why the reader does not take what is given."""
        value = self.problem.values[index]
        port = value.readers[reader]
        return self._walk(port, End(port.node, index, order), self._other(port, order, self._now(value.producer)))

    def _giving(self, port: Port, order: int) -> list[int]:
        return [label for label in self.allowed[port.node] if port.orders[label] == order]

    def _other(self, port: Port, order: int, liked: int) -> list[int]:
        """The labels that want another order, those that want `liked` first."""
        labels = [label for label in self.allowed[port.node] if port.orders[label] != order]
        return sorted(labels, key=lambda label: (port.orders[label] != liked, label))

    def _walk(self, port: Port, start: End, labels: list[int]) -> _Walk:
        """From a port whose node could take `labels` instead: along prices that are left, or along any."""
        if not labels:
            return _Walk((), start, Fraction(self.problem.values[start.value].weight))
        for left in (self.left, self.prices):
            for label in labels:
                if (found := self._search(port.node, label, start, left)) is not None:
                    return found
        return _Walk(
            (), End(start.node, start.value, start.order, False), Fraction(self.problem.values[start.value].weight)
        )

    def _search(self, node: int, label: int, start: End, left: dict[Price, Fraction]) -> _Walk | None:
        """Depth first from (node, the label it might take instead) to an end."""
        seen = {(node, label)}
        stack: list[tuple[int, int, Iterator[Price]]] = [(node, label, iter(self.beside.get(node, ())))]
        steps: list[Price] = []
        arrived = [start]
        while stack:
            node, label, keys = stack[-1]
            following = next(
                ((key, *hop) for key in keys if left[key] > 0 and (hop := self._hop(node, label, key))), None
            )
            if following is None:
                if (spare := self._preference(node, label)) > 0:
                    end = End(node, arrived[-1].value, arrived[-1].order, False)
                    return _Walk(tuple(steps), end, min([spare, *(left[key] for key in steps)]), (node, label))
                stack.pop()
                arrived.pop()
                if steps:
                    steps.pop()
                continue
            key, end, labels = following
            if not labels:
                steps.append(key)
                return _Walk(tuple(steps), end, min(left[key] for key in steps))
            fresh = next((other for other in labels if (end.node, other) not in seen), None)
            if fresh is not None:
                seen.add((end.node, fresh))
                steps.append(key)
                arrived.append(end)
                stack.append((end.node, fresh, iter(self.beside.get(end.node, ()))))
        return None

    def _hop(self, node: int, label: int, key: Price) -> tuple[End, list[int]] | None:
        """The other end of a price that the node would pay under `label`, and the labels which spare it that price."""
        index, order, _ = key
        producer, reader = self._ends(key)
        if node == reader.node:
            if reader.orders[label] != order or self._now(reader) == order:
                return None
            return End(producer.node, index, self._now(producer)), self._giving(producer, order)
        if producer.orders[label] == order or self._now(producer) != order:
            return None
        return End(reader.node, index, self._now(reader)), self._other(reader, order, producer.orders[label])

    def _preference(self, node: int, label: int) -> Fraction:
        """What the node's other label costs more by itself, as far as no path has used it."""
        costs = self.problem.costs[node]
        return Fraction(costs[label] - costs[self.choice[node]]) - self.own.get((node, label), Fraction(0))
