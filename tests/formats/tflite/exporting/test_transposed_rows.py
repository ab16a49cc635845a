"""A Gemm that reads its first operand transposed: FULLY_CONNECTED cannot, so the report counts the TRANSPOSE."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from export_running import agrees
from onnx import TensorProto, helper, numpy_helper

import relayout

X = np.arange(35, dtype=np.float32).reshape(5, 7)
W = np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 6)


def gemm(nodes: list[onnx.NodeProto], weights: str) -> onnx.ModelProto:
    """A model of `x`: 5 × 7, and of `w`: 5 × 6 as an input, a constant or computed from one."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    constants = []
    if weights == "input":
        inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, W.shape))
    elif weights == "constant":
        constants.append(numpy_helper.from_array(W, "w"))
    else:
        constants.append(numpy_helper.from_array(W.reshape(-1), "flat"))
        constants.append(numpy_helper.from_array(np.array(W.shape, np.int64), "shape"))
        nodes = [helper.make_node("Reshape", ["flat", "shape"], ["w"]), *nodes]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, (7, 6))
    graph = helper.make_graph(nodes, "g", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def transposed() -> list[onnx.NodeProto]:
    first = helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0])
    return [first, helper.make_node("Gemm", ["t", "w"], ["y"])]


def by_attribute() -> list[onnx.NodeProto]:
    return [helper.make_node("Gemm", ["x", "w"], ["y"], transA=1)]


@pytest.mark.parametrize("nodes", [transposed(), by_attribute()], ids=["transposed", "by attribute"])
@pytest.mark.parametrize(("weights", "count"), [("constant", 1), ("computed", 1), ("input", 0)])
def test_the_report_counts_what_the_file_has(nodes: list[onnx.NodeProto], weights: str, count: int) -> None:
    given = gemm(nodes, weights)
    result = relayout.convert(given, format="tflite")
    assert result.file is not None
    (graph,) = result.file.subgraphs
    assert [operator.name for operator in graph.operators].count("TRANSPOSE") == count
    assert (result.report.transposes, result.report.bytes) == (count, count * X.nbytes)
    agrees(given, {"x": X, "w": W} if weights == "input" else {"x": X})
