"""More than two labels: a linear program, and branching where it is not tight.

    min  Σ w_t·y[t,o] + Σ cost[v][l]·x[v,l]     y[t,o] ≥ Σ_{l gives o} x[c,l] − Σ_{l gives o} x[p,l],   Σ_l x[v,l] = 1

Each relaxation's dual is rounded to exact prices (the certificate of a leaf); an integral solution is re-evaluated in
integers. HiGHS works in floating point, so neither is believed: the checker decides what is proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.solve.certificate import MOST_DEPTH, Branch, Leaf, Price
from relayout.solve.interruptible import SMALL, run
from relayout.solve.limits import Limits
from relayout.solve.problem import Port, Problem, moved

_GRID = 1 << 20
"""Prices are rounded to multiples of gcd/_GRID."""

_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 0,
    "solver": "simplex",
    # Neither pays: a bound is all that a branch changes, and perturbed costs double the iterations on these programs.
    "presolve": "off",
    "dual_simplex_cost_perturbation_multiplier": 0.0,
}

Prices = dict[Price, Fraction | int]

NOTHING = Leaf({})
"""What is known before the first relaxation."""


@dataclass
class _Terms:
    """One row of the program: a reader that wants an order which the producer may not give."""

    price: Price
    column: int
    wants: list[int]
    gives: list[int]


def _labels(port: Port) -> dict[int, list[int]]:
    """Order -> the labels of the port's node under which it is stored so."""
    found: dict[int, list[int]] = {}
    for label, order in enumerate(port.orders):
        found.setdefault(order, []).append(label)
    return found


