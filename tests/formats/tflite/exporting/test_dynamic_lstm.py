"""A DynamicQuantizeLSTM is written as the LSTM of the real numbers that its weights stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from export_running import agrees
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import relayout
from relayout.errors import UnsupportedError
from rules.law import with_runtime

STEPS, FEATURES, HIDDEN = 7, 5, 6
RNG = np.random.default_rng(0)


def floats(*shape: int) -> NDArray[np.float32]:
    return (RNG.normal(size=shape) * 0.4).astype(np.float32)


def lstm(w: NDArray[np.float32], r: NDArray[np.float32], b: NDArray[np.float32]) -> onnx.ModelProto:
    directions = len(w)
    node = helper.make_node(
        "LSTM",
        ["x", "W", "R", "B"],
        ["y", "h"],
        hidden_size=HIDDEN,
        direction="bidirectional" if directions == 2 else "forward",
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, "n", FEATURES])
    shapes = {"y": [STEPS, directions, "n", HIDDEN], "h": [directions, "n", HIDDEN]}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    constants = [numpy_helper.from_array(each, name) for name, each in zip("WRB", (w, r, b), strict=True)]
    graph = helper.make_graph([node], "g", [x], ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def real_weights(model: onnx.ModelProto, name: str) -> NDArray[np.float32]:
    """The weights that integers, scales and zero points stand for, as an LSTM has them."""
    arrays = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    integers = arrays[f"{name}_quantized"].astype(np.float32)
    shape = (len(integers), 1, -1)
    zeros, scales = (arrays[f"{name}_{each}"].astype(np.float32).reshape(shape) for each in ("zero_point", "scale"))
    return np.ascontiguousarray(((integers - zeros) * scales).transpose(0, 2, 1), np.float32)


@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8], ids=str)
@pytest.mark.parametrize(("directions", "per_channel"), [(1, False), (1, True), (2, False), (2, True)])
def test_it_is_the_lstm_of_its_weights(directions: int, per_channel: bool, kind: QuantType, tmp_path: Path) -> None:
    b = floats(directions, 8 * HIDDEN)
    source = lstm(floats(directions, 4 * HIDDEN, FEATURES), floats(directions, 4 * HIDDEN, HIDDEN), b)
    onnx.save(source, tmp_path / "float.onnx")
    # Weights of 7 bits: their products with uint8 saturate on no processor.
    quantize_dynamic(
        tmp_path / "float.onnx", tmp_path / "int8.onnx", per_channel=per_channel, weight_type=kind, reduce_range=True
    )
    quantized = onnx.load(tmp_path / "int8.onnx")
    assert [node.op_type for node in quantized.graph.node] == ["DynamicQuantizeLSTM"]
    twin = lstm(real_weights(quantized, "W"), real_weights(quantized, "R"), b)
    for n in (1, 3):
        feeds = {"x": RNG.normal(size=(STEPS, n, FEATURES)).astype(np.float32)}
        agrees(quantized, feeds, expected=with_runtime(twin, feeds))
        for own, real in zip(with_runtime(quantized, feeds), with_runtime(twin, feeds), strict=True):
            assert float(abs(own - real).max()) < 0.05 * float(abs(real).max())  # what the rounding of operands costs


def test_computed_weights_are_refused(tmp_path: Path) -> None:
    source = lstm(floats(1, 4 * HIDDEN, FEATURES), floats(1, 4 * HIDDEN, HIDDEN), floats(1, 8 * HIDDEN))
    onnx.save(source, tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    quantized = onnx.load(tmp_path / "int8.onnx")
    (weights,) = (each for each in quantized.graph.initializer if each.name == "R_quantized")
    quantized.graph.input.append(helper.make_tensor_value_info("R_quantized", weights.data_type, weights.dims))
    quantized.graph.initializer.remove(weights)
    with pytest.raises(UnsupportedError, match="DynamicQuantizeLSTM"):
        relayout.convert(quantized, format="tflite")
