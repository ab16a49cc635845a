"""Ties broken node by node, behind a solution in which weights counted in whole units."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import add

from relayout.solve.problem import Problem, transposed_orders


def settle(problem: Problem, values: Sequence[int], labels: dict[int, int]) -> None:
    """Gives nodes beside a moved value better labels, one at a time, until no label of one node is better.

    Args:
        problem: the whole problem.
        values: the values that touch the component.
        labels: node of the component -> label; never dearer afterwards.
    """
    choice = defaultdict(int, labels)
    beside: dict[int, list[int]] = {node: [] for node in labels}
    waiting: dict[int, None] = {}
    for index in values:
        value = problem.values[index]
        held = {value.producer.node, *[port.node for port in value.readers]} & beside.keys()
        for node in held:
            beside[node].append(index)
        if (value.weight or value.hard) and transposed_orders(value, choice):
            waiting.update(dict.fromkeys(sorted(held)))
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
        wanted = {port.orders[choice[port.node]] for port in value.readers if port.node != node}
        own = [port.orders for port in value.readers if port.node == node]
        maker, given = value.producer.node, value.producer.orders
        # By label: the order that is given, and those that are wanted.
        ends = zip(
            given if maker == node else repeat(given[choice[maker]], len(costs)),
            map(wanted.union, zip(*own, strict=True)) if own else repeat(wanted, len(costs)),
            strict=True,
        )
        if value.hard:
            pays = [sum([value.price(order, each) for each in held]) for order, held in ends]
        else:
            pays = [value.weight * (len(held) - (order in held)) for order, held in ends]
        costs = list(map(add, costs, pays))
    return costs
