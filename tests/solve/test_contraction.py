"""Components made smaller before they are solved: what follows along a value costs no unit more, and is proved."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import pytest

from relayout.solve import solver
from relayout.solve.certificate import Leaf, bound
from relayout.solve.presolve import Contraction
from relayout.solve.problem import Problem, Value, ValueEnd, transposed_orders
from relayout.solve.solver import Solution, components, solve
from solve.problems import random_problem, tree_problem

UNIT = 1024


def in_units(problem: Problem, seed: int) -> Problem:
    """The same in units, and ties to be broken: all of them together are less than one."""
    rng = random.Random(seed)
    costs = tuple(tuple(cost * UNIT + rng.choice([0, 0, 1, 2]) for cost in labels) for labels in problem.costs)
    values = tuple(
        value._replace(weight=value.weight * UNIT + rng.choice([0, 0, 1]), more=value.more * UNIT)
        for value in problem.values
    )
    return Problem(costs, values, UNIT)


def network(seed: int, count: int, *, hard: bool = False) -> Problem:
    """Operators in a row, each of which may read an earlier result, too; some have one order, some know fewer; of a
    fifth of the values some orders are hard to make of others."""
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 3, 3, 3, 3]) for _ in range(count)]
    held = [tuple(rng.sample(range(3), size)) for size in sizes]
    reading: list[list[int]] = [[] for _ in range(count)]
    for node in range(1, count):
        reading[node - 1].append(node)
        if rng.random() < 0.3:
            reading[rng.randrange(max(0, node - 6), node)].append(node)
    costs = tuple(tuple(rng.choice([0, 0, 0, 1]) * (size > 1) for _ in range(size)) for size in sizes)
    values = tuple(
        Value(
            rng.choice([0, 3, 3, 3, 4]),
            ValueEnd(node, held[node]),
            tuple([ValueEnd(reader, held[reader]) for reader in readers]),
            frozenset([(0, 1), (1, 0), (2, 1)]) if hard and node % 5 == 0 else frozenset(),
            2,
        )
        for node, readers in enumerate(reading)
        if readers
    )
    return in_units(Problem(costs, values), seed)


def solved(problem: Problem, monkeypatch: pytest.MonkeyPatch, large: float) -> Solution:
    """As a large one is, or, where nothing is large, as it is: not contracted at all."""
    with monkeypatch.context() as patched:
        patched.setattr(solver, "LARGE", large)
        if large == math.inf:
            patched.setattr(solver, "_contracted", lambda *_: None)
        return solve(problem)


def assert_same_units(problem: Problem, made: Solution, cost: int) -> None:
    assert made.cost == problem.evaluate(made.choice)
    assert made.cost // UNIT == cost // UNIT
    assert bound(problem, made.certificate) == made.bound >= made.cost // UNIT * UNIT


@pytest.mark.parametrize("labels", [2, 3, 4])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("hard", [0.0, 0.5])
@pytest.mark.sampled(every=5)
def test_small_problems_cost_no_unit_more_than_brute_force(
    monkeypatch: pytest.MonkeyPatch, labels: int, aligned: bool, hard: float
) -> None:
    for seed in range(200):
        drawn = random_problem(20_000 * labels + seed, labels, aligned=aligned, hard=hard if seed % 3 else 0.0)
        problem = in_units(drawn, seed)
        every = itertools.product(*(range(len(costs)) for costs in problem.costs))
        assert_same_units(problem, solved(problem, monkeypatch, -1), min(map(problem.evaluate, every)))


@pytest.mark.parametrize(
    ("make", "most"),
    [(tree_problem, 0.8), (lambda seed: random_problem(seed, 2 + seed % 3, aligned=seed % 2 > 0), 0.6)],
)
def test_what_is_contracted_exactly_is_proved_and_costs_what_brute_force_finds(
    make: Callable[[int], Problem], most: float
) -> None:
    found = whole = 0
    for seed in range(600):
        problem = make(seed)
        every = itertools.product(*(range(len(costs)) for costs in problem.costs))
        assert solve(problem).cost == solve(problem).bound == min(map(problem.evaluate, every))
        for nodes, values in components(problem):
            whole += 1
            if part := solver._contracted(problem, nodes, values, 1, None):
                found += 1
                assert solver._is_proved(problem, nodes, values, part, 1)
    assert found > most * whole > 300


def test_what_is_left_of_a_component_is_as_large_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else many small components would take the square of their number."""
    pair = (
        Value(3, ValueEnd(0, (0, 1, 2)), (ValueEnd(1, (1, 2, 0)),)),
        Value(2, ValueEnd(1, (0, 1, 1)), (ValueEnd(0, (1, 0, 2)),)),
    )
    values = tuple(
        value._replace(
            producer=value.producer._replace(node=value.producer.node + 2 * place),
            readers=tuple(port._replace(node=port.node + 2 * place) for port in value.readers),
        )
        for place in range(40)
        for value in pair
    )
    problem = Problem(((0, 1, 2), (2, 0, 1)) * 40, values)
    sizes, make = [], Contraction.problem

    def measured(self: Contraction, nodes: Sequence[int], held: Sequence[int]) -> Problem:
        sizes.append(len((found := make(self, nodes, held)).costs) + len(found.values))
        return found

    monkeypatch.setattr(Contraction, "problem", measured)
    assert solve(problem).proved
    assert len(sizes) == 40
    assert max(sizes) == 4


