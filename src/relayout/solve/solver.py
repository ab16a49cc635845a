"""Solve a problem component by component, and prove the result.

Nodes with one label are pins: they cut the problem into components that are solved alone. A component of two labels
is a minimum cut, any other a linear or integer program; a large one is contracted first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from relayout.solve.certificate import Branch, Certificate, CertificateError, Leaf, Prices, Together, bound, gain
from relayout.solve.contraction import Contraction
from relayout.solve.limits import Limits
from relayout.solve.mincut import solve_two
from relayout.solve.problem import Port, Problem

LARGE = 5_000
"""A component of more labels is made smaller before it is solved, where that loses nothing but ties."""


@dataclass(frozen=True)
class Solution:
    """A choice of labels, what it costs, and what is known about the least cost.

    Args:
        choice: node -> label.
        cost: the cost of the choice, in integers.
        bound: what the checker proved: no choice costs less.
        certificate: the proof of `bound`.
        finished: False where a limit stopped the search: of time, or of what a component's proof may take.
    """

    choice: tuple[int, ...]
    cost: int
    bound: int
    certificate: Certificate
    finished: bool = True

    @property
    def proved(self) -> bool:
        """Whether the checker proved that no choice costs less."""
        return self.bound == self.cost


def solve(problem: Problem, *, start: Sequence[int] | None = None, time_limit: float | None = None) -> Solution:
    """The choice of least cost, with its certificate checked.

    Args:
        problem: what to solve.
        start: a choice to do no worse than (default: label 0 everywhere).
        time_limit: seconds after which the best choice so far is returned, with its gap (default: some minutes, by the
            size of the problem; `math.inf` for none).
    """
    limits = Limits.of(sum(map(len, problem.costs)), time_limit)
    choice = list(start) if start is not None else [0] * len(problem.costs)
    prices: Prices = _pinned_prices(problem)
    branched: list[Branch] = []
    finished = True
    for nodes, values in components(problem):
        large = sum(len(problem.costs[node]) for node in nodes) > LARGE
        found = _contracted(problem, nodes, values, limits) if large else None
        if found := found or _cut(problem, nodes, values):
            labels, paid = found
            prices.update(paid)
        else:
            from relayout.solve.program import solve_many

            labels, tree, done = solve_many(problem, nodes, values, choice, limits)
            finished &= done
            if isinstance(tree, Leaf):
                prices.update(tree.prices)
            else:
                branched.append(tree)
        for node, label in labels.items():
            choice[node] = label
    certificate: Certificate = Together((Leaf(prices), *branched)) if branched else Leaf(prices)
    try:
        proved = bound(problem, certificate)
    except CertificateError:
        certificate, proved = Leaf({}), bound(problem, Leaf({}))
    return Solution(tuple(choice), problem.evaluate(choice), proved, certificate, finished)


Solved = tuple[dict[int, int], Prices]
"""node -> label, and the prices that prove them."""


def _cut(problem: Problem, nodes: Sequence[int], values: Sequence[int]) -> Solved | None:
    """The best labels of a component by a minimum cut; None where it is none."""
    return solve_two(problem, nodes, values) if all(len(problem.costs[node]) == 2 for node in nodes) else None


def _contracted(problem: Problem, nodes: Sequence[int], values: Sequence[int], limits: Limits) -> Solved | None:
    """The best labels of a component, to the problem's unit: those of what is left when nodes follow others.

    None where a relaxation is not tight, or there is no time.
    """
    from relayout.solve.program import relaxed

    contraction = Contraction(problem, nodes, values)
    left, held, small = list(contraction.costs), list(contraction.ends), contraction.problem()
    found = _cut(small, left, held) or relaxed(small, left, held, limits)
    if found is None:
        return None
    labels, prices = found
    contraction.expand(labels)
    contraction.lift(prices)
    cost = problem.evaluate(defaultdict(int, labels), nodes, values)
    proved = ceil(sum(min(problem.costs[node]) for node in nodes) + gain(problem, Leaf(prices)))
    return (labels, prices) if proved >= cost - cost % problem.unit else None


def components(problem: Problem) -> list[tuple[list[int], list[int]]]:
    """Free nodes that values connect, each with the values that touch them, in the order of their first node."""
    parent = list(range(len(problem.costs)))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    free = [len(labels) > 1 for labels in problem.costs]
    touched: list[int | None] = []
    for value in problem.values:
        nodes = [port.node for port in (value.producer, *value.readers) if free[port.node]]
        for node in nodes[1:]:
            parent[find(node)] = find(nodes[0])
        touched.append(nodes[0] if nodes else None)
    result: dict[int, tuple[list[int], list[int]]] = {}
    for node in range(len(problem.costs)):
        if free[node]:
            result.setdefault(find(node), ([], []))[0].append(node)
    for index, member in enumerate(touched):
        if member is not None:
            result[find(member)][1].append(index)
    return list(result.values())


def _pinned_prices(problem: Problem) -> Prices:
    """Values between pins only: each order that differs is paid in full, by the first reader that wants it."""
    prices: Prices = {}
    for index, value in enumerate(problem.values):
        if any(len(problem.costs[port.node]) > 1 for port in (value.producer, *value.readers)):
            continue
        seen = {_only(value.producer)}
        for reader, port in enumerate(value.readers):
            if _only(port) not in seen:
                seen.add(_only(port))
                prices[index, _only(port), reader] = value.weight
    return prices


def _only(port: Port) -> int:
    return port.orders[0]
