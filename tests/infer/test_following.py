"""Operators that follow others in large graphs: nothing is lost but ties, and everything is still told of them."""

from __future__ import annotations

import json
import random

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import relayout
from apply.test_standard_wrapped import standard, wrapped
from infer.graphs import random_model
from infer.test_random_graphs import transposed_bytes
from relayout.infer.build import build
from relayout.infer.plan_file import check, later
from relayout.infer.plans import Plan, plan
from relayout.infer.stored_orders import stored_order_numbers
from relayout.pipeline.result import Result
from running import run
from text_form import model

LARGE = "relayout.infer.presolve.LARGE"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of any size have followers."""
    monkeypatch.setattr(LARGE, 0)


def optimized(graph: onnx.ModelProto, large: int) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LARGE, large)
        return relayout.optimize(graph)


def planned(graph: onnx.ModelProto) -> Plan:
    return plan(build(ir.from_proto(graph)))


def following(graph: onnx.ModelProto) -> dict[str, str]:
    """A follower -> the site that it follows."""
    found = planned(graph)
    sites = found.sites.sites
    return {sites[number].name: sites[lead].name for number, (lead, _) in found.formulation.follow.leads.items()}


def test_no_tie_is_broken_less_well_on_random_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plan costs, ties and all, in the problem of the same graph without followers: no more than its best."""
    ties = followed = 0
    for seed in range(150):
        graph, _ = random_model(seed, steps=6 + seed % 30)
        sites = build(ir.from_proto(graph))
        monkeypatch.setattr(LARGE, 10**9)
        alone = plan(sites)
        monkeypatch.setattr(LARGE, 0)
        found = plan(sites)
        pairs = zip(sites.sites, alone.formulation.labels, found.labels, strict=True)
        choice = [
            [stored_order_numbers(site, each) for each in labels].index(stored_order_numbers(site, label))
            for site, labels, label in pairs
        ]
        problem = alone.formulation.problem
        assert problem.evaluate(choice) == alone.solution.cost, seed
        ties += alone.solution.cost % problem.unit
        followed += len(found.formulation.follow.leads)
    assert ties > 300
    assert followed > 300


@pytest.mark.parametrize("block", range(6))
@pytest.mark.sampled(every=3)
def test_followers_lose_nothing_on_random_graphs(block: int) -> None:
    """Bytes, Transposes and proof are those of the same graph without followers, and so are the numbers."""
    fewer = 0
    for seed in range(block * 25, block * 25 + 25):
        graph, feed = random_model(seed, steps=6 + seed % 30)
        alone, followed = optimized(graph, 10**9), optimized(graph, 0)
        assert followed.report.proved, seed
        assert (followed.report.bytes, followed.report.transposes) == (alone.report.bytes, alone.report.transposes)
        assert transposed_bytes(followed.proto) == (followed.report.transposes, followed.report.bytes), seed
        for expected, got in zip(run(graph, feed), run(followed.proto, feed), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=str(seed))
        for remaining in followed.report.remaining:
            assert sum(cause.bytes for cause in remaining.causes) == remaining.bytes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LARGE, 0)
            found = planned(graph)
            fewer += bool(found.formulation.follow.leads)
            stated = json.loads(json.dumps(later(found, {})()))
            assert check(stated, build(ir.from_proto(graph))).ok
    assert fewer > 5


FAN_OUT = """
    g (float[2,3,4,5] x) => (float[2,4,5,3] y, float[2,4,5,3] z, float[2,3,4,5] w) {
        a = Relu(x)
        s = Softmax<axis=1>(a)
        b = Neg(s)
        t = Transpose<perm=[0,2,3,1]>(b)
        y = Abs(t)
        c = Exp(s)
        u = Transpose<perm=[0,2,3,1]>(c)
        z = Abs(u)
        w = Tanh(s)
    }"""


