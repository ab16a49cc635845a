"""Quantized ONNX models stay quantized: LiteRT's integer kernels, within one step of ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import relayout
from products import in_full

SHAPE = [1, 4, 10, 14]
FORMS: dict[str, dict[str, Any]] = {
    "int8 per channel": {
        "activation_type": QuantType.QInt8,
        "weight_type": QuantType.QInt8,
        "per_channel": True,
        "quant_format": QuantFormat.QDQ,
    },
    "uint8 by int8": {
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
        "quant_format": QuantFormat.QDQ,
    },
    "uint8 by uint8": {
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QUInt8,
        "quant_format": QuantFormat.QDQ,
    },
    "int16 by int8": {
        "activation_type": QuantType.QInt16,
        "weight_type": QuantType.QInt8,
        "per_channel": True,
        "quant_format": QuantFormat.QDQ,
        "extra_options": {"ActivationSymmetric": True},
    },
    "QOperator": {
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
        "quant_format": QuantFormat.QOperator,
    },
}
KERNELS = {"default": OpResolverType.AUTO, "reference": OpResolverType.BUILTIN_REF}


def network() -> onnx.ModelProto:
    """A convolution, a depthwise one, a sum, pools, a concatenation and a product, all extents different."""
    rng = np.random.default_rng(3)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        array = rng.normal(size=shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(array.astype(np.float32), name)

    nodes = [
        make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        make_node("Relu", ["c1"], ["r1"]),
        make_node("Conv", ["r1", "w2", "b2"], ["c2"], group=6, pads=[1, 1, 1, 1]),
        make_node("Add", ["r1", "c2"], ["sum"]),
        make_node("MaxPool", ["sum"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        make_node("Conv", ["pool", "w3", "b3"], ["c3"], pads=[1, 1, 1, 1]),
        make_node("Concat", ["pool", "c3"], ["both"], axis=1),
        make_node("GlobalAveragePool", ["both"], ["mean"]),
        make_node("Flatten", ["mean"], ["flat"]),
        make_node("Gemm", ["flat", "w4", "b4"], ["y"], transB=1),
    ]
    constants = [
        weights("w1", 6, 4, 3, 3),
        weights("b1", 6),
        weights("w2", 6, 1, 3, 3),
        weights("b2", 6),
        weights("w3", 8, 6, 3, 3),
        weights("b3", 8),
        weights("w4", 5, 14),
        weights("b4", 5),
    ]
    graph = make_graph(
        nodes,
        "network",
        [make_tensor_value_info("x", onnx.TensorProto.FLOAT, SHAPE)],
        [make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 5])],
        constants,
    )
    return make_model(graph, opset_imports=[make_opsetid("", 21)], ir_version=10)


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.left: Iterator[dict[str, Any]] = iter([{"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> dict[str, Any] | None:
        return next(self.left, None)


@pytest.fixture(scope="module", params=FORMS)
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantized")
    onnx.save(network(), folder / "float.onnx")
    path = folder / "quantized.onnx"
    quantize_static(folder / "float.onnx", path, Samples(), **FORMS[request.param])
    return path


def run(content: bytes, x: np.ndarray[Any, Any], kernels: str = "default") -> np.ndarray[Any, Any]:
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=KERNELS[kernels], num_threads=1)
    result: np.ndarray[Any, Any] = interpreter.get_signature_runner()(x=x)["y"]
    return result


@pytest.mark.parametrize("kernels", KERNELS)
def test_the_result_is_within_one_step_of_the_source(quantized: Path, kernels: str) -> None:
    result = relayout.convert(quantized, format="tflite")
    session = onnxruntime.InferenceSession(in_full(quantized.read_bytes()))
    step = last_step(quantized)
    assert result.file is not None
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)
        (expected,) = session.run(None, {"x": x})
        assert np.ptp(expected) > 4 * step, "the outputs say nothing"
        assert np.abs(run(result.tflite, x, kernels) - expected).max() <= 1.01 * step


def test_every_operator_runs_on_integers(quantized: Path) -> None:
    result = relayout.convert(quantized, format="tflite")
    assert result.file is not None
    counts = Counter(operator.name for operator in result.file.subgraphs[0].operators)
    assert counts["CONV_2D"] == 2
    assert counts["DEPTHWISE_CONV_2D"] == counts["FULLY_CONNECTED"] == counts["ADD"] == counts["MEAN"] == 1
    assert counts["DEQUANTIZE"] == 1, "one of the result; an operator between ran on real numbers"
    tensors = result.file.subgraphs[0].tensors
    for operator in result.file.subgraphs[0].operators:
        if operator.name not in ("QUANTIZE", "DEQUANTIZE", "TRANSPOSE", "RESHAPE"):
            assert tensors[operator.outputs[0]].quantization is not None, operator.name


def test_unsigned_bytes_of_any_scale_are_joined_as_they_are(quantized: Path) -> None:
    file = relayout.convert(quantized, format="tflite").file
    assert file is not None
    graph = file.subgraphs[0]
    (joined,) = (operator for operator in graph.operators if operator.name == "CONCATENATION")
    scales = {float(meaning.scale[0]) for i in joined.inputs if (meaning := graph.tensors[i].quantization) is not None}
    assert len(scales) == (2 if graph.tensors[joined.outputs[0]].type.name == "UINT8" else 1)


def last_step(path: Path) -> float:
    """The scale of the output: nothing that rounds once more can be closer."""
    model = onnx.load(path)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    return float(constants[makers["y"].input[1]].reshape(-1)[0])


def test_weights_alone_are_dequantized_in_the_file() -> None:
    """Weight-only int8: DEQUANTIZE and the kernel of floats, which XNNPACK runs without a copy."""
    rng = np.random.default_rng(0)
    integers = rng.integers(-127, 128, (6, 7)).astype(np.int8)
    constants = [
        numpy_helper.from_array(integers, "w"),
        numpy_helper.from_array(np.linspace(0.01, 0.05, 7).astype(np.float32), "scale"),
        numpy_helper.from_array(np.zeros(7, np.int8), "zero"),
    ]
    nodes = [
        make_node("DequantizeLinear", ["w", "scale", "zero"], ["weights"], axis=1),
        make_node("MatMul", ["x", "weights"], ["y"]),
    ]
    graph = make_graph(
        nodes,
        "weights",
        [make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 6])],
        [make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 7])],
        constants,
    )
    model = make_model(graph, opset_imports=[make_opsetid("", 19)], ir_version=9)
    result = relayout.convert(model, format="tflite")
    x = rng.normal(size=(3, 6)).astype(np.float32)
    expected = x @ (integers * np.linspace(0.01, 0.05, 7).astype(np.float32))  # ONNX Runtime rounds x here
    np.testing.assert_allclose(run(result.tflite, x), expected, rtol=1e-5, atol=1e-5)
    assert result.file is not None
    assert any(tensor.type.name == "INT8" for tensor in result.file.subgraphs[0].tensors)
