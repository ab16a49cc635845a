"""The solvers against brute force, against each other, and the checker against faults."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from fractions import Fraction

import highspy
import pytest

from relayout.solve import certificate, elimination, program, solver
from relayout.solve import program as program_rows
from relayout.solve.branching import solve_many
from relayout.solve.certificate import (
    MOST_DEPTH,
    Branch,
    Certificate,
    CertificateError,
    JoinedProofs,
    Leaf,
    bound,
    refunds,
)
from relayout.solve.decomposition import paths
from relayout.solve.problem import MOST_PRICES, Limits, Problem, Value, ValueEnd
from relayout.solve.solver import Solution, components, solve
from solve.problems import dense_problem, random_problem


def brute_force(problem: Problem) -> int:
    return min(map(problem.evaluate, itertools.product(*(range(len(labels)) for labels in problem.costs))))


def assert_proved(problem: Problem, solution: Solution) -> None:
    assert solution.cost == problem.evaluate(solution.choice) == brute_force(problem)
    assert bound(problem, solution.certificate) == solution.cost
    assert solution.proved


@pytest.mark.parametrize("block", range(20))
def test_minimum_cut_equals_brute_force_and_is_proved(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if block % 2:
        monkeypatch.setattr("relayout.solve.mincut.LENGTHS", 0)  # all is pushed, nothing goes along a shortest path
    for seed in range(block * 100, block * 100 + 100):
        problem = random_problem(seed, 2)
        assert_proved(problem, solve(problem))


@pytest.mark.parametrize("labels", [2, 3, 4])
@pytest.mark.parametrize("aligned", [True, False])
def test_integer_program_equals_brute_force_and_is_proved(
    monkeypatch: pytest.MonkeyPatch, labels: int, aligned: bool
) -> None:
    monkeypatch.setattr(solver, "_contracted", lambda *_: None)
    for seed in range(60):
        problem = random_problem(10_000 * labels + seed, labels, pinned=0.25, aligned=aligned)
        assert_proved(problem, solve(problem))


@pytest.mark.parametrize("labels", [2, 3, 4])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("most", [1 << 12, 1])
@pytest.mark.sampled(every=5)
def test_pairs_of_orders_that_cost_more_equal_brute_force_and_are_proved(
    monkeypatch: pytest.MonkeyPatch, labels: int, aligned: bool, most: int
) -> None:
    """Whether what readers may want together is gone through or not."""
    monkeypatch.setattr(certificate, "MOST_WISHES", most)
    monkeypatch.setattr(program_rows, "MOST_WISHES", most)
    for seed in range(100):
        problem = random_problem(30_000 * labels + seed, labels, pinned=0.25, aligned=aligned, hard=0.5)
        assert_proved(problem, solve(problem))


def test_a_reader_of_many_orders_pays_for_the_pair_that_is_hard() -> None:
    """One program proves it: what is given goes to one of them only, though each is hard to make of half as much."""
    count = 6
    orders = tuple(range(count + 2))
    image, window, wanted = 0, 1, orders[2:]
    value = Value(
        10, ValueEnd(1, (image, window)), (ValueEnd(2, wanted),), frozenset((image, each) for each in wanted), 25
    )
    before = Value(10, ValueEnd(0, (image,)), (ValueEnd(1, (image, window)),))
    problem = Problem(((0,), (0, 0), (0,) * count), (before, value))
    solution = solve(problem)
    assert_proved(problem, solution)
    assert (solution.cost, problem.evaluate((0, 0, 0)), type(solution.certificate)) == (20, 35, Leaf)


def test_what_highs_fails_over_is_tried_again_with_smaller_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[float] = []
    run = program.run_solver

    def failing(highs: highspy.Highs, columns: int) -> None:
        runs.append(highs.getOptionValue("user_objective_scale")[1])
        run(highs, columns)
        if runs[-1] == 0:
            monkeypatch.setattr(highs, "getModelStatus", lambda: highspy.HighsModelStatus.kSolveError)
        else:
            monkeypatch.delattr(highs, "getModelStatus")

    monkeypatch.setattr(program, "run_solver", failing)
    problem = random_problem(1, 3, pinned=0.25, aligned=False, hard=0.5)
    assert_proved(problem, solve(problem))
    assert 0 in runs
    assert -20 in runs


def test_highs_prints_nothing(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """1.16 greets on standard output where its constructor sets the callbacks: a model or JSON may be written there."""
    set_callbacks = highspy.Highs.enableCallbacks
    told: list[bool] = []

    def greeting(highs: highspy.Highs) -> None:
        told.append(highs.getOptionValue("output_flag")[1])
        set_callbacks(highs)

    monkeypatch.setattr(highspy.Highs, "enableCallbacks", greeting)
    assert_proved(problem := branching(1)[0], solve(problem))
    assert told
    assert not any(told)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("size", [10**9, 10**13, 10**14])
def test_weights_that_no_machine_word_holds_in_steps_are_proved(size: int) -> None:
    """Bytes, a count and closeness share one integer: prices in steps of it exceed 64 bits on large graphs."""
    rng = random.Random(size)
    count, first, turned = 7, (0, 1, 2), (0, 2, 1)
    ports = [ValueEnd(0, (0,)), *(ValueEnd(node, first) for node in range(1, count)), ValueEnd(count, (0,))]
    values = tuple(
        Value(size * rng.randint(3, 9) + rng.randint(0, 1), ports[node], (ValueEnd(node + 1, wanted),))
        for node, wanted in enumerate([turned, first, turned, first, turned, first, (1,)])
    )
    problem = Problem(((0,), *[(0, 1, 1)] * (count - 1), (0,)), values)
    assert_proved(problem, solve(problem))


def test_ports_of_one_node_are_told_apart() -> None:
    """Values whose ports give and want alike have their rows in common, unless one node holds several of the ports."""
    for seed in range(100):
        rng = random.Random(seed)
        free, pinned, orders = range(4), range(4, 7), [(0, 1, 2), (0, 2, 1)]
        ports = [ValueEnd(node, held) for node in free for held in orders] + [
            ValueEnd(node, (node - 4,)) for node in pinned
        ]
        values = tuple(
            Value(rng.randint(1, 9), rng.choice(ports), tuple(rng.choices(ports, k=rng.randint(1, 2))))
            for _ in range(9)
        )
        costs = tuple(tuple(rng.randint(0, 3) for _ in range(3)) for _ in free)
        problem = Problem((*costs, *[(0,) for _ in pinned]), values)
        assert_proved(problem, solve(problem))


def test_cut_and_program_agree() -> None:
    solved = 0
    for seed in range(100):
        problem = random_problem(seed, 2)
        cut = solve(problem)
        choice = list(cut.choice)
        for nodes, values in components(problem):
            labels, _, finished = solve_many(problem, nodes, values, [0] * len(problem.costs), Limits.of(0))
            assert finished
            for node, label in labels.items():
                choice[node] = label
            solved += 1
        assert problem.evaluate(choice) == cut.cost
    assert solved > 50


def test_shared_transpose_is_paid_once_however_many_readers() -> None:
    """The single-dummy-node gadget would pay 2·w here: two readers on the other side, one beside the producer."""
    producer, near, far = ValueEnd(0, (0,)), ValueEnd(1, (0,)), (ValueEnd(2, (1,)), ValueEnd(3, (1,)))
    problem = Problem(((0,),) * 4, (Value(10, producer, (near, *far)),))
    assert solve(problem).cost == 10


def test_weights_beyond_32_and_64_bits_are_exact() -> None:
    weight = 2**31
    for factor in (1, 2**9, 2**40):
        problem = Problem(
            ((0,), (0, 0), (0,)),
            (
                Value(weight * factor + 1, ValueEnd(0, (0,)), (ValueEnd(1, (0, 1)),)),
                Value(weight * factor, ValueEnd(1, (0, 1)), (ValueEnd(2, (1,)),)),
            ),
        )
        solution = solve(problem)
        assert solution.cost == weight * factor
        assert solution.proved


def test_equal_problems_give_equal_choices() -> None:
    for seed in range(50):
        assert solve(random_problem(seed, 3)).choice == solve(random_problem(seed, 3)).choice


def test_checker_refuses_what_is_no_proof() -> None:
    problem = Problem(
        ((0,), (0, 0), (0,)),
        (Value(4, ValueEnd(0, (0,)), (ValueEnd(1, (0, 1)),)), Value(6, ValueEnd(1, (0, 1)), (ValueEnd(2, (1,)),))),
    )
    assert bound(problem, solve(problem).certificate) == 4
    assert bound(problem, Leaf({})) == 0
    with pytest.raises(CertificateError, match="exceed"):
        bound(problem, Leaf({(0, 1, 0): 5}))
    with pytest.raises(CertificateError):
        bound(problem, Leaf({(0, 1, 0): Fraction(-1)}))
    with pytest.raises(CertificateError):
        bound(problem, Leaf({(9, 1, 0): 1}))
    for reader in (-1, 1):
        with pytest.raises(CertificateError, match=f"value 0 has no reader {reader}"):
            bound(problem, Leaf({(0, 1, reader): 1}))


@pytest.mark.parametrize("most", [1 << 14, 1])
def test_a_producer_is_given_back_what_readers_may_pay_beyond_their_orders(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """As much as any wishes of theirs come to; more where not all are gone through, and never less."""
    monkeypatch.setattr(certificate, "MOST_WISHES", most)
    orders, more = range(4), 0
    for seed in range(200):
        rng = random.Random(seed)
        hard = frozenset(pair for pair in itertools.permutations(orders, 2) if rng.random() < 0.5)
        readers = tuple(ValueEnd(reader, tuple(orders)) for reader in range(1, 1 + rng.randint(1, 3)))
        value = Value(rng.randint(1, 9), ValueEnd(0, tuple(orders)), readers, hard, rng.randint(1, 9))
        paid = {reader: {order: rng.randint(0, 12) for order in orders} for reader in range(len(readers))}
        back = refunds(value, paid)
        for given in orders:
            beyond = max(
                sum(paid[reader][order] for reader, order in enumerate(wishes))
                - sum(value.price(given, order) for order in set(wishes))
                for wishes in itertools.product(orders, repeat=len(readers))
            )
            assert back[given] >= max(0, beyond)
            more += back[given] > max(0, beyond)
    assert (more > 0) == (most == 1)


@pytest.mark.parametrize("most", [1 << 12, 1])
def test_no_price_can_prove_too_much(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Any prices that the checker accepts give a bound below brute force."""
    monkeypatch.setattr(certificate, "MOST_WISHES", most)
    for seed in range(300):
        problem = random_problem(seed, 3, pinned=0.3, hard=0.5 * (seed % 2))
        rng = random.Random(seed)
        prices = {}
        for index, value in enumerate(problem.values):
            for order in range(3):
                reader = rng.randrange(len(value.readers))
                most = value.weight + 3 * value.more if value.hard else value.weight
                prices[index, order, reader] = Fraction(rng.randint(0, 7), 7) * most
        assert bound(problem, Leaf(prices)) <= brute_force(problem)


