"""Files for microcontrollers and NPUs hold only the builtins that their runtime has."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import relayout
from relayout.formats.tflite.container.loading import load
from relayout.targets import target, targets
from running import run
from targets.judging import answers, saved
from targets.test_unit_exports import litert
from targets.unit_cases import unit_cases

HAS_TFLM = importlib.util.find_spec("tflite_micro") is not None
PYTHON = os.environ.get("RELAYOUT_TFLM") or (sys.executable if HAS_TFLM else None)
SCRIPT = "by_tflm.py"
MOST_ELEMENTS = 1 << 12


def model(body: str, opset: int = 17, ends: str = "float[1, 4, 8, 8]") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]> g ({ends} x) => ({ends} y)
        <float low = {{0.0}}, float one = {{1.0}}, float minus = {{-1.0}}, float s = {{0.02}}, int8 z = {{5}}> {{
            {body}
        }}""")


@pytest.mark.parametrize("name", ["tflite-micro", "ethos-u", "coral"])
@pytest.mark.parametrize(
    "body",
    [
        "y = Clip(x, low, one)",
        "y = HardSigmoid(x)",
        "y = Clip(x, minus, one)",
        "y = Gelu(x)",
        'y = Gelu<approximate = "tanh">(x)',
    ],
)
def test_a_builtin_that_the_runtime_lacks_is_others(body: str, name: str, tmp_path: Path) -> None:
    source = model(body, 20)
    result = relayout.convert(source, format="tflite", target=name)
    builtins = target(name).builtins
    assert builtins is not None
    assert set(result.report.operators) <= builtins.names
    feed = {"x": np.random.default_rng(3).normal(size=(1, 4, 8, 8)).astype(np.float32)}
    (expected,) = run(source, feed)
    np.testing.assert_allclose(litert(result, feed)["y"], expected, rtol=1e-5, atol=2e-3 if "tanh" in body else 1e-5)


@pytest.mark.parametrize("name", ["tflite-micro", "ethos-u"])
def test_what_nothing_else_computes_is_refused_by_name(name: str) -> None:
    source = model("y = Pow(x, e)", 17)
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1.7), "e"))
    with pytest.raises(relayout.UnsupportedError, match=r"POW \(TensorFlow Lite Micro has no such builtin\)") as error:
        relayout.convert(source, format="tflite", target=name)
    assert error.value.found == {
        "POW (TensorFlow Lite Micro has no such builtin)": (1, "'y', operator 0 of subgraph 0")
    }
    assert "without layouts" not in str(error.value)  # an advice to whoever wrote the table
    assert relayout.convert(source, format="tflite", target="litert").report.operators == {"POW": 1}


def test_bounds_of_integers_that_the_runtime_has_no_activation_for() -> None:
    body = "d = DequantizeLinear(x, s, z)\n c = Clip(d, minus, one)\n y = QuantizeLinear(c, s, z)"
    source = model(body, ends="int8[1, 4, 8, 8]")
    result = relayout.convert(source, format="tflite", target="tflite-micro")
    assert not {"RELU_N1_TO_1", "DEQUANTIZE"} & set(result.report.operators)
    feed = {"x": np.arange(-128, 128).astype(np.int8).reshape(1, 4, 8, 8)}
    assert np.array_equal(litert(result, feed)["y"], run(source, feed)[0])


def is_right_in_both(
    source: onnx.ModelProto, result: relayout.Result, feed: dict[str, NDArray[np.int8]], path: Path
) -> None:
    """Hold a result to its source in LiteRT and in TensorFlow Lite Micro."""
    assert PYTHON is not None
    saved(result, feed, path)
    assert np.array_equal(litert(result, feed)["y"], run(source, feed)[0])
    assert answers(PYTHON, SCRIPT, [path])[str(path)].get("off") == 0


