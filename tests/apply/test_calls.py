"""Calls of model-local functions: their bodies take part in the choice, and calls that nothing came of stay calls."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx import inliner, parser, shape_inference

import relayout
from apply.nested import operators
from relayout.formats.onnx import spelling
from relayout.formats.onnx.calls import restore_calls
from relayout.pipeline import check_plan
from relayout.pipeline.onnx_ir_pass import OptimizeLayouts
from relayout.rules import aligned, register, scope
from running import run
from text_form import floats

Feed = dict[str, NDArray[np.generic]]
HEADER = '<ir_version: 10, opset_import: ["": 21, "my": 1]>\n'
ACTIVATION = """
<opset_import: ["": 21], domain: "my"> act<alpha>(x) => (y) {
    one = Constant<value_float=1.0>()
    r = LeakyRelu<alpha: float=@alpha>(x)
    y = Add(r, one)
}"""
BLOCK = """
<opset_import: ["": 21, "my": 1], domain: "my"> block<alpha: float=0.5>(x) => (y) {
    t = Transpose<perm=[0,2,3,1]>(x)
    r = my.act<alpha: float=@alpha>(t)
    y = Transpose<perm=[0,3,1,2]>(r)
}"""


def feed_of(model: onnx.ModelProto) -> Feed:
    fed: Feed = {}
    for seed, value in enumerate(model.graph.input):
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        kind = value.type.tensor_type.elem_type
        fed[value.name] = np.array(True) if kind == onnx.TensorProto.BOOL else floats(*dims, seed=seed)
    return fed


def optimized(text: str) -> tuple[onnx.ModelProto, relayout.Result]:
    """A model, checked, and the result, held to the values of the source and to the bytes of its flat twin."""
    source = parser.parse_model(HEADER + text)
    onnx.checker.check_model(source, full_check=True)
    feed = feed_of(source)
    result = relayout.optimize(source)
    proto = result.proto
    onnx.checker.check_model(proto, full_check=True)
    for want, got in zip(run(source, feed), run(proto, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    flat = relayout.optimize(inliner.inline_local_functions(source))
    assert (result.report.bytes, result.report.source_bytes) == (flat.report.bytes, flat.report.source_bytes)
    assert result.report.proved
    return source, result


def test_what_is_transposed_inside_of_calls_is_won() -> None:
    """`block` is its `act` in another order; the function is no longer called and goes, the inner call stays a call."""
    _, result = optimized(
        "g (float[2,3,4,5] x) => (float[2,3,4,5] y) {"
        f" a = my.block<alpha=0.3>(x) b = my.block(a) y = LRN<size=3>(b) }} {BLOCK} {ACTIVATION}"
    )
    assert result.report.source_bytes == 4 * 480
    assert result.report.bytes == 0
    assert operators(result.proto.graph) == ["act", "act", "LRN"]
    assert [function.name for function in result.proto.functions] == ["act"]
    alphas = [node.attribute[0].f for node in result.proto.graph.node if node.op_type == "act"]
    assert alphas == [pytest.approx(0.3), pytest.approx(0.5)]
    assert not result.proto.graph.initializer


PLAIN = """
<opset_import: ["": 21], domain: "my"> plain(x, w) => (y, z) {
    h = Constant<value_float=0.5>()
    r = Mul(x, h)
    i = Identity(r)
    y = Add(i, w)
    z = Identity(y)
}"""


def test_where_nothing_is_won_the_source_is_given_back() -> None:
    text = (
        "g (float[2,3,4] x) => (float[2,3,4] y, float[2,3,4] p, float[2,3,4] q) {"
        f" a, b = my.plain(x, x) y, c = my.plain(a, b) p, q = my.plain(c, x) }} {PLAIN}"
    )
    source, result = optimized(text)
    assert result.proto == source
    # What lies behind it, the model without its bytes, is the source's, too: nodes, names, functions, imports.
    assert onnx.printer.to_text(ir.to_proto(result.model)) == onnx.printer.to_text(
        ir.to_proto(ir.from_proto(shape_inference.infer_shapes(source)))
    )


def test_a_call_that_nothing_came_of_stays_a_call() -> None:
    _, result = optimized(
        "g (float[2,3,4,5] x, float[4] w) => (float[2,3,4,5] y, float[2,3,4,5] z) {"
        f" b = my.block(x) y, u = my.plain(b, w0) z, v = my.plain(x, x) }} {BLOCK} {ACTIVATION} {PLAIN}".replace(
            "w0", "x"
        )
    )
    assert result.report.bytes == 0
    assert operators(result.proto.graph) == ["act", "plain", "plain"]
    assert {function.name for function in result.proto.functions} == {"act", "plain"}


def test_a_call_with_a_subgraph_stays_a_call() -> None:
    _, result = optimized("""
        g (float[2,3,4] x, bool c) => (float[2,3,4] y, float[2,3,4] z) {
            y = my.either(c, x)
            t = Transpose<perm=[0,2,1]>(x)
            r = Relu(t)
            z = Transpose<perm=[0,2,1]>(r)
        }
        <opset_import: ["": 21], domain: "my"> either(c, x) => (y) {
            n = Neg(x)
            y = If (c) <
                then_branch = then () => (p) { one = Constant<value_float=1.0>() p = Add(n, one) },
                else_branch = else () => (q) { q = Abs(x) }
            >
        }""")
    assert result.report.bytes == 0
    assert operators(result.proto.graph) == ["either", "Relu"]


def test_a_subgraph_of_a_body_takes_part() -> None:
    _, result = optimized("""
        g (float[2,3,4] x, bool c) => (float[2,4,3] y) {
            t = Transpose<perm=[0,2,1]>(x)
            y = my.either(c, t)
        }
        <opset_import: ["": 21], domain: "my"> either(c, x) => (y) {
            y = If (c) <
                then_branch = then () => (p) {
                    t = Transpose<perm=[0,2,1]>(x) s = Softmax<axis=1>(t) p = Transpose<perm=[0,2,1]>(s)
                },
                else_branch = else () => (q) { q = Abs(x) }
            >
        }""")
    assert result.report.bytes == 96


def test_a_call_inside_of_a_branch() -> None:
    _, result = optimized(
        """
        g (float[2,3,4,5] x, bool c) => (float[2,3,4,5] y) {
            y = If (c) <
                then_branch = then () => (float[2,3,4,5] p) { p = my.block(x) },
                else_branch = else () => (float[2,3,4,5] q) { q = my.act<alpha=0.1>(x) }
            >
        }"""
        + BLOCK
        + ACTIVATION
    )
    assert result.report.bytes == 0
    assert operators(result.proto.graph) == ["If", "act", "act"]


def test_inputs_that_are_handed_on_or_absent() -> None:
    source, result = optimized(
        """
        g (float[2,3] x, float[2,3] w) => (float[2,3] y, float[3,2] u, float[2,3] v) {
            y, s = my.pass(x, , w)
            t = Transpose(s)
            u = Relu(t)
            v, e = my.pass(w, w)
        }
        <opset_import: ["": 21], domain: "my"> pass(a, b, c) => (y, z) {
            m = Clip(a, b)
            y = Neg(m)
            z = Identity(a)
        }""".replace("v, e = my.pass(w, w)", "v = Relu(w)")
    )
    assert result.report.bytes == 24
    assert operators(result.proto.graph).count("pass") == 1
    assert [put.name for put in result.proto.graph.output] == [put.name for put in source.graph.output]


def test_an_output_that_is_a_constant() -> None:
    _, result = optimized("""
        g (float[2,3] x) => (float[3,2] y, float k) {
            t, k = my.both(x)
            r = Relu(t)
            u = Transpose(r)
            n = Neg(u)
            y = Transpose(n)
        }
        <opset_import: ["": 21], domain: "my"> both(a) => (y, z) {
            y = Transpose(a)
            z = Constant<value_float=2.0>()
        }""")
    assert result.report.bytes == 24


@pytest.mark.parametrize(
    ("version", "body", "spelled"), [(18, "Tanh(x)", True), (18, "Cast<to=1>(x)", True), (12, "Softmax(x)", False)]
)
def test_versions_that_differ(version: int, body: str, spelled: bool) -> None:
    """Tanh is one and the same in 18 and 21, Cast has one attribute more; the axis of Softmax was another one in 12."""
    source = parser.parse_model(
        HEADER
        + f"""
        g (float[2,3] x) => (float[2,3] y) {{ t = Transpose(x) f = my.f(t) y = Transpose(f) }}
        <opset_import: ["": {version}], domain: "my"> f(x) => (y) {{ t = {body} y = Neg(t) }}"""
    )
    result = relayout.optimize(source)
    assert (result.report.bytes == 0) == spelled
    assert (result.proto == source) != spelled
    np.testing.assert_array_equal(run(result.proto, feed_of(source))[0], run(source, feed_of(source))[0])


def test_a_rule_is_preferred_to_a_body() -> None:
    text = (
        "g (float[2,3,4,5] x) => (float[2,3,4,5] y) { t = Transpose<perm=[0,2,3,1]>(x) r = my.act<alpha=0.1>(t)"
        f" y = Transpose<perm=[0,3,1,2]>(r) }} {ACTIVATION}"
    )
    source = parser.parse_model(HEADER + text)
    with scope():

        @register("my:act", kind="layout-agnostic")
        def act(operator: relayout.rules.Operator) -> relayout.rules.Fact:
            """Any order."""
            return aligned(operator, (0,))

        result = relayout.optimize(source)
    assert result.report.bytes == 0
    assert operators(result.proto.graph) == ["act"]
    assert not any("/" in value.tensor for value in result.report.chart.values)


def doubling(levels: int) -> str:
    """Functions each of which calls the next twice: 2**levels operators."""
    text = "g (float[2,3] x) => (float[2,3] y) { t = Transpose(x) r = my.f0(t) y = Transpose(r) }"
    for level in range(levels):
        inner = f"my.f{level + 1}"
        text += (
            f' <opset_import: ["": 21, "my": 1], domain: "my"> f{level}(x) => (y) {{ t = {inner}(x) y = {inner}(t) }}'
        )
    return text + f' <opset_import: ["": 21], domain: "my"> f{levels}(x) => (y) {{ y = Neg(x) }}'


def test_a_short_file_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is much to spell out is a barrier, and what is too much for anybody is refused."""
    with pytest.raises(relayout.ReadError, match="spelled out"):
        relayout.optimize(parser.parse_model(HEADER + doubling(40)))
    source = parser.parse_model(HEADER + doubling(4))
    result = relayout.optimize(source)
    assert result.report.bytes == 0
    assert operators(result.proto.graph) == ["f0"]
    monkeypatch.setattr(spelling, "MOST_NODES", 10)
    monkeypatch.setattr(spelling, "GROWTH", 1)
    assert relayout.optimize(source).proto == source


