"""More than two labels: a linear program.

    min  Σ w_t·y[t,o] + Σ cost[v][l]·x[v,l]     y[t,o] ≥ Σ_{l gives o} x[c,l] − Σ_{l gives o} x[p,l],   Σ_l x[v,l] = 1

Each relaxation's dual is rounded to exact prices (the certificate of a leaf); an integral solution is re-evaluated in
integers. HiGHS works in floating point, so neither is believed: the checker decides what is proved.
"""

import threading
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import gcd, inf, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.solve.certificate import MOST_WISHES, Prices
from relayout.solve.problem import Limits, Problem, Value

# HiGHS run so that Ctrl-C is heard while it works: in a thread of its own, asked to stop, and waited for.
#
# Python answers a signal between two of its own instructions, in the main thread, and HiGHS is one instruction. Where
# the program is small enough to be solved at once, there is nothing to interrupt and no thread.

SMALL = 1000  # a program of so few columns takes some milliseconds

LOOK, PATIENCE = 0.05, 0.8
"""Seconds between two looks at what the main thread is sent, and seconds that HiGHS has to stop when it is asked to."""


def run_solver(
    highs: Any,  # the solver; its options and its result are the caller's
    columns: int,  # how large the program is
) -> None:
    """Solve the program that HiGHS was given.

    Raises:
        BaseException: whatever a signal's handler raises meanwhile (`KeyboardInterrupt`, `SystemExit`).
    """
    if columns <= SMALL:
        highs.run()
        return
    stop, done = threading.Event(), threading.Event()

    def asked(event: Any) -> None:
        if stop.is_set():
            event.interrupt()

    def work() -> None:
        try:
            highs.run()
        finally:
            done.set()

    highs.cbSimplexInterrupt += asked
    try:
        threading.Thread(target=work, daemon=True, name="HiGHS").start()
        # Not `Thread.join`: interrupted in it, Python 3.11 takes a thread that runs for one that has ended.
        while not done.wait(LOOK):
            pass
    except BaseException:
        stop.set()
        done.wait(PATIENCE)
        raise
    finally:
        if done.is_set():
            highs.cbSimplexInterrupt -= asked


# The rows of one value in the linear program: a price for each order that a reader wants and nobody may give.


MOST_FLOWS = 1 << 10  # columns of one value up to which its program is a flow

FREE, EASY, HARD = 0, 1, 2  # kinds of columns by their cost: nothing, the value's weight, or more

Place = tuple[int, int]
"""A column in a value's rows: what it counts from (0 its own, 1 the producer's, 2 on the readers'), and where."""


