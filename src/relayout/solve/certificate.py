"""The certificate of a bound, and its checker: weak duality, in exact rationals, without a solver.

Give each (value, order, reader) a price z ≥ 0, such that the prices of one (value, order) sum to at most the value's
weight. A reader that wants the order then pays its price to whoever asked for it, a producer that gives it gets the
prices of all its readers. For every choice of labels the total that nodes pay is at most the true cost, so

    bound = Σ_v min_l ( cost[v][l] + Σ prices it pays under l − Σ prices it gets under l )

is below the cost of every choice. A maximum flow is such a set of prices (the flow into each reader), and so is the
dual of the linear program. Where branching was needed, the certificate is a tree: at each branch a node's labels are
dealt out to the children, and the bound is the least of the leaves'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from relayout.solve.problem import Problem

Price = tuple[int, int, int]
"""(value, order, position among the value's readers)"""


@dataclass(frozen=True)
class Leaf:
    """Prices that prove a bound for the labels still allowed here."""

    prices: Mapping[Price, Fraction | int]


@dataclass(frozen=True)
class Branch:
    """A node's labels dealt out: `parts[i]` are the labels allowed in `children[i]`."""

    node: int
    parts: tuple[frozenset[int], ...]
    children: tuple[Branch | Leaf, ...]


Certificate = Branch | Leaf


class CertificateError(Exception):
    """The certificate does not prove a bound for this problem."""


def bound(problem: Problem, certificate: Certificate) -> int:
    """The bound that the certificate proves: no choice of labels costs less.

    Costs are integers, so a rational bound is rounded up.

    Raises:
        CertificateError: a price is negative, unknown or too high, or a branch forgets a label.
    """
    allowed = [frozenset(range(len(labels))) for labels in problem.costs]
    return ceil(_bound(problem, certificate, allowed))


def _bound(problem: Problem, certificate: Certificate, allowed: list[frozenset[int]]) -> Fraction | int:
    if isinstance(certificate, Leaf):
        return _leaf_bound(problem, certificate, allowed)
    node = certificate.node
    if frozenset().union(*certificate.parts) != allowed[node] or len(certificate.parts) != len(certificate.children):
        raise CertificateError(f"the branch at node {node} does not deal out all of its labels")
    bounds = []
    for part, child in zip(certificate.parts, certificate.children, strict=True):
        bounds.append(_bound(problem, child, [*allowed[:node], part, *allowed[node + 1 :]]))
    return min(bounds)


def _leaf_bound(problem: Problem, leaf: Leaf, allowed: list[frozenset[int]]) -> Fraction | int:
    reduced: list[list[Fraction | int]] = [list(labels) for labels in problem.costs]
    spent: dict[tuple[int, int], Fraction | int] = {}
    for (index, order, reader), price in leaf.prices.items():
        if price < 0 or not 0 <= index < len(problem.values):
            raise CertificateError(f"price {price} of value {index} is not one")
        value = problem.values[index]
        spent[index, order] = spent.get((index, order), 0) + price
        if spent[index, order] > value.weight:
            raise CertificateError(f"value {index}, order {order}: prices exceed the weight {value.weight}")
        for port, sign in ((value.readers[reader], 1), (value.producer, -1)):
            for label, given in enumerate(port.orders):
                if given == order:
                    reduced[port.node][label] += sign * price
    return sum((min(labels[i] for i in ok) for labels, ok in zip(reduced, allowed, strict=True)))
