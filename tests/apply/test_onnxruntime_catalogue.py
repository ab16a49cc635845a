"""ONNX Runtime's tests of its transpose optimizer and layout transformer: never above what they expect."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import shape_inference
from onnxruntime_catalogue import ENTRIES, EXTENTS, SOURCE, Entry

import relayout
from running import run
from small import build, feed_of
from transposes import left

CASES = [(name, opset) for name, entry in ENTRIES.items() for opset in entry.opsets]
Feed = Mapping[str, NDArray[np.generic]]


def source_of(entry: Entry, opset: int) -> tuple[onnx.ModelProto, Feed]:
    """The graph and its inputs; what a run tells of outputs is stated, and nothing of what is inside."""
    text = entry.text if isinstance(entry.text, str) else entry.text(opset)
    constants = entry.constants(opset) if callable(entry.constants) else entry.constants
    model = build(entry.inputs, text, constants, opset=opset, outputs=entry.outputs)
    feed = feed_of(model, {**EXTENTS, "n": 1, "r": 1}, entry.fed)
    names = [value.name for value in model.graph.output]
    stated = [described(name, array, model) for name, array in zip(names, run(model, feed), strict=True)]
    for value, said in zip(model.graph.output, stated, strict=True):
        if not value.type.tensor_type.HasField("shape"):
            value.CopyFrom(said)
    return shape_inference.infer_shapes(model, data_prop=True), feed


def described(name: str, array: NDArray[np.generic], model: onnx.ModelProto) -> onnx.ValueInfoProto:
    """Type and shape of a value: an extent that an input has by a name has that name; unknown, where ranks are."""
    dims = [dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim]
    named = {EXTENTS[dim.dim_param]: dim.dim_param for dim in dims if dim.dim_param in EXTENTS}
    unknown = any(dim.dim_param == "r" for dim in dims)
    shape = [f"{name}_{axis}" if unknown else named.get(extent, extent) for axis, extent in enumerate(array.shape)]
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def level_1(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """What ONNX Runtime makes of a graph at level 1."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath, options.log_severity_level = str(path), 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return onnx.load(path)


@pytest.mark.parametrize(("name", "opset"), CASES, ids=[f"{name}-{opset}" for name, opset in CASES])
def test_never_above_what_is_expected(name: str, opset: int, tmp_path: Path) -> None:
    entry = ENTRIES[name]
    source, feed = source_of(entry, opset)
    onnx.checker.check_model(source, full_check=True)
    result = relayout.convert(source, **entry.asked)
    proto = result.proto
    onnx.checker.check_model(proto, full_check=True)
    for want, got in zip(run(source, feed), run(proto, feed), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert result.report.proved, result.report.verdict
    count, size = left(proto, feed)
    reasons = [(kept.tensor, kept.reason) for kept in result.report.remaining]
    if entry.left == SOURCE:
        assert size <= left(source, feed)[1], reasons
    else:
        sizes = entry.sizes or [4] * len(entry.left)
        assert size <= sum(prod(shape) * each for shape, each in zip(entry.left, sizes, strict=True)), reasons
        assert entry.left or count == 0, reasons
    if not entry.asked:
        assert size <= left(level_1(source, tmp_path / "level_1.onnx"), feed)[1], reasons


@pytest.mark.parametrize("op_type", ["Gelu", "QuickGelu", "FastGelu"])
def test_operators_whose_shapes_nobody_states(op_type: str, tmp_path: Path) -> None:
    source = build("float[4,6,10] x", f"t = T120(x) e = com.microsoft.{op_type}(t) y = T201(e)", {}, opset=18)
    feed = feed_of(source, {})
    assert relayout.optimize(source).report.bytes == left(level_1(source, tmp_path / "level_1.onnx"), feed)[1] == 0


def test_shapes_of_a_chain_that_nobody_states() -> None:
    """The standard's operators between contributed ones have shapes, too: a Reshape behind them is no barrier."""
    text = """
        t = T120(x) a = com.microsoft.Gelu(t) b = Relu(a) c = com.microsoft.FastGelu(b) d = Concat<axis=0>(c, b)
        e = com.microsoft.QuickGelu(d) f = Reshape(e, s) y = T3012(f)"""
    source = build("float[4,6,10] x", text, {"s": [3, 4, 10, 4]}, opset=18)
    feed = feed_of(source, {})
    result = relayout.optimize(source)
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5)
    onnx.checker.check_model(result.proto, full_check=True)
    assert result.report.proved
    assert result.report.bytes == 0 < result.report.source_bytes