class Rows(NamedTuple):
    """The rows of one value, which all values have whose ports give and want the same labels.

    `y[order] − Σ x[reader] + Σ x[producer] ≥ lower`, a row for each order and reader that may be unlike the producer.
    Where pairs of orders are hard, `y` is a flow from the orders that are given to those that are wanted.
    """

    # (order, position of the reader) of each row whose dual is a price; None of any other
    keys: tuple[tuple[int, int] | None, ...]
    columns: tuple[int, ...]  # what each of the value's own columns costs
    lengths: NDArray[np.int64]  # entries of each row
    bases: NDArray[np.int64]  # what each entry's column counts from
    offsets: NDArray[np.int64]  # each entry's column, from there
    entries: NDArray[np.float64]  # the coefficients
    lower: NDArray[np.float64]  # of each row

    @staticmethod
    def of(value: Value) -> "Rows":
        """The rows of a value; a port of one label stands for a node outside the component, whose label is known."""
        rows = _Writing(value)
        if not value.hard:
            rows.alike()
        elif rows.flows <= MOST_FLOWS and (len(rows.reader_labels) == 1 or rows.wishes <= MOST_WISHES):
            rows.flow()
        else:
            rows.hard_or_easy()
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
        self.reader_labels = [port.labels_by_order() for port in value.readers]
        self.producer_labels = value.producer.labels_by_order()
        self.keys: list[tuple[int, int] | None] = []
        self.terms: list[dict[Place, float]] = []
        self.lower: list[float] = []
        self.columns: list[int] = []

    @property
    def flows(self) -> int:
        """Count the columns of `flow`."""
        pair_count = len(self.producer_labels) * len(set().union(*self.reader_labels))
        return (
            pair_count
            if len(self.reader_labels) == 1
            else pair_count + len(self.producer_labels) * sum(map(len, self.reader_labels))
        )

    @property
    def wishes(self) -> int:
        """Combinations of an order that is given and those that readers want, or none."""
        return len(self.producer_labels) * prod(len(labels) + 1 for labels in self.reader_labels)

    def alike(self) -> None:
        """A column for each order; a row for each reader that may want it."""
        for order in sorted(set().union(*self.reader_labels)):
            gives = self.producer_labels.get(order, [])
            if len(gives) == len(self.value.producer.orders):
                continue
            own_column = self._column(EASY)
            for reader in self._wanting(order):
                self._row((order, reader), [(own_column, 1.0)], reader=reader, wants=order, gives=gives)

    def hard_or_easy(self) -> None:
        """A column more for each order that is hard to make of some: no more of the other than what is given allows."""
        for order in sorted(set().union(*self.reader_labels)):
            gives = self.producer_labels.get(order, [])
            easy, hard = self._column(EASY), self._column(HARD)
            for reader in self._wanting(order):
                self._row((order, reader), [(easy, 1.0), (hard, 1.0)], reader=reader, wants=order, gives=gives)
            self._row(None, [(easy, -1.0)], gives=self._making(order))

    def flow(self) -> None:
        """A column for each pair of orders, and for what each reader takes of it: of what is given, one order."""
        every = sorted(set().union(*self.reader_labels))
        made_columns = {
            (producer_order, order): self._column_of(producer_order, order)
            for producer_order in sorted(self.producer_labels)
            for order in every
        }
        for reader, reader_orders in enumerate(self.reader_labels):
            taken_columns = (
                made_columns
                if len(self.reader_labels) == 1
                else {pair: self._column(FREE) for pair in made_columns if pair[1] in reader_orders}
            )
            for order in reader_orders:
                own = [(taken_columns[producer_order, order], 1.0) for producer_order in self.producer_labels]
                self._row((order, reader), own, reader=reader, wants=order)
            for producer_order, labels in self.producer_labels.items():
                self._row(None, [(taken_columns[producer_order, order], -1.0) for order in reader_orders], gives=labels)
            for pair in taken_columns if taken_columns is not made_columns else ():
                if pair[0] != pair[1]:
                    self._row(None, [(made_columns[pair], 1.0), (taken_columns[pair], -1.0)])

    def _column_of(self, producer_order: int, order: int) -> Place:
        return self._column(
            FREE if producer_order == order else HARD if (producer_order, order) in self.value.hard else EASY
        )

    def _column(self, kind: int) -> Place:
        self.columns.append(kind)
        return 0, len(self.columns) - 1

    def _wanting(self, order: int) -> list[int]:
        return [reader for reader, labels in enumerate(self.reader_labels) if order in labels]

    def _making(self, order: int) -> list[int]:
        """Return the labels under which another order is given, of which this one is not hard to make."""
        others = (
            producer_order
            for producer_order in self.producer_labels
            if producer_order != order and (producer_order, order) not in self.value.hard
        )
        return [label for producer_order in others for label in self.producer_labels[producer_order]]

    def _row(
        self,
        key: tuple[int, int] | None,  # of the price that the row's dual is
        own: Iterable[tuple[Place, float]],  # own columns, and what each counts
        *,
        reader: int = 0,  # position of the reader
        wants: int | None = None,  # the order that it wants
        gives: Sequence[int] = (),  # labels of the producer
    ) -> None:
        """A row: own columns, less the labels under which a reader wants an order, and those of the producer."""
        row, constant = dict(own), 0.0
        ends = [(self.value.producer, gives, 1.0)]
        if wants is not None:
            ends.insert(0, (self.value.readers[reader], self.reader_labels[reader][wants], -1.0))
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


