"""Quantized units that one operator on integers computes, where an output is unread or an operand is no integer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from export_running import agrees
from node_tests import run

import relayout
from relayout.formats.tflite.container.loading import load
from rules.law import Array, with_runtime
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


SUM = "f = DequantizeLinear(x, p, zero)  g = DequantizeLinear(v, q, zero)  m = {}(f, g)  y = QuantizeLinear(m, r, zero)"
SCALES = {  # of the two operands and the result
    "stretched": ((1, 1, 1), (1, 5), True),
    "coarser than the result": ((1, 2, 1), (4, 5), True),
    "finer than the result": ((1, 0.5, 2), (4, 5), True),
    "nearly powers": ((1.0004, 0.5, 2), (4, 5), True),
    "far coarser than the result": ((5e-5, 1, 6e-5), (1, 5), False),
}


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("builtin", ["Add", "Sub"])
def test_words_are_added_on_integers_where_the_kernel_does_so_rightly(builtin: str, name: str) -> None:
    scales, shape, runs = SCALES[name]
    constants = {key: np.float32(scale) for key, scale in zip("pqr", scales, strict=True)} | {"zero": CONSTANTS["zero"]}
    model = build(f"int16[4,5] x, int16[{shape[0]},{shape[1]}] v", SUM.format(builtin), constants)
    del model.graph.output[:-1]
    assert ("DEQUANTIZE" not in operators(model)) == runs
    feed = {"x": integers(np.int16, 4, 5) // 16 * 4, "v": integers(np.int16, *shape) // 16 * 4}
    if name != "nearly powers":
        agrees(model, feed)
        return
    (wanted,) = with_runtime(model, feed)
    (found,) = run(relayout.convert(model, format="tflite").tflite, feed)
    assert np.abs(wanted.astype(int) - found).max() <= 1


@pytest.mark.parametrize(("scales", "runs"), [((1, 2, 1), False), ((0.01, 0.01, 0.01), True)])
def test_a_product_of_words_that_may_leave_32_bits_runs_on_floats(scales: tuple[float, ...], *, runs: bool) -> None:
    constants = {key: np.float32(scale) for key, scale in zip("pqr", scales, strict=True)} | {"zero": CONSTANTS["zero"]}
    model = build("int16[4,5] x, int16[4,5] v", SUM.format("Mul"), constants)
    del model.graph.output[:-1]
    assert ("DEQUANTIZE" not in operators(model)) == runs
    if not runs:
        agrees(model, {"x": integers(np.int16, 4, 5), "v": integers(np.int16, 4, 5)})


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(5, 1, 1), (1, 1, 1), (5, 4, 6)])
def test_slopes_of_bytes_run_on_integers(kind: type, shape: tuple[int, ...]) -> None:
    """PRELU's kernel rounds once; ONNX Runtime's real numbers are rounded once, too."""
    middle = 128 if kind == np.uint8 else 0
    constants = {"s": CONSTANTS["s"], "t": CONSTANTS["t"], "r": np.array(0.004, np.float32)}
    constants |= {"z": np.array(middle + 3, kind), "u": np.array(middle - 5, kind), "v": np.array(middle, kind)}
    constants["a"] = (np.random.default_rng(0).integers(-90, 100, shape) + middle).astype(kind)
    text = "f = DequantizeLinear(x, s, z) k = DequantizeLinear(a, r, v) m = PRelu(f, k) y = QuantizeLinear(m, t, u)"
    model = build(f"{np.dtype(kind).name}[1,5,4,6] x", text, constants)
    assert "PRELU" in operators(model)
    assert not {"DEQUANTIZE", "MUL"} & set(operators(model))
    fed = {"x": integers(kind, 1, 5, 4, 6)}
    (want,) = with_runtime(model, fed)
    for reference in (False, True):
        (got,) = run(relayout.convert(model, format="tflite").tflite, fed, reference=reference)
        assert abs(got.astype(int) - want.astype(int)).max() <= 1
