"""An Expand asks for what the source asks for, and not for what inference says besides."""

from __future__ import annotations

import numpy as np
import onnx

import relayout
from apply.nested import operators
from running import run
from small import build
from text_form import floats


def test_an_expand_asks_for_no_more_than_in_the_source() -> None:
    """ONNX infers five windows of an axis of eight with `ceil_mode`, and ONNX Runtime has four: each may be right."""
    source = build(
        "float[2,6,5,8] x",
        """t = T0132(x) p = AveragePool<ceil_mode=1, kernel_shape=[1,1], strides=[2,1]>(t)
        e = Expand(p, s) y = T0132(e)""",
        {"s": [1, 6, 1, 5]},
    )
    for value in (*source.graph.output, *source.graph.value_info):
        value.type.tensor_type.ClearField("shape")
    result = relayout.optimize(source)
    assert operators(result.proto.graph) == ["AveragePool", "Expand"]
    shape = next(
        tensor for tensor in result.proto.graph.initializer if tensor.name == result.proto.graph.node[1].input[1]
    )
    assert onnx.numpy_helper.to_array(shape).tolist() == [1, 6, 5, 1]
    feed = {"x": floats(2, 6, 5, 8)}
    np.testing.assert_array_equal(run(result.proto, feed)[0], run(source, feed)[0])