_GRID = 1 << 20  # prices are rounded to multiples of gcd/_GRID

_SCALED = -20  # the power of two with which HiGHS multiplies costs where it fails over them

_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 0,
    "solver": "simplex",
    # Neither pays: a bound is all that a branch changes, and perturbed costs double the iterations on these programs.
    "presolve": "off",
    "dual_simplex_cost_perturbation_multiplier": 0.0,
}


def _silent(highspy: Any) -> Any:
    """A new HiGHS that prints nothing: 1.16 greets when its constructor sets the callbacks, whatever is set later."""

    def enable(highs: Any) -> None:
        highs.setOptionValue("output_flag", False)
        highspy.Highs.enableCallbacks(highs)

    return type("Highs", (highspy.Highs,), {"enableCallbacks": enable})()


class _Group(NamedTuple):
    """Values with the same rows: row `first + i * len(rows.keys) + k` is row k of the i-th of them."""

    rows: Rows
    values: list[int]
    first: int


class LinearProgram:
    """The linear program of a component, built once and solved with labels fixed along a branch."""

    def __init__(
        self,
        problem: Problem,  # the whole problem
        nodes: Sequence[int],  # the nodes of the component
        values: Sequence[int],  # the values that touch them
    ) -> None:
        self.problem, self.nodes, self.values = problem, nodes, values
        costs = [problem.costs[node] for node in nodes]
        self.scale = (
            gcd(
                *(cost for labels in costs for cost in labels),
                *(weight for index in values for weight in (problem.values[index].weight, problem.values[index].more)),
            )
            or 1
        )
        ends = np.cumsum([0, *map(len, costs)])
        self.first = dict(zip(nodes, ends.tolist(), strict=False))  # node -> the column of its label 0
        self.labels = int(ends[-1])
        self.groups = self._groups()
        self.columns = self.labels + sum(len(group.values) * len(group.rows.columns) for group in self.groups)
        self.rows = sum(len(group.values) * len(group.rows.keys) for group in self.groups)
        self.allowed: dict[int, frozenset[int]] = {}
        self.solver: Any = None

    def _groups(self) -> list[_Group]:
        alike: dict[object, list[int]] = {}
        for index in self.values:
            value = self.problem.values[index]
            if value.weight or value.hard:
                ports = (value.producer, *value.readers)
                names = {port.node: None for port in ports}
                twins = () if len(names) == len(ports) else tuple(list(names).index(port.node) for port in ports)
                alike.setdefault((twins, value.hard, *(port.orders for port in ports)), []).append(index)
        groups: list[_Group] = []
        first = 0
        for members in alike.values():
            rows = Rows.of(self.problem.values[members[0]])
            if rows.keys:
                groups.append(_Group(rows, members, first))
                first += len(members) * len(rows.keys)
        return groups

    def relax(
        self,
        allowed: dict[int, frozenset[int]],  # node -> labels
        # those of the search, whose steps are counted; None comes back where they are reached. The time of a small
        # program is not limited.
        limits: Limits | None = None,
    ) -> tuple[float, dict[int, list[float]], Prices] | None:
        """The relaxation with only `allowed` labels: (objective / scale, node -> label weights, exact prices)."""
        import highspy

        if self.solver is None:
            self.solver = self._build(highspy)
        highs = self.solver
        for node, labels in allowed.items():
            if labels != self.allowed.get(node, labels) or len(labels) != len(self.problem.costs[node]):
                for label in range(len(self.problem.costs[node])):
                    highs.changeColBounds(self.first[node] + label, 0.0, 1.0 if label in labels else 0.0)
        self.allowed = allowed
        if limits is not None:
            highs.setOptionValue("simplex_iteration_limit", max(0, limits.steps))
            if self.columns > SMALL and limits.deadline < inf:
                highs.setOptionValue("time_limit", highs.getRunTime() + max(0.0, limits.seconds))
        run_solver(highs, self.columns)
        if limits is not None:
            limits.steps -= max(0, highs.getInfo().simplex_iteration_count)
        if highs.getModelStatus() == highspy.HighsModelStatus.kSolveError:  # costs far from each other, as ties are
            highs.setOptionValue("user_objective_scale", _SCALED)
            highs.clearSolver()
            run_solver(highs, self.columns)
        if highs.getModelStatus() in (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kIterationLimit):
            return None
        solution = highs.getSolution()
        weights = list(solution.col_value)
        duals = np.asarray(solution.row_dual)[: self.rows]
        shares = {node: weights[first : first + len(self.problem.costs[node])] for node, first in self.first.items()}
        return highs.getInfo().objective_function_value, shares, self._prices(duals)

    def _prices(self, duals: NDArray[np.float64]) -> Prices:
        spent: dict[tuple[int, int], Fraction | int] = {}
        prices: Prices = {}
        for group in self.groups:
            keys = group.rows.keys
            paid = duals[group.first : group.first + len(group.values) * len(keys)]
            for place in np.flatnonzero(paid > 0).tolist():
                steps = round(float(paid[place]) * _GRID)  # an integer of any size: prices in bytes exceed 64 bits
                if steps <= 0:
                    continue
                position, row = divmod(place, len(keys))
                index, key = group.values[position], keys[row]
                if key is None:
                    continue
                order, reader = key
                whole, rest = divmod(steps * self.scale, _GRID)
                known = spent.get((index, order), 0)
                price = Fraction(steps * self.scale, _GRID) if rest else whole
                if not self.problem.values[index].hard:
                    price = min(price, self.problem.values[index].weight - known)
                if price > 0:
                    prices[index, order, reader] = price
                    spent[index, order] = known + price
        return prices

    def _build(self, highspy: Any) -> Any:
        """Pass the program to HiGHS: the rows of all values, then one convexity row a node."""
        costs = [cost / self.scale for node in self.nodes for cost in self.problem.costs[node]]
        column = self.labels
        lengths: list[NDArray[np.int64]] = []
        indices: list[NDArray[np.int64]] = []
        entries: list[NDArray[np.float64]] = []
        lower: list[NDArray[np.float64]] = []
        for group in self.groups:
            rows, values = group.rows, [self.problem.values[index] for index in group.values]
            count = len(values)
            own = column + len(rows.columns) * np.arange(count)
            column += len(rows.columns) * count
            ports = [(value.producer, *value.readers) for value in values]
            bases = np.array(
                [[0, *(self.first.get(port.node, 0) for port in value_ports)] for value_ports in ports], np.int64
            )
            bases[:, 0] = own
            indices.append((bases[:, rows.bases] + rows.offsets).ravel())
            entries.append(np.tile(rows.entries, count))
            lengths.append(np.tile(rows.lengths, count))
            lower.append(np.tile(rows.lower, count))
            paid = [(0, value.weight, value.weight + value.more) for value in values]
            costs += [each[kind] / self.scale for each in paid for kind in rows.columns]
        convex = [len(self.problem.costs[node]) for node in self.nodes]
        lengths.append(np.array(convex, np.int64))
        indices.append(np.arange(self.labels))
        entries.append(np.ones(self.labels))
        lower.append(np.ones(len(convex)))
        upper = np.full(self.rows + len(convex), highspy.kHighsInf)
        upper[self.rows :] = 1.0
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = self.columns, len(upper)
        program.col_cost_ = np.array(costs, np.float64)
        program.col_lower_, program.col_upper_ = np.zeros(self.columns), np.full(self.columns, highspy.kHighsInf)
        program.row_lower_, program.row_upper_ = np.concatenate(lower), upper
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.num_col_, program.a_matrix_.num_row_ = self.columns, len(upper)
        program.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int32)
        program.a_matrix_.index_ = np.concatenate(indices).astype(np.int32)
        program.a_matrix_.value_ = np.concatenate(entries)
        highs = _silent(highspy)
        for option, value in _OPTIONS.items():
            highs.setOptionValue(option, value)
        highs.passModel(program)
        return highs
