"""Builtins that ONNX has no operator for are recognised, and int8 runs on their kernels: within one step."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees
from node_tests import run

import relayout
from relayout.formats.tflite.container.loading import load
from rules.law import Array, with_runtime
from small import build
from text_form import floats

FLOATS = {
    "d = Sub(x, w)  y = Mul(d, d)": ["SQUARED_DIFFERENCE"],
    "d = Sub(x, w)  y = Mul(d, d)  z = Neg(d)": ["SUB", "MUL", "MUL"],
    "d = Sub(x, w)  y = Mul(d, w)": ["SUB", "MUL"],
    "e = Exp(x)  r = Sqrt(e)  y = Reciprocal(r)": ["EXP", "RSQRT"],
    "e = Exp(x)  r = Sqrt(e)  y = Div(one, r)": ["EXP", "RSQRT"],
    "e = Exp(x)  r = Sqrt(e)  y = Div(two, r)": ["EXP", "SQRT", "DIV"],
}


def operators(content: bytes) -> list[str]:
    return [operator.name for graph in load(content).subgraphs for operator in graph.operators]


@pytest.mark.parametrize("text", FLOATS)
def test_reals(text: str) -> None:
    constants = {"w": (3,), "one": np.array(1, np.float32), "two": np.array(2, np.float32)}
    used = {name: value for name, value in constants.items() if f" {name}" in text or f"({name}" in text}
    model = build("float[2,3] x", text, used)
    assert operators(relayout.convert(model, format="tflite").tflite) == FLOATS[text]
    agrees(model, {"x": floats(2, 3)})


BYTES = {
    "d = Sub(f, g)  m = Mul(d, d)": (3, "SQUARED_DIFFERENCE"),
    "r = Sqrt(f)  m = Reciprocal(r)": (-128, "RSQRT"),
    'm = Gelu<approximate="none">(f)': (3, "GELU"),
}


@pytest.mark.parametrize("text", BYTES)
def test_bytes(text: str) -> None:
    zero, name = BYTES[text]
    other = "g = DequantizeLinear(w, s, z)" if "g" in text.split("Gelu")[0] else ""
    whole = f"f = DequantizeLinear(x, s, z)  {other}  {text}  y = QuantizeLinear(m, t, u)"
    constants: dict[str, Array] = {
        "s": np.array(0.02, np.float32),
        "z": np.array(zero, np.int8),
        "t": np.array(0.05, np.float32),
        "u": np.array(-100, np.int8),
        "w": np.random.default_rng(1).integers(-128, 128, (4, 5)).astype(np.int8),
    }
    if not other:
        del constants["w"]
    model = build("int8[4,5] x", whole, constants)
    feed: dict[str, Array] = {"x": np.random.default_rng(2).integers(-127, 128, (4, 5)).astype(np.int8)}
    content = relayout.convert(model, format="tflite").tflite
    assert operators(content) == [name]
    (wanted,) = with_runtime(model, feed)
    for reference in (False, True):
        (result,) = run(content, dict(feed), reference=reference)
        assert np.abs(result.astype(int) - wanted.astype(int)).max() <= 1


def test_a_root_of_what_may_be_below_zero_stays_on_reals() -> None:
    """LiteRT's kernel ends the run at a negative number."""
    text = "f = DequantizeLinear(x, s, z)  r = Sqrt(f)  m = Reciprocal(r)  y = QuantizeLinear(m, s, z)"
    constants = {"s": np.array(0.02, np.float32), "z": np.array(3, np.int8)}
    content = relayout.convert(build("int8[4,5] x", text, constants), format="tflite").tflite
    assert "DEQUANTIZE" in operators(content)
