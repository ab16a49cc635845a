"""Branch and bound over linear relaxations, within limits of work and depth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from relayout.light_dataclass import dataclass
from relayout.solve.certificate import MOST_DEPTH, Branch, Leaf, Prices
from relayout.solve.problem import Limits, Problem
from relayout.solve.program import LinearProgram

NOTHING = Leaf({})  # the prices before the first relaxation: none


def solve_many(
    problem: Problem,  # the whole problem
    nodes: Sequence[int],  # the nodes to label; all others have one label
    values: Sequence[int],  # the values that touch them
    start: Sequence[int],  # a choice for all nodes, the first incumbent
    limits: Limits,  # where they are reached, the best found is returned
) -> tuple[dict[int, int], Branch | Leaf, bool]:
    """Return the best labels of a component by branch and bound over linear relaxations.

    Returns:
        (node -> label, certificate, whether the search was finished).
    """
    search = _Search(problem, LinearProgram(problem, nodes, values), list(start), limits)
    certificate = search.explore({node: frozenset(range(len(problem.costs[node]))) for node in nodes})
    return {node: search.best[node] for node in nodes}, certificate, search.finished


def relaxed(
    problem: Problem, nodes: Sequence[int], values: Sequence[int], limits: Limits
) -> tuple[dict[int, int], Prices] | None:
    """Return the labels that have most of each node in one relaxation, and its prices; None where there is no time."""
    relaxation = LinearProgram(problem, nodes, values).relax({}, limits)
    if relaxation is None:
        return None
    _, shares, prices = relaxation
    return {node: _largest(range(len(weights)), weights) for node, weights in shares.items()}, prices


def _largest(labels: Iterable[int], weights: Sequence[float]) -> int:
    """Return the label that has most of a node in a relaxation, the first of several."""
    return max(labels, key=lambda label: (round(weights[label], 6), -label))


@dataclass
class _Search:
    """Depth first, within limits of work and depth, and of time where the user asks for one.

    Where a limit is reached, the certificate has the prices of the last relaxation above: they hold for what was not
    looked at, too.
    """

    problem: Problem
    program: LinearProgram
    best: list[int]
    limits: Limits
    finished: bool = True

    def __post_init__(self) -> None:
        self.least = self._cost(self.best)

    def _cost(self, choice: Sequence[int]) -> int:
        return self.problem.evaluate(choice, self.program.nodes, self.program.values)

    def explore(
        self,
        allowed: dict[int, frozenset[int]],  # node -> labels
        above: Leaf = NOTHING,  # the prices of the relaxation that this one narrows
        depth: int = 0,  # how many branches are above
    ) -> Branch | Leaf:
        """Return the proof of what is still allowed, and better labels on the way."""
        spent = depth and self.limits.prices <= 0
        relaxed = None if spent else self.program.relax(allowed, self.limits)
        if relaxed is None:
            self.finished = False
            return above
        objective, shares, prices = relaxed
        self.limits.prices -= len(prices) + 1 if depth else 0
        rounded = list(self.best)
        for node, weights in shares.items():
            rounded[node] = _largest(sorted(allowed[node]), weights)
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
        first_labels = self._first_labels(node, allowed[node], shares[node], rounded[node])
        parts = (first_labels, allowed[node] - first_labels)
        children = tuple(self.explore({**allowed, node: part}, leaf, depth + 1) for part in parts)
        return Branch(node, parts, children)

    def _first_labels(self, node: int, allowed: frozenset[int], shares: Sequence[float], best: int) -> frozenset[int]:
        """The labels that are tried first: the one that has most of a node, or, where none has half of it, a group.

        Of hundreds of labels that share a node, one more or less changes nothing. A group gives or wants one order of
        one value, or is every other label; the one nearest to half of the node is taken.
        """
        if shares[best] >= 1 / 2 or len(allowed) == 2:
            return frozenset({best})
        share_of_label = {label: shares[label] for label in sorted(allowed)}
        groups: dict[frozenset[int], float] = {frozenset({best}): shares[best]}
        for index in self.program.values:
            value = self.problem.values[index]
            for port in (value.producer, *value.readers):
                by_order: dict[int, list[int]] = {}
                for label in share_of_label if port.node == node else ():
                    by_order.setdefault(port.orders[label], []).append(label)
                for labels in by_order.values():
                    groups.setdefault(frozenset(labels), sum(share_of_label[label] for label in labels))
        groups.pop(allowed, None)
        half = sorted(share_of_label, key=lambda label: (-round(share_of_label[label], 6), label))[
            ::2
        ]  # half of the labels and their shares
        groups.setdefault(frozenset(half), sum(share_of_label[label] for label in half))
        return min(groups, key=lambda group: (round(abs(groups[group] - 1 / 2), 6), sorted(group)))