@pytest.fixture
def without_elimination(monkeypatch: pytest.MonkeyPatch) -> None:
    """Branch wherever a relaxation is not tight."""
    monkeypatch.setattr(elimination, "MOST_CELLS", 0)


@pytest.mark.usefixtures("without_elimination")
def test_time_limit_gives_the_best_so_far_and_no_claim() -> None:
    hard = next(
        p
        for p in (random_problem(s, 4, pinned=0.2, aligned=False) for s in range(40_000, 41_000))
        if isinstance(solve(p).certificate, JoinedProofs)
    )
    solution = solve(hard, time_limit=0.0)
    assert not solution.finished
    assert solution.bound <= brute_force(hard) <= solution.cost
    assert not solution.proved or solution.cost == brute_force(hard)


def branching(count: int, first: int = 40_000) -> list[Problem]:
    """Small problems that no single linear program proves."""
    tried = (random_problem(seed, 4, pinned=0.2, aligned=False) for seed in itertools.count(first))
    return list(itertools.islice((p for p in tried if isinstance(solve(p).certificate, JoinedProofs)), count))


def beside_each_other(problems: Sequence[Problem]) -> Problem:
    """One problem of several that have nothing in common."""
    costs: list[tuple[int, ...]] = []
    values: list[Value] = []
    for problem in problems:
        first = len(costs)
        costs += problem.costs
        for value in problem.values:
            producer, *readers = [ValueEnd(port.node + first, port.orders) for port in (value.producer, *value.readers)]
            values.append(value._replace(producer=producer, readers=tuple(readers)))
    return Problem(tuple(costs), tuple(values))


