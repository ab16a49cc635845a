"""The certificate of a bound, and its checker: weak duality, in exact rationals, without a solver.

Give each (value, order, reader) a price z ≥ 0, such that the prices of one (value, order) sum to at most the value's
weight. A reader that wants the order then pays its price to whoever asked for it, a producer that gives it gets the
prices of all its readers. Where pairs of orders differ in what they cost, prices may be any, and a producer gets the
most by which those that its readers may pay exceed what the orders cost that they want (`given_back`). For every choice
of labels the total that nodes pay is at most the true cost, so

    bound = Σ_v min_l ( cost[v][l] + Σ prices it pays under l − Σ prices it gets under l )

is below the cost of every choice. A maximum flow is such a set of prices (the flow into each reader), and so is the
dual of the linear program. Where branching was needed, the certificate is a tree: at each branch a node's labels are
dealt out to the children, and the bound is the least of the leaves'. Parts of the problem that share no value and no
node with a choice have a tree each, and what the trees gain adds up: together they are as long as their sum.

Where no prices are tight, a part may state an order of its nodes instead. The checker then computes the least cost of
the part itself, by eliminating the nodes in that order (`elimination`).
"""

from collections.abc import Mapping, Sequence
from itertools import compress, product
from math import ceil, prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from relayout.solve.elimination import has_room, least_cost
from relayout.solve.problem import Problem, Value

if TYPE_CHECKING:
    from fractions import Fraction

Price = tuple[int, int, int]  # (value, order, position among the value's readers)

Prices: TypeAlias = "dict[Price, int | Fraction]"


MOST_WISHES = 1 << 14
"""Combinations of an order that is given, and those that the readers of a value pay for, up to which all are looked at.
"""

MOST_DEPTH = 100  # branches on the way to one leaf: proofs of networks have a few


class Leaf(NamedTuple):
    """Prices that prove a bound for the labels still allowed here."""

    prices: "Mapping[Price, Fraction | int]"


class Branch(NamedTuple):
    """A node's labels dealt out: `parts[i]` are the labels allowed in `children[i]`."""

    node: int
    parts: tuple[frozenset[int], ...]
    children: "tuple[Branch | Leaf, ...]"


class Elimination(NamedTuple):
    """A component whose least cost the checker computes."""

    order: tuple[int, ...]  # all nodes of the component, as they are eliminated, with the own nodes of values
    # those of the linear relaxation, which prove less. They say which demands meet where.
    prices: "Mapping[Price, Fraction | int]"

    @property
    def nodes(self) -> list[int]:
        """The nodes of the problem in the order."""
        return [node for node in self.order if node >= 0]


Part = Branch | Leaf | Elimination  # the proof of a part of a problem


class JoinedProofs(NamedTuple):
    """Proofs of parts of the problem that share no value, and no node that has a choice."""

    parts: tuple[Part, ...]


Certificate = Branch | Leaf | Elimination | JoinedProofs


class CertificateError(Exception):
    """The certificate does not prove a bound for this problem."""


def bound(problem: Problem, certificate: Certificate) -> int:
    """Return the bound that the certificate proves: no choice of labels costs less.

    Costs are integers, so a rational bound is rounded up.

    Raises:
        CertificateError: a price is negative, unknown or too high, a branch forgets a label, or parts are not apart.
    """
    return ceil(sum(min(labels) for labels in problem.costs) + gain(problem, certificate))


def gain(problem: Problem, certificate: Certificate) -> "Fraction | int":
    """Return how far a certificate lifts the bound above the sum of the cheapest labels.

    Raises:
        CertificateError: as for `bound`.
    """
    parts = certificate.parts if isinstance(certificate, JoinedProofs) else (certificate,)
    _refuse_shared(problem, parts)
    eliminated = [part for part in parts if isinstance(part, Elimination)]
    values = _values_of(problem, eliminated)
    gains = [_least_gain(problem, part, own) for part, own in zip(eliminated, values, strict=True)]
    return sum(gains) + sum(_gain(problem, part, {}) for part in parts if not isinstance(part, Elimination))