@pytest.mark.parametrize(("hard", "again", "most"), [(False, 0.01, 0.7), (True, 0.01, 0.85)])
@pytest.mark.sampled(every=2)
def test_networks_cost_no_unit_more_and_most_of_their_operators_follow(
    monkeypatch: pytest.MonkeyPatch, hard: bool, again: float, most: float
) -> None:
    """The relaxation of what is left proves nearly all of them; the others are solved as they are."""
    whole_again, solve_whole = 0, solver._solved
    left, whole = 0, 0

    def counted(*given: object) -> object:
        nonlocal whole_again
        whole_again += 1
        return solve_whole(*given)  # type: ignore[arg-type]

    parts = 0
    for seed in range(150):
        problem = network(seed, 20 + seed % 30, hard=hard)
        best = solved(problem, monkeypatch, math.inf).cost
        with monkeypatch.context() as watched:
            watched.setattr(solver, "_solved", counted)
            assert_same_units(problem, solved(problem, watched, -1), best)
        for nodes, values in components(problem):
            parts, whole = parts + 1, whole + len(nodes)
            left += len(Contraction(problem, nodes, values).costs)
    assert parts > 100
    assert whole_again <= again * parts
    assert left < most * whole


@pytest.mark.parametrize("hard", [False, True])
def test_no_node_beside_a_moved_value_could_break_ties_better(monkeypatch: pytest.MonkeyPatch, hard: bool) -> None:
    """A contraction weighs whole units: what it loses in ties is won again where one node decides."""
    beside = 0
    for seed in range(150):
        problem = network(seed, 20 + seed % 30, hard=hard)
        choice = solved(problem, monkeypatch, -1).choice
        least = problem.evaluate(choice)
        for value in problem.values:
            if not value.weight or not transposed_orders(value, choice):
                continue
            for node in {port.node for port in (value.producer, *value.readers)}:
                for label in range(len(problem.costs[node])):
                    beside += 1
                    assert problem.evaluate([*choice[:node], label, *choice[node + 1 :]]) >= least
    assert beside > 1000


def test_a_relaxation_that_is_not_tight_is_left_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40):
        problem = random_problem(70_000 + seed, 4, pinned=0.25, aligned=False)
        monkeypatch.setattr(solver, "LARGE", -1)
        assert solve(problem).cost == solved(problem, monkeypatch, math.inf).cost


def test_ties_that_cross_a_unit_are_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ties more than the best, and yet a unit more: a contraction that ends there is solved as it is."""
    problem = Problem(((5 * UNIT + 1, 5 * UNIT - 1),), (), UNIT)
    monkeypatch.setattr(solver, "_contracted", lambda *_: solver.Solved({0: 0}, Leaf({})))
    assert solved(problem, monkeypatch, -1).choice == (1,)
