"""Extents that a file states and that do not follow from its inputs: nothing is built upon them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import relayout
from relayout.infer.build import build
from relayout.infer.formulation import size_of
from relayout.pipeline import read
from running import run
from text_form import floats


def parsed(text: str, **shapes: list[int | str | None]) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21, "vendor": 1]> g {text}')
    stated = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    proto.graph.value_info.extend(stated)
    return proto


POOLED = "{ a = Relu(x) y = GlobalLpPool<p=1>(a) }"
CASES = {
    "an output": parsed(f"(float[N,2,3,5] x) => (float[2,2,1,1] y) {POOLED}"),
    "values": parsed(f"(float[N,2,3,5] x) => (float[?,?,?,?] y) {POOLED}", a=[2, 2, 3, 5]),
    "both": parsed(f"(float[N,2,3,5] x) => (float[2,2,1,1] y) {POOLED}", a=[2, 2, 3, 5]),
    "a shape that is computed": parsed(
        """(float[N,2,3,5] x) => (float[2,2,1,1] y)
        { b = Shape(x) a = Reshape(x, b) y = GlobalLpPool<p=1>(a) }""",
        a=[2, 2, 3, 5],
    ),
    "a shape that is fed": parsed(
        """(float[N,2,3,5] x, int64[4] s) => (float[2,2,1,1] y) { a = Reshape(x, s) y = GlobalLpPool<p=1>(a) }""",
        a=[2, 2, 3, 5],
    ),
}


@pytest.mark.parametrize("io", ["keep", "convert"])
@pytest.mark.parametrize("case", CASES)
def test_a_result_runs_at_every_batch_at_which_the_source_runs(case: str, io: str) -> None:
    """Exports whose batch was opened by hand still state it elsewhere; it was written into Reshapes."""
    source = CASES[case]
    result = relayout.convert(source, to="NHWC", io=io)
    for batch in (1, 2, 3):
        feed = {"x": floats(batch, 2, 3, 5)}
        if len(source.graph.input) > 1:
            feed["s"] = np.array([batch, 2, 3, 5])
        last = result.proto.graph.input[0].type.tensor_type.shape.dim[3].dim_value
        given = feed | {"x": feed["x"] if last == 5 else feed["x"].transpose(0, 2, 3, 1)}
        assert io == "convert" or last == 5
        (want,), (got,) = run(source, feed), run(result.proto, given)
        np.testing.assert_allclose(got.ravel(), want.ravel(), rtol=1e-5)


def test_states_of_a_loop_are_of_every_batch() -> None:
    """The body states a batch of 2 of all that it has; it is given any."""
    source = parsed("""
        (float[N,2,3,5] x, int64 m) => (float[2,2,3,5] y, float[?,2,2,1,1] z) {
            y, z = Loop(m, , x) <
                body = b (int64 i, bool c, float[2,2,3,5] s) => (bool d, float[2,2,3,5] e, float[2,2,1,1] f) {
                    d = Identity(c) e = Relu(s) f = GlobalLpPool<p=1>(e) }> }""")
    result = relayout.convert(source, to="NHWC")
    for batch in (1, 2, 3):
        feed = {"x": floats(batch, 2, 3, 5), "m": np.array(2)}
        for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5)


def test_the_name_of_an_input_wins_over_a_number_that_an_output_states() -> None:
    (output,) = relayout.convert(CASES["an output"], to="NHWC").proto.graph.output
    assert [dim.dim_param or dim.dim_value for dim in output.type.tensor_type.shape.dim] == ["N", 2, 1, 1]


def test_what_is_stated_is_a_price() -> None:
    """An extent that nobody knows counts as the file says, and an input's name as 1."""
    source = parsed(
        "(float[N,2,3,5] x, int64[4] s) => (float[?,?,?,?] y) { a = Reshape(x, s) y = Relu(a) }", a=[7, 2, 3, 5]
    )
    sites = build(read(source))
    sizes = {root.value.name: size_of(root, {}, sites.likely) for root in sites.roots}
    assert sizes["a"] == 7 * 2 * 3 * 5 * 4
    assert sizes["x"] == 2 * 3 * 5 * 4


def test_what_an_unknown_operator_gives_is_what_the_file_states() -> None:
    source = parsed("(float[N,2] x) => (float[3,4] y) { a = vendor.Op(x) b = Relu(a) y = Neg(b) }", a=[3, 4], b=[3, 4])
    shapes = {value.name: list(value.shape or ()) for node in read(source).graph for value in node.outputs}
    assert shapes == {"a": [3, 4], "b": [3, 4], "y": [3, 4]}


def test_a_stated_extent_that_follows_from_a_fixed_dimension_is_built_upon() -> None:
    result = relayout.convert(CASES["both"], to="NHWC", dims={"N": 2})
    shapes = [list(value.shape or ()) for node in result.model.graph for value in node.outputs]
    assert all(isinstance(extent, int) for shape in shapes for extent in shape)


def attending(opset: int) -> onnx.ModelProto:
    proto = parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": {opset}]>
        g (float[N,S,K] x) => (float[a,b,c] y) {{
            a = Attention<q_num_heads=2, kv_num_heads=2>(x, x, x) t = Transpose<perm=[0,2,1]>(a) y = Relu(t)
        }}""")
    for value in proto.graph.output:
        value.type.tensor_type.shape.ClearField("dim")
        value.type.tensor_type.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in range(3))
    return proto


@pytest.mark.parametrize("opset", [23, 24])
def test_no_extent_is_nothing_since_another_is_open(opset: int) -> None:
    """ONNX reckons with 0 where Attention's last extent is open, and says that it gives no elements."""
    source = attending(opset)
    result = relayout.optimize(source)
    assert result.report.bytes > 0
    assert result.proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 0
    assert not result.proto.graph.output[0].type.tensor_type.shape.dim[1].HasField("dim_value")
    for size in ((1, 3, 4), (2, 5, 8)):
        (want,), (got,) = run(source, {"x": floats(*size)}), run(result.proto, {"x": floats(*size)})
        assert want.size
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_what_is_empty_for_sure_is_so() -> None:
    source = parsed(
        """(float[N,0,4] x, float[N,3] z) => (float[?,?,?] y, float[?,?] u)
        <int64[1] zero = {0}, int64[1] one = {1}> {
            a = Relu(x) y = Transpose<perm=[0,2,1]>(a) u = Slice(z, zero, zero, one) }"""
    )
    shapes = {value.name: str(value.shape) for node in read(source).graph for value in node.outputs}
    assert shapes["y"] == "[N,4,0]"
    assert shapes["u"] == "[N,0]"