def test_a_function_that_calls_itself_is_left_alone() -> None:
    model = ir.from_proto(parser.parse_model(HEADER + doubling(2)))
    inner = model.functions["my", "f2", ""]
    (node,) = inner
    node.domain, node.op_type = "my", "f0"
    spelling.spell_out(model, lambda node: False)
    assert [node.op_type for node in model.graph] == ["Transpose", "f0", "Transpose"]


def test_a_part_of_a_model_with_calls() -> None:
    text = (
        "g (float[2,3,4,5] x) => (float[2,3,4,5] y) { a = my.block<alpha=0.3>(x) b = my.block(a)"
        f" c = LRN<size=3>(b) y = my.act<alpha=0.2>(c) }} {BLOCK} {ACTIVATION}"
    )
    source = parser.parse_model(HEADER + text)
    result = relayout.convert(source, inputs=["a"], outputs=["c"])
    assert [put.name for put in result.proto.graph.output] == ["c"]
    assert result.report.bytes == 0
    assert operators(result.proto.graph) == ["act", "LRN"]


def test_the_pass_of_onnx_ir() -> None:
    main = "g (float[2,3,4,5] x) => (float[2,3,4,5] y) { a = my.block(x) y = my.act<alpha=0.2>(a) }"
    text = main + BLOCK + ACTIVATION
    source = parser.parse_model(HEADER + text)
    model = ir.from_proto(source)
    assert OptimizeLayouts()(model).modified
    proto = ir.to_proto(model)
    assert operators(proto.graph) == ["act", "act"]
    np.testing.assert_allclose(run(proto, feed_of(source))[0], run(source, feed_of(source))[0], rtol=1e-6)
    assert not OptimizeLayouts()(ir.from_proto(proto)).modified


