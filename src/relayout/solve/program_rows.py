"""The rows of one value in the linear program: a price for each order that a reader wants and nobody may give."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.solve.certificate import MOST_WISHES
from relayout.solve.problem import Value, ValueEnd


def _labels(port: ValueEnd) -> dict[int, list[int]]:
    """Order -> the labels of the port's node under which it is stored so."""
    found: dict[int, list[int]] = {}
    for label, order in enumerate(port.orders):
        found.setdefault(order, []).append(label)
    return found


MOST_FLOWS = 1 << 10
"""Columns of one value up to which its program is a flow."""

FREE, EASY, HARD = 0, 1, 2
"""Kinds of columns by their cost: nothing, the value's weight, or more."""

Place = tuple[int, int]
"""A column in a value's rows: what it counts from (0 its own, 1 the producer's, 2 on the readers'), and where."""


class Rows(NamedTuple):
    """The rows of one value, which all values have whose ports give and want the same labels.

    `y[order] − Σ x[reader] + Σ x[producer] ≥ lower`, a row for each order and reader that may be unlike the producer.
    Where pairs of orders are hard, `y` is a flow from the orders that are given to those that are wanted.

    Args:
        keys: (order, position of the reader) of each row whose dual is a price; None of any other.
        columns: what each of the value's own columns costs.
        lengths: entries of each row.
        bases: what each entry's column counts from.
        offsets: each entry's column, from there.
        entries: the coefficients.
        lower: of each row.
    """

    keys: tuple[tuple[int, int] | None, ...]
    columns: tuple[int, ...]
    lengths: NDArray[np.int64]
    bases: NDArray[np.int64]
    offsets: NDArray[np.int64]
    entries: NDArray[np.float64]
    lower: NDArray[np.float64]

    @staticmethod
    def of(value: Value) -> "Rows":
        """The rows of a value; a port of one label stands for a node outside the component, whose label is known."""
        rows = _Writing(value)
        if not value.hard:
            rows.alike()
        elif rows.flows <= MOST_FLOWS and (len(rows.wanted) == 1 or rows.wishes <= MOST_WISHES):
            rows.flow()
        else:
            rows.apart()
        places = np.array([place for row in rows.terms for place in row], np.int64).reshape(-1, 2)
        return Rows(
            tuple(rows.keys),
            tuple(rows.columns),
            np.array([len(row) for row in rows.terms], np.int64),
            places[:, 0],
            places[:, 1],
            np.array([entry for row in rows.terms for entry in row.values()], np.float64),
            np.array(rows.lower, np.float64),
        )


class _Writing:
    """The rows of a value as they are written."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.nodes = {port.node: base for base, port in reversed(list(enumerate((value.producer, *value.readers), 1)))}
        self.wanted, self.given = [_labels(port) for port in value.readers], _labels(value.producer)
        self.keys: list[tuple[int, int] | None] = []
        self.terms: list[dict[Place, float]] = []
        self.lower: list[float] = []
        self.columns: list[int] = []

    @property
    def flows(self) -> int:
        """How many columns `flow` has."""
        made = len(self.given) * len(set().union(*self.wanted))
        return made if len(self.wanted) == 1 else made + len(self.given) * sum(map(len, self.wanted))

    @property
    def wishes(self) -> int:
        """Combinations of an order that is given and those that readers want, or none."""
        return len(self.given) * prod(len(labels) + 1 for labels in self.wanted)

    def alike(self) -> None:
        """A column for each order; a row for each reader that may want it."""
        for order in sorted(set().union(*self.wanted)):
            gives = self.given.get(order, [])
            if len(gives) == len(self.value.producer.orders):
                continue
            held = self._column(EASY)
            for reader in self._wanting(order):
                self._row((order, reader), [(held, 1.0)], reader=reader, wants=order, gives=gives)

    def apart(self) -> None:
        """A column more for each order that is hard to make of some: no more of the other than what is given allows."""
        for order in sorted(set().union(*self.wanted)):
            gives = self.given.get(order, [])
            easy, hard = self._column(EASY), self._column(HARD)
            for reader in self._wanting(order):
                self._row((order, reader), [(easy, 1.0), (hard, 1.0)], reader=reader, wants=order, gives=gives)
            self._row(None, [(easy, -1.0)], gives=self._making(order))

    def flow(self) -> None:
        """A column for each pair of orders, and for what each reader takes of it: of what is given, one order."""
        every = sorted(set().union(*self.wanted))
        made = {(given, order): self._made(given, order) for given in sorted(self.given) for order in every}
        for reader, wanted in enumerate(self.wanted):
            taken = made if len(self.wanted) == 1 else {pair: self._column(FREE) for pair in made if pair[1] in wanted}
            for order in wanted:
                own = [(taken[given, order], 1.0) for given in self.given]
                self._row((order, reader), own, reader=reader, wants=order)
            for given, labels in self.given.items():
                self._row(None, [(taken[given, order], -1.0) for order in wanted], gives=labels)
            for pair in taken if taken is not made else ():
                if pair[0] != pair[1]:
                    self._row(None, [(made[pair], 1.0), (taken[pair], -1.0)])

    def _made(self, given: int, order: int) -> Place:
        return self._column(FREE if given == order else HARD if (given, order) in self.value.hard else EASY)

    def _column(self, kind: int) -> Place:
        self.columns.append(kind)
        return 0, len(self.columns) - 1

    def _wanting(self, order: int) -> list[int]:
        return [reader for reader, labels in enumerate(self.wanted) if order in labels]

    def _making(self, order: int) -> list[int]:
        """The labels under which another order is given, of which this one is not hard to make."""
        others = (given for given in self.given if given != order and (given, order) not in self.value.hard)
        return [label for given in others for label in self.given[given]]

    def _row(
        self,
        key: tuple[int, int] | None,
        own: Iterable[tuple[Place, float]],
        *,
        reader: int = 0,
        wants: int | None = None,
        gives: Sequence[int] = (),
    ) -> None:
        """A row: own columns, less the labels under which a reader wants an order, and those of the producer.

        Args:
            key: of the price that the row's dual is.
            own: own columns, and what each counts.
            reader: position of the reader.
            wants: the order that it wants.
            gives: labels of the producer.
        """
        row, constant = dict(own), 0.0
        ends = [(self.value.producer, gives, 1.0)]
        if wants is not None:
            ends.insert(0, (self.value.readers[reader], self.wanted[reader][wants], -1.0))
        for end, labels, sign in ends:
            if len(end.orders) == 1:
                constant += sign if labels else 0.0
                continue
            for label in labels:
                place = self.nodes[end.node], label
                row[place] = row.get(place, 0.0) + sign
        self.keys.append(key)
        self.terms.append({place: entry for place, entry in row.items() if entry})
        self.lower.append(-constant)