@pytest.mark.usefixtures("small")
def test_who_follows_whom() -> None:
    """The only reader follows what it reads; one of several readers follows the only one behind it."""
    graph = model(FAN_OUT)
    assert following(graph) == {
        "Relu a": "input x",  # nobody else reads x
        "Neg b": "output y",  # three read s, and one what each of them gives
        "Abs y": "Neg b",  # behind a Transpose, too: it is a view
        "Exp c": "output z",
        "Abs z": "Exp c",
        "Tanh w": "output w",
    }
    (crossing,) = planned(graph).crossings
    assert crossing.root.value.name == "s"
    assert sorted(site.name for site in crossing.readers) == ["Exp c", "Neg b"]
    (remaining,) = relayout.optimize(graph).report.remaining
    assert remaining.bytes == 480
    assert remaining.reason.startswith("Needed because you keep input x in")
    assert "you keep output y in" in remaining.reason


BEHIND = """
    g (float[2,3,4,5] x) => (float[2,4,5,3] y, float[2,3,4,5] z) {
        s = Softmax<axis=1>(x)
        a = Neg(s)
        b = Ceil(a)
        y = Transpose<perm=[0,2,3,1]>(b)
        z = Tanh(s)
    }"""
BEFORE = """
    g (float[2,8,4,5] x) => (float[2,8,4,5] y) {
        c = Conv(x, kernel)
        a = Relu(c)
        b = Ceil(a)
        y = Neg(b)
    }"""
BETWEEN = """
    g (float[2,3,4,5] x) => (float[2,4,5,3] y) {
        a = Neg(x)
        b = Ceil(a)
        t = Transpose<perm=[0,2,3,1]>(b)
        c = Abs(t)
        y = Tanh(c)
    }"""
FEW_CHANNELS = """
    g (float[2,64,4] x) => (float[4,2,64] y) {
        s = MatMul(x, square)
        a = Add(s, bias)
        b = Ceil(a)
        y = Transpose<perm=[2,0,1]>(b)
    }"""
BETWEEN_BEHIND = BEHIND.replace("y = ", "t = ").replace("z = ", "y = Abs(t)\n        z = ")


