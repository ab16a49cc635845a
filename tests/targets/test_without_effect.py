"""Sums with zeros and guards of quantized values, which LiteRT would compute on real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from ai_edge_litert.interpreter import Interpreter

import relayout
from relayout.verification.ort import OrtSide
from rules.law import Array

X = np.random.default_rng(5).integers(-128, 128, (2, 3, 4, 8)).astype(np.int8)
REALS = {"DEQUANTIZE", "SELECT_V2", "NOT_EQUAL", "ADD"}


def attention(
    mask: str = "5",
    zero: str = "5",
    dtype: str = "int8",
    extents: str = "2, 1, 4, 8",
    guard: str = "IsNaN(c)",
    of_sum: str = "s",
    soft: float = 1 / 256,
    last: str = "y = QuantizeLinear(e, u, v)",
) -> onnx.ModelProto:
    """A sum with a mask, a Softmax and its guard, each between DequantizeLinear and QuantizeLinear."""
    count = int(np.prod([int(each) for each in extents.split(",")]))
    values, least = ", ".join([mask] * count), -128 if dtype == "int8" else 0
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 19]>
    attention ({dtype}[2, 3, 4, 8] x) => ({dtype}[2, 3, 4, 8] y)
    <float s = {{0.05}}, {dtype} z = {{3}}, {dtype}[{extents}] m = {{{values}}}, float r = {{1.0}},
     {dtype} n = {{{zero}}}, float u = {{{soft}}}, {dtype} v = {{{least}}}, float none = {{0.0}}> {{
        a = DequantizeLinear(x, s, z)
        b = DequantizeLinear(m, r, n)
        sum = Add(a, b)
        i = QuantizeLinear(sum, {of_sum}, z)
        d = DequantizeLinear(i, {of_sum}, z)
        soft = Softmax<axis = -1>(d)
        j = QuantizeLinear(soft, u, v)
        c = DequantizeLinear(j, u, v)
        never = {guard}
        e = Where(never, none, c)
        {last}
    }}""")


def assert_near(result: relayout.Result, model: onnx.ModelProto, feed: dict[str, Array], most: float) -> None:
    """Run both; they are so much apart at most."""
    (found,) = Interpreter(model_content=result.tflite, num_threads=1).get_signature_runner()(**feed).values()
    (expected,) = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=most)


def operators(model: onnx.ModelProto) -> set[str]:
    return set(relayout.convert(model, format="tflite").report.operators)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("extents", ["2, 1, 4, 8", "2, 3, 4, 8", "4, 8"])
def test_a_mask_of_zeros_and_a_guard_of_integers_are_left_out(dtype: str, extents: str) -> None:
    model = attention(dtype=dtype, extents=extents)
    result = relayout.convert(model, format="tflite")
    assert not REALS & result.report.operators.keys()
    assert "SOFTMAX" in result.report.operators
    feed = {"x": X if dtype == "int8" else X.view(np.uint8)}
    assert_near(result, model, feed, 1)


def test_verify_holds_what_is_left_out_to_the_source_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT's Softmax has a scale of its own, so 1/2 goes to either side: what the guard gives is that, as read.

    What the source rounds there from numbers a little higher is made of its own values, and of no others: where
    ONNX Runtime has to show another one, it fuses others, and rounds otherwise before.
    """
    cut, asked = OrtSide.forced, []

    def forced(side: OrtSide, shown: list[str], given: list[str], nudge: float = 0, **how: Any) -> object:
        asked.append((shown, given, nudge))
        return cut(side, shown, given, nudge, **how)

    monkeypatch.setattr(OrtSide, "forced", forced)
    from_half = """
        q = QuantizeLinear(e, u, v)
        f = DequantizeLinear(q, u, v)
        middle = Constant<value = int8 {0}>()
        half = DequantizeLinear(middle, u, v)
        g = Sub(f, half)
        fine = Constant<value = float {0.0002}>()
        y = QuantizeLinear(g, fine, middle)"""
    model = attention(soft=1 / 255, last=from_half)
    result = relayout.convert(model, format="tflite")
    x = np.full_like(X, -128)
    x[..., :2] = 127
    report = relayout.verify(model, result.tflite, inputs={"x": x})
    assert report.ok, str(report)
    nudged = [(shown, given) for shown, given, nudge in asked if nudge]
    assert nudged
    assert all("i" in given for shown, given in nudged if shown == ["j"])


@pytest.mark.parametrize(
    ("model", "stays"),
    [
        (attention(mask="6"), "ADD"),
        (attention(of_sum="r"), "ADD"),
        (attention(guard="Less(c, none)"), "SELECT_V2"),
        (attention(guard="IsNaN(sum)"), "SELECT_V2"),
    ],
    ids=["not zero", "another scale", "another condition", "of real numbers"],
)
def test_others_stay(model: onnx.ModelProto, stays: str) -> None:
    assert stays in operators(model)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("y = Add(x, zeros)", False),
        ("y = Add(zeros, x)", False),
        ("y = Add(x, ones)", True),
        ("y = Add(x, halves)", True),
        ("y = Sub(zeros, x)", True),
        ("y = Add(x, bias)", True),
        ("r = ReduceSum<keepdims = 0>(x, first)  y = Add(r, zeros)", True),
        ("g = IsNaN(x)  y = Where(g, zeros, x)", True),
    ],
)
def test_of_real_numbers_a_sum_with_zeros_alone_is_left_out(body: str, kept: bool) -> None:
    constants = "float[2, 3] zeros = {0, 0, 0, 0, 0, 0}, float[2, 3] ones = {1, 1, 1, 1, 1, 1}"
    constants += ", float[2, 3] halves = {0, 0, 0, 0, 0, 0.5}, float[3] bias = {0, 0, 0}, int64[1] first = {0}"
    text = f'<ir_version: 8, opset_import: ["" : 17]> real (float[2, 3] a) => (float[2, 3] b) <{constants}>'
    model = onnx.parser.parse_model(f"{text} {{ x = Neg(a)  {body}  b = Neg(y) }}")
    result = relayout.convert(model, format="tflite")
    assert bool(result.report.operators.keys() - {"MUL", "SUM"}) == kept
    feed = {"a": np.array([[0, np.nan, 1], [2, -3, np.inf]], np.float32)}
    assert_near(result, model, feed, 1e-6)
