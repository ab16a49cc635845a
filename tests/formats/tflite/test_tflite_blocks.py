"""Weights with a scale for each block of a row, as LiteRT's quantizer writes them for large language models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from tflite_running import check_model, interpreter, run_interpreter
from tflite_writing import Net, Scale, options

import relayout
from relayout.formats.tflite import read

UNITS, COLUMNS, SIZE = 6, 64, 32


def matrix(kind: str) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Integers, and a scale for each 32 of a row; those of one row are far apart."""
    random, most = np.random.default_rng(0), {"INT2": 2, "INT4": 8, "INT8": 128}[kind]
    scales = 2.0 ** -random.integers(4, 10, (UNITS, COLUMNS // SIZE)) / most
    return random.integers(-most + 1, most, (UNITS, COLUMNS)).astype(np.int8), scales.astype(np.float16)


def packed(integers: NDArray[np.int8], kind: str) -> NDArray[np.uint8]:
    bits = int(kind.removeprefix("INT"))
    masked = integers.reshape(-1).astype(np.int64) & (1 << bits) - 1
    return sum(masked[i :: 8 // bits] << bits * i for i in range(8 // bits)).astype(np.uint8)  # type: ignore[union-attr]


def product(
    kind: str = "INT4", shape: tuple[int, ...] = (3, COLUMNS), change: Callable[[Any], None] | None = None
) -> Net:
    """Rows times such a matrix, and a bias."""
    net = Net()
    integers, scales = matrix(kind)
    held = net.const(scales, "float16")
    weights = net.tensor((UNITS, COLUMNS), data=packed(integers, kind), type_name=kind, blocks=(held, SIZE))
    if change is not None:
        change(net.graph.tensors[weights].quantization)
    table = options("FullyConnectedOptions", keepNumDims=True)
    operands = [net.input(shape), weights, net.const(np.arange(UNITS) / 8)]
    return net.op("FULLY_CONNECTED", operands, [net.output((*shape[:-1], UNITS))], table, version=13)


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
    integers, scales = matrix(kind)
    real = integers * np.repeat(scales.astype(np.float32), SIZE, 1)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    wanted = x @ real.T + np.arange(UNITS, dtype=np.float32) / 8
    content = product(kind, shape).bytes()
    rounded = np.ptp(x, axis=-1, keepdims=True) / 255 * np.abs(real).sum(1)
    for made in (
        check_model(read(content, quant=quant)),
        relayout.convert(content, quant=quant).proto.SerializeToString(),
    ):
        np.testing.assert_allclose(computed(made, x), wanted, rtol=1e-5, atol=1e-5)
        assert np.all(np.abs(computed(made, x, optimized=True) - wanted) <= rounded)


def test_the_interpreter_means_the_same() -> None:
    """It rounds each row of the data to 8 bits."""
    integers, scales = matrix("INT4")
    real = integers * np.repeat(scales.astype(np.float32), SIZE, 1)
    x = np.random.default_rng(1).normal(size=(3, COLUMNS)).astype(np.float32)
    (got,) = run_interpreter(interpreter(product().bytes()), [x])
    half_steps = np.ptp(x, axis=1, keepdims=True) / 255 * np.abs(real).sum(1)
    assert np.all(np.abs(got - (x @ real.T + np.arange(UNITS) / 8)) <= half_steps)


def test_weights_stay_as_short_as_they_are() -> None:
    proto = relayout.convert(product().bytes()).proto
    assert [node.op_type for node in proto.graph.node] == ["DequantizeLinear", "MatMul", "Add"]
    (attribute,) = (a.i for a in proto.graph.node[0].attribute if a.name == "block_size")
    assert attribute == SIZE
    assert (
        min(len(tensor.raw_data) for tensor in proto.graph.initializer if list(tensor.dims) == [COLUMNS, UNITS]) == 192
    )


@pytest.mark.parametrize(("kind", "columns", "size"), [("INT2", 512, 256), ("INT2", 384, 128)])
def test_long_rows_of_few_bits_have_blocks_too(kind: str, columns: int, size: int) -> None:
    random, integers = np.random.default_rng(0), np.random.default_rng(1).integers(-1, 2, (UNITS, columns))
    scales = (random.random(UNITS) / 50).astype(np.float32)
    net = Net()
    weights = net.tensor((UNITS, columns), data=packed(integers.astype(np.int8), kind), type_name=kind, q=Scale(scales))
    table = options("FullyConnectedOptions")
    net.op("FULLY_CONNECTED", [net.input((3, columns)), weights, -1], [net.output((3, UNITS))], table, version=14)
    proto = relayout.convert(net.bytes()).proto
    (attribute,) = (a.i for node in proto.graph.node for a in node.attribute if a.name == "block_size")
    assert attribute == size
    x = random.normal(size=(3, columns)).astype(np.float32)
    wanted = x @ (integers * scales[:, None]).T
    np.testing.assert_allclose(computed(proto.SerializeToString(), x), wanted, rtol=1e-5, atol=1e-5)
    rounded = np.ptp(x, axis=-1, keepdims=True) / 255 * np.abs(integers * scales[:, None]).sum(1)
    assert np.all(np.abs(computed(proto.SerializeToString(), x, optimized=True) - wanted) <= rounded)


@pytest.mark.parametrize("rows", [1, 5])
def test_a_product_with_four_bits_is_the_interpreters(rows: int) -> None:
    """Rows of data are rounded as there: to 255 steps."""
    random, net = np.random.default_rng(0), Net()
    integers, scales = (
        random.integers(-7, 8, (UNITS, 96)).astype(np.int8),
        (random.random(UNITS) / 50).astype(np.float32),
    )
    weights = net.tensor((UNITS, 96), data=packed(integers, "INT4"), type_name="INT4", q=Scale(scales))
    table = options("FullyConnectedOptions")
    net.op("FULLY_CONNECTED", [net.input((rows, 96)), weights, -1], [net.output((rows, UNITS))], table, version=14)
    x = random.normal(size=(rows, 96)).astype(np.float32)
    (wanted,) = run_interpreter(interpreter(net.bytes()), [x])
    proto = relayout.convert(net.bytes()).proto
    np.testing.assert_allclose(computed(proto.SerializeToString(), x), wanted, rtol=0, atol=1e-6)
    assert np.abs(x @ (integers * scales[:, None]).T - wanted).max() > 1e-3


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
        (changed(scales=1), "the scales are no constant floats of shape [6, 2]"),
        (changed(blockSize=0), "blocks of 0 do not make up 64 elements"),
        (changed(blockSize=33), "blocks of 33 do not make up 64 elements"),
        (changed(blockSize=16), "the scales are no constant floats of shape [6, 4]"),
        (changed(zeroPoints=0), "zero points of blocks"),
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[[Any], None], said: str) -> None:
    with pytest.raises(relayout.RelayoutError) as error:
        relayout.convert(product(change=change).bytes())
    assert said in str(error.value)


def test_another_operator_refuses_them() -> None:
    net = Net()
    integers, scales = matrix("INT4")
    held = net.const(scales, "float16")
    weights = net.tensor((UNITS, COLUMNS), data=packed(integers, "INT4"), type_name="INT4", blocks=(held, SIZE))
    net.op("DEQUANTIZE", [weights], [net.output((UNITS, COLUMNS))], version=9)
    with pytest.raises(relayout.UnsupportedError, match="a scale for each block of elements"):
        relayout.convert(net.op("EXP", [net.input((2, 3))], [net.output((2, 3))]).bytes())
