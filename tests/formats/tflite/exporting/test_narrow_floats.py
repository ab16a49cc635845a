"""Weights in bfloat16 and in floats of 8 and 4 bits are real numbers in a `.tflite`."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relayout
from relayout.errors import UnsupportedError
from small import build

RNG = np.random.default_rng(0)
ROWS = 9
"""No multiple of a block's: the last block is shorter."""
SCALES: dict[str, tuple[NDArray[np.float32], dict[str, int]]] = {
    "one scale": (np.array(0.1, np.float32), {}),
    "a scale for each column": (RNG.uniform(0.1, 1, 6).astype(np.float32), {"axis": 1}),
    "a scale for each row": (RNG.uniform(0.1, 1, ROWS).astype(np.float32), {"axis": 0}),
    "blocks of 4 rows": (RNG.uniform(0.1, 1, (3, 6)).astype(np.float32), {"axis": 0, "block_size": 4}),
}


def product(kind: str, decode: onnx.NodeProto, *constants: onnx.TensorProto) -> onnx.ModelProto:
    """A product with weights of some rows and 6 columns, which a node decodes."""
    weights = RNG.normal(size=(ROWS, 6)).astype(getattr(ml_dtypes, kind))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", ROWS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 6])
    nodes = [decode, helper.make_node("MatMul", ["x", "d"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weights, "w"), *constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


BYTES = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
HALVES = ("float4_e2m1fn",)
"""Of 4 bits, which ONNX Runtime does not dequantize: NumPy alone says what LiteRT has to give."""


@pytest.mark.parametrize("kind", [*BYTES, *HALVES])
@pytest.mark.parametrize("scales", SCALES)
def test_dequantized_weights(kind: str, scales: str, tmp_path: Path) -> None:
    scale, attributes = SCALES[scales]
    decode = helper.make_node("DequantizeLinear", ["w", "s"], ["d"], **attributes)
    source = product(kind, decode, numpy_helper.from_array(scale, "s"))
    relayout.convert(source, format="tflite").save(tmp_path / "m.tflite")
    x = RNG.normal(size=(3, ROWS)).astype(np.float32)
    if kind in BYTES and "block_size" not in attributes:
        assert relayout.verify(source, tmp_path / "m.tflite", inputs={"x": x}).ok
    weights = numpy_helper.to_array(source.graph.initializer[0]).astype(np.float32)
    rows = np.repeat(scale, 4, 0)[:ROWS] if scale.ndim == 2 else scale[:, None] if attributes == {"axis": 0} else scale
    assert_product(tmp_path / "m.tflite", x, weights * rows)


@pytest.mark.parametrize("kind", ["bfloat16", *BYTES, *HALVES])
def test_cast_weights(kind: str, tmp_path: Path) -> None:
    source = product(kind, helper.make_node("Cast", ["w"], ["d"], to=TensorProto.FLOAT))
    relayout.convert(source, format="tflite").save(tmp_path / "m.tflite")
    weights = numpy_helper.to_array(source.graph.initializer[0]).astype(np.float32)
    assert_product(tmp_path / "m.tflite", RNG.normal(size=(3, ROWS)).astype(np.float32), weights)


def test_numbers_of_bfloat16_are_refused_with_the_option_that_helps() -> None:
    """Kernels compute none; a Gemm whose weights are turned around is refused as other operators are."""
    source = build(
        "bfloat16[3,4] x",
        "y = Gemm(x, w, b)",
        {"w": RNG.normal(size=(4, 6)).astype(ml_dtypes.bfloat16), "b": np.zeros(6, ml_dtypes.bfloat16)},
    )
    with pytest.raises(UnsupportedError, match=r"Gemm \(elements of BFLOAT16\).*--float32"):
        relayout.convert(source, format="tflite")
    assert relayout.convert(source, format="tflite", float32=True).tflite


def assert_product(file: Path, x: NDArray[np.float32], weights: NDArray[np.float32]) -> None:
    """Check that LiteRT multiplies by weights."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(file))
    (end,) = interpreter.get_input_details()
    interpreter.resize_tensor_input(end["index"], x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(end["index"], x)
    interpreter.invoke()
    y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(y, x @ weights, rtol=0, atol=1e-5 * float(abs(y).max()))
