"""Elimination against brute force, and its certificate against faults."""

from __future__ import annotations

import itertools
import random

import pytest

from relayout.solve import elimination, solver
from relayout.solve.certificate import CertificateError, Elimination, JoinedProofs, Leaf, bound
from relayout.solve.elimination import elimination_order, least_cost, own_node
from relayout.solve.problem import Problem, Value, ValueEnd
from relayout.solve.solver import components, solve
from solve.problems import dense_problem, random_problem


def brute_force(problem: Problem) -> int:
    return min(map(problem.evaluate, itertools.product(*(range(len(labels)) for labels in problem.costs))))


def eliminated(problem: Problem) -> tuple[int, tuple[int, ...]]:
    """The least cost by elimination alone, and the labels that have it."""
    choice = [0] * len(problem.costs)
    parts = []
    for nodes, values in components(problem):
        order = elimination_order(problem, nodes, values)
        assert order is not None
        for node, label in least_cost(problem, order, values)[1].items():
            choice[node] = label
        parts.append(Elimination(order, {}))
    pinned = solver._pinned_prices(problem)
    return bound(problem, JoinedProofs((Leaf(pinned), *parts))), tuple(choice)


@pytest.mark.parametrize("hard", [0.0, 0.5])
@pytest.mark.parametrize("own_nodes", [False, True])
def test_the_least_cost_is_that_of_brute_force(monkeypatch: pytest.MonkeyPatch, hard: float, own_nodes: bool) -> None:
    """Whether or not each value has a node of its own."""
    if own_nodes:
        monkeypatch.setattr(elimination, "FEWER_SETS", 0)
    for seed in range(150):
        problem = random_problem(seed, 2 + seed % 3, pinned=0.25, aligned=seed % 2 > 0, hard=hard)
        least, choice = eliminated(problem)
        assert least == problem.evaluate(choice) == brute_force(problem), seed


def test_a_value_of_many_readers_has_a_node_of_its_own() -> None:
    rng = random.Random(0)
    readers = tuple(ValueEnd(node, (0, 1, 2)) for node in range(1, 15))
    costs = ((0, 3, 1), *(tuple(rng.randrange(9) for _ in range(3)) for _ in readers))
    value = Value(5, ValueEnd(0, (0, 1, 2)), readers, frozenset({(0, 1)}), 4)
    problem = Problem(costs, (value,))
    order = elimination_order(problem, range(15), [0])
    assert order is not None
    assert own_node(0) in order
    least, labels = least_cost(problem, order, [0])
    assert least == problem.evaluate(labels)
    # For each order that is given, each set of orders is made or not: nothing else is to be chosen.
    every = (
        costs[0][given]
        + sum(value.price(given, other) for other in made)
        + sum(min(price for label, price in enumerate(paid) if label == given or label in made) for paid in costs[1:])
        for given in range(3)
        for count in range(4)
        for made in itertools.combinations(range(3), count)
    )
    assert least == min(every)


def test_relaxations_that_are_not_tight_are_proved_without_branches() -> None:
    seeds = range(40_000, 40_400)
    problems = [random_problem(seed, 4, pinned=0.2, aligned=False) for seed in seeds]
    proofs = [solve(problem).certificate for problem in problems]
    parts = [part for proof in proofs if isinstance(proof, JoinedProofs) for part in proof.parts]
    assert sum(isinstance(part, Elimination) for part in parts) > 3


def test_tables_that_are_too_large_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = dense_problem(8, 4)
    ((nodes, values),) = components(problem)
    order = elimination_order(problem, nodes, values)
    assert order is not None
    monkeypatch.setattr(elimination, "LARGEST_TABLE", 16)
    assert elimination_order(problem, nodes, values) is None
    with pytest.raises(CertificateError, match="too large"):
        bound(problem, Elimination(order, {}))


def test_an_elimination_that_proves_nothing_is_refused() -> None:
    problem = Problem(
        ((0,), (0, 0), (0, 3), (0,)),
        (
            Value(4, ValueEnd(0, (0,)), (ValueEnd(1, (0, 1)),)),
            Value(6, ValueEnd(1, (0, 1)), (ValueEnd(2, (1, 0)),)),
            Value(5, ValueEnd(2, (0, 1)), (ValueEnd(3, (1,)),)),
        ),
    )
    for order in ((1, 2), (2, 1)):
        assert bound(problem, Elimination(order, {})) == brute_force(problem) > 0
    faults = {
        "beyond an elimination": (1,),
        "twice": (1, 2, 1),
        "there is not": (1, 2, 9),
        "too large": (1, 2, own_node(0)),
    }
    for message, order in faults.items():
        with pytest.raises(CertificateError, match=message):
            bound(problem, Elimination(order, {}))
    for other in (Elimination((1, 2), {}), Leaf({(1, 1, 0): 1})):
        with pytest.raises(CertificateError, match="share"):
            bound(problem, JoinedProofs((Elimination((1, 2), {}), other)))
