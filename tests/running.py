"""Run an ONNX model as it is written, and count what it transposes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from counting import moves, units
from numpy.typing import NDArray
from onnx import helper

import relayout
from products import in_full


def run(model: onnx.ModelProto, feed: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    """The model's outputs, with no optimization of the runtime's own."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(in_full(model), options, ["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feed))]


def refusal(model: onnx.ModelProto) -> str:
    """Say why ONNX Runtime does not load a model with its default optimizations; empty where it does."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        onnxruntime.InferenceSession(in_full(model), options, ["CPUExecutionProvider"])
    except Exception as error:
        return str(error)
    return ""


def moved_bytes(model: onnx.ModelProto, feed: Mapping[str, NDArray[np.generic]]) -> int:
    """Bytes that Transposes move in one run: those of the values that they give, as the run gives them."""
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    nodes = [node for node in model.graph.node if node.op_type == "Transpose" and node.input[0] not in constants]
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(helper.make_empty_tensor_value_info(node.output[0]) for node in nodes)
    integers, given = units(model.graph), run(shown, feed) if nodes else []
    pairs = zip(nodes, given, strict=True)
    return sum(a.size * integers.get(node.output[0], a.itemsize) for node, a in pairs if moves(node, a))


def operators(proto: onnx.ModelProto) -> list[str]:
    """The operators of the graph, in order."""
    return [node.op_type for node in proto.graph.node]


def converted(source: onnx.ModelProto, **options: object) -> relayout.Result:
    """The result, after it was run beside its source on the same inputs."""
    before = source.SerializeToString()
    result = relayout.convert(source, **options)  # type: ignore[arg-type]
    assert source.SerializeToString() == before, "the caller's model was changed"
    onnx.checker.check_model(result.proto, full_check=True)
    feed = {}
    for value in source.graph.input:
        shape = [dim.dim_value if dim.HasField("dim_value") else 2 for dim in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feed[value.name] = np.random.default_rng(1).normal(size=shape).astype(dtype)
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return result


def same_values(source: onnx.ModelProto, result: onnx.ModelProto, sizes: Iterable[tuple[int, ...]]) -> None:
    """Valid ONNX that computes the same of an input `x` of each size, and transposes no more bytes for it."""
    onnx.checker.check_model(result, full_check=True)
    for size in sizes:
        feed = {"x": np.random.default_rng(5).normal(size=size).astype(np.float32)}
        for got, want in zip(run(result, feed), run(source, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        assert moved_bytes(result, feed) <= moved_bytes(source, feed)


def by_the_runtime(model: onnx.ModelProto, feed: Mapping[str, NDArray[np.generic]]) -> int | None:
    """Bytes that ONNX Runtime's first level of optimization leaves transposed."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
            return moved_bytes(onnx.load(options.optimized_model_filepath), feed)
        except Exception:
            return None
