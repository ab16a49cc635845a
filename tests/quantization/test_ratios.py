"""Numbers of which a logarithm, a root or a quotient is taken stay real, where small ones count beside large ones."""

from __future__ import annotations

import numpy as np
import pytest
from calibrating import decibels, float_operators, run_reals

import relayout
from rules.law import Array, with_runtime
from small import build

RNG = np.random.default_rng(0)
SPECTRUM = "power = Mul(x, x) bands = MatMul(power, filters) moved = Add(bands, least)"
CONSTANTS = {
    "filters": abs(RNG.normal(size=(8, 5))).astype(np.float32),
    "weights": RNG.normal(size=(8, 5)).astype(np.float32),
    "least": np.array(1e-4, np.float32),
    "cube": np.array(1 / 3, np.float32),
}


def sounds(count: int, seed: int = 0) -> list[dict[str, Array]]:
    """Signals as loud as 1 and as quiet as 0.001."""
    rng = np.random.default_rng(seed)
    loudness = 10.0 ** -rng.uniform(0, 3, (count, 1, 40, 1))
    return [{"x": each} for each in (loudness * rng.normal(size=(count, 1, 40, 8))).astype(np.float32)]


def measured(text: str, *, kind: str = "int8", **options: str) -> tuple[relayout.Result, float]:
    """Return a network of a function, quantized, and its signal to noise on sounds that it has not seen."""
    model = build("float[1,40,8] x", text, CONSTANTS)
    result = relayout.convert(model, format="tflite", quantize=kind, calibrate=sounds(8), **options)  # type: ignore
    pairs = [(with_runtime(model, feed)[0], run_reals(result.tflite, feed)[0]) for feed in sounds(4, seed=9)]
    expected, got = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return result, decibels(expected - expected.mean(), got - expected.mean())


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        ("y = Log(moved)", "LOG"),
        ("y = Pow(moved, cube)", "POW"),
        ("y = Sqrt(moved)", "SQRT"),
        ("r = Sqrt(moved) y = Reciprocal(r)", "RSQRT"),
        ("y = Div(bands, moved)", "DIV"),
    ],
)
def test_what_tells_small_numbers_apart_reads_real_ones(function: str, operator: str) -> None:
    result, ratio = measured(f"{SPECTRUM} {function}")
    assert {operator, "MUL", "ADD"} <= float_operators(result).keys()
    assert ratio > 18, ratio


def test_a_logarithm_on_an_npu() -> None:
    """It runs on the CPU, and so does what makes its operand; roots and quotients are integers there."""
    result, ratio = measured(f"{SPECTRUM} y = Log(moved)", target="ethos-u")
    assert {"LOG", "MUL", "ADD"} <= float_operators(result).keys()
    assert ratio > 18, ratio
    root, _ = measured(f"{SPECTRUM} r = Sqrt(moved) y = Reciprocal(r)", target="ethos-u")
    assert not float_operators(root)


def test_integers_of_16_bits_hold_more_decades() -> None:
    text = f"{SPECTRUM} m = Add(bands, cube) y = Sqrt(m)"
    assert "FULLY_CONNECTED" in float_operators(measured(text)[0])
    result, ratio = measured(text, kind="int16x8")
    assert float_operators(result) == {"SQRT": 1}
    assert ratio > 30, ratio


def test_what_may_be_negative_ends_the_real_part() -> None:
    """A product by weights of both signs gives negative numbers; their absolute values are integers as they are."""
    result, _ = measured("s = MatMul(x, weights) a = Abs(s) m = Add(a, least) y = Log(m)")
    assert float_operators(result) == {"ADD": 1, "LOG": 1}


def test_large_numbers_alone_stay_integers() -> None:
    result, _ = measured("p = Mul(x, x) m = Add(p, one) y = Log(m)".replace("one", "cube"))
    assert float_operators(result) == {"LOG": 1}


def test_a_selection_between_two_integers_stays_one_of_integers() -> None:
    """Also where what it selects from is read twice."""
    result, _ = measured(
        "s = MatMul(x, weights) a = Abs(s) t = Max(a, least) u = Max(t, cube) v = Add(u, t) y = Log(v)"
    )
    assert float_operators(result) == {"ADD": 1, "LOG": 1}
