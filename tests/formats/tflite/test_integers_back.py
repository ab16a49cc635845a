"""Networks with activations of 16 bits come back as `.tflite` bit for bit: biases, and activations of kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.schema_py_generated import Padding
from tflite_writing import Net, Scale, options

import relayout
from litert_runs import KERNELS, every_result_of_runs, operators
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load

MOST = {"long": 1 << 29, "longer": 1 << 40}
"""The most of a bias that needs more digits than a float has, and of one that needs more than 32 bits."""


def network(name: str, most: int, activation: int = 0) -> bytes:
    """`x -> name -> y` on int16, with weights of bytes for each channel and a bias of int64."""
    net, rng = Net(), np.random.default_rng(0)
    steps = [2e-5, 3e-5, 1e-5, 4e-5]
    is_dense, is_depthwise = name == "FULLY_CONNECTED", name == "DEPTHWISE_CONV_2D"
    shape = (4, 6) if is_dense else (1, 2, 2, 4) if is_depthwise else (4, 2, 2, 3)
    kernel = net.const(rng.integers(-100, 100, shape), "int8", q=Scale(steps, 0, 3 if is_depthwise else 0))
    bias = net.const(rng.integers(-most, most, 4), "int64", q=Scale([1e-3 * step for step in steps]))
    x = net.input((5, 6) if is_dense else (1, 6, 7, shape[-1]), "int16", q=Scale(1e-3))
    y = net.output((5, 4) if is_dense else (1, 6, 7, 4), "int16", q=Scale(1e-12 * most))
    kind = "".join(map(str.capitalize, name.removesuffix("_2D").split("_")))
    kind += "2D" if name.endswith("2D") else ""
    fields = {} if is_dense else {"padding": Padding.SAME, "strideW": 1, "strideH": 1}
    fields |= {"depthMultiplier": 1} if is_depthwise else {}
    table = options(f"{kind}Options", fusedActivationFunction=activation, **fields)
    operands = [net.const([1, 6, 7, 4], "int32"), kernel, x] if name == "TRANSPOSE_CONV" else [x, kernel]
    net.op(name, [*operands, bias], [y], table, version=4)
    return net.bytes()


def back(source: bytes, folder: Path, way: str) -> bytes:
    model: bytes | Path = source
    if way == "through ONNX":
        model = folder / "there.onnx"
        relayout.convert(source).save(model)
    return relayout.convert(model, format="tflite").tflite


def biases(content: bytes) -> np.ndarray:  # type: ignore[type-arg]
    (found,) = (each for each in load(content).subgraphs[0].tensors if each.type == TensorType.INT64)
    return found.content.view(np.int64)


def assert_equal(source: bytes, result: bytes) -> None:
    shape = relayout.convert(source).model.graph.inputs[0].shape
    assert shape is not None
    feeds = [[np.random.default_rng(run).integers(-32768, 32767, shape.numpy()).astype(np.int16)] for run in range(3)]
    for kernels in KERNELS:
        pairs = zip(*(every_result_of_runs(content, feeds, kernels) for content in (source, result)), strict=True)
        for wanted, found in pairs:
            assert any(np.unique(each).size > 9 for each in wanted), "a test of few numbers"
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("way", ["through ONNX", "at once"])
@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
def test_a_long_bias_comes_back(name: str, way: str, tmp_path: Path) -> None:
    source = network(name, MOST["long"])
    result = back(source, tmp_path, way)
    assert operators(result) == [name]
    np.testing.assert_array_equal(biases(result), biases(source))
    assert_equal(source, result)


def test_a_bias_of_more_than_32_bits_is_floats_in_onnx() -> None:
    model = relayout.convert(network("CONV_2D", MOST["longer"])).proto
    assert [node.op_type for node in model.graph.node].count("DequantizeLinear") == 2, "of operand and weights"


@pytest.mark.parametrize("way", ["through ONNX", "at once"])
def test_an_activation_of_a_transposed_convolution_comes_back_on_integers(way: str, tmp_path: Path) -> None:
    source = network("TRANSPOSE_CONV", MOST["long"], activation=1)
    result = back(source, tmp_path, way)
    assert operators(result) == ["TRANSPOSE_CONV"]
    assert_equal(source, result)
