"""Open extents: what is unknown is bounded by what is known, and no run moves more than the source's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import relayout
from infer.opened import opened_model
from properties import PropertyError, hold_open
from relayout.infer import at_run_time
from relayout.infer.build import build as sites_of
from relayout.infer.formulation import formulate
from relayout.infer.open_extents import Bound, Relation, least_extents, made_in_turn, runs
from relayout.layout import Extent
from relayout.pipeline import read
from relayout.solve.problem import Problem
from relayout.solve.solver import Solution, solve
from running import moved_bytes, run
from small import build, feed_of

GROWING: Mapping[str, tuple[str, str, list[list[float]]]] = {
    "Tile": ("int64[4] r", "y = Tile(u, r)", [[1, 2, 2, 1], [2, 1, 1, 3]]),
    "Pad": ("int64[8] r", "y = Pad(u, r)", [[0, 1, 1, 0, 0, 2, 0, 0], [1, 0, 0, 0, 0, 0, 0, 4]]),
    "Expand": ("int64[4] r", "m = ReduceMean<keepdims=1>(u, two) y = Expand(m, r)", [[1, 1, 9, 1], [1, 1, 30, 1]]),
    "Resize": ("float[4] r", "y = Resize(u, , r)", [[1, 2, 2, 1], [1, 1, 3, 1]]),
    "Concat": ("float[m,4,5,3] z, int64[1] r", "s = Slice(z, one, r, zero) y = Concat<axis=0>(u, s, s)", [[3], [9]]),
}
"""Operator -> inputs, nodes, and what `r` is in one run and another."""


@pytest.mark.parametrize("batch", ["n", "2"])
@pytest.mark.parametrize("operator", GROWING)
def test_nothing_is_transposed_behind_what_makes_it_longer(operator: str, batch: str) -> None:
    """Extents that a computed amount gives counted as 1: the Transpose before was put behind, where it moves more."""
    inputs, text, amounts = GROWING[operator]
    constants = {"zero": [0], "one": [1], "two": [2]}
    source = build(f"float[{batch},3,4,5] x, {inputs}", f"t = T0231(x) u = Relu(t) {text}", constants)
    result = relayout.optimize(source)
    assert result.report.proved
    for size, amount in zip((2, 7), amounts, strict=True):
        feed = feed_of(source, {"n": size if batch == "n" else 2, "m": size + 9}, {"r": amount})
        for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        assert moved_bytes(result.proto, feed) <= moved_bytes(source, feed)


def test_a_concat_takes_as_much_as_its_operands() -> None:
    """One Transpose behind it moves what two before it move."""
    source = build("float[n,3,4] x, float[m,3,4] z", "t = T021(x) u = T021(z) y = Concat<axis=0>(t, u)", {})
    report = relayout.optimize(source).report
    assert (report.source_transposes, report.transposes) == (2, 1)
    assert (report.source_bytes, report.bytes) == (96, 96)


@pytest.mark.parametrize("block", range(4))
@pytest.mark.sampled(every=2)
def test_no_run_of_a_random_graph_moves_more(block: int) -> None:
    assert sum(hold_open(*opened_model(seed, 4 + seed % 8)) for seed in range(20 * block, 20 * block + 20)) >= 50


@pytest.mark.parametrize(("seed", "steps"), [(69, 9), (171, 7), (180, 8), (70, 14)])
def test_what_may_be_large_alone(seed: int, steps: int) -> None:
    """A value that grows is moved in the source, and another one that grows was in the result."""
    assert hold_open(*opened_model(seed, steps)) == 3


@pytest.mark.parametrize(("seed", "steps"), [(902, 6), (1297, 5), (532, 8), (2155, 11)])
def test_what_may_be_of_one_element(seed: int, steps: int) -> None:
    """A Transpose of the source moves nothing where an extent is 1, and one of the result moved something."""
    assert hold_open(*opened_model(seed, steps)) == 3


def test_two_extents_of_one_element() -> None:
    """A language model reads one token of one sequence."""
    source, feeds = opened_model(207, 11)
    feed = feeds[0] | {"x0": feeds[0]["x0"][:, :1, :, :1].copy()}
    result = relayout.optimize(source)
    assert moved_bytes(result.proto, feed) <= moved_bytes(source, feed)


@pytest.mark.parametrize(
    ("inputs", "text", "sizes"),
    [
        ("float[n,3,h,1] x", "v1 = T2103(x) v2 = T3201(x) v5 = T0132(x)", [{"n": 2, "h": 1}, {"n": 1, "h": 7}]),
        ("float[n,c,h] x", "v1 = T201(x) v3 = T201(v1) v5 = T021(v3) v7 = MatMul(v5, v3)", [{"n": 3, "c": 6, "h": 1}]),
        (
            "float[n,c,h] x, int64[4] r",
            "t = T102(x) g = QuantizeLinear(x, s, z) i = DequantizeLinear(g, s, z) u = Unsqueeze(t, two) w = T3021(u)"
            " l = Slice(i, last, none, first, last) k = QuantizeLinear(l, s, z) q = QuantizeLinear(w, s, z)"
            " d = DequantizeLinear(q, s, z) a = Tile(u, r) m = QuantizeLinear(l, s, z) o = DequantizeLinear(m, s, z)"
            " b = QuantizeLinear(a, s, z) e = DequantizeLinear(b, s, z) y = QuantizeLinear(d, s, z)",
            [{"n": 2, "c": 3, "h": 4}],
        ),
    ],
    ids=["three of one", "one of another", "tiled integers"],
)
def test_no_more_is_moved_by_what_a_value_is_made_of(inputs: str, text: str, sizes: list[dict[str, int]]) -> None:
    constants = {"two": [2], "first": [0], "last": [-1], "none": [-(1 << 40)]}
    scale = {"s": np.array(0.05, np.float32), "z": np.array(3, np.int8)}
    source = build(inputs, text, {**constants, **scale})
    result = relayout.optimize(source)
    for extents in sizes:
        feed = feed_of(source, extents, {"r": [20, 30, 1, 2]} if "r" in inputs else {})
        assert moved_bytes(result.proto, feed) <= moved_bytes(source, feed)


def test_a_run_that_moves_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relayout.infer.at_run_time.no_more_at_run_time", lambda sites, found, **_: found)
    with pytest.raises(PropertyError, match="bytes moved, and"):
        hold_open(*opened_model(69, 9))


def relation(symbol: str, bound: Bound, *others: str | int) -> Relation:
    return Relation(symbol, bound, tuple(map(Extent.of, others)))


FOUND = [
    relation("a", Bound.MORE, 5),
    relation("b", Bound.SUM, "a", 7),
    relation("c", Bound.SAME, "b", 1),
    relation("d", Bound.LESS, "c"),
    relation("e", Bound.MORE, "n"),
    relation("f", Bound.SAME, 2, 3),
]


def test_plans_for_runs_are_looked_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """They need no proof: branching went on for minutes over a graph of 13 nodes."""
    bounds: list[int | None] = []

    def spy(problem: Problem, **options: Any) -> Solution:
        bounds.append(options.get("prices"))
        return solve(problem, **options)

    monkeypatch.setattr(at_run_time, "solve", spy)
    model, _ = opened_model(200949, 4 + 200949 % 12)
    relayout.optimize(model)
    assert bounds.count(at_run_time.FEW_PRICES) > 1


@pytest.mark.parametrize("seed", [301667, 305435])
def test_what_repeats_nothing_is_exactly_one(seed: int) -> None:
    """The source's Transposes moved nothing where repeats that a run feeds are 1, and the result's did."""
    assert hold_open(*opened_model(seed, 4 + seed % 12)) == 3


def test_of_plans_that_are_best_in_a_run_the_smallest_is_taken() -> None:
    """Another one was, of which a second optimization saved 16 bytes."""
    assert hold_open(*opened_model(310543, 4 + 310543 % 12)) == 3


@pytest.mark.parametrize("seed", [312059, 314938])
def test_what_two_orders_share_in_a_run_counts_as_the_result_has_it(seed: int) -> None:
    """Both were brought from the producer's order; one moved nothing from the other, and was not brought from there."""
    assert hold_open(*opened_model(seed, 4 + seed % 12)) == 3