@pytest.mark.parametrize(
    ("text", "options", "at"),
    [
        (BEHIND, {}, "b"),
        (BEFORE, {"to": "NHWC"}, "c"),
        (BETWEEN, {}, "b"),
        (BETWEEN_BEHIND, {}, "b"),
        (FEW_CHANNELS, {}, "s"),
    ],
)
def test_a_transpose_stands_where_most_of_them_run_as_in_the_source_and_in_long_runs(
    text: str, options: dict[str, str], at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without followers: behind those that one reader leads, or before those that what is given leads."""
    constants = {"kernel": np.ones((8, 8, 1, 1), np.float32), "square": np.eye(4, dtype=np.float32)}
    constants["bias"] = np.ones(4, np.float32)
    graph = model(text, **{name: array for name, array in constants.items() if name in text})
    alone = relayout.convert(graph, **options)
    monkeypatch.setattr(LARGE, 0)
    followed = relayout.convert(graph, **options)
    assert at in {remaining.tensor for remaining in followed.report.remaining}
    assert tuple(followed.report.remaining) == tuple(alone.report.remaining)
    assert followed.proto == alone.proto


THREE_ORDERS = """
    g (float[2,8,4,5] x) => (float[5,4,8,2] y) {
        c = Conv(x, kernel)
        a = Relu(c)
        b = Ceil(a)
        y = Transpose<perm=[3,2,1,0]>(b)
    }"""
AND_ANOTHER = THREE_ORDERS.replace(" y)", " y, float[2,8,4,5] z)").replace("a = ", "z = Conv(c, kernel)\n        a = ")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("text", "transposes"), [(THREE_ORDERS, 2), (AND_ANOTHER, 3)])
def test_where_neither_order_is_the_sources_a_transpose_stays(text: str, transposes: int) -> None:
    """In the source's order followers would need one more."""
    graph = model(text, kernel=np.eye(8, dtype=np.float32).reshape(8, 8, 1, 1))
    result = relayout.convert(graph, to="NHWC")
    assert (result.report.transposes, result.report.bytes) == (transposes, 1280 * transposes)
    assert transposed_bytes(result.proto) == (transposes, 1280 * transposes)


@pytest.mark.usefixtures("small")
def test_the_value_that_stands_for_others_stands_for_itself() -> None:
    graph = model(FAN_OUT.replace("b = Neg(s)", "q = Neg(s)\n        b = Ceil(q)"))
    found = planned(graph).formulation.follow
    assert all(found.stands[stands] == stands for stands in found.stands)
    assert len({*found.stands}) == len(found.stands) - len(found.leads)


OTHERS = """
    g (float[2,3,4,5] x) => (float[2,4,5,3] y) {
        a = Softmax<axis=1>(x)
        b = Cast<to=10>(a)
        c = Abs(b)
        d = Cast<to=1>(c)
        e = Add(d, bias)
        f = Mul(e, a)
        h = ReduceSum<keepdims=1>(f, axes)
        i = Sub(f, h)
        y = Transpose<perm=[0,2,3,1]>(i)
    }"""


@pytest.mark.usefixtures("small")
def test_only_what_gives_as_many_bytes_as_it_reads_follows() -> None:
    graph = model(OTHERS, bias=np.ones((3, 1, 1), np.float32), axes=np.array([1]))
    found = following(graph)
    assert found == {
        "Abs c": "Cast b",
        "Add e": "Cast d",
    }  # not a Cast, not what reads or gives others, but what reads a constant
    assert planned(graph).proved


SQUARE = """
    g (float[3,3] x) => (float[3,3] y, float[3,3] z) {
        a = Softmax<axis=0>(x)
        t = Transpose<perm=[1,0]>(a)
        b = Neg(t)
        y = Softmax<axis=0>(b)
        z = Softmax<axis=1>(x)
    }"""


@pytest.mark.usefixtures("small")
def test_behind_a_transpose_of_equal_extents_what_follows_has_its_axes_where_they_are() -> None:
    graph = model(SQUARE)
    assert following(graph) == {"Neg b": "Softmax a"}
    result = relayout.optimize(graph)
    assert (result.report.bytes, result.report.proved) == (36, True)
    feed = {"x": np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)}
    for expected, got in zip(run(graph, feed), run(result.proto, feed), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.usefixtures("small")
def test_what_counts_its_factors_otherwise_does_not_follow() -> None:
    """What Neg reads has the extents of what it gives, and yet its axes lie in other places."""
    text = SQUARE.replace("b = Neg(t)", "r = Reshape(t, nine)\n        n = Neg(r)\n        b = Reshape(n, threes)")
    assert following(model(text, nine=np.array([9]), threes=np.array([3, 3]))) == {}


RUNS = """
    g (float[2,12,5] x) => (float[2,4,3,5] y, float[2,12,5] z) {
        a = Abs(x)
        z = Tanh(a)
        s = Softmax<axis=1>(a)
        r = Reshape(s, split)
        y = Transpose<perm=[0,2,1,3]>(r)
    }"""


@pytest.mark.usefixtures("small")
def test_what_keeps_an_axis_together_does_not_follow_what_parts_it() -> None:
    graph = model(RUNS, split=np.array([2, 3, 4, 5]))
    assert following(graph) == {"Abs a": "input x", "Tanh z": "output z"}
    assert planned(graph).size == 480


CAPTURED = """
    g (float[2,3,4] x, int64 n, bool on) => (float[2,4,3] y) {
        a = Relu(x)
        y = Loop(n, on, zero) <body = step (int64 i, bool more, float[2,4,3] s) => (bool still, float[2,4,3] t) {
            still = Identity(more)
            b = Abs(a)
            c = Transpose<perm=[0,2,1]>(b)
            t = Add(c, s)
        }>
    }"""


@pytest.mark.usefixtures("small")
def test_what_a_body_reads_from_outside_is_not_followed_into_it() -> None:
    """A Transpose of it would be in the body then, and run each time."""
    graph = model(CAPTURED, zero=np.zeros((2, 4, 3), np.float32))
    assert following(graph) == {"Relu a": "input x"}


@pytest.mark.usefixtures("small")
def test_bodies_of_loops_have_followers_of_their_own() -> None:
    graph = model("""
    g (float[2,3,4] x, int64 n) => (float[2,4,3] y) {
        go = Constant<value_int=1>()
        on = Cast<to=9>(go)
        last = Loop(n, on, x) <body = step (int64 i, bool more, float[2,3,4] s) => (bool still, float[2,3,4] t) {
            still = Identity(more)
            u = Transpose<perm=[0,2,1]>(s)
            v = Abs(u)
            r = Relu(v)
            t = Transpose<perm=[0,2,1]>(r)
        }>
        y = Transpose<perm=[0,2,1]>(last)
    }""")
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    result = relayout.optimize(graph)
    assert result.report.proved
    feed = {"x": x, "n": np.array(3)}
    for expected, got in zip(run(graph, feed), run(result.proto, feed), strict=True):
        np.testing.assert_array_equal(got, expected)


ALIKE = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64}
"""Types of which there are absolute values."""


