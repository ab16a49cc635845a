"""More than two labels: a linear program.

    min  Σ w_t·y[t,o] + Σ cost[v][l]·x[v,l]     y[t,o] ≥ Σ_{l gives o} x[c,l] − Σ_{l gives o} x[p,l],   Σ_l x[v,l] = 1

Each relaxation's dual is rounded to exact prices (the certificate of a leaf); an integral solution is re-evaluated in
integers. HiGHS works in floating point, so neither is believed: the checker decides what is proved.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.solve.certificate import Prices
from relayout.solve.interruptible import SMALL, run_solver
from relayout.solve.limits import Limits
from relayout.solve.problem import Problem
from relayout.solve.program_rows import Rows

_GRID = 1 << 20
"""Prices are rounded to multiples of gcd/_GRID."""

_SCALED = -20
"""The power of two with which HiGHS multiplies costs where it fails over them."""

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
    """The linear program of a component, built once and solved with labels fixed along a branch.

    Args:
        problem: the whole problem.
        nodes: the nodes of the component.
        values: the values that touch them.
    """

    def __init__(self, problem: Problem, nodes: Sequence[int], values: Sequence[int]) -> None:
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
        self.first = dict(zip(nodes, ends.tolist(), strict=False))
        """Node -> the column of its label 0."""
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
        found: list[_Group] = []
        first = 0
        for held in alike.values():
            rows = Rows.of(self.problem.values[held[0]])
            if rows.keys:
                found.append(_Group(rows, held, first))
                first += len(held) * len(rows.keys)
        return found

    def relax(
        self, allowed: dict[int, frozenset[int]], limits: Limits | None = None
    ) -> tuple[float, dict[int, list[float]], Prices] | None:
        """The relaxation with only `allowed` labels: (objective / scale, node -> label weights, exact prices).

        Args:
            allowed: node -> labels.
            limits: those of the search, whose steps are counted; None comes back where they are reached. The time of
                a small program is not limited.
        """
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
            bases = np.array([[0, *(self.first.get(port.node, 0) for port in held)] for held in ports], np.int64)
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
