"""How far is far: each kind of number, each verdict."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from relayout.verification.compare import Difference, Kind, Tolerance, Verdict, difference, judge, kind_of, wider

TOLERANCE = Tolerance(1e-5, 1e-6)
NAN, INF = float("nan"), float("inf")


def verdict(
    a: object, b: object, spread: float | None = None, dtype: str = "float32", quantized: bool = False
) -> Verdict:
    left, right = np.asarray(a, dtype), np.asarray(b, dtype)
    kind = kind_of(left, quantized)
    allowed = None if spread is None else Difference(spread, spread, spread, True)
    return judge(difference(left, right), kind, TOLERANCE, allowed)


def test_floats_are_relative_to_the_tensors_magnitude() -> None:
    assert verdict([1, 2], [1, 2]) is Verdict.EQUAL
    assert verdict([1000, 0.001], [1000, 0.002]) is Verdict.CLOSE  # 1e-3 of 1000 is 1e-6
    assert verdict([1, 0.001], [1, 0.002]) is Verdict.DIFFERS
    assert verdict([0, 0], [9e-7, 0]) is Verdict.CLOSE
    assert verdict([0, 0], [2e-6, 0]) is Verdict.DIFFERS
    assert verdict([1, 2], [1, 2.01], spread=0.1) is Verdict.SPREAD
    assert verdict([1, 2], [1, 2.01], spread=0.001) is Verdict.DIFFERS


def test_a_float_that_was_dequantized_may_be_one_step_off() -> None:
    for apart, expected in ((0.125, Verdict.CLOSE), (0.25, Verdict.DIFFERS)):
        found = difference(np.float32([1, 2]), np.float32([1, 2 + apart]))
        assert judge(found, Kind.REAL, TOLERANCE, None, step=0.125) is expected
        assert judge(found, Kind.REAL, TOLERANCE, None) is Verdict.DIFFERS


def test_nan_and_infinities_have_places() -> None:
    assert verdict([NAN, INF, -INF, 1], [NAN, INF, -INF, 1]) is Verdict.EQUAL
    assert verdict([NAN, 100], [NAN, 100.0001]) is Verdict.CLOSE
    for wrong in ([0, INF, 1], [NAN, -INF, 1], [NAN, INF, NAN], [NAN, 3e38, 1]):
        assert verdict([NAN, INF, 1], wrong, spread=1e30) is Verdict.NOT_FINITE


def test_quantized_integers_count_steps() -> None:
    assert verdict([1, 255], [1, 254], dtype="uint8", quantized=True) is Verdict.CLOSE
    assert verdict([1, 255], [1, 253], dtype="uint8", quantized=True) is Verdict.DIFFERS
    assert verdict([-128], [127], spread=255, dtype="int8", quantized=True) is Verdict.SPREAD
    assert difference(np.array([-128], "int8"), np.array([127], "int8")).max_abs == 255


def test_other_integers_count_elements() -> None:
    assert verdict([5, 6, 7, 8], [5, 6, 7, 9], dtype="int32") is Verdict.DIFFERS
    assert verdict([5, 6, 7, 8], [5, 6, 7, 99], spread=0.25, dtype="int64") is Verdict.SPREAD
    assert verdict([5, 6, 7, 8], [5, 6, 8, 9], spread=0.2, dtype="int64") is Verdict.DIFFERS
    assert verdict([2**62], [2**62 + 1], dtype="int64") is Verdict.DIFFERS  # a float64 would not see it
    assert verdict([True, False], [True, True], dtype="bool") is Verdict.DIFFERS
    assert verdict([1], [2], dtype="uint8") is Verdict.DIFFERS


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_all_reals_are_real(dtype: object) -> None:
    array = np.asarray([1, 2], dtype)
    assert kind_of(array, quantized=True) is Kind.REAL
    found = difference(array, np.asarray([1, 4], dtype))
    assert (found.max_abs, found.max_rel, found.share, found.finite) == (2.0, 1.0, 0.5, True)


def test_text_and_nothing() -> None:
    assert difference(np.array(["a", "b"], object), np.array(["a", "c"], object)).share == 0.5
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))) == Difference(0, 0, 0, True)


def test_the_worst_of_two() -> None:
    a, b = Difference(1, 0.1, 0.5, True), Difference(2, 0.05, 0.6, False)
    assert wider(None, a) == a
    assert wider(a, b) == Difference(2, 0.1, 0.6, False)


def test_verdicts_are_in_order() -> None:
    assert [v for v in Verdict if v.passes] == list(Verdict)[:4]
    assert Verdict.EQUAL.rank < Verdict.DIFFERS.rank < Verdict.MISSING.rank


@pytest.mark.parametrize(("dtype", "steps"), [(np.float16, 1 / 1024), (ml_dtypes.bfloat16, 1 / 128)])
def test_floats_of_16_bits_may_be_rounded_twice(dtype: type, steps: float) -> None:
    """Once in the operand and once in the result; what is three of their steps off is another number."""
    a = np.asarray([1.0, 0.5], dtype)
    for count, verdict in ((0, Verdict.EQUAL), (2, Verdict.CLOSE), (3, Verdict.DIFFERS)):
        b = np.asarray([1.0 + count * steps, 0.5], dtype)
        assert judge(difference(a, b), Kind.REAL, Tolerance(1e-4, 1e-6), None) is verdict
    wide = difference(a.astype(np.float32), (a + np.asarray(2 * steps, dtype)).astype(np.float32))
    assert judge(wide, Kind.REAL, Tolerance(1e-4, 1e-6), None) is Verdict.DIFFERS
