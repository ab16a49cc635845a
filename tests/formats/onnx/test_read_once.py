"""Types that many values have, and the elements of small constants, are read once."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from relayout.formats.onnx.reading import read

TWO = (2, "n")


def model() -> onnx.ModelProto:
    """Three values of one type, the last with a description, and an initializer with a type of its own."""
    nodes = [helper.make_node("Relu", [before], [name]) for before, name in zip("xabc", "abcy", strict=True)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, TWO) for name in "abc"]
    values[2].doc_string = "the third"
    values.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, TWO) for name in "xy"]
    weights = [numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights, value_info=values)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def test_values_have_the_types_that_are_stated() -> None:
    graph = read(model()).graph
    values = {value.name: value for node in graph for value in node.outputs}
    for name in "abcy":
        assert values[name].type == ir.TensorType(ir.DataType.FLOAT)
        assert values[name].shape == ir.Shape(TWO)
    assert values["a"].shape is values["b"].shape
    assert values["a"].type is not values["b"].type, "a type can be changed in place"
    assert values["c"].doc_string == "the third"
    assert graph.initializers["w"].shape == ir.Shape([3])


def test_a_small_constant_is_decoded_once() -> None:
    tensor = read(model()).graph.initializers["w"].const_value
    assert tensor is not None
    elements = tensor.numpy()
    assert elements.tolist() == [0, 1, 2]
    assert tensor.numpy() is elements
    assert not elements.flags.writeable
    assert (tensor.dtype, tensor.shape, tensor.name) == (ir.DataType.FLOAT, ir.Shape([3]), "w")
