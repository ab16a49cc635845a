"""Quantized units that one operator on integers computes, where an output is unread or an operand is no integer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from export_running import agrees

import relayout
from relayout.formats.tflite.container.loading import load
from rules.law import Array
from small import build

CONSTANTS = {
    "s": np.array(0.02, np.float32),
    "t": np.array(0.03, np.float32),
    "z": np.array(3, np.int8),
    "u": np.array(-5, np.int8),
    "c": np.array(-40, np.int8),
    "zero": np.array(0, np.int16),
}
ABS = "f = DequantizeLinear(x, s, z)  m = Abs(f)  y = QuantizeLinear(m, {}, {})"
WHERE = """
    f = DequantizeLinear(x, s, z)  k = DequantizeLinear(c, s, z)  b = Greater(f, k)  m = Where(b, f, k)
    y = QuantizeLinear(m, s, z)
"""
SPLIT = "f = DequantizeLinear(x, s, z)  m, rest = Split<axis = 1, num_outputs = 2>(f)  y = QuantizeLinear(m, {}, {})"


def operators(model: Any) -> list[str]:
    content = relayout.convert(model, format="tflite").tflite
    return [operator.name for graph in load(content).subgraphs for operator in graph.operators]


def integers(kind: type, *shape: int) -> Array:
    info = np.iinfo(kind)
    return np.random.default_rng(5).integers(info.min, info.max + 1, shape).astype(kind)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (ABS.format("s", "z"), ["ABS"]),
        (ABS.format("t", "u"), ["ABS"]),
        (SPLIT.format("s", "z"), ["SPLIT"]),
        (SPLIT.format("t", "u"), ["SPLIT", "QUANTIZE"]),
    ],
)
def test_a_unit_is_one_operator_on_integers(text: str, wanted: list[str]) -> None:
    model = build("int8[2,4,5] x", text, CONSTANTS)
    del model.graph.output[:-1]  # the rest is unread
    assert [value.name for value in model.graph.output] == ["y"]
    assert operators(model) == wanted
    agrees(model, {"x": integers(np.int8, 2, 4, 5)}, kernels=("default",) if "QUANTIZE" in wanted else ("reference",))


def test_abs_of_16_bits_runs_on_integers() -> None:
    model = build("int16[2,4,5] x", ABS.format("s", "zero").replace("s, z)", "s, zero)", 1), CONSTANTS)
    assert operators(model) == ["ABS"]
    agrees(model, {"x": integers(np.int16, 2, 4, 5)})


def test_what_is_chosen_are_integers() -> None:
    model = build("int8[2,4,5] x", WHERE, CONSTANTS)
    assert operators(model)[-1] == "SELECT_V2"
    agrees(model, {"x": integers(np.int8, 2, 4, 5)})


def test_abs_of_integers_that_stay_unsigned_is_none_of_theirs() -> None:
    """Unsigned weights with a zero point keep all integers unsigned, and ABS knows none of these."""
    text = """
        f = DequantizeLinear(x, s, z)  w = DequantizeLinear(k, s, z)  m = MatMul(f, w)  q = QuantizeLinear(m, t, z)
        d = DequantizeLinear(q, t, z)  a = Abs(d)  y = QuantizeLinear(a, t, z)
    """
    constants = CONSTANTS | {
        "z": np.array(100, np.uint8),
        "k": integers(np.uint8, 4, 6),
        "t": np.array(0.2, np.float32),
    }
    model = build("uint8[3,4] x", text, constants)
    assert "DEQUANTIZE" in operators(model)
    agrees(model, {"x": integers(np.uint8, 3, 4)}, kernels=("default",))
