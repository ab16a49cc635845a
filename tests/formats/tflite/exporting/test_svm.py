"""Support vector machines in a `.tflite` give what ONNX Runtime gives."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import onnx
import pytest
from export_running import agrees
from onnx import TensorProto, helper

import relayout
from relayout.errors import UnsupportedError

ML = "ai.onnx.ml"
FEATURES = 5
KERNELS = ("LINEAR", "RBF", "POLY", "SIGMOID")
RNG = np.random.default_rng(0)


def model(node: onnx.NodeProto, *outputs: tuple[str, int]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])
    ends = [helper.make_tensor_value_info(name, each, None) for name, each in outputs]
    imports = [helper.make_opsetid("", 9), helper.make_opsetid(ML, 1)]
    return helper.make_model(helper.make_graph([node], "g", [x], ends), opset_imports=imports, ir_version=8)


def numbers(*shape: int) -> list[float]:
    return RNG.normal(size=shape).astype(np.float32).reshape(-1).tolist()


def hold(source: onnx.ModelProto) -> None:
    """Hold what LiteRT gives for one row and for several to be what ONNX Runtime gives."""
    for n in (1, 30):
        agrees(source, {"x": RNG.normal(size=(n, FEATURES)).astype(np.float32)})


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_regressor(kernel: str, one_class: int) -> None:
    node = helper.make_node(
        "SVMRegressor",
        ["x"],
        ["y"],
        domain=ML,
        kernel_type=kernel,
        kernel_params=[0.25, 0.5, 3.0],
        support_vectors=numbers(9, FEATURES),
        coefficients=numbers(9),
        rho=[0.125],
        n_supports=9,
        one_class=one_class,
    )
    hold(model(node, ("y", TensorProto.FLOAT)))


def classifier(kernel: str, sizes: list[int], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(
        "SVMClassifier",
        ["x"],
        ["y", "z"],
        domain=ML,
        kernel_type=kernel,
        kernel_params=[0.25, 0.5, 3.0],
        support_vectors=numbers(sum(sizes), FEATURES),
        coefficients=numbers(len(sizes) - 1, sum(sizes)),
        rho=numbers(len(list(combinations(sizes, 2)))),
        vectors_per_class=sizes,
        classlabels_ints=[3, 5, 8, 9][: len(sizes)],
        **attributes,
    )
    return model(node, ("y", TensorProto.INT64), ("z", TensorProto.FLOAT))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sizes", [[4, 3], [3, 5, 2], [2, 3, 4, 5]], ids=str)
def test_classifier(kernel: str, sizes: list[int]) -> None:
    hold(classifier(kernel, sizes))


def test_a_class_with_fewer_vectors_than_none_is_refused() -> None:
    source = classifier("RBF", [4, 3])
    (sizes,) = (each for each in source.graph.node[0].attribute if each.name == "vectors_per_class")
    sizes.ints[:] = [8, -1]
    with pytest.raises(UnsupportedError, match="SVMClassifier"):
        relayout.convert(source, format="tflite")


def test_probabilities_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="SVMClassifier"):
        relayout.convert(classifier("RBF", [4, 3], prob_a=[-2.0], prob_b=[0.5]), format="tflite")
