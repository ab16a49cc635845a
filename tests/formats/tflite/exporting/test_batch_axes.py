"""Products of matrices in a batch of more axes than LiteRT's kernel takes."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import pytest
from export_running import agrees
from onnx import TensorProto, helper

import relayout

Shape = tuple[int | str, ...]
OPEN = {"b": 2, "m": 4}


def product(first: Shape, second: Shape, *, fused: bool = False) -> onnx.ModelProto:
    """A model: the product of two inputs; `fused`: the second is given with its matrices transposed."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("a", first), ("b", second))
    ]
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    if fused:
        node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", transB=1)
    output = onnx.ValueInfoProto(name="y")
    output.type.tensor_type.elem_type = TensorProto.FLOAT
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", ends, [output]), opset_imports=opsets, ir_version=9)


def array(shape: Shape) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    sizes = [OPEN[dim] if isinstance(dim, str) else dim for dim in shape]
    return (np.arange(prod(sizes)) % 7 - 3).reshape(sizes).astype(np.float32)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((2, 3, 2, 2, 4, 5), (2, 3, 2, 2, 5, 3)),
        ((2, 3, 2, 2, 4, 5), (2, 2, 5, 3)),
        ((3, 2, 4, 5), (2, 2, 3, 2, 5, 3)),
        ((2, 3, 1, 2, 4, 5), (2, 3, 2, 1, 5, 3)),
        ((1, 2, 3, 2, 4, 5), (2, 2, 3, 1, 5, 3)),
        (("b", 3, 2, 2, "m", 5), ("b", 3, 2, 2, 5, 3)),
        (("b", 1, 1, 2, "m", 5), ("b", 1, 1, 2, 5, 3)),
    ],
    ids=str,
)
def test_neighbours_are_one_axis(first: Shape, second: Shape) -> None:
    agrees(product(first, second), {"a": array(first), "b": array(second)})


def test_transposed_matrices() -> None:
    first, second = (2, 3, 2, 2, 4, 5), (2, 3, 2, 2, 3, 5)
    agrees(product(first, second, fused=True), {"a": array(first), "b": array(second)})


def test_stretched_in_turns_is_refused() -> None:
    given = product((2, 1, 2, 1, 4, 5), (1, 3, 1, 3, 5, 3))
    with pytest.raises(relayout.UnsupportedError, match="a batch of more than 3 axes"):
        relayout.convert(given, format="tflite")
