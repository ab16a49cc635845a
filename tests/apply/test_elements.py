"""Values of element types that Transpose or Reshape does not take stay as they are made: what is made of them moves."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser, shape_inference

import relayout
from running import run
from text_form import floats


def quantized(text: str, kind: int, opset: int) -> onnx.ModelProto:
    source = parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
    constants = {"s": np.array(0.1, np.float32), "k": floats(4, 4, 1, 1), "w": floats(4, 4, seed=2)}
    source.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    source.graph.initializer.append(helper.make_tensor("z", kind, [], [0]))
    return shape_inference.infer_shapes(source)


def checked(source: onnx.ModelProto, **options: str) -> relayout.Result:
    """The result, which is valid, runs, and gives the source's values."""
    result = relayout.convert(source, **options)  # type: ignore[arg-type]
    onnx.checker.check_model(result.proto, full_check=True)
    feed = {"x": np.random.default_rng(0).normal(size=(1, 4, 6, 8)).astype(np.float32)}
    for got, want in zip(run(result.proto, feed), run(source, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return result


TURNED = """
    g (float[1,4,6,8] x) => (float[1,4,6,8] y) {
        c = Conv(x, k)
        q = QuantizeLinear(c, s, z)
        d = DequantizeLinear(q, s, z)
        t = Transpose<perm=[0,2,3,1]>(d)
        m = MatMul(t, w)
        u = Transpose<perm=[0,3,1,2]>(m)
        y = Conv(u, k)
    }"""


@pytest.mark.parametrize(
    ("kind", "opset", "moved"),
    [
        (TensorProto.FLOAT8E4M3FN, 19, "d"),
        (TensorProto.FLOAT8E5M2, 20, "d"),
        (TensorProto.FLOAT8E4M3FN, 21, "q"),
        (TensorProto.INT4, 21, "q"),
        (TensorProto.INT8, 19, "q/real"),
    ],
)
def test_elements_that_no_transpose_takes_are_not_moved(kind: int, opset: int, moved: str) -> None:
    """Floats of 8 bits came with opset 19, and Transposes of them with opset 21."""
    result = checked(quantized(TURNED, kind, opset))
    assert result.report.proved
    assert [node.input[0] for node in result.proto.graph.node if node.op_type == "Transpose"] == [moved, "m"]


def test_elements_that_no_transpose_takes_are_not_moved_for_many_readers() -> None:
    text = TURNED.replace("m = MatMul(t, w)", "a = MatMul(t, w) b = MatMul(f, w) m = Add(a, b)").replace(
        "t = Transpose",
        "e = DequantizeLinear(q, s, z) h = Relu(e) f = Transpose<perm=[0,2,3,1]>(h) t = Transpose",
    )
    result = checked(quantized(text, TensorProto.FLOAT8E4M3FN, 19))
    assert "q" not in {node.input[0] for node in result.proto.graph.node if node.op_type == "Transpose"}


@pytest.mark.parametrize(
    ("kind", "opset"),
    [
        (TensorProto.FLOAT8E4M3FN, 19),
        (TensorProto.INT4, 21),
        (TensorProto.INT8, 19),
    ],
)
def test_elements_that_no_runtime_reshapes_are_not_reshaped(kind: int, opset: int) -> None:
    """A gate of a squeezed image: its size-1 axes lie elsewhere in NHWC."""
    text = """
        g (float[1,4,6,8] x) => (float[1,4,6,8] y) {
            c = Conv(x, k)
            mean = GlobalAveragePool(c)
            q = QuantizeLinear(mean, s, z)
            d = DequantizeLinear(q, s, z)
            gate = Conv(d, k)
            y = Mul(c, gate)
        }"""
    result = checked(quantized(text, kind, opset), to="NHWC")
    reshaped = {node.input[0] for node in result.proto.graph.node if node.op_type == "Reshape"}
    assert kind == TensorProto.INT8 or not {name for name in reshaped if name.startswith("q")}