def _least_gain(problem: Problem, part: Elimination, values: Sequence[int]) -> int:
    """Return how far the least cost of a component is above the sum of its cheapest labels."""
    if not has_room(problem, part.order, values):
        raise CertificateError("the tables of an elimination are too large, or its costs")
    return least_cost(problem, part.order, values)[0] - sum(min(problem.costs[node]) for node in part.nodes)


def _values_of(problem: Problem, parts: Sequence[Elimination]) -> list[list[int]]:
    """Return the values that touch each part: all nodes with a choice at their ends are in it.

    Raises:
        CertificateError: a node is unknown or comes twice, or a value has a node with a choice outside of its part.
    """
    part_of = {node: number for number, part in enumerate(parts) for node in part.nodes}
    if len(part_of) < sum(len(part.nodes) for part in parts):
        raise CertificateError("an elimination names a node twice")
    if any(node >= len(problem.costs) for node in part_of):
        raise CertificateError("an elimination names a node that there is not")
    values: list[list[int]] = [[] for _ in parts]
    for index, value in enumerate(problem.values) if parts else ():
        nodes = {end.node for end in (value.producer, *value.readers)}
        touched = {part_of.get(node, -1) for node in nodes if node in part_of or len(problem.costs[node]) > 1} - {-1}
        if not touched:
            continue
        if len(touched) > 1 or any(len(problem.costs[node]) > 1 and node not in part_of for node in nodes):
            raise CertificateError(f"value {index} reaches beyond an elimination")
        values[touched.pop()].append(index)
    return values


def _gain(
    problem: Problem,
    tree: Branch | Leaf,  # a certificate, or what is left of one
    # node -> the labels that the branches above leave it; all others have all of theirs
    allowed: Mapping[int, frozenset[int]],
) -> "Fraction | int":
    """Return the amount by which the tree lifts the bound above the sum of the cheapest labels."""
    if isinstance(tree, Leaf):
        return _leaf_gain(problem, tree, allowed)
    node = tree.node
    if not 0 <= node < len(problem.costs):
        raise CertificateError(f"there is no node {node}")
    labels = allowed.get(node, frozenset(range(len(problem.costs[node]))))
    if frozenset().union(*tree.parts) != labels or len(tree.parts) != len(tree.children) or not all(tree.parts):
        raise CertificateError(f"the branch at node {node} does not deal out all of its labels")
    dealt = zip(tree.parts, tree.children, strict=True)
    return min([_gain(problem, child, {**allowed, node: part}) for part, child in dealt])


def _leaf_gain(problem: Problem, leaf: Leaf, allowed: Mapping[int, frozenset[int]]) -> "Fraction | int":
    reduced: dict[int, list[Fraction | int]] = {node: list(problem.costs[node]) for node in allowed}
    spent: dict[tuple[int, int], Fraction | int] = {}
    hard: dict[int, dict[int, dict[int, Fraction | int]]] = {}
    labels_by_order: dict[tuple[int, int], dict[int, list[int]]] = {}
    for (index, order, reader), price in leaf.prices.items():
        if price < 0 or not 0 <= index < len(problem.values):
            raise CertificateError(f"price {price} of value {index} is not one")
        value = problem.values[index]
        if not 0 <= reader < len(value.readers):
            raise CertificateError(f"value {index} has no reader {reader}")
        spent[index, order] = whole = spent.get((index, order), 0) + price
        if value.hard:
            if order in value.readers[reader].orders:
                hard.setdefault(index, {}).setdefault(reader, {})[order] = price
        elif whole > value.weight:
            raise CertificateError(f"value {index}, order {order}: prices exceed the weight {value.weight}")
        ends = ((reader, value.readers[reader], price), (-1, value.producer, 0 if value.hard else -price))
        for position, port, pays in ends:
            if not pays:
                continue
            labels = reduced.get(port.node)
            if labels is None:
                labels = reduced[port.node] = list(problem.costs[port.node])
            if (index, position) not in labels_by_order:
                labels_by_order[index, position] = port.labels_by_order()
            for label in labels_by_order[index, position].get(order, ()):
                labels[label] += pays
    for index, paid in hard.items():
        producer = problem.values[index].producer
        back = refunds(problem.values[index], paid)
        labels = reduced.setdefault(producer.node, list(problem.costs[producer.node]))
        for label, order_of_label in enumerate(producer.orders):
            labels[label] -= back[order_of_label]
    gain: Fraction | int = 0
    for node, labels in reduced.items():
        allowed_costs = [labels[label] for label in allowed[node]] if node in allowed else labels
        gain += min(allowed_costs) - min(problem.costs[node])
    return gain


