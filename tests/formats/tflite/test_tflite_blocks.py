"""Weights with a scale for each block of a row, as LiteRT's quantizer writes them for large language models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from tflite_cases_matrix import BLOCK, in_blocks, product_in_blocks, weights_in_blocks
from tflite_running import check_model, interpreter, read, run_interpreter
from tflite_writing import Net, Scale, options, packed

import relayout

UNITS, COLUMNS = 6, 2 * BLOCK


def meant(kind: str) -> NDArray[np.float32]:
    """The real numbers of weights by blocks."""
    integers, scales = in_blocks(kind)
    real: NDArray[np.float32] = integers * np.repeat(scales.astype(np.float32), BLOCK, 1)
    return real


def computed(content: bytes, x: NDArray[np.float32], *, optimized: bool = False) -> Any:
    """What ONNX Runtime makes of it; optimized, it rounds the data to 8 bits, as LiteRT does."""
    settings = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    made = onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    return made.run(None, {made.get_inputs()[0].name: x})[0]


@pytest.mark.parametrize("quant", ["qdq", "float"])
@pytest.mark.parametrize("shape", [(3, COLUMNS), (2, 5, COLUMNS)])
@pytest.mark.parametrize("kind", ["INT2", "INT4", "INT8"])
def test_a_product_is_that_of_the_real_numbers(kind: str, shape: tuple[int, ...], quant: Any) -> None:
    real = meant(kind)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    wanted = x @ real.T + np.arange(UNITS, dtype=np.float32) / 8
    content = product_in_blocks(kind, shape).bytes()
    rounded = np.ptp(x, axis=-1, keepdims=True) / 255 * np.abs(real).sum(1)
    for made in (
        check_model(read(content, quant=quant)),
        relayout.convert(content, quant=quant).proto.SerializeToString(),
    ):
        np.testing.assert_allclose(computed(made, x), wanted, rtol=1e-5, atol=1e-5)
        assert np.all(np.abs(computed(made, x, optimized=True) - wanted) <= rounded)


def test_the_interpreter_means_the_same() -> None:
    """It rounds each row of the data to 8 bits."""
    real = meant("INT4")
    x = np.random.default_rng(1).normal(size=(3, COLUMNS)).astype(np.float32)
    (got,) = run_interpreter(interpreter(product_in_blocks().bytes()), [x])
    half_steps = np.ptp(x, axis=1, keepdims=True) / 255 * np.abs(real).sum(1)
    assert np.all(np.abs(got - (x @ real.T + np.arange(UNITS) / 8)) <= half_steps)


def test_weights_stay_as_short_as_they_are() -> None:
    proto = relayout.convert(product_in_blocks().bytes()).proto
    assert [node.op_type for node in proto.graph.node] == ["DequantizeLinear", "MatMul", "Add"]
    (attribute,) = (a.i for a in proto.graph.node[0].attribute if a.name == "block_size")
    assert attribute == BLOCK
    assert (
        min(len(tensor.raw_data) for tensor in proto.graph.initializer if list(tensor.dims) == [COLUMNS, UNITS]) == 192
    )


@pytest.mark.parametrize(("columns", "size"), [(512, 256), (384, 128)])
def test_long_rows_of_two_bits_have_blocks_too(columns: int, size: int) -> None:
    random, integers = np.random.default_rng(0), np.random.default_rng(1).integers(-1, 2, (UNITS, columns))
    scales = (random.random(UNITS) / 50).astype(np.float32)
    net = Net()
    weights = net.tensor((UNITS, columns), data=packed(integers, 2), type_name="INT2", q=Scale(scales))
    table = options("FullyConnectedOptions")
    net.op("FULLY_CONNECTED", [net.input((3, columns)), weights, -1], [net.output((3, UNITS))], table, version=14)
    proto = relayout.convert(net.bytes(), target="onnxruntime-cpu").proto
    (attribute,) = (a.i for node in proto.graph.node for a in node.attribute if a.name == "block_size")
    assert attribute == size
    assert [node.op_type for node in relayout.convert(net.bytes()).proto.graph.node] == ["DequantizeLinear", "Gemm"]
    x = random.normal(size=(3, columns)).astype(np.float32)
    wanted = x @ (integers * scales[:, None]).T
    np.testing.assert_allclose(computed(proto.SerializeToString(), x), wanted, rtol=1e-5, atol=1e-5)
    rounded = np.ptp(x, axis=-1, keepdims=True) / 255 * np.abs(integers * scales[:, None]).sum(1)
    assert np.all(np.abs(computed(proto.SerializeToString(), x, optimized=True) - wanted) <= rounded)


@pytest.mark.parametrize("rows", [1, 5])
def test_a_product_with_four_bits_is_the_interpreters(rows: int) -> None:
    """With the target rows of data are rounded as there, to 255 steps; by default the product is of real numbers."""
    random, net = np.random.default_rng(0), Net()
    integers, scales = (
        random.integers(-7, 8, (UNITS, 96)).astype(np.int8),
        (random.random(UNITS) / 50).astype(np.float32),
    )
    weights = net.tensor((UNITS, 96), data=packed(integers, 4), type_name="INT4", q=Scale(scales))
    table = options("FullyConnectedOptions")
    net.op("FULLY_CONNECTED", [net.input((rows, 96)), weights, -1], [net.output((rows, UNITS))], table, version=14)
    x = random.normal(size=(rows, 96)).astype(np.float32)
    (wanted,) = run_interpreter(interpreter(net.bytes()), [x])
    proto = relayout.convert(net.bytes(), target="onnxruntime-cpu").proto
    np.testing.assert_allclose(computed(proto.SerializeToString(), x), wanted, rtol=0, atol=1e-6)
    meant = x @ (integers * scales[:, None]).T
    assert np.abs(meant - wanted).max() > 1e-3
    proto = relayout.convert(net.bytes()).proto
    np.testing.assert_allclose(computed(proto.SerializeToString(), x), meant, rtol=0, atol=1e-6)


def changed(**fields: int) -> Callable[[Any], None]:
    def change(quantization: Any) -> None:
        for name, value in fields.items():
            setattr(quantization.details, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed(scales=99), "there is no tensor 99"),
        (changed(scales=-1), "there is no tensor -1"),
        (changed(scales=0), "the scales are no constant floats of shape [6, 2]"),
        (changed(blockSize=0), "blocks of 0 do not make up 64 elements"),
        (changed(blockSize=33), "blocks of 33 do not make up 64 elements"),
        (changed(blockSize=16), "the scales are no constant floats of shape [6, 4]"),
        (changed(zeroPoints=0), "zero points of blocks"),
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[[Any], None], said: str) -> None:
    net = product_in_blocks()
    change(net.graph.tensors[net.graph.operators[0].inputs[1]].quantization)
    with pytest.raises(relayout.RelayoutError) as error:
        relayout.convert(net.bytes())
    assert said in str(error.value)


def test_weights_of_another_rank_are_refused() -> None:
    net, (integers, scales) = Net(), in_blocks("INT4")
    weights = weights_in_blocks(net, "INT4", integers[:, None], scales[:, None])
    table = options("FullyConnectedOptions")
    net.op("FULLY_CONNECTED", [net.input((3, COLUMNS)), weights, -1], [net.output((3, UNITS))], table, version=13)
    with pytest.raises(relayout.ReadError, match="operand 1 of FULLY_CONNECTED has rank 3, not 2"):
        relayout.convert(net.bytes())


def test_another_operator_refuses_them() -> None:
    net = Net()
    weights = weights_in_blocks(net, "INT4", *in_blocks("INT4"))
    net.op("DEQUANTIZE", [weights], [net.output((UNITS, COLUMNS))], version=9)
    with pytest.raises(relayout.UnsupportedError, match="a scale for each block of elements"):
        relayout.convert(net.op("EXP", [net.input((2, 3))], [net.output((2, 3))]).bytes())