@dataclass
class Program:
    """The linear program of a component, built once and solved with labels fixed along a branch."""

    problem: Problem
    nodes: Sequence[int]
    values: Sequence[int]
    columns: dict[tuple[int, int], int] = field(default_factory=dict)
    cost: list[float] = field(default_factory=list)
    rows: list[_Terms] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    scale: int = 1
    solver: Any = None

    def __post_init__(self) -> None:
        costs = [cost for node in self.nodes for cost in self.problem.costs[node]]
        self.scale = gcd(*costs, *(self.problem.values[index].weight for index in self.values)) or 1
        for node in self.nodes:
            for label, cost in enumerate(self.problem.costs[node]):
                self.columns[node, label] = self._column(cost)
        for index in self.values:
            self._add_value(index)

    def _column(self, cost: int) -> int:
        self.cost.append(cost / self.scale)
        return len(self.cost) - 1

    def _add_value(self, index: int) -> None:
        value = self.problem.values[index]
        if not value.weight:
            return
        wanted = [_labels(port) for port in value.readers]
        given = _labels(value.producer)
        for order in sorted(set().union(*wanted)):
            gives = given.get(order, [])
            if len(gives) == len(value.producer.orders):
                continue
            column = self._column(value.weight)
            for reader, wants in enumerate(wanted):
                if order in wants:
                    self.rows.append(_Terms((index, order, reader), column, wants[order], gives))

    def relax(
        self, allowed: dict[int, frozenset[int]], seconds: float | None = None
    ) -> tuple[float, dict[int, list[float]], Prices] | None:
        """The relaxation with only `allowed` labels: (objective / scale, node -> label weights, exact prices).

        Args:
            allowed: node -> labels.
            seconds: how long a program that is not small may take; None comes back if that is too short.
        """
        import highspy

        if self.solver is None:
            self.solver = self._build(highspy)
        highs = self.solver
        for (node, label), column in self.columns.items():
            highs.changeColBounds(column, 0.0, 1.0 if label in allowed[node] else 0.0)
        if seconds is not None and len(self.cost) > SMALL:
            highs.setOptionValue("time_limit", highs.getRunTime() + max(0.0, seconds))
        run(highs, len(self.cost))
        if highs.getModelStatus() == highspy.HighsModelStatus.kTimeLimit:
            return None
        solution = highs.getSolution()
        weights = list(solution.col_value)
        duals = np.asarray(solution.row_dual)[: len(self.rows)]
        shares = {
            node: [weights[self.columns[node, label]] for label in range(len(self.problem.costs[node]))]
            for node in self.nodes
        }
        return highs.getInfo().objective_function_value, shares, self._prices(duals)

    def _prices(self, duals: NDArray[np.float64]) -> Prices:
        spent: dict[tuple[int, int], Fraction | int] = {}
        prices: Prices = {}
        for row, dual in zip(self.rows, duals.tolist(), strict=True):
            if (steps := round(dual * _GRID)) <= 0:  # an integer of any size: prices in bytes exceed 64 bits
                continue
            whole, rest = divmod(steps * self.scale, _GRID)
            index, order, _ = row.price
            known = spent.get((index, order), 0)
            price = min(
                Fraction(steps * self.scale, _GRID) if rest else whole, self.problem.values[index].weight - known
            )
            if price > 0:
                prices[row.price] = price
                spent[index, order] = known + price
        return prices

    def _build(self, highspy: Any) -> Any:
        """Pass the program to HiGHS: rows `y − Σ x_c + Σ x_p ≥ 0`, then one convexity row a node."""
        starts: list[int] = [0]
        indices: list[int] = []
        entries: list[float] = []
        for row in self.rows:
            reader = self.problem.values[row.price[0]].readers[row.price[2]].node
            producer = self.problem.values[row.price[0]].producer.node
            coefficients = {row.column: 1.0}
            offset = self._accumulate(coefficients, reader, row.wants, -1.0)
            offset += self._accumulate(coefficients, producer, row.gives, 1.0)
            row_entries = {column: entry for column, entry in coefficients.items() if entry}
            indices += row_entries.keys()
            entries += row_entries.values()
            starts.append(len(indices))
            self.lower.append(-offset)
        for node in self.nodes:
            labels = range(len(self.problem.costs[node]))
            indices += [self.columns[node, label] for label in labels]
            entries += [1.0] * len(labels)
            starts.append(len(indices))
        program = highspy.HighsLp()
        count, rows = len(self.cost), len(self.rows) + len(self.nodes)
        program.num_col_, program.num_row_ = count, rows
        program.col_cost_ = np.array(self.cost)
        program.col_lower_, program.col_upper_ = np.zeros(count), np.full(count, highspy.kHighsInf)
        program.row_lower_ = np.array(self.lower + [1.0] * len(self.nodes))
        program.row_upper_ = np.array([highspy.kHighsInf] * len(self.rows) + [1.0] * len(self.nodes))
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.num_col_, program.a_matrix_.num_row_ = count, rows
        program.a_matrix_.start_ = np.array(starts, dtype=np.int32)
        program.a_matrix_.index_ = np.array(indices, dtype=np.int32)
        program.a_matrix_.value_ = np.array(entries, dtype=np.float64)
        highs = highspy.Highs()
        for option, value in _OPTIONS.items():
            highs.setOptionValue(option, value)
        highs.passModel(program)
        return highs

    def _accumulate(self, coefficients: dict[int, float], node: int, labels: list[int], sign: float) -> float:
        """Add `sign · Σ_l x[node, l]`; a node outside the component is a constant, which is returned."""
        if (node, 0) not in self.columns:
            return sign if labels else 0.0
        for label in labels:
            column = self.columns[node, label]
            coefficients[column] = coefficients.get(column, 0.0) + sign
        return 0.0


def solve_many(
    problem: Problem, nodes: Sequence[int], values: Sequence[int], start: Sequence[int], limits: Limits
) -> tuple[dict[int, int], Branch | Leaf, bool]:
    """The best labels of a component by branch and bound over linear relaxations.

    Args:
        problem: the whole problem.
        nodes: the nodes to label; all others have one label.
        values: the values that touch them.
        start: a choice for all nodes, the first incumbent.
        limits: where they are reached, the best found is returned.

    Returns:
        (node -> label, certificate, whether the search was finished).
    """
    search = _Search(problem, Program(problem, nodes, values), list(start), limits)
    certificate = search.explore({node: frozenset(range(len(problem.costs[node]))) for node in nodes})
    return {node: search.best[node] for node in nodes}, certificate, search.finished


