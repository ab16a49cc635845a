"""In no way worse than the source: fewer bytes at times take more Transposes, or single elements."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import relayout
from infer.graphs import random_model
from relayout.errors import RelayoutError
from relayout.infer.build import build
from relayout.infer.no_regression import no_worse_plan, own_choice, with_choice
from relayout.infer.plans import plan, plan_of
from relayout.infer.sites import Label
from relayout.infer.strided_copies import stretches_elements
from relayout.pipeline import check_plan, inspect
from relayout.pipeline.onnx_ir_pass import OptimizeLayouts
from relayout.solve.certificate import Leaf
from relayout.solve.problem import transposed_orders
from relayout.solve.solver import Solution
from relayout.targets import target as target_named
from running import run
from text_form import floats, model
from transposes import left

ATTENTION = """
    attention (float[6,10,48] x) => (float[6,10,16] y) {
        a = MatMul(x, w)
        b = Reshape(a, heads)
        c = Transpose<perm=[2,0,3,1,4]>(b)
        q, k, v = Split<axis=0, num_outputs=3>(c)
        r = Transpose<perm=[0,1,2,4,3]>(k)
        s = MatMul(q, r)
        p = Softmax<axis=-1>(s)
        o = MatMul(p, v)
        t = Transpose<perm=[0,1,3,2,4]>(o)
        y = Reshape(t, joined)
    }"""
"""Queries, keys and values are transposed at once, and the keys again: four times the bytes of one of them, in two."""
ONE = 6 * 10 * 16 * 4
"""Bytes of queries, keys, values, or the result."""


def attention() -> onnx.ModelProto:
    constants = {"heads": np.array([6, 10, 3, 2, 8]), "joined": np.array([6, 10, 16])}
    return model(ATTENTION, w=floats(48, 48), **constants)


def test_more_transposes_than_the_source_has_are_not_taken(tmp_path: Path) -> None:
    proto = attention()
    onnx.save(proto, tmp_path / "in.onnx")
    result = relayout.optimize(tmp_path / "in.onnx")
    assert (result.report.transposes, result.report.bytes) == (3, 5 * ONE)
    assert result.report.verdict == "proved minimal with 3 Transposes at most"
    told = f"fewer bytes take more Transposes than the source has: {4 * ONE:,} in 4 (--per-transpose 0)"
    assert told in result.report.notes
    result.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "in.onnx").read_bytes()
    fewest = relayout.optimize(proto, per_transpose=0)
    assert (fewest.report.transposes, fewest.report.bytes, fewest.report.verdict) == (4, 4 * ONE, "proved minimal")
    assert relayout.verify(proto, fewest).ok
    least = inspect(tmp_path / "in.onnx").keep
    assert least is not None
    assert (least.transposes, least.bytes) == (3, 5 * ONE)


def test_a_plan_of_it_is_checked_without_the_solver(tmp_path: Path) -> None:
    result = relayout.optimize(attention())
    (tmp_path / "plan.json").write_text(json.dumps(result.plan))
    checked = check_plan(tmp_path / "plan.json", attention())
    assert (checked.ok, checked.transposes, checked.bytes, checked.bound) == (True, 3, 5 * ONE, 5 * ONE)


def test_all_verbs_agree(tmp_path: Path) -> None:
    onnx.save(attention(), tmp_path / "in.onnx")
    found = relayout.convert(attention()).report, relayout.explain(tmp_path / "in.onnx")
    assert [report.transposes for report in found] == [3, 3]


def test_the_pass_takes_no_more_either() -> None:
    for options, changed in (({}, False), ({"per_transpose": 0}, True)):
        graph = ir.from_proto(attention())
        assert OptimizeLayouts(**options)(graph).modified is changed  # type: ignore[arg-type]


@pytest.mark.parametrize("other", [{"to": "NHWC"}, {"io": "convert"}, {"layouts": {"x": ("NWC", "NWC")}}], ids=str)
def test_where_other_layouts_are_asked_for_bytes_alone_count(other: dict[str, object]) -> None:
    assert relayout.convert(attention(), **other).report.transposes == 4  # type: ignore[arg-type]


REDUCED = """
    g (float[8,8,8] x, float[8,3,6] u) => (float[8,8] a, float[8,8] b, float[8,8] c, float[6,8] d, float[6,8] e) {
        t = Transpose<perm=[2,1,0]>(x)
        a = ReduceMax<keepdims=0>(t, middle)
        b = ReduceMin<keepdims=0>(t, middle)
        c = ReduceSum<keepdims=0>(t, middle)"""
"""One large Transpose instead of three small ones."""
APART = f"""{REDUCED}
        p = ReduceMax<keepdims=0>(u, middle)
        d = Transpose<perm=[1,0]>(p)
        q = ReduceMin<keepdims=0>(u, middle)
        e = Transpose<perm=[1,0]>(q)
    }}"""
"""That, and two small ones instead of a large: the cheapest plan with fewer Transposes than the
one with the fewest bytes has fewer than these three, too, and more bytes."""


def test_where_prices_find_nothing_the_source_stays() -> None:
    proto = model(APART, middle=np.array([1]))
    result = relayout.optimize(proto)
    large, small = 4 * 8**3, 4 * 8 * 6
    assert (result.report.transposes, result.report.bytes) == (3, large + 2 * small)
    assert not result.report.proved
    assert result.report.verdict.startswith("not proved: at most ")
    assert result.report.lower_bound < result.report.bytes
    assert result.proto.SerializeToString() == proto.SerializeToString()
    assert relayout.optimize(proto, per_transpose=0).report.transposes == 5


LARGE = f"""{REDUCED}
        v = Transpose<perm=[2,1,0]>(u)
        d = ReduceMax<keepdims=0>(v, middle)
        e = ReduceMin<keepdims=0>(v, middle)
    }}"""
"""Two large ones. The price at which all small ones are dearer leaves three of them small, and there are more again."""


def test_prices_rise_until_nothing_with_too_many_transposes_is_cheaper() -> None:
    report = relayout.optimize(model(LARGE, middle=np.array([1]))).report
    assert (report.transposes, report.bytes) == (2, 4 * (8**3 + 8 * 3 * 6))
    assert report.verdict == "proved minimal with 2 Transposes at most"


BINDING = (312, 363, 1621, 1631, 1891, 2234, 2259, 3657, 4644, 4868, 7061, 7927, 8309, 8826, 10109, 10824)
"""Random graphs whose fewest bytes take more Transposes than there are, and that have few choices."""
BETWEEN = (10109, 10824)
"""Of these, those with a plan between their own and the one with the fewest bytes."""


@pytest.mark.parametrize("seed", BINDING)
def test_no_choice_with_as_many_transposes_moves_fewer_bytes(seed: int) -> None:
    graph, feed = random_model(seed, steps=6 + seed % 18)
    sites = build(ir.from_proto(graph))
    fewest = plan(sites)
    assert len(fewest.crossings) > fewest.source_count
    found = no_worse_plan(sites, fewest)
    assert (len(found.crossings) <= found.source_count, found.proved) == (True, True)
    assert fewest.size < found.size <= found.source_size
    assert (found.size < found.source_size) == (seed in BETWEEN)
    values, problem = found.formulation.values, found.formulation.problem
    sizes = []
    for choice in itertools.product(*(range(len(costs)) for costs in problem.costs)):
        if sum(len(transposed_orders(value, choice)) for value in values) <= len(found.crossings):
            sizes.append(found.formulation.moved_bytes(choice))
    assert found.size == min(sizes)
    result = relayout.optimize(graph)
    assert left(result.proto, feed) == (len(found.crossings), found.size)
    for expected, got in zip(run(graph, feed), run(result.proto, feed), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


WINDOWS = """
    windows (float[2,16,16,64] x) => (float[2,4,4,8,16,16] y) {
        parts = Reshape(x, apart)
        windows = Transpose<perm=[0,1,3,2,4,5]>(parts)
        rows = Reshape(windows, joined)
        k = MatMul(rows, w)
        heads = Reshape(k, headed)
        keys = Transpose<perm=[0,1,2,4,5,3]>(heads)
        q = Reshape(rows, headed)
        queries = Transpose<perm=[0,1,2,4,3,5]>(q)
        y = MatMul(queries, keys)
    }"""
"""Keys come into windows, and then become columns. In one step each element would be copied by itself."""


def windows() -> onnx.ModelProto:
    shapes = {"apart": [2, 4, 4, 4, 4, 64], "joined": [2, 4, 4, 16, 64], "headed": [2, 4, 4, 16, 8, 8]}
    return model(WINDOWS, w=floats(64, 64), **{name: np.array(shape) for name, shape in shapes.items()})


def test_more_single_elements_than_the_source_copies_are_not_taken(tmp_path: Path) -> None:
    proto = windows()
    onnx.save(proto, tmp_path / "in.onnx")
    size = 4 * 2 * 16 * 16 * 64
    result = relayout.optimize(tmp_path / "in.onnx")
    assert (result.report.source_transposes, result.report.source_bytes) == (3, 3 * size)
    assert (result.report.transposes, result.report.bytes) == (3, 3 * size)
    assert result.report.verdict == "proved minimal with 0 bytes taken element by element at most"
    assert result.report.to_dict()["scattered_at_most"] == 0
    told = f"fewer bytes take more copies of single elements than the source has: {2 * size:,} in 2 (--per-transpose 0)"
    assert told in result.report.notes
    fewest = relayout.optimize(proto, per_transpose=0)
    assert (fewest.report.transposes, fewest.report.bytes, fewest.report.verdict) == (2, 2 * size, "proved minimal")
    assert relayout.verify(proto, fewest).ok
    (tmp_path / "plan.json").write_text(json.dumps(result.plan))
    checked = check_plan(tmp_path / "plan.json", proto)
    assert (checked.ok, checked.bytes, checked.per_scattered > 0) == (True, 3 * size, True)


@pytest.mark.parametrize("name", ["per_transpose", "per_scattered"])
def test_prices_of_a_plan_are_whole_numbers_without_a_limit(tmp_path: Path, name: str) -> None:
    """Those that are found may be more than a user may ask for."""
    path, proto = tmp_path / "plan.json", windows()
    plan = json.loads(json.dumps(relayout.optimize(proto).plan))
    plan["options"][name] = 10**12
    path.write_text(json.dumps(plan))
    assert check_plan(path, proto).bound <= 3 * 4 * 2 * 16 * 16 * 64
    for wrong in (None, -1, 1.5, "3", True):
        plan["options"][name] = wrong
        path.write_text(json.dumps(plan))
        with pytest.raises(RelayoutError, match=f"{name}=.*: it takes a whole number from 0 on"):
            check_plan(path, proto)


@pytest.mark.parametrize(("price", "count", "in_two_steps"), [(0, 2, 1), (2, 3, 0)])
def test_a_target_says_what_single_elements_cost(price: int, count: int, in_two_steps: int) -> None:
    target = replace(target_named("onnxruntime-cpu"), per_scattered=price)
    report = relayout.optimize(windows(), target=target).report
    assert (report.transposes, report.proved) == (count, True)
    assert sum("in two steps: 1 " in note for note in report.notes) == in_two_steps


def test_a_few_single_elements_are_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relayout.infer.no_regression.ALLOWED", 4 * 2 * 16 * 16 * 64)
    assert relayout.optimize(windows()).report.transposes == 2


def test_where_pairs_of_orders_are_many_few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relayout.infer.no_regression.hard_pairs", lambda parts: None)
    report = relayout.optimize(windows()).report
    assert (report.transposes, report.proved) == (3, False)
    assert any("were left out" in note for note in report.notes)


STATE = """
    state (float[4096,2] x, float[4096] z) => (float[4096,2] y) {
        t = Transpose<perm=[1,0]>(x)
        b = Sigmoid(z)
        v = Add(t, ADDED)
        y = Transpose<perm=[1,0]>(v)
    }"""
"""What is added to rows is added to two elements at a time where these are not transposed."""


@pytest.mark.parametrize(("added", "count"), [("b", 2), ("c", 0)])
def test_an_operand_that_is_computed_is_stretched_in_runs(added: str, count: int) -> None:
    """A constant is no reason to transpose what it is added to."""
    report = relayout.optimize(model(STATE.replace("ADDED", added), c=floats(4096))).report
    assert (report.source_transposes, report.transposes, report.proved) == (2, count, True)


def test_what_a_price_of_an_operator_says_is_not_said_twice() -> None:
    sites = build(ir.from_proto(model(STATE.replace("ADDED", "b"))))
    (add,) = (site for site in sites.sites if site.node is not None and site.node.op_type == "Add")
    label = Label((1, 0))
    assert stretches_elements(add, label)
    add.signature = replace(add.signature, price=lambda placement: 0)
    assert not stretches_elements(add, label)


CHAIN = """
        into = Transpose<perm=[0,2,1,3,4]>(u)
        each = Reshape(into, windows)
        column = Transpose<perm=[0,2,1]>(each)
        result = MatMul(rows, column)