def test_a_plan_and_values_are_checked_against_calls(tmp_path: Path) -> None:
    main = "g (float[2,3,4,5] x) => (float[2,4,5,3] y) { a = my.block(x) y = Transpose<perm=[0,2,3,1]>(a) }"
    source = parser.parse_model(HEADER + main + BLOCK + ACTIVATION)
    result = relayout.optimize(source)
    assert result.report.bytes == 480
    assert relayout.verify(source, result.model).ok
    (tmp_path / "plan.json").write_text(json.dumps(result.plan))
    assert check_plan(tmp_path / "plan.json", source).proved


def test_convolutions_inside_of_calls_run_in_the_layout_asked_for() -> None:
    source = parser.parse_model(
        HEADER
        + """
        g (float[2,3,6,7] x, float[4,3,3,3] w, float[4,4,3,3] v) => (float[2,4,2,3] y) {
            a = my.step(x, w) y = my.step(a, v)
        }
        <opset_import: ["": 21], domain: "my"> step(x, w) => (y) { c = Conv(x, w) y = Relu(c) }"""
    )
    result = relayout.convert(source, to="NHWC")
    assert [node.domain for node in result.proto.graph.node if node.op_type == "Conv"] == ["relayout.nhwc"] * 2
    np.testing.assert_allclose(
        run(result.proto, feed_of(source))[0], run(source, feed_of(source))[0], rtol=1e-4, atol=1e-5
    )