@dataclass
class _Search:
    """Depth first, within limits: of time where there is one, of prices, and of depth.

    Where a limit is reached, the certificate has the prices of the last relaxation above: they hold for what was not
    looked at, too.
    """

    problem: Problem
    program: Program
    best: list[int]
    limits: Limits
    finished: bool = True

    def __post_init__(self) -> None:
        self.least = self._cost(self.best)

    def _cost(self, choice: Sequence[int]) -> int:
        """The part of the cost that the component decides."""
        return sum(self.problem.costs[node][choice[node]] for node in self.program.nodes) + sum(
            self.problem.values[i].weight * len(moved(self.problem.values[i], choice)) for i in self.program.values
        )

    def explore(self, allowed: dict[int, frozenset[int]], above: Leaf = NOTHING, depth: int = 0) -> Branch | Leaf:
        """The proof of what is still allowed, and better labels on the way.

        Args:
            allowed: node -> labels.
            above: the prices of the relaxation that this one narrows.
            depth: how many branches are above.
        """
        spent = depth and self.limits.prices <= 0
        relaxed = None if spent else self.program.relax(allowed, self.limits.seconds)
        if relaxed is None:
            self.finished = False
            return above
        objective, shares, prices = relaxed
        self.limits.prices -= len(prices) + 1 if depth else 0
        rounded = list(self.best)
        for node, weights in shares.items():
            rounded[node] = max(sorted(allowed[node]), key=lambda label: (round(weights[label], 6), -label))
        if (cost := self._cost(rounded)) < self.least:
            self.best, self.least = rounded, cost
        leaf = Leaf(prices)
        scale = self.program.scale
        if ceil(objective - 1e-6) * scale >= self.least:
            return leaf
        open_nodes = [node for node in shares if len(allowed[node]) > 1]
        if not open_nodes:
            return leaf
        if self.limits.reached or depth == MOST_DEPTH:
            self.finished = False
            return leaf
        node = max(open_nodes, key=lambda node: (round(1 - max(shares[node]), 6), -node))
        kept = self._kept(node, allowed[node], shares[node], rounded[node])
        parts = (kept, allowed[node] - kept)
        children = tuple(self.explore({**allowed, node: part}, leaf, depth + 1) for part in parts)
        return Branch(node, parts, children)

    def _kept(self, node: int, allowed: frozenset[int], shares: Sequence[float], best: int) -> frozenset[int]:
        """The labels that are tried first: the one that has most of a node, or, where none has half of it, a group.

        Of hundreds of labels that share a node, one more or less changes nothing. A group gives or wants one order of
        one value, or is every other label; the one nearest to half of the node is taken.
        """
        if shares[best] >= 1 / 2 or len(allowed) == 2:
            return frozenset({best})
        held = {label: shares[label] for label in sorted(allowed)}
        groups: dict[frozenset[int], float] = {frozenset({best}): shares[best]}
        for index in self.program.values:
            value = self.problem.values[index]
            for port in (value.producer, *value.readers):
                by_order: dict[int, list[int]] = {}
                for label in held if port.node == node else ():
                    by_order.setdefault(port.orders[label], []).append(label)
                for labels in by_order.values():
                    groups.setdefault(frozenset(labels), sum(held[label] for label in labels))
        groups.pop(allowed, None)
        half = sorted(held, key=lambda label: (-round(held[label], 6), label))[
            ::2
        ]  # half of the labels and their shares
        groups.setdefault(frozenset(half), sum(held[label] for label in half))
        return min(groups, key=lambda group: (round(abs(groups[group] - 1 / 2), 6), sorted(group)))
