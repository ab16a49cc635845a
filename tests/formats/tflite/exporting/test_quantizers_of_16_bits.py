"""Quantizers of com.microsoft, which have 16 bits before opset 21, as the standard's: a `.tflite` has no opsets."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from export_running import agrees
from onnx import TensorProto, helper, numpy_helper

import relayout
from litert_runs import operators
from text_form import floats


def quantized(domain: str, opset: int, kind: type[np.generic]) -> onnx.ModelProto:
    """Return a Relu between integers."""
    names = ("QuantizeLinear", "DequantizeLinear")
    scale, zero = numpy_helper.from_array(np.float32(1 / 512), "s"), numpy_helper.from_array(np.array(0, kind), "z")
    nodes = []
    for value, before, after in (("x", "a", "b"), ("r", "c", "y")):
        nodes.append(helper.make_node(names[0], [value, "s", "z"], [before], domain=domain))
        nodes.append(helper.make_node(names[1], [before, "s", "z"], [after], domain=domain))
    nodes.insert(2, helper.make_node("Relu", ["b"], ["r"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 6]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [scale, zero])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("kind", [np.int16, np.int8, np.uint8])
def test_they_are_written_as_the_standards(kind: type[np.generic]) -> None:
    own, standard = quantized("com.microsoft", 17, kind), quantized("", 21, kind)
    written = [operators(relayout.convert(model, format="tflite").tflite) for model in (own, standard)]
    assert written[0] == written[1]
    agrees(own, {"x": floats(1, 6)})