BODIES = (
    "{0} = Relu({1})",
    "{0} = Add({1}, {2})",
    "{0} = Transpose<perm=[1,2,0]>({1})",
    "{0} = Transpose<perm=[0,2,1]>({1})",
    "{0} = Softmax<axis=1>({1})",
    "{0} = Identity({1})",
    "{0} = Mul({1}, {1})",
    "k{0} = Constant<value_float=0.5>() {0} = Add({1}, k{0})",
)


def drawn(seed: int) -> str:
    """Functions of random nodes that call one another, on cubes: any value fits any operator."""
    rng = random.Random(seed)
    functions = []
    for number in range(3):
        calls = [f"{{0}} = my.f{inner}({{1}}, {{2}})" for inner in range(number)]
        functions.append(
            f'<opset_import: ["": 21, "my": 1], domain: "my"> f{number}(a, b) => (r, s) '
            f"{{{nodes(rng, calls, rng.randint(1, 4))}}}"
        )
    calls = [f"{{0}}, {{0}}_2 = my.f{number}({{1}}, {{2}})" for number in range(3)]
    body = nodes(rng, calls * 3, 6)
    return f"g (float[4,4,4] a, float[4,4,4] b) => (float[4,4,4] r, float[4,4,4] s) {{{body}}}" + " ".join(functions)


def nodes(rng: random.Random, calls: list[str], count: int) -> str:
    values, lines = ["a", "b"], []
    for number in range(count):
        lines.append(rng.choice([*BODIES, *calls]).format(f"v{number}", rng.choice(values), rng.choice(values[-3:])))
        values.append(f"v{number}")
    first, second = rng.choice(values), values[-1]
    return " ".join([*lines, f"r = Neg({first})", f"s = Relu({second})"])


@pytest.mark.parametrize("seed", range(40))
def test_random_calls_are_as_good_as_their_flat_twins(seed: int) -> None:
    text = re.sub(r"(v\d+) = my", r"\1, \1_3 = my", drawn(seed))
    source, result = optimized(text)
    if (
        result.report.bytes == result.report.source_bytes
        and result.report.transposes == result.report.source_transposes
    ):
        assert result.proto == source


@pytest.mark.parametrize("seed", range(40))
def test_calls_are_put_back_as_they_were(seed: int) -> None:
    text = re.sub(r"(v\d+) = my", r"\1, \1_3 = my", drawn(seed))
    model = ir.from_proto(parser.parse_model(HEADER + text))
    before = onnx.printer.to_text(ir.to_proto(model))
    spelling.spell_out(model, lambda node: False)
    assert not any(node.domain for node in model.graph)
    restore_calls(model)
    assert onnx.printer.to_text(ir.to_proto(model)) == before