def prices_in(certificate: Certificate) -> int:
    if isinstance(certificate, Leaf):
        return len(certificate.prices)
    return sum(map(prices_in, certificate.parts if isinstance(certificate, JoinedProofs) else certificate.children))


@pytest.mark.usefixtures("without_elimination")
def test_proofs_of_components_add_up() -> None:
    """Forty trees of two leaves and more: one tree of them all would have above 2^40."""
    hard = branching(4) * 10
    solution = solve(beside_each_other(hard))
    alone = [solve(problem) for problem in hard]
    assert solution.proved
    assert solution.cost == sum(each.cost for each in alone) == 10 * sum(map(brute_force, hard[:4]))
    assert prices_in(solution.certificate) == sum(prices_in(each.certificate) for each in alone)
    assert paths(beside_each_other(hard), solution.choice, solution.certificate)


def test_proofs_of_parts_that_are_not_apart_are_refused() -> None:
    problem = Problem(
        ((0,), (0, 0), (0,)),
        (Value(4, ValueEnd(0, (0,)), (ValueEnd(1, (0, 1)),)), Value(6, ValueEnd(1, (0, 1)), (ValueEnd(2, (1,)),))),
    )
    first, second = Leaf({(0, 1, 0): 4}), Leaf({(1, 1, 0): 4})
    assert bound(problem, Leaf({**first.prices, **second.prices})) == 4
    with pytest.raises(CertificateError, match="share node 1"):
        bound(problem, JoinedProofs((first, second)))
    with pytest.raises(CertificateError, match="share value 0"):
        bound(problem, JoinedProofs((first, first)))
    tree = Branch(1, (frozenset({0}), frozenset({1})), (Leaf({}), first))
    assert bound(problem, tree) == bound(problem, JoinedProofs((tree,))) == 0
    for parts in ((tree, tree), (tree, second), (second, tree)):
        with pytest.raises(CertificateError, match="share node 1"):
            bound(problem, JoinedProofs(parts))
    for branch in (Branch(9, (), ()), Branch(-1, (frozenset({0}),), (first,)), Branch(1, (frozenset({0}),), (first,))):
        with pytest.raises(CertificateError):
            bound(problem, branch)