@pytest.mark.skipif(PYTHON is None, reason="no tflite-micro: pip install tflite-micro, or RELAYOUT_TFLM names a Python")
@pytest.mark.parametrize(("count", "joins"), [(10, 1), (24, 4), (101, 14)])
def test_a_concatenation_joins_at_most_ten_tensors(count: int, joins: int, tmp_path: Path) -> None:
    parts = ", ".join(["d", "c"] * (count // 2) + ["d"] * (count % 2))
    body = f"""d = DequantizeLinear(x, s, z)\n r = Clip(d, low, one)\n q = QuantizeLinear(r, s, z)
        c = DequantizeLinear(q, s, z)\n j = Concat<axis = 1>({parts})\n y = QuantizeLinear(j, s, z)"""
    source = model(body, ends="int8[1, 2, 8, 8]")
    source.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2 * count
    result = relayout.convert(source, format="tflite", target="tflite-micro")
    assert result.report.operators["CONCATENATION"] == joins
    feed = {"x": np.arange(-64, 64).astype(np.int8).reshape(1, 2, 8, 8)}
    is_right_in_both(source, result, feed, tmp_path / "joined.tflite")


@pytest.mark.skipif(PYTHON is None, reason="no tflite-micro: pip install tflite-micro, or RELAYOUT_TFLM names a Python")
def test_a_slice_of_many_axes_is_one_of_few(tmp_path: Path) -> None:
    body = """d = DequantizeLinear(x, s, z)\n r = Reshape(d, dims)\n c = Slice(r, first, last, axis, step)
        y = QuantizeLinear(c, s, z)"""
    source = model(body)
    lists = {"dims": [1, 2, 2, 4, 4, 2, 2], "first": [1], "last": [4], "axis": [3], "step": [2]}
    source.graph.initializer.extend(onnx.numpy_helper.from_array(np.array(each), name) for name, each in lists.items())
    for value, dims in ((source.graph.input[0], [1, 4, 8, 8]), (source.graph.output[0], [1, 2, 2, 2, 4, 2, 2])):
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, onnx.TensorProto.INT8, dims))
    result = relayout.convert(source, format="tflite", target="tflite-micro")
    (graph,) = load(result.tflite).subgraphs
    (sliced,) = (row for row in graph.operators if row.name == "STRIDED_SLICE")
    assert graph.tensors[sliced.inputs[0]].shape == (4, 4, 16)
    feed = {"x": np.arange(-128, 128).astype(np.int8).reshape(1, 4, 8, 8)}
    is_right_in_both(source, result, feed, tmp_path / "sliced.tflite")


@pytest.mark.skipif(PYTHON is None, reason="no tflite-micro: pip install tflite-micro, or RELAYOUT_TFLM names a Python")
def test_a_transpose_of_six_axes_is_one_of_few(tmp_path: Path) -> None:
    body = """d = DequantizeLinear(x, s, z)\n r = Reshape(d, dims)\n t = Transpose<perm = [0, 3, 1, 5, 2, 4]>(r)
        y = QuantizeLinear(t, s, z)"""
    source = model(body)
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 2, 2, 4, 2, 4]), "dims"))
    for value, dims in ((source.graph.input[0], [1, 4, 8, 8]), (source.graph.output[0], [2, 4, 2, 4, 2, 2])):
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, onnx.TensorProto.INT8, dims))
    result = relayout.convert(source, format="tflite", target="tflite-micro")
    (graph,) = load(result.tflite).subgraphs
    assert all(len(graph.tensors[row.inputs[0]].shape) <= 5 for row in graph.operators if row.name == "TRANSPOSE")
    feed = {"x": np.arange(-128, 128).astype(np.int8).reshape(1, 4, 8, 8)}
    is_right_in_both(source, result, feed, tmp_path / "turned.tflite")


@pytest.mark.skipif(PYTHON is None, reason="no tflite-micro: pip install tflite-micro, or RELAYOUT_TFLM names a Python")
@pytest.mark.parametrize("name", ["tflite-micro", "ethos-u"])
def test_tflite_micro_loads_what_is_written(name: str, tmp_path: Path) -> None:
    """A sample of the units: each file is loaded, or refused before it is written."""
    paths = []
    small = [case for case in unit_cases() if all(a.size <= MOST_ELEMENTS for a in case.case.arrays.values())]
    cases = [case for case in small if case.dtype is np.int8 and case.op_type not in ("Gemm", "MatMul")]
    for number, case in enumerate(cases[:: len(cases) // 40]):
        source, feed = case.prepared()
        try:
            result = relayout.convert(source, format="tflite", target=name)
        except relayout.UnsupportedError:
            continue
        if {"EXP", "GELU", "LOG"}.isdisjoint(result.report.operators):  # the NPU's own
            paths.append(tmp_path / f"{number}.tflite")
            saved(result, feed, paths[-1])
    assert len(paths) > 20
    assert PYTHON is not None
    found = answers(PYTHON, SCRIPT, paths)
    assert not {path: each["refused"] for path, each in found.items() if "refused" in each}
    assert max(each["off"] for each in found.values()) <= 1


def test_only_litert_itself_may_get_what_other_runtimes_lack() -> None:
    """Targets that begin as LiteRT's table are others."""
    assert {name for name, each in targets().items() if each.is_litert} == {"litert", "litert-gpu"}
