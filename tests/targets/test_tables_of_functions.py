"""Functions of one integer of 8 bits on microcontrollers and NPUs: a table, or one operator on integers."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import relayout
from running import run
from small import build
from targets.judging import answers, saved
from targets.test_unit_exports import litert
from targets.vela import judge, needs_vela

PYTHON = os.environ.get("RELAYOUT_TFLM") or (sys.executable if find_spec("tflite_micro") else None)
SCALES = {"s": np.float32(0.05), "z": np.int8(-20), "r": np.float32(0.04), "q": np.int8(-100)}
INNER = {
    "fine": np.float32(0.01),
    "even": np.int8(0),
    "w": np.float32(1e-5),
    "w0": np.int16(0),
    "half": np.float32(0.5),
}
TABLE = {"CAST": 1, "ADD": 1, "GATHER": 1}
EVERY_INTEGER = {"x": np.arange(-128, 128).astype(np.int8).reshape(1, 4, 8, 8)}
NAMES = """
    Atan Ceil Celu Cos Erf Exp Floor Gelu Mish Neg Round Selu Shrink Sign Sin Softplus Softsign Tan ThresholdedRelu
"""
CHAINS = ("Log", "Sqrt", "Reciprocal", "PRelu", "a product with its own function")
"""Functions of several operators between integers, which a table of targets claims one by one."""
FUNCTIONS = {
    **{name: f"b = {name}(a)" for name in NAMES.split()},
    "Gelu of tanh": 'b = Gelu<approximate = "tanh">(a)',
    "Log": "m = Abs(a) n = Add(m, one) b = Log(n)",
    "Sqrt": "m = Relu(a) b = Sqrt(m)",
    "Reciprocal": "m = Relu(a) n = Add(m, one) b = Reciprocal(n)",
    "PRelu": "b = PRelu(a, one)",
    "a product with its own function": "m = Softplus(a) n = Tanh(m) b = Mul(a, n)",
}


def between_integers(body: str, more: str = "") -> onnx.ModelProto:
    """A function `b` of `a`, between integers of 8 bits."""
    nodes = f"a = DequantizeLinear(x, s, z) {body} y = QuantizeLinear(b, r, q) {more}"
    return build("int8[1,4,8,8] x", nodes, {**SCALES, **INNER, "one": np.float32(1)}, opset=22)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_a_table_of_what_it_gives(name: str, tmp_path: Path) -> None:
    source = between_integers(FUNCTIONS[name])
    result = relayout.convert(source, format="tflite", target="tflite-micro")
    assert result.report.operators == TABLE
    claims = result.report.claims
    assert claims is not None
    assert claims.claimed == claims.total or name in CHAINS
    (expected,) = run(source, EVERY_INTEGER)
    off = np.abs(litert(result, EVERY_INTEGER)["y"].astype(int) - expected)
    assert off.max() <= 1  # a number in the middle between two integers
    assert np.mean(off > 0) <= 0.02
    if PYTHON is not None:
        path = tmp_path / "model.tflite"
        saved(result, EVERY_INTEGER, path)
        (answer,) = answers(PYTHON, "by_tflm.py", [path]).values()
        assert answer.get("off") == 0, answer


@needs_vela
@pytest.mark.parametrize(("body", "builtin"), [("b = Exp(a)", "EXP"), ("b = Elu(a)", "ELU"), ("b = Gelu(a)", "GELU")])
def test_an_npu_keeps_the_functions_that_it_has(body: str, builtin: str, tmp_path: Path) -> None:
    source = between_integers(body)
    result = relayout.convert(source, format="tflite", target="ethos-u")
    assert result.report.operators == {builtin: 1}
    result.save(tmp_path / "model.tflite")
    assert not judge(tmp_path / "model.tflite", tmp_path).on_cpu
    assert np.abs(litert(result, EVERY_INTEGER)["y"].astype(int) - run(source, EVERY_INTEGER)[0]).max() <= 1
    other = relayout.convert(between_integers("b = Sin(a)"), format="tflite", target="ethos-u")
    assert other.report.operators == TABLE


def test_operators_on_integers_stay() -> None:
    unit = "c = QuantizeLinear(m, s, z) d = DequantizeLinear(c, s, z)"
    source = between_integers(f"m = Relu(a) {unit} b = Mul(d, d)")
    for target in ("tflite-micro", "ethos-u"):
        assert "GATHER" not in (relayout.convert(source, format="tflite", target=target).report.operators or {})


UNIT = "q{0} = QuantizeLinear(m{0}, {1}, {2}) d{0} = DequantizeLinear(q{0}, {1}, {2})"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (f"m1 = HardSwish(a) {UNIT.format(1, 'fine', 'even')} e = Exp(d1) m2 = Relu(a) {UNIT.format(2, 'fine', 'even')}"
         " g = Sin(d2) b = Add(e, g)", 1),  # integers in between that clip, and read one integer
        (f"m1 = Mul(a, one) {UNIT.format(1, 'w', 'w0')} b = Sin(d1)", 1),  # coarse steps of 16 bits
        (f"m1 = Mul(a, half) {UNIT.format(1, 's', 'z')} e = Exp(d1) b = Mul(e, d1)", 1),
        (f"m1 = Mul(a, half) {UNIT.format(1, 's', 'z')} m2 = Add(a, one) {UNIT.format(2, 's', 'z')} e = Exp(d2)"
         " b = Mul(e, d1)", 1),
    ],
    ids=["clipped", "words", "two readers", "two values"],
)  # fmt: skip
@pytest.mark.parametrize("target", ["tflite-micro", "ethos-u"])
def test_integers_between_are_rounded_and_clipped(body: str, count: int, target: str) -> None:
    source = between_integers(body)
    result = relayout.convert(source, format="tflite", target=target)
    operators = result.report.operators or {}
    assert operators["GATHER"] == count
    assert not {"DEQUANTIZE", "EXP", "SIN"} & operators.keys()
    (expected,) = run(source, EVERY_INTEGER)
    off = np.abs(litert(result, EVERY_INTEGER)["y"].astype(int) - expected)
    assert off.max() <= 1
    assert np.mean(off > 0) <= 0.02


@pytest.mark.parametrize(("body", "target"), [("b = Log(a)", "tflite-micro"), ("b = Sqrt(a)", "tflite-micro"),
                                              ("m = Sqrt(a) b = Reciprocal(m)", "ethos-u")])  # fmt: skip
def test_what_is_no_number_is_the_least_integer_as_in_onnx_runtime(body: str, target: str) -> None:
    source = between_integers(body)
    result = relayout.convert(source, format="tflite", target=target)
    assert result.report.operators == TABLE
    off = np.abs(litert(result, EVERY_INTEGER)["y"].astype(int) - run(source, EVERY_INTEGER)[0])
    assert off.max() <= 1


@pytest.mark.parametrize(
    "source",
    [
        between_integers("b = Exp(a)", "e = Add(b, a) f = ReduceMean(e)"),
        between_integers("b = Exp(a)", "f = Relu(b)"),
        build("int8[1,4,8,8] x, int8[1,4,8,8] w", "a = DequantizeLinear(x, s, z) e = DequantizeLinear(w, s, z)"
              " f = Exp(a) b = Mul(f, e) y = QuantizeLinear(b, r, q)", SCALES),
        build("int8[1,4,8,8] x", "a = DequantizeLinear(x, s, z) f = Exp(a) b = Mul(f, k)"
              " y = QuantizeLinear(b, r, q)", {**SCALES, "k": np.arange(4, dtype=np.float32).reshape(4, 1, 1)}),
    ],
    ids=["reals that others read", "reals that are an output", "two tensors", "a constant of several numbers"],
)  # fmt: skip
def test_what_is_no_function_of_one_integer_stays(source: onnx.ModelProto) -> None:
    result = relayout.convert(source, format="tflite", target="tflite-micro")
    operators = result.report.operators or {}
    assert "EXP" in operators
    assert "GATHER" not in operators
    feed = {each.name: EVERY_INTEGER["x"] for each in source.graph.input}
    names = [each.name for each in source.graph.output]
    for name, expected in zip(names, run(source, feed), strict=True):
        np.testing.assert_allclose(litert(result, feed)[name].astype(float), expected, rtol=1e-5, atol=1)


def test_scales_of_channels_are_not_claimed() -> None:
    scales = {**SCALES, "r": np.full(4, 0.04, np.float32), "q": np.full(4, -100, np.int8)}
    source = build(
        "int8[1,4,8,8] x", "a = DequantizeLinear(x, s, z) b = Exp(a) y = QuantizeLinear<axis=1>(b, r, q)", scales
    )
    claims = relayout.convert(source, format="tflite", target="tflite-micro").report.claims
    assert claims is not None
    assert claims.claimed < claims.total


def samples() -> list[dict[str, NDArray[np.float32]]]:
    draw = np.random.default_rng(5)
    return [{"x": draw.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(3)]


@pytest.mark.parametrize("function", ["Mish", "Gelu", "Erf", "Sign"])
def test_functions_that_the_quantizer_leaves_real_are_tables(function: str) -> None:
    pytest.importorskip("ai_edge_quantizer")
    weights = np.random.default_rng(2).normal(size=(6, 3, 3, 3)).astype(np.float32)
    source = build("float[1,3,8,8] x", f"c = Conv(x, w) y = {function}(c)", {"w": weights}, opset=20)
    options = {"input_type": "int8", "output_type": "int8"}
    for target in ("tflite-micro", "ethos-u"):
        result = relayout.convert(
            source, format="tflite", target=target, quantize="int8", calibrate=samples(), **options
        )
        operators = result.report.operators or {}
        assert "GATHER" in operators or (target, function) == ("ethos-u", "Gelu")
        assert not {"DEQUANTIZE", "EXP", "QUANTIZE"} & operators.keys()
        summary = result.report.quantization
        assert summary is not None
        assert not summary.floats
