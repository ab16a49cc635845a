"""SPLIT_V by sizes that the graph computes: ONNX's Split takes them at run time, too."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from tflite_running import interpreter
from tflite_writing import Net, options

import relayout


def split() -> Net:
    """Return a split of five rows in two parts by sizes that are read."""
    net = Net()
    x, sizes = net.input((5, 2)), net.input((2,), "int32", low=0, high=5)
    parts = [net.tensor((1, 2)), net.tensor((1, 2))]
    net.op("SPLIT_V", [x, sizes, net.const([0], "int32")], parts, options("SplitVOptions", numSplits=2))
    net.graph.outputs = parts
    return net


@pytest.mark.parametrize("sizes", [(2, 3), (4, 1), (-1, 2), (3, -1)])
def test_parts_of_sizes_that_are_read(sizes: tuple[int, int]) -> None:
    content = split().bytes()
    x, given = np.arange(10, dtype=np.float32).reshape(5, 2), np.array(sizes, np.int32)
    made = interpreter(content)
    for detail, array in zip(made.get_input_details(), (x, given), strict=True):
        made.set_tensor(detail["index"], array)
    made.invoke()
    wanted = [made.get_tensor(detail["index"]) for detail in made.get_output_details()]
    proto = relayout.convert(content).proto
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    for one, other in zip(wanted, session.run(None, dict(zip(names, (x, given), strict=True))), strict=True):
        np.testing.assert_array_equal(other, one)