def refunds(
    value: Value,
    paid: "Mapping[int, Mapping[int, Fraction | int]]",  # position of the reader -> order -> price
) -> "dict[int, Fraction | int]":
    """Order that the producer of a value may give -> what it gets of its readers' prices, where pairs are hard.

    As much as they can pay at most beyond what the orders cost that they want. Each wants one order; of many readers
    with many orders together, at most all of them.
    """
    orders = set(value.producer.orders)
    if len(paid) == 1:  # one order is wanted: this is asked thousands of times
        (prices,) = paid.values()
        return {
            producer_order: max([0, *(price - value.price(producer_order, order) for order, price in prices.items())])
            for producer_order in orders
        }
    if len(orders) * prod(len(prices) + 1 for prices in paid.values()) <= MOST_WISHES:
        return {producer_order: _most_beyond(value, producer_order, list(paid.values())) for producer_order in orders}
    whole: dict[int, Fraction | int] = {}
    for prices in paid.values():
        for order, price in prices.items():
            whole[order] = whole.get(order, 0) + price
    return {
        producer_order: sum(max(0, price - value.price(producer_order, order)) for order, price in whole.items())
        for producer_order in orders
    }


def _most_beyond(value: Value, producer_order: int, paid: "Sequence[Mapping[int, Fraction | int]]") -> "Fraction | int":
    """Return the most that readers pay beyond what it costs to make the orders that they want of one that is given.

    Either each wish of each reader is looked at, or each set of orders that are made, whichever are fewer: of a set
    each reader wants the order that it pays most for.
    """
    costs = {order: value.price(producer_order, order) for prices in paid for order in prices}
    costly_orders = [order for order, cost in costs.items() if cost]
    free_orders = costs.keys() - costly_orders
    most: Fraction | int = 0
    if 1 << len(costly_orders) <= prod(len(prices) + 1 for prices in paid):
        for choice in product((False, True), repeat=len(costly_orders)):
            orders = free_orders.union(compress(costly_orders, choice))
            sums = (max((price for order, price in prices.items() if order in orders), default=0) for prices in paid)
            most = max(most, sum(sums) - sum(costs[order] for order in orders))
        return most
    for wishes in product(*([(None, 0), *prices.items()] for prices in paid)):
        wished_orders = {order for order, _ in wishes if order is not None}
        most = max(most, sum(price for _, price in wishes) - sum(costs[order] for order in wished_orders))
    return most


def _refuse_shared(problem: Problem, parts: Sequence[Part]) -> None:
    """CertificateError unless each value, and each node with a choice, is in one part at most."""
    values: dict[int, int] = {}
    nodes: dict[int, int] = {}
    for number, part in enumerate(parts if len(parts) > 1 else ()):
        stack: list[Part] = [part]
        while stack:
            tree = stack.pop()
            if isinstance(tree, Elimination):
                if any(nodes.setdefault(node, number) != number for node in tree.nodes):
                    raise CertificateError("two parts share a node of an elimination")
                continue
            if isinstance(tree, Branch):
                stack += tree.children
                if nodes.setdefault(tree.node, number) != number:
                    raise CertificateError(f"two parts share node {tree.node}")
                continue
            for index, _, _ in tree.prices:
                if values.setdefault(index, number) != number:
                    raise CertificateError(f"two parts share value {index}")
    for index, number in values.items():
        for port in (problem.values[index].producer, *problem.values[index].readers):
            if len(problem.costs[port.node]) > 1 and nodes.setdefault(port.node, number) != number:
                raise CertificateError(f"two parts share node {port.node}")
