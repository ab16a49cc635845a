"""Products whose numbers lie midway between two integers: kernels round twice, and go to the other one."""

from __future__ import annotations

import numpy as np
import onnx

import relayout

MIDWAY, CLEAR = 1448, 1460
"""Sums of a column; times the operands' scales they are 32.486 and 32.755 steps of the result."""


def products(sum_: int = MIDWAY, rows: int = 32) -> tuple[onnx.ModelProto, np.ndarray]:  # type: ignore[type-arg]
    """One column of a QLinearMatMul, the same in every row, and what makes much of its last step."""
    first, second = divmod(sum_, 100)
    text = f"""<ir_version: 9, opset_import: ["" : 19]>
    products (uint8[{rows}, 2] x) => (int8[{rows}, 2] y)
    <float s = {{0.00191816}}, uint8 z = {{0}}, uint8[2, 2] w = {{220, 121, 121, 120}}, float r = {{0.000701774}},
     uint8 v = {{120}}, float t = {{0.00006}}, uint8 u = {{122}}, float middle = {{0.00195}},
     float fine = {{0.000003}}, int8 n = {{0}}> {{
        a = QLinearMatMul(x, s, z, w, r, v, t, u)
        b = DequantizeLinear(a, t, u)
        c = Sub(b, middle)
        y = QuantizeLinear(c, fine, n)
    }}"""
    return onnx.parser.parse_model(text), np.tile(np.array([first, second], np.uint8), (rows, 1))


def test_a_column_that_is_midway_may_be_rounded_to_either_side() -> None:
    model, x = products()
    report = relayout.verify(model, relayout.convert(model, format="tflite").tflite, inputs={"x": x})
    assert report.ok, str(report)
    assert {row.name: row.difference.max_abs for row in report.rows if row.difference is not None}["a"] == 1


def test_a_column_that_is_a_step_off_elsewhere_is_found() -> None:
    """A weight is larger: of 32.76 steps it makes 33.70, which is rounded to 34."""
    model, x = products(CLEAR)
    other = onnx.ModelProto.FromString(model.SerializeToString())
    (weights,) = (each for each in other.graph.initializer if each.name == "w")
    weights.CopyFrom(onnx.numpy_helper.from_array(np.array([[223, 121], [121, 120]], np.uint8), "w"))
    report = relayout.verify(model, relayout.convert(other, format="tflite").tflite, inputs={"x": x})
    assert not report.ok


def test_a_result_in_finer_steps_than_the_kernel_has_may_be_a_step_off() -> None:
    """LiteRT's sigmoid has steps of 1/256. Of 0.5099 they make 131: 195.7 steps, not 195.05."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 19]>
    finer (int8[4, 16] x) => (int8[4, 16] y)
    <float s = {0.00494922}, int8 n = {0}, float t = {0.00261424}, int8 v = {-128}, float middle = {0.51},
     float fine = {0.0001}> {
        a = DequantizeLinear(x, s, n)
        b = Sigmoid(a)
        c = QuantizeLinear(b, t, v)
        d = DequantizeLinear(c, t, v)
        e = Sub(d, middle)
        y = QuantizeLinear(e, fine, n)
    }""")
    tflite = relayout.convert(model, format="tflite").tflite
    report = relayout.verify(model, tflite, inputs={"x": np.full((4, 16), 8, np.int8)})
    assert report.ok, str(report)
    assert {row.name: row.difference.max_abs for row in report.rows if row.difference is not None}["c"] == 1