def surrounded(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Absolute values between an operator and the Transposes around it: what it reads and gives lies as it has it."""
    found = onnx.ModelProto()
    found.CopyFrom(graph)
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*found.graph.input, *found.graph.output)}
    nodes = []
    for node in graph.graph.node:
        ends = [(kinds.get(name), name) for name in (*node.input[:1], *node.output[:1])]
        if node.op_type != "Transpose" or not any(kind in ALIKE for kind, _ in ends):
            nodes.append(node)
        elif ends[0][0] is not None:
            perm = list(node.attribute[0].ints)
            nodes.append(helper.make_node("Transpose", node.input, [f"{ends[1][1]}__as_it_is"], perm=perm))
            nodes.append(helper.make_node("Abs", [f"{ends[1][1]}__as_it_is"], node.output, name=f"n_{ends[1][1]}"))
        else:
            perm = list(node.attribute[0].ints)
            nodes.append(helper.make_node("Abs", node.input, [f"{ends[0][1]}__alike"], name=f"n_{ends[0][1]}"))
            nodes.append(helper.make_node("Transpose", [f"{ends[0][1]}__alike"], node.output, perm=perm))
    del found.graph.node[:]
    found.graph.node.extend(nodes)
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_operator_of_the_standard_follows_that_may_not() -> None:
    """As many bytes and Transposes as without followers, around every operator of the standard's own node tests."""
    followed = 0
    for name, source, given in standard():
        graph = surrounded(wrapped(source, given, random.Random(name))[0])
        alone, other = optimized(graph, 10**9).report, optimized(graph, 0).report
        assert (alone.bytes, alone.transposes, alone.proved) == (other.bytes, other.transposes, other.proved), name
        followed += 1
    assert followed > 1000


def test_a_large_graph_has_them_by_itself() -> None:
    """Thousands of activations in a row, and a Transpose behind them: they are one value, whose ends decide."""
    steps = "\n".join(f"a{number + 1} = Relu(a{number})" for number in range(8_200))
    text = f"""
    g (float[2,3,4] x) => (float[2,4,3] y) {{
        a0 = Softmax<axis=1>(x)
        {steps}
        y = Transpose<perm=[0,2,1]>(a8200)
    }}"""
    found = planned(model(text))
    assert len(found.formulation.follow.leads) == 8_200
    assert len(found.formulation.values) == 2  # x, and what Softmax gives
    assert found.proved
    assert len(found.crossings) == 1
