"""An input of unknown rank takes the rank that its readers need in a `.tflite`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from export_running import agrees
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relayout
from relayout.errors import UnsupportedError

RNG = np.random.default_rng(0)


def floats(*shape: int) -> NDArray[np.float32]:
    return RNG.normal(size=shape).astype(np.float32)


def model(*nodes: onnx.NodeProto, **constants: NDArray[Any]) -> onnx.ModelProto:
    x = helper.make_value_info("x", helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


RELU = helper.make_node("Relu", ["x"], ["a"])
READERS = {
    "convolution": (
        model(RELU, helper.make_node("Conv", ["a", "w"], ["y"], group=2), w=floats(4, 3, 3, 3)),
        [(1, 6, 5, 7), (2, 6, 8, 4)],
    ),
    "transposed": (
        model(helper.make_node("ConvTranspose", ["x", "w"], ["y"]), w=floats(3, 4, 2)),
        [(1, 3, 5), (2, 3, 4)],
    ),
    "product": (
        model(
            helper.make_node("Mul", ["x", "s"], ["a"]),
            helper.make_node("Gemm", ["a", "w"], ["y"]),
            w=floats(3, 4),
            s=floats(3),
        ),
        [(1, 3), (5, 3)],
    ),
    "pool": (model(RELU, helper.make_node("MaxPool", ["a"], ["y"], kernel_shape=[2, 2])), [(1, 2, 4, 5), (2, 3, 6, 4)]),
    "permutation": (model(RELU, helper.make_node("Transpose", ["a"], ["y"], perm=[2, 0, 1])), [(2, 3, 4), (4, 1, 3)]),
    "pads": (
        model(helper.make_node("Pad", ["x", "p"], ["y"]), p=np.array([0, 0, 1, 0, 2, 0])),
        [(2, 3, 4), (1, 2, 5)],
    ),
    "recurrence": (
        model(helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=2), w=floats(1, 6, 3), r=floats(1, 6, 2)),
        [(4, 1, 3), (6, 2, 3)],
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_the_first_reader_that_needs_a_rank_tells_it(reader: str) -> None:
    source, shapes = READERS[reader]
    notes = relayout.convert(source, format="tflite").report.notes
    assert f"input x has no rank in the file, and {len(shapes[0])} axes, as what reads it needs" in notes
    for shape in shapes:
        agrees(source, {"x": floats(*shape)})


def test_where_no_reader_needs_one_it_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="input x"):
        relayout.convert(model(helper.make_node("Relu", ["x"], ["y"])), format="tflite")