"""
"""Two Transposes in a row copy runs; one in their place copies single elements."""
CHAINED = {"windows": np.array([64, 16, 24]), "rows": floats(64, 5, 24)}


def chain_and_attention() -> onnx.ModelProto:
    """That, and two times queries, keys and values."""
    block = ATTENTION.split("{")[1].split("}")[0]
    other = re.sub(r"\b([xyabcqkvrspot])\b", r"\g<1>_", block)
    ends = "float[8,4,8,4,24] u, float[6,10,48] x, float[6,10,48] x_"
    given = "float[64,5,16] result, float[6,10,16] y, float[6,10,16] y_"
    shapes = {"heads": np.array([6, 10, 3, 2, 8]), "joined": np.array([6, 10, 16])}
    return model(f"chain ({ends}) => ({given}) {{ {CHAIN}{block}{other} }}", w=floats(48, 48), **shapes, **CHAINED)


def test_where_two_transposes_in_a_row_are_one_there_are_still_no_more() -> None:
    proto = chain_and_attention()
    result = relayout.optimize(proto)
    assert (result.report.source_transposes, result.report.transposes, result.report.proved) == (8, 7, True)
    assert relayout.optimize(proto, per_transpose=0).report.transposes == 9
    assert relayout.verify(proto, result).ok


def test_one_transpose_in_the_place_of_two_is_proved_without_prices() -> None:
    proto = model(f"chain (float[8,4,8,4,24] u) => (float[64,5,16] result) {{ {CHAIN} }}", **CHAINED)
    result = relayout.optimize(proto)
    assert (result.report.transposes, result.report.verdict) == (1, "proved minimal")
    assert result.plan["options"]["per_scattered"] == 0


@pytest.mark.parametrize("seed", [*range(0, 400, 20), 541, 931, 2355, 2517])
def test_no_plan_with_prices_costs_more_than_the_source(seed: int) -> None:
    graph, _ = random_model(seed, steps=6 + seed % 18)
    sites = build(ir.from_proto(graph), per_scattered=3)
    found, own = plan(sites), with_choice(*own_choice(sites, plan(sites)), Solution((), 0, 0, Leaf({})))
    assert found.size + 3 * found.scattered <= own.size + 3 * own.scattered


SCATTERED = (78, 83, 402, 541, 887, 931, 1317, 1415, 1677)
"""Random graphs of which the fewest bytes take more single elements than the source, and that have few choices."""


@pytest.mark.parametrize("seed", SCATTERED)
def test_no_choice_with_as_few_single_elements_moves_fewer_bytes(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr("relayout.infer.no_regression.ALLOWED", 0)
    graph, feed = random_model(seed, steps=6 + seed % 18)
    sites = build(ir.from_proto(graph))
    fewest = plan(sites)
    found = no_worse_plan(sites, fewest)
    assert fewest.scattered > found.scattered <= found.source_scattered
    assert found.proved
    problem = found.formulation.problem
    sizes = []
    for choice in itertools.product(*(range(len(costs)) for costs in problem.costs)):
        tried = plan_of(found.formulation, found.solution._replace(choice=choice, cost=problem.evaluate(choice)))
        if tried.scattered <= found.scattered:
            sizes.append(tried.size)
    assert fewest.size <= found.size == min(sizes) <= found.source_size
    result = relayout.optimize(graph)
    assert left(result.proto, feed) == (len(found.crossings), found.size)
    for expected, got in zip(run(graph, feed), run(result.proto, feed), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "given"),
    [
        ("yzab,yzcb->zyac", "2,6,10,10"),
        ("yzab,yzcb->yzac", "6,2,10,10"),
        ("yzab,yzcb->azyc", "10,2,6,10"),
        ("yzab,yzab->bz", "8,2"),
    ],
)
def test_an_einsum_keeps_an_order_that_only_its_equation_says(equation: str, given: str) -> None:
    """Axes that all operands have come in another order in what it gives: no order of the operands would say so."""
    ends = f"(float[6,2,10,8] x, float[6,2,10,8] k) => (float[{given}] y)"
    report = relayout.optimize(model(f'g {ends} {{ y = Einsum<equation="{equation}">(x, k) }}')).report
    assert (report.transposes, report.bytes, report.proved) == (0, 0, True)


def test_a_sum_whose_axes_change_places_keeps_them() -> None:
    report = relayout.optimize(
        model('g (float[6,5,4] x) => (float[4,6] y) { y = Einsum<equation="abc->ca">(x) }')
    ).report
    assert (report.transposes, report.bytes, report.proved) == (0, 0, True)
