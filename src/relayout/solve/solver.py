"""Solve a problem component by component, and prove the result.

Nodes with one label are pins: they cut the problem into components that are solved alone. A component of two labels
is a minimum cut. Any other is contracted: what is left is nothing, a minimum cut, or a linear program. Where that is
not tight, nodes are eliminated one after another, and only where the tables for that are too large there are branches.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from math import ceil
from operator import add
from typing import NamedTuple, TypeAlias

from relayout.solve.certificate import (
    Certificate,
    CertificateError,
    Elimination,
    JoinedProofs,
    Leaf,
    Part,
    Prices,
    bound,
    gain,
)
from relayout.solve.mincut import solve_two
from relayout.solve.problem import Limits, Problem, ValueEnd, transposed_orders

# Ties broken node by node, behind a solution in which weights counted in whole units.


def settle(
    problem: Problem,  # the whole problem
    values: Sequence[int],  # the values that touch the component
    labels: dict[int, int],  # node of the component -> label; never dearer afterwards
) -> None:
    """Gives nodes beside a moved value better labels, one at a time, until no label of one node is better."""
    choice = defaultdict(int, labels)
    beside: dict[int, list[int]] = {node: [] for node in labels}
    waiting: dict[int, None] = {}
    for index in values:
        value = problem.values[index]
        ends_inside = {value.producer.node, *[port.node for port in value.readers]} & beside.keys()
        for node in ends_inside:
            beside[node].append(index)
        if (value.weight or value.hard) and transposed_orders(value, choice):
            waiting.update(dict.fromkeys(sorted(ends_inside)))
    while waiting:
        node = next(iter(waiting))
        del waiting[node]
        chosen = choice[node]
        costs = _by_label(problem, node, beside[node], choice)
        best = min(costs)
        choice[node] = chosen if costs[chosen] == best else costs.index(best)
        if choice[node] != chosen:
            for index in beside[node]:
                value = problem.values[index]
                ends = dict.fromkeys(port.node for port in (value.producer, *value.readers))
                waiting.update({end: None for end in ends if end in beside and end != node})
    labels.update({node: choice[node] for node in labels})


def _by_label(problem: Problem, node: int, values: Sequence[int], choice: Mapping[int, int]) -> list[int]:
    """Return the cost of a node and the values beside it under each of its labels, with all other labels fixed."""
    costs = list(problem.costs[node])
    for index in values:
        value = problem.values[index]
        fixed_orders = {port.orders[choice[port.node]] for port in value.readers if port.node != node}
        own = [port.orders for port in value.readers if port.node == node]
        producer, producer_orders = value.producer.node, value.producer.orders
        # By label: the order that is given, and those that are wanted.
        ends = zip(
            producer_orders if producer == node else repeat(producer_orders[choice[producer]], len(costs)),
            map(fixed_orders.union, zip(*own, strict=True)) if own else repeat(fixed_orders, len(costs)),
            strict=True,
        )
        if value.hard:
            pays = [sum([value.price(order, each) for each in reader_orders]) for order, reader_orders in ends]
        else:
            pays = [value.weight * (len(reader_orders) - (order in reader_orders)) for order, reader_orders in ends]
        costs = list(map(add, costs, pays))
    return costs


LARGE = 400  # a component of more labels is contracted first of all, also where that loses ties
FEW_HARD = 1000  # hard pairs of orders of a component up to which they are in its linear program


class Solution(NamedTuple):
    """A choice of labels, what it costs, and what is known about the least cost."""

    choice: tuple[int, ...]  # node -> label
    cost: int  # the cost of the choice, in integers
    bound: int  # what the checker proved: no choice costs less
    certificate: Certificate  # the proof of `bound`
    finished: bool = True  # False where a limit stopped the search: of time, or of what a component's proof may take

    @property
    def proved(self) -> bool:
        """True if the checker proved that no choice costs less."""
        return self.bound == self.cost


def solve(
    problem: Problem,  # what to solve
    *,
    start: Sequence[int] | None = None,  # a choice to do no worse than (default: label 0 everywhere)
    # seconds after which the best choice so far is returned, with its gap (default: no limit of time)
    time_limit: float | None = None,
    # how many prices of relaxations in branches there may be, after which it ends alike (default: a million)
    prices: int | None = None,
) -> Solution:
    """Return the choice of least cost, with its certificate checked."""
    limits = Limits.of(sum(map(len, problem.costs)), time_limit, prices)
    choice = list(start) if start is not None else [0] * len(problem.costs)
    pieces, parts = components(problem), list[Solved]()
    contracted: list[int] = []
    for number, (nodes, values) in enumerate(pieces):
        large = sum(len(problem.costs[node]) for node in nodes) > LARGE
        if not large and (cut := _cut(problem, nodes, values)):
            parts.append(Solved(cut[0], Leaf(cut[1])))
        elif solved := _contracted(
            problem,
            nodes,
            values,
            problem.unit if large else 1,
            limits if large and not _is_hard(problem, values) else None,
        ):
            contracted.append(number)
            parts.append(solved)
        else:
            parts.append(_solved(problem, nodes, values, choice, limits))
    solution = _joined_solution(problem, choice, parts)
    if contracted and not _reaches(solution.bound, solution.cost, problem.unit):
        for number in contracted:
            if not _is_proved(problem, *pieces[number], parts[number], problem.unit):
                parts[number] = _solved(problem, *pieces[number], choice, limits)
        solution = _joined_solution(problem, choice, parts)
    return solution


def _reaches(bound: int, cost: int, unit: int) -> bool:
    """Tell whether a bound proves a cost to the unit: no choice costs a whole unit less, ties aside."""
    return bound >= cost - cost % unit


class Solved(NamedTuple):
    """A component: node -> label, what proves the labels, and whether nothing stopped the search."""

    labels: dict[int, int]
    proof: Part
    finished: bool = True


def _joined_solution(problem: Problem, choice: Sequence[int], parts: Sequence[Solved]) -> Solution:
    """Return the components as one solution, its certificate checked."""
    chosen, prices = list(choice), _pinned_prices(problem)
    others: list[Part] = []
    for labels, proof, _ in parts:
        for node, label in labels.items():
            chosen[node] = label
        if isinstance(proof, Leaf):
            prices.update(proof.prices)
        else:
            others.append(proof)
    certificate: Certificate = JoinedProofs((Leaf(prices), *others)) if others else Leaf(prices)
    try:
        proved = bound(problem, certificate)
    except CertificateError:
        certificate, proved = Leaf({}), bound(problem, Leaf({}))
    finished = all(part.finished for part in parts)
    return Solution(tuple(chosen), problem.evaluate(chosen), proved, certificate, finished)


def _solved(
    problem: Problem, nodes: Sequence[int], values: Sequence[int], choice: Sequence[int], limits: Limits
) -> Solved:
    """Return the best labels of a component as it is: by a minimum cut, a linear program, elimination, or branches."""
    if cut := _cut(problem, nodes, values):
        return Solved(cut[0], Leaf(cut[1]))
    from relayout.solve.branching import relaxed, solve_many
    from relayout.solve.elimination import elimination_order, least_cost

    order = elimination_order(problem, nodes, values)
    if order is None:
        part = _contracted(problem, nodes, values, problem.unit, limits) if _is_hard(problem, values) else None
        if part is not None and _is_proved(problem, nodes, values, part, problem.unit):
            return part
        return Solved(*solve_many(problem, nodes, values, choice, limits))
    relaxation = relaxed(_without_many_hard(problem, values), nodes, values, limits)
    labels, prices = relaxation or ({}, {})
    part = Solved(labels, Leaf(prices))
    if relaxation is not None and _is_proved(problem, nodes, values, part, 1):
        return part
    return Solved(least_cost(problem, order, values)[1], Elimination(order, prices))


def _is_hard(problem: Problem, values: Sequence[int]) -> bool:
    """Tell whether pairs of orders of some values cost more than others: their linear program is large and weak."""
    return any(problem.values[index].hard for index in values)


def _without_many_hard(problem: Problem, values: Sequence[int]) -> Problem:
    """Return a problem in which no pair of orders is hard, where a component has many such pairs.

    Its relaxation is small, and its prices tell as well which demands meet where.
    """
    if sum(len(problem.values[index].hard) for index in values) <= FEW_HARD:
        return problem
    return problem._replace(values=tuple([value._replace(hard=frozenset(), more=0) for value in problem.values]))


Found: TypeAlias = "tuple[dict[int, int], Prices] | None"
"""Node -> its best label, and the prices that prove them; None where they are not found so."""


def _cut(problem: Problem, nodes: Sequence[int], values: Sequence[int]) -> Found:
    """The best labels of a component, and its prices: each node's cheapest where that moves nothing, or those of a
    minimum cut; None where it is neither.
    """
    cheapest = {node: costs.index(min(costs)) for node in nodes for costs in (problem.costs[node],)}
    choice = defaultdict(int, cheapest)
    between = [value for value in map(problem.values.__getitem__, values) if value.weight or value.hard]
    if not any(transposed_orders(value, choice) for value in between):
        return cheapest, {}
    if any(value.hard for value in between):
        return None
    return solve_two(problem, nodes, values) if all(len(problem.costs[node]) == 2 for node in nodes) else None


def _contracted(
    problem: Problem,  # the whole problem
    nodes: Sequence[int],  # the nodes of the component
    values: Sequence[int],  # the values that touch them
    unit: int,  # below which ties may be lost
    limits: Limits | None,  # those of a linear program for what is left; None if that is not to be tried
) -> Solved | None:
    """The best labels of a component, to a unit: those of what is left when nodes hang on others and follow others.

    Whether the labels are the best the checker says.

    Returns:
        None where a cut is not enough, a relaxation is not tight, or there is no time.
    """
    from relayout.solve.presolve import Contraction  # most small problems are solved before they get here

    contraction = Contraction(problem, nodes, values, unit)
    labels: dict[int, int] = {}
    prices: Prices = {}

    def solved(own_nodes: Sequence[int], own_values: Sequence[int], by: Callable[..., Found]) -> bool:
        """Solve a part of the contracted component; tell whether it has labels and prices now."""
        solution = by(contraction.problem(own_nodes, own_values), range(len(own_nodes)), range(len(own_values)))
        if solution is not None:
            labels.update({own_nodes[place]: label for place, label in solution[0].items()})
            prices.update(
                {(own_values[place], order, reader): each for (place, order, reader), each in solution[1].items()}
            )
        return solution is not None

    rest: tuple[list[int], list[int]] = [], []
    for part_nodes, part_values in contraction.parts():
        if not solved(part_nodes, part_values, _cut):
            if limits is None:
                return None
            rest[0].extend(part_nodes)
            rest[1].extend(part_values)
    if limits is not None and rest[0]:
        from relayout.solve.branching import relaxed

        if not solved(*rest, partial(relaxed, limits=limits)):
            return None
    contraction.expand(labels)
    contraction.lift(prices)
    if unit > 1:
        settle(problem, values, labels)
    return Solved(labels, Leaf(prices))


def _is_proved(problem: Problem, nodes: Sequence[int], values: Sequence[int], part: Solved, unit: int) -> bool:
    """Tell whether the checker proves a component's labels the best, to a unit."""
    cost = problem.evaluate(defaultdict(int, part.labels), nodes, values)
    try:
        proved = ceil(sum(min(problem.costs[node]) for node in nodes) + gain(problem, part.proof))
    except CertificateError:
        return False
    return _reaches(proved, cost, unit)


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
    free = [len(labels) > 1 for labels in problem.costs]
    for index, value in enumerate(problem.values):
        if free[value.producer.node] or any(free[port.node] for port in value.readers):
            continue
        seen = {_only(value.producer)}
        for reader, port in enumerate(value.readers):
            if _only(port) not in seen:
                seen.add(_only(port))
                prices[index, _only(port), reader] = value.price(_only(value.producer), _only(port))
    return prices


def _only(port: ValueEnd) -> int:
    return port.orders[0]
