"""Constants that a file lists among its inputs, as defaults, or among its outputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from export_running import agrees
from onnx import helper

import relayout as package
from litert_runs import KERNELS
from relayout.pipeline import check_plan
from running import run
from text_form import floats, model

SLICE = ("float[3] x", "y = Slice(x, st, en, ax, sp)")
PLACES = {"st": np.array([1]), "en": np.array([-100]), "ax": np.array([0]), "sp": np.array([-1])}
CASES = {
    "Slice": (*SLICE, "int64[1] sp", PLACES),
    "Slice, axes": (*SLICE, "int64[1] ax, int64[] st", PLACES),
    "Slice between": (
        "float[1,3,4,4] x",
        "a = Slice(x, st, en, ax, sp)  b = Transpose<perm=[0,2,3,1]>(a)  y = Relu(b)",
        "int64[] sp, int64[] en",
        {**PLACES, "st": np.array([-1])},
    ),
    "RNN": (
        "float[4,1,3] x",
        "y = RNN<hidden_size=2>(x, W, R)",
        "float[] W, float[] R",
        {"W": floats(1, 2, 3), "R": floats(1, 2, 2)},
    ),
    "LSTM": (
        "float[4,1,3] x",
        "y = LSTM<hidden_size=2>(x, W, R)",
        "float[] W, float[] R",
        {"W": floats(1, 8, 3), "R": floats(1, 8, 2)},
    ),
    "Conv": (
        "float[1,3,5,6] x",
        "y = Conv(x, w, b)",
        "float[] w, float[] b",
        {"w": floats(4, 3, 2, 2), "b": floats(4)},
    ),
    "Reshape": ("float[2,6] x", "y = Reshape(x, s)", "int64[] s", {"s": np.array([3, 4])}),
    "Pad": (
        "float[2,6] x",
        "y = Pad(x, p, v)",
        "int64[] p, float[] v",
        {"p": np.array([0, 1, 0, 2]), "v": np.float32(3)},
    ),
    "Resize": (
        "float[1,2,4,6] x",
        'r = Resize<mode="linear">(x, none, s)  y = Relu(r)',
        "float[] s",
        {"none": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "Reduce": ("float[2,3,4] x", "y = ReduceMean<keepdims=0>(x, a)", "int64[] a", {"a": np.array([1])}),
    "Gather": ("float[5,3] x", "y = Gather(x, i)", "int64[] i", {"i": np.array([[4, -1]])}),
    "Tile": ("float[2,3] x", "y = Tile(x, r)", "int64[] r", {"r": np.array([2, 1])}),
    "Unsqueeze": ("float[2,3] x", "a = Unsqueeze(x, i)  y = Squeeze(a, i)", "int64[] i", {"i": np.array([1])}),
    "TopK": ("float[2,5] x", "y, i = TopK(x, k)", "int64[] k", {"k": np.array([2])}),
    "Clip": ("float[9] x", "y = Clip(x, a, b)", "float[] a, float[] b", {"a": np.float32(-1), "b": np.float32(1)}),
    "QuantizeLinear": (
        "float[2,5] x",
        "q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z)",
        "float[] s, uint8[] z",
        {"s": np.float32(0.02), "z": np.uint8(120)},
    ),
}


@pytest.mark.parametrize("has_extents", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_an_output_may_be_a_constant_that_an_operator_reads(case: str, *, has_extents: bool) -> None:
    inputs, text, constants, values = CASES[case]
    plain = model(f"g ({inputs}) => (float[] y) {{ {text} }}", **values)
    source = model(f"g ({inputs}) => (float[] y, {constants}) {{ {text} }}", **values)
    if not has_extents:
        source.graph.output[0].type.tensor_type.ClearField("shape")
    shape = [dim.dim_value for dim in source.graph.input[0].type.tensor_type.shape.dim]
    assert run(plain, {"x": floats(*shape)})[0].size
    agrees(source, {"x": floats(*shape)})


def with_defaults(*names: str) -> onnx.ModelProto:
    """`y = Reshape(Conv(x, w), shape)`, of which some constants are inputs, too."""
    values = {"w": floats(4, 3, 3, 3), "shape": np.array([0, -1])}
    source = model("g (float[1,3,8,8] x) => (float[1,n] y) { c = Conv(x, w)  y = Reshape(c, shape) }", **values)
    for name in names:
        kind = helper.np_dtype_to_tensor_dtype(values[name].dtype)
        source.graph.input.append(helper.make_tensor_value_info(name, kind, values[name].shape))
    return source


def test_a_default_of_an_input_is_a_constant_of_a_tflite() -> None:
    source = with_defaults("w", "shape")
    result = package.convert(source, format="tflite")
    assert [each.name for each in result.report.interface] == ["x", "y"]
    assert result.tflite == package.convert(with_defaults(), format="tflite").tflite
    (note,) = (note for note in result.report.notes if "default value" in note)
    assert "'w', 'shape'" in note
    assert "--inputs" in note
    image = floats(1, 3, 8, 8)
    (expected,) = run(source, {"x": image})
    found = Interpreter(model_content=result.tflite).get_signature_runner()(x=image)
    np.testing.assert_allclose(found["y"], expected, rtol=1e-4, atol=1e-5)


def test_an_input_with_a_default_that_is_named_stays_one() -> None:
    result = package.convert(with_defaults("w", "shape"), format="tflite", inputs=["x", "w"])
    assert [each.name for each in result.report.interface] == ["x", "w", "y"]
    image, kernel = floats(1, 3, 8, 8), floats(4, 3, 3, 3, seed=5)
    (expected,) = run(with_defaults("w"), {"x": image, "w": kernel})
    found = Interpreter(model_content=result.tflite).get_signature_runner()(x=image, w=kernel)
    np.testing.assert_allclose(found["y"], expected, rtol=1e-4, atol=1e-5)


def test_defaults_stay_in_an_onnx_result() -> None:
    proto = package.convert(with_defaults("w", "shape"), io="NHWC").proto
    assert [value.name for value in proto.graph.input] == ["x", "w", "shape"]
    assert {tensor.name for tensor in proto.graph.initializer} == {"w", "shape"}


def test_a_plan_of_a_file_with_defaults_is_checked(tmp_path: Path) -> None:
    onnx.save(with_defaults("w", "shape"), tmp_path / "m.onnx")
    result = package.convert(tmp_path / "m.onnx", format="tflite")
    (tmp_path / "plan.json").write_text(json.dumps(result.plan))
    assert check_plan(tmp_path / "plan.json", tmp_path / "m.onnx").proved


def test_an_only_input_stays_one_and_a_note_says_that_its_default_is_gone() -> None:
    source = model("g (float[2] x) => (float[2] y) { y = Relu(x) }", x=np.array([1, -1], np.float32))
    result = package.convert(source, format="tflite")
    assert [each.name for each in result.report.interface] == ["x", "y"]
    assert any(note.startswith("the only input has a default value in the file") for note in result.report.notes)
    assert not any("default value" in note for note in package.convert(source).report.notes)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("within", ["graph", "read as well", "branch"])
def test_real_numbers_of_constant_integers_that_are_a_result(within: str, kernels: OpResolverType) -> None:
    """XNNPACK writes nothing where a DEQUANTIZE of a constant is a result of its graph."""
    branches = "else_branch = f () => (float[2,3] e) { e = Tanh(x) }, then_branch = t () => (float[2,3] d)"
    bodies = {
        "graph": "y = Tanh(x)  d = DequantizeLinear(w, s, z)",
        "read as well": "d = DequantizeLinear(w, s, z)  y = Add(x, d)",
        "branch": f"y = Tanh(x)  d = If<{branches} {{ d = DequantizeLinear(w, s, z) }}>(c)",
    }
    constants = {"w": np.arange(6, dtype=np.int8).reshape(2, 3), "s": np.float32(0.5), "z": np.int8(1)}
    text = f"g (bool c, float[2,3] x) => (float[2,3] y, float[2,3] d) {{ {bodies[within]} }}"
    source, feed = model(text, **constants), {"c": np.array(True), "x": floats(2, 3)}
    result = package.convert(source, format="tflite")
    runner = Interpreter(model_content=result.tflite, experimental_op_resolver_type=kernels).get_signature_runner()
    read = [end.name for end in result.report.interface if end.name in feed]
    results = runner(**{name: feed[name] for name in read})
    for name, expected in zip("yd", run(source, feed), strict=True):
        np.testing.assert_allclose(results[name], expected, rtol=1e-5, atol=1e-6)
