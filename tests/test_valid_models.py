"""Small models that were tracebacks, or refused: a result, or one error that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import relayout
from apply.nested import operators
from running import run
from small import build, feed_of
from text_form import floats

WASTE = "a = Transpose<perm=[0,2,3,1]>(w) b = Relu(a) y = Transpose<perm=[0,3,1,2]>(b)"


def parsed(given: str, gives: str, text: str, opset: int = 21) -> onnx.ModelProto:
    """A graph with two Transposes that cancel, and what is given besides."""
    gives = f"{gives}, float[2,3,4,5] y" if gives else "float[2,3,4,5] y"
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> g ({given}, float[2,3,4,5] w) => ({gives}) {{ {text} {WASTE} }}'
    )


@pytest.mark.parametrize("kind", ["string", "float", "bfloat16", "int4"])
def test_no_elements_of_any_type_are_moved(kind: str) -> None:
    source = parsed(f"{kind}[2,0,3] s", f"{kind}[3,0,2] t", "t = Transpose(s)")
    result = relayout.optimize(source)
    assert result.report.transposes == 0
    onnx.checker.check_model(result.proto, full_check=True)


def test_texts_that_are_constant_are_stored_as_they_are_read() -> None:
    source = parsed("string[2,3] s", "bool[2,3] t", "q = Transpose(s) e = Equal(q, k) t = Transpose(e)")
    source.graph.initializer.append(helper.make_tensor("k", TensorProto.STRING, [3, 1], [b"a", b"bb", "ö".encode()]))
    result = relayout.optimize(source)
    assert result.report.transposes == 0
    feed = {"s": np.array([["a", "bb", "c"], ["ö", "bb", "ö"]], object), "w": floats(2, 3, 4, 5)}
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("where", ["model", "function"])
def test_operators_of_a_domain_that_is_no_text(where: str) -> None:
    source = parsed("float[2] x", "float[2] z", "z = Relu(x)")
    if where == "function":
        source.functions.append(
            helper.make_function("f", "F", ["p"], ["q"], [helper.make_node("Neg", ["p"], ["q"])], [])
        )
        source.functions[0].opset_import.add(domain="bytes", version=1)
        source.opset_import.add(domain="f", version=1)
    else:
        source.opset_import.add(domain="bytes", version=1)
    data = source.SerializeToString().replace(b"bytes", b"\xff\xfe\xff\xfe\xff")
    with pytest.raises(relayout.ReadError, match="not UTF-8 text"):
        relayout.optimize(onnx.ModelProto.FromString(data))


@pytest.mark.parametrize("reads", ["a", "w"])
def test_a_body_of_an_operator_that_has_none(reads: str) -> None:
    """No runtime loads that; what the body reads stays where it is."""
    source = parsed("float[1] x", "", "")
    body = parser.parse_graph(f"body () => (float[2,4,5,3] r) {{ r = Abs({reads}) }}")
    source.graph.node[1].attribute.append(helper.make_attribute("body", body))
    result = relayout.optimize(source)
    assert operators(result.proto.graph).count("Abs") == 1
    (inner,) = [a.g for node in result.proto.graph.node for a in node.attribute if a.name == "body"]
    assert inner.node[0].input[0] in {"w", *(name for node in result.proto.graph.node for name in node.output)}


def test_an_operator_of_mixed_types_in_another_layout() -> None:
    """Before opset 14 the standard has no such BatchNormalization, and ONNX raises another error than for shapes."""
    source = parser.parse_model("""
        <ir_version: 7, opset_import: ["": 13]>
        g (float16[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float16[2,3,4] y) {
            y = BatchNormalization(x, s, b, m, v)
        }""")
    result = relayout.convert(source, to="NHWC")
    assert [function.name for function in result.proto.functions] == ["BatchNormalization"]


@pytest.mark.parametrize("between", ["", "n = Neg(u)"])
@pytest.mark.parametrize("slopes", [[1], [1, 1]])
def test_slopes_have_no_more_dimensions_than_what_they_slope(slopes: list[int], between: str) -> None:
    """A scalar behind an Unsqueeze: PRelu stretches its slopes alone."""
    axes = list(range(len(slopes)))
    shape = ",".join("1" * len(slopes))
    read = "n" if between else "u"
    source = parsed("float x", f"float[{shape}] z", f"u = Unsqueeze(x, ax) {between} p = PRelu({read}, s) z = Relu(p)")
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.array(axes), "ax"))
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.full(slopes, 0.1, np.float32), "s"))
    result = relayout.optimize(source)
    onnx.checker.check_model(result.proto, full_check=True)
    feed = {"x": np.array(-2, np.float32), "w": floats(2, 3, 4, 5)}
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


READS = "(float[3,1,5,1] x) =>"
SQUEEZES = {
    "an initializer": (f"{READS} (float[3,5] y) <int64[0] axes = {{}}> {{ y = Squeeze(x, axes) }}", 13),
    "a Constant": (f"{READS} (float[3,5] y) {{ axes = Constant<value_ints: ints = []>() y = Squeeze(x, axes) }}", 13),
    "not stated": (f"{READS} (float[?,?] y) <int64[0] axes = {{}}> {{ y = Squeeze(x, axes) }}", 21),
    "in a body": (
        """(float[3,1,5,1] x, bool c) => (float[3,5] y) <int64[0] axes = {}> {
            y = If(c) <then_branch = t () => (float[3,5] p) { p = Squeeze(x, axes) },
                       else_branch = e () => (float[3,5] q) { n = Neg(x) q = Squeeze(n, axes) }> }""",
        21,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SQUEEZES)
def test_a_squeeze_of_no_axes_takes_out_all_of_one_element(case: str) -> None:
    """So runtimes do, and so files state; ONNX's inference takes out none."""
    text, opset = SQUEEZES[case]
    source = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')
    result = relayout.optimize(source)
    assert any("has no axes" in note for note in result.report.notes)
    assert result.report.interface[-1].shape == (3, 5)
    feed = {"x": floats(3, 1, 5, 1)} | ({"c": np.array(True)} if "body" in case else {})
    (want,), (got,) = run(source, feed), run(result.proto, feed)
    assert want.shape == got.shape == (3, 5)
    np.testing.assert_array_equal(got, want)


IDLE = {
    "an axis of one element": ("float[10,768] x", "a = Reshape(x, s) z = Transpose<perm=[1,0,2]>(a)"),
    "axes of one element": ("int64[1,1,2,2] x", "r = ReduceMax<keepdims=0>(x, two) t = T201(r) z = Cast<to=1>(t)"),
    "nothing": ("float[2,3] x", "a = Relu(x) b = Transpose<perm=[0,1]>(a) z = Neg(b)"),
    "an input": ("float[1,3,4] x", "z = Transpose<perm=[1,0,2]>(x)"),
    "between operators that stay": ("float[1,3,4] x", "a = MatMul(x, k) b = Transpose<perm=[1,0,2]>(a) z = Softmax(b)"),
}  # fmt: skip


@pytest.mark.parametrize("case", IDLE)
def test_a_transpose_that_moves_nothing_leaves_the_file(case: str, tmp_path: Path) -> None:
    """The report counts what the file has."""
    inputs, text = IDLE[case]
    constants = {"s": [10, 1, 768], "two": [2], "k": np.ones((4, 5), np.float32)}
    source = build(inputs, text, {name: array for name, array in constants.items() if f" {name})" in text})
    result = relayout.optimize(source)
    result.save(tmp_path / "result.onnx")
    file = onnx.load(tmp_path / "result.onnx")
    assert result.report.transposes == operators(file.graph).count("Transpose") == 0
    feed = feed_of(source, {})
    (want,), (got,) = run(source, feed), run(file, feed)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5)
