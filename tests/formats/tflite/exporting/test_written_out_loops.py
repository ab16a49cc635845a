"""Loops that are written out have one budget of nodes: a short file does not become a long one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relayout
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.exporting.loops import MOST_NODES_OF_ALL


def nested(trips: int, depth: int) -> onnx.ModelProto:
    """Loops in each other, each of so many trips; the innermost has one Tanh."""
    info = helper.make_tensor_value_info
    inner: onnx.GraphProto | None = None
    for level in range(depth):
        read, given = f"s{level}", f"q{level}"
        node = (
            helper.make_node("Tanh", [read], [given])
            if inner is None
            else helper.make_node("Loop", ["m", "c", read], [given], body=inner)
        )
        ends = [info(f"i{level}", TensorProto.INT64, []), info(f"c{level}", TensorProto.BOOL, [])]
        inner = helper.make_graph(
            [helper.make_node("Identity", [f"c{level}"], [f"d{level}"]), node],
            f"body{level}",
            [*ends, info(read, TensorProto.FLOAT, [1, 4])],
            [info(f"d{level}", TensorProto.BOOL, []), info(given, TensorProto.FLOAT, [1, 4])],
        )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["m", "c", "x"], ["y"], body=inner)],
        "g",
        [info("x", TensorProto.FLOAT, [1, 4])],
        [info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.array(trips, np.int64), "m"), numpy_helper.from_array(np.array(True), "c")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(("trips", "depth", "subgraphs"), [(5, 2, 1), (100, 2, 3), (100, 3, 5), (16, 6, 7)])
def test_what_would_be_too_long_stays_a_loop(trips: int, depth: int, subgraphs: int) -> None:
    content = relayout.convert(nested(trips, depth), format="tflite").tflite
    model = load(content)
    assert len(model.subgraphs) == subgraphs
    assert sum(len(each.operators) for each in model.subgraphs) < MOST_NODES_OF_ALL
    if trips**depth <= 25:
        assert relayout.verify(nested(trips, depth), content).ok
