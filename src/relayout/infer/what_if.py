"""What a single constraint costs: drop it, solve again."""

from collections.abc import Iterator
from typing import NamedTuple

from relayout.infer.formulation import Formulation
from relayout.infer.plans import Plan
from relayout.solve import Problem, Value, ValueEnd, solve


class Relaxed(NamedTuple):
    """A constraint and what the graph would save without it.

    Args:
        site: the operator or end of the interface that is fixed.
        bytes: bytes an inference that would no longer be transposed, with all prices.
    """

    site: str
    bytes: int


def what_if(plan: Plan, *, most: int = 200) -> list[Relaxed]:
    """For each fixed site: the bytes saved if it took every operand in whatever order it comes; dearest first.

    Args:
        plan: the plan.
        most: the most sites to try, those beside remaining Transposes first.
    """
    formulation = plan.formulation
    problem = formulation.problem
    before = formulation.weights.bytes_in(problem.evaluate(plan.solution.choice))
    found = []
    for node in list(_fixed(plan))[:most]:
        relaxed = _without(formulation, node)
        cost = solve(relaxed).cost
        saved = before - formulation.weights.bytes_in(cost)
        if saved > 0:
            found.append(Relaxed(formulation.sites.sites[node].name, saved))
    return sorted(found, key=lambda item: (-item.bytes, item.site))


def _fixed(plan: Plan) -> Iterator[int]:
    """Sites with one label that any value of the problem touches; while nothing is transposed, none costs anything."""
    if not plan.size:
        return
    costs = plan.formulation.problem.costs
    touched = {port.node: None for v in plan.formulation.problem.values for port in (v.producer, *v.readers)}
    yield from (node for node in touched if len(costs[node]) == 1)


def _without(formulation: Formulation, node: int) -> Problem:
    """The problem in which a site reads anything and gives any order, each of its outputs by itself."""
    costs = list(formulation.problem.costs)
    values = []
    for value, orders in zip(formulation.values, formulation.orders, strict=True):
        readers = tuple(port for port in value.readers if port.node != node)
        producer = value.producer
        if producer.node == node:
            producer = ValueEnd(len(costs), tuple(range(len(orders))))
            costs.append((0,) * len(orders))
        if readers:
            values.append(Value(value.weight, producer, readers))
    return formulation.problem._replace(costs=tuple(costs), values=tuple(values))
