"""Rows of what stays on real numbers between integers, as a node of which ONNX Runtime makes nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import relayout
from relayout.errors import LayoutError
from relayout.targets import Target, Unit, targets
from relayout.targets.onnxruntime.float_prices import LEAST_IN_VOLUMES
from rules.cases.making import f
from rules.law import Case
from running import run
from targets.quantizing import quantized
from targets.test_units import BYTES, named
from text_form import model

ROWS = [(target, unit) for target in targets().values() for unit in target.units if unit.reals]
CASES = [
    Case("Conv", {"x": f(2, 3, 4, 9, 8), "w": f(4, 3, 2, 3, 2), "b": f(4)}, ("w", "b"), {"pads": [1, 0, 1, 0, 1, 0]}),
    Case("Conv", {"x": f(2, 6, 4, 9, 8), "w": f(6, 1, 1, 3, 1)}, ("w",), {"group": 6}),
]
OTHERS = {
    "many channels": Case("Conv", {"x": f(1, LEAST_IN_VOLUMES, 4, 9, 8), "w": f(4, LEAST_IN_VOLUMES, 2, 3, 2)}, ("w",)),
    "one element": Case("Conv", {"x": f(2, 3, 4, 9, 8), "w": f(4, 3, 1, 1, 1)}, ("w",)),
    "an image": Case("Conv", {"x": f(2, 3, 9, 8), "w": f(4, 3, 3, 2)}, ("w",)),
}


def run_by_onnx_runtime(proto: onnx.ModelProto, folder: Path) -> list[str]:
    """The operators that ONNX Runtime runs of a model at full optimization."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("case", CASES, ids=["plain", "depthwise"])
@pytest.mark.parametrize(("target", "row"), ROWS, ids=named)
def test_a_row_stays_on_reals_and_is_run_there(
    target: Target, row: Unit, case: Case, dtype: type, tmp_path: Path
) -> None:
    source, given = quantized(case, dtype, alike=False)
    result = relayout.convert(source, target=target)
    written = [f"{node.domain}:{node.op_type}" for node in result.proto.graph.node]
    assert written.count(row.written) == 1
    for want, got in zip(run(source, given), run(result.proto, given), strict=True):
        np.testing.assert_array_equal(got, want)
    assert row.written.partition(":")[2] in run_by_onnx_runtime(result.proto, tmp_path)
    assert "stay on real numbers: 1 com.microsoft:FusedConv" in "\n".join(result.report.notes)


def test_onnx_runtime_makes_an_operator_on_integers_of_the_source(tmp_path: Path) -> None:
    """What the row is for; a release that leaves the unit alone needs it no longer."""
    source, _ = quantized(CASES[0], np.uint8, alike=False)
    assert "QLinearConv" in run_by_onnx_runtime(source, tmp_path)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_fast_on_integers_runs_on_them(name: str) -> None:
    source, _ = quantized(OTHERS[name], np.uint8, alike=False)
    result = relayout.convert(source, target="onnxruntime-cpu")
    assert [node.op_type for node in result.proto.graph.node].count("QLinearConv") == 1


def test_reals_stay_as_they_are() -> None:
    source = model("g (float[1,3,4,9,8] x) => (float[1,4,3,7,7] y) { y = Conv(x, w) }", w=f(4, 3, 2, 3, 2))
    result = relayout.convert(source, target="onnxruntime-cpu")
    assert [(node.domain, node.op_type) for node in result.proto.graph.node] == [("", "Conv")]


def test_what_was_real_before_stays_as_it_is() -> None:
    """ONNX Runtime makes nothing of a unit that lacks a DequantizeLinear."""
    text = """g (float[1,3,4,9,8] x) => (uint8[1,4,3,7,7] y) {
        k = DequantizeLinear(w, s, z)
        c = Conv(x, k)
        y = QuantizeLinear(c, s, u)
    }"""
    kernel = np.random.default_rng(0).integers(-99, 99, (4, 3, 2, 3, 2)).astype(np.int8)
    scale, signed, unsigned = np.array(0.03, np.float32), np.array(0, np.int8), np.array(121, np.uint8)
    result = relayout.convert(model(text, w=kernel, s=scale, z=signed, u=unsigned), target="onnxruntime-cpu")
    assert [node.op_type for node in result.proto.graph.node] == ["DequantizeLinear", "Conv", "QuantizeLinear"]


VIDEO = """
video (int8[1,4,9,8,3] x) => (uint8[1,3,7,7,4] y) {
    a = DequantizeLinear(x, s, z)
    b = Transpose<perm=[0,4,1,2,3]>(a)
    c = Conv(b, w)
    d = Transpose<perm=[0,2,3,4,1]>(c)
    y = QuantizeLinear(d, s, u)
}"""


def video() -> onnx.ModelProto:
    scale, signed, unsigned = np.array(0.03, np.float32), np.array(5, np.int8), np.array(121, np.uint8)
    return model(VIDEO, s=scale, z=signed, u=unsigned, w=f(4, 3, 2, 3, 2))


def test_what_it_reads_is_found_over_views_and_keeps_its_type() -> None:
    """An input of int8 that nothing else reads gains nothing by being uint8: two nodes less."""
    source = video()
    result = relayout.convert(source, target="onnxruntime-cpu")
    ops = [node.op_type for node in result.proto.graph.node if node.op_type != "Transpose"]
    assert ops == ["DequantizeLinear", "FusedConv", "QuantizeLinear"]
    given = {"x": np.random.default_rng(0).integers(-128, 128, (1, 4, 9, 8, 3)).astype(np.int8)}
    np.testing.assert_array_equal(run(result.proto, given)[0], run(source, given)[0])


def test_an_input_that_integers_read_too_is_stored_as_uint8() -> None:
    source = video()
    source.graph.output.append(onnx.helper.make_tensor_value_info("v", onnx.TensorProto.UINT8, (1, 4, 9, 8, 3)))
    source.graph.node.append(onnx.helper.make_node("Sigmoid", ["a"], ["g"]))
    source.graph.node.append(onnx.helper.make_node("QuantizeLinear", ["g", "s", "u"], ["v"]))
    result = relayout.convert(onnx.shape_inference.infer_shapes(source), target="onnxruntime-cpu")
    ops = [node.op_type for node in result.proto.graph.node]
    assert "QLinearSigmoid" in ops
    assert "FusedConv" in ops


def test_a_row_on_reals_names_a_node() -> None:
    with pytest.raises(LayoutError, match="reals wants a node of another domain"):
        Unit("Conv", reals=True)


def test_a_long_way_over_views_is_gone() -> None:
    """Deeper than Python's stack."""
    views = "\n".join(f"v{n + 1} = Transpose<perm=[0,2,1]>(v{n})" for n in range(1500))
    text = f"g (int8[1,4,9] x) => (float[1,4,9] y) {{ v0 = DequantizeLinear(x, s, z)\n{views}\ny = Relu(v1500) }}"
    source = model(text, s=np.array(0.03, np.float32), z=np.array(5, np.int8))
    assert relayout.convert(source, target="onnxruntime-cpu").report.transposes == 0
