"""A large matrix that several products read is written once."""

from __future__ import annotations

import numpy as np
import onnx
from export_running import agrees
from onnx import TensorProto, helper, numpy_helper

import relayout

WIDTH = 300
"""Above what an exporter holds in memory as an array: 65,536 elements."""


def repeated(count: int) -> onnx.ModelProto:
    """A model with the same layer several times, as ALBERT has."""
    weights = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 16
    nodes = []
    for index in range(count):
        nodes.append(helper.make_node("MatMul", [f"x{index}", "w"], [f"m{index}"]))
        nodes.append(helper.make_node("Tanh", [f"m{index}"], [f"x{index + 1}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4, WIDTH)) for name in ("x0", f"x{count}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_one_matrix_for_all_products() -> None:
    given = repeated(3)
    result = relayout.convert(given, format="tflite")
    assert result.file is not None
    (graph,) = result.file.subgraphs
    products = [operator for operator in graph.operators if operator.name == "FULLY_CONNECTED"]
    assert len(products) == 3
    assert len({operator.inputs[1] for operator in products}) == 1
    assert len(result.tflite) < 1.1 * WIDTH * WIDTH * 4
    agrees(given, {"x0": np.random.default_rng(1).normal(size=(1, 4, WIDTH)).astype(np.float32)})
