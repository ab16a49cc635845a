"""A certificate's paths: they sum to the bound, end at pins, and prove by themselves what the certificate proves."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from relayout.solve.certificate import JoinedProofs, Leaf, bound
from relayout.solve.decomposition import Path, paths
from relayout.solve.problem import Problem, Value, ValueEnd, transposed_orders
from relayout.solve.solver import Solution, solve
from solve.problems import random_problem


def without_costs(problem: Problem) -> Problem:
    """The problem with labels that cost nothing by themselves: only pins hold a node."""
    return Problem(tuple((0,) * len(labels) for labels in problem.costs), problem.values)


def solved(problem: Problem) -> tuple[Solution, list[Path]]:
    solution = solve(problem)
    return solution, paths(problem, solution.choice, solution.certificate)


def crossing_weights(problem: Problem, choice: Sequence[int]) -> dict[tuple[int, int], Fraction]:
    crossing = {
        (index, order): Fraction(value.price(value.producer.orders[choice[value.producer.node]], order))
        for index, value in enumerate(problem.values)
        for order in transposed_orders(value, choice)
    }
    return {key: weight for key, weight in crossing.items() if weight}


def summed(found: list[Path]) -> dict[tuple[int, int], Fraction]:
    sums: dict[tuple[int, int], Fraction] = {}
    for path in found:
        sums[path.value, path.order] = sums.get((path.value, path.order), Fraction(0)) + path.amount
    return sums


def prices(found: list[Path]) -> Leaf:
    used: dict[tuple[int, int, int], Fraction] = {}
    for path in found:
        for key in (*path.above, *path.below, (path.value, path.order, path.reader)):
            used[key] = used.get(key, Fraction(0)) + path.amount
    return Leaf(used)


def assert_connected(problem: Problem, path: Path) -> None:
    """Each price of a path touches the node before it, and the last one its end."""
    value = problem.values[path.value]
    for start, steps, end in (
        (value.producer.node, path.above, path.first),
        (value.readers[path.reader].node, path.below, path.last),
    ):
        node = start
        for index, _, reader in steps:
            ends = {problem.values[index].producer.node, problem.values[index].readers[reader].node}
            assert node in ends
            (node,) = ends - {node}
        assert node == end.node


def holds(problem: Problem, node: int, value: int) -> set[int]:
    """The orders that a node can give or want of a value."""
    ports = (problem.values[value].producer, *problem.values[value].readers)
    return {order for port in ports if port.node == node for order in port.orders}


@pytest.mark.parametrize("block", range(10))
def test_paths_of_a_minimum_cut_sum_to_the_bound_end_at_pins_and_prove_it_again(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        problem = without_costs(random_problem(seed, 2))
        solution, found = solved(problem)
        assert summed(found) == crossing_weights(problem, solution.choice)
        assert sum(path.amount for path in found) == solution.bound
        assert bound(problem, prices(found)) == solution.cost
        for path in found:
            assert path.complete
            assert len(holds(problem, path.first.node, path.first.value)) == 1
            assert len(holds(problem, path.last.node, path.last.value)) == 1
            assert_connected(problem, path)


def test_where_labels_have_prices_a_path_may_end_at_one() -> None:
    ended = 0
    for seed in range(1000):
        problem = random_problem(seed, 2)
        solution, found = solved(problem)
        paid = sum(labels[label] for labels, label in zip(problem.costs, solution.choice, strict=True))
        assert sum(path.amount for path in found) == solution.cost - paid
        for end in (end for path in found for end in (path.first, path.last) if not end.fixed):
            assert max(problem.costs[end.node]) > problem.costs[end.node][solution.choice[end.node]]
            ended += 1
    assert ended > 100


@pytest.mark.parametrize("labels", [3, 4])
@pytest.mark.parametrize(("aligned", "hard", "least"), [(True, 0.0, 1.0), (False, 0.0, 0.97), (True, 0.5, 0.98)])
def test_paths_of_an_integer_program_sum_to_the_bound_and_end_at_pins(
    labels: int, aligned: bool, hard: float, least: float
) -> None:
    """Labels that mean other orders at every port need branching now and then: few of those paths find no pin."""
    count = complete = branched = 0
    for seed in range(200):
        problem = without_costs(random_problem(10_000 * labels + seed, labels, pinned=0.3, aligned=aligned, hard=hard))
        solution, found = solved(problem)
        branched += isinstance(solution.certificate, JoinedProofs)
        assert summed(found) == crossing_weights(problem, solution.choice)
        for path in found:
            assert_connected(problem, path)
            count, complete = count + 1, complete + path.complete
    assert count > 50
    assert complete >= least * count
    assert aligned or branched


def test_one_transpose_between_three_pins_is_dealt_out() -> None:
    """x is wanted in order 1 by two pins behind a free node; x's own pin gives order 0. One value, two reasons."""
    free = (0, 1)
    problem = Problem(
        ((0,), (0, 0), (0,), (0,)),
        (
            Value(10, ValueEnd(0, (0,)), (ValueEnd(1, free),)),
            Value(4, ValueEnd(1, free), (ValueEnd(2, (1,)),)),
            Value(6, ValueEnd(1, free), (ValueEnd(3, (1,)),)),
        ),
    )
    solution, found = solved(problem)
    assert solution.cost == 10
    reasons = {(path.first.node, path.last.node, path.amount) for path in found}
    assert reasons == {(0, 2, Fraction(4)), (0, 3, Fraction(6))}


def test_a_choice_that_is_not_the_least_is_explained_as_far_as_it_can_be() -> None:
    for seed in range(200):
        problem = random_problem(seed, 2)
        choice = [len(labels) - 1 for labels in problem.costs]
        assert summed(paths(problem, choice, Leaf({}))) == crossing_weights(problem, choice)