def test_no_parts_can_prove_too_much() -> None:
    """Prices dealt out to parts at random: refused, or a bound below brute force."""
    held = 0
    for seed in range(400):
        rng = random.Random(seed)
        problem = beside_each_other([random_problem(seed + i, 2, pinned=0.3) for i in range(2)])
        parts: list[dict[tuple[int, int, int], int]] = [{}, {}]
        for index, value in enumerate(problem.values):
            if rng.random() < 0.4:
                parts[rng.randrange(2)][index, rng.randrange(2), 0] = rng.randint(0, value.weight)
        try:
            proved = bound(problem, JoinedProofs(tuple(map(Leaf, parts))))
        except CertificateError:
            continue
        assert proved <= brute_force(problem)
        held += all(parts)
    assert held > 20


@pytest.mark.parametrize(("prices", "depth"), [(1, MOST_DEPTH), (60, MOST_DEPTH), (MOST_PRICES, 1), (MOST_PRICES, 0)])
def test_a_proof_that_would_be_too_large_is_left_with_its_gap(
    monkeypatch: pytest.MonkeyPatch, prices: int, depth: int
) -> None:
    problem = dense_problem(20, 4)
    first = Fraction(bound(problem, solve(problem, time_limit=0).certificate))
    monkeypatch.setattr("relayout.solve.branching.MOST_DEPTH", depth)
    monkeypatch.setattr("relayout.solve.problem.MOST_PRICES", prices)
    found = solve(problem)
    monkeypatch.undo()
    best = solve(problem)
    assert best.proved
    assert first <= found.bound < best.cost <= found.cost
    assert (found.proved, found.finished) == (False, False)
    assert bound(problem, found.certificate) == found.bound > 0
