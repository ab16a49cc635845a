"""Updates at a known number of places in a tensor whose extents are known only at run time."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from export_running import agrees
from onnx import TensorProto, helper, numpy_helper

from text_form import floats


def scattering(inputs: str, opset: int) -> onnx.ModelProto:
    given = {"i": np.array([[1, -3]], np.int64), "u": floats(1, 2)}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 9]) for name in "xy"]
    types = {"i": (TensorProto.INT64, [1, 2]), "u": (TensorProto.FLOAT, ["k", 2])}
    graph = helper.make_graph(
        [helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=1)],
        "scattering",
        [ends[0], *(helper.make_tensor_value_info(name, *types[name]) for name in inputs)],
        ends[1:],
        [numpy_helper.from_array(array, name) for name, array in given.items() if name not in inputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize("inputs", ["i", "iu", ""])
def test_every_update_is_there(inputs: str) -> None:
    """LiteRT lost all but the first where marks for them were computed of the places."""
    given = {"i": np.array([[1, -3]], np.int64), "u": floats(1, 2)}
    for extents in ((1, 9), (11, 9)):
        agrees(scattering(inputs, 18), {"x": floats(*extents), **{name: given[name] for name in inputs}})