def test_an_order_is_made_of_the_one_that_the_source_makes_it_of() -> None:
    """Its reader comes first, and it was brought from the producer's order, which moves something in more runs."""
    assert hold_open(*opened_model(307434, 4 + 307434 % 12)) == 3
    first, second, third = (0, 1, 2, 3), (1, 0, 3, 2), (0, 1, 3, 2)
    extents, own = [Extent.of(each) for each in ("n", "c", "h", 5)], [(first, second), (second, third), (third, second)]
    assert made_in_turn(first, [third, second], extents, own) == [(first, second), (second, third)]
    assert made_in_turn(first, [third], extents, own) == [(first, third)]
    assert made_in_turn(first, [second, third], [Extent(2)] * 4, own) == [(first, second), (first, third)]


def test_numbers_that_are_too_large_for_ties_stay_alone() -> None:
    source = build("float[n,n] x", "t = Transpose(x)  y = Add(t, x)", {})
    sites = sites_of(read(source))
    first, second = formulate(sites, dims={"n": 1 << 28}), formulate(sites)
    assert at_run_time.lexicographic(first, second.problem) is first.problem
    both = at_run_time.lexicographic(second, second.problem)
    assert len(both.values) == 2 * len(second.problem.values)


def test_the_operand_s_order_meets_that_of_what_is_stretched() -> None:
    """Expand of one sequence, transposed behind it: the other axes can stay, and the first one go to the end."""
    assert hold_open(*opened_model(300484, 4 + 300484 % 12)) == 3


def test_an_extent_without_a_name_is_bounded_by_those_beside_it() -> None:
    assert least_extents(FOUND) == {"a": 5, "b": 12, "c": 12, "e": 1}


def test_runs_have_extents_small_and_large() -> None:
    source = build("float[n,e] x", "y = Relu(x)", {})
    roots = sites_of(read(source)).roots
    found = runs(FOUND, roots)
    assert {each.get("n", 1) for each in found} == {1, 64}
    assert {each.get("e") for each in found} == {None, 4, 64, 4 * 64, 1}
    assert [each for each in found if 1 in each.values()] == [{"n": 1, "e": 1}, {"n": 1, "e": 4}]
    assert all("a" not in each for each in found)  # nobody asks for it


def test_a_name_that_is_an_expression_follows_in_a_run() -> None:
    source = build("float[n,3] x", "y = Relu(x)", {})
    for value in (*source.graph.input, *source.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "2*h + 1"
    (root, *_) = sites_of(read(source)).roots
    assert [root.extents[0].value(each) for each in runs([], [root])] == [3, 129, 3, 3]
