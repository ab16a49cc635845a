"""Sizes and axes that are computed when a model runs: a permutation passes, sizes stay, axes are looked up."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import relayout
from running import run
from small import build, feed_of

EXTENTS = {"n": 2, "h": 5, "w": 6}
CONSTANTS = {"spatial": [1, 2], "channels": [3]}
COMPUTED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "parts of channels": (
        "int64[2] s",
        "p, q = Split<axis=3>(a, s) b = Concat<axis=3>(q, p)",
        {"s": [1, 3]},
    ),
    "parts of rows": ("int64[2] s", "p, q = Split<axis=1>(a, s) b = Concat<axis=1>(q, p)", {"s": [2, 3]}),
    "bounds of a slice": ("int64[2] s, int64[2] e", "b = Slice(a, s, e, spatial)", {"s": [1, 0], "e": [4, 5]}),
    "axes of a slice": (
        "int64[2] s, int64[2] e, int64[2] k",
        "b = Slice(a, s, e, k)",
        {"s": [1, 0], "e": [4, 5], "k": [1, -2]},
    ),
    "pads": ("int64[8] s", "b = Pad(a, s)", {"s": [0, 1, 2, 0, 0, 0, 1, 0]}),
    "axes of pads": ("int64[4] s, int64[2] k", "b = Pad(a, s, , k)", {"s": [1, 2, 0, 1], "k": [1, -2]}),
    "axes of pads, in 32 bits": ("int64[4] s, int32[2] k", "b = Pad(a, s, , k)", {"s": [1, 2, 0, 1], "k": [1, 2]}),
    "a shape to stretch to": (
        "int64[4] s",
        "m = ReduceMax<keepdims=1>(a, spatial) b = Expand(m, s)",
        {"s": [2, 5, 6, 4]},
    ),
    "repeats": ("int64[4] s", "b = Tile(a, s)", {"s": [1, 2, 1, 1]}),
    "an axis of a mean": ("int64[1] k", "m = ReduceMean<keepdims=1>(a, k) b = Sub(a, m)", {"k": [2]}),
    "axes of a maximum": ("int64[2] k", "m = ReduceMax<keepdims=1>(a, k) b = Sub(a, m)", {"k": [-1, 1]}),
    "all axes": ("int64[0] k", "m = ReduceMin<keepdims=1>(a, k) b = Sub(a, m)", {"k": []}),
    "an axis of running sums": ("int64 k", "b = CumSum(a, k)", {"k": 2}),
    "an axis of running sums, from the end": ("int32[1] k", "b = CumSum<exclusive=1>(a, k)", {"k": [-2]}),
}


def between_convolutions(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    fed, text, values = COMPUTED[name]
    nodes = f"i = T0312(x) u = Conv(i, v) a = T0231(u) {text} d = T0312(b) o = Conv(d, w) y = T0231(o)"
    named = {key: value for key, value in CONSTANTS.items() if key in text}
    source = build(f"float[n,h,w,3] x, {fed}", nodes, {"v": (4, 3, 1, 1), "w": (5, 4, 1, 1), **named}, opset=18)
    return source, feed_of(source, EXTENTS, values)


@pytest.mark.parametrize("name", COMPUTED)
def test_a_permutation_passes(name: str) -> None:
    source, feed = between_convolutions(name)
    result = relayout.optimize(source)
    onnx.checker.check_model(result.proto, full_check=True)
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    assert (result.report.source_transposes, result.report.transposes) == (4, 2)
    assert not result.report.barriers


@pytest.mark.parametrize("version", [13, 18])
def test_reductions_of_any_version(version: int) -> None:
    text = "t = T0312(x) m = ReduceSum<keepdims=1>(t, k) y = T0231(m)"
    source = build("float[n,h,w,3] x, int64[1] k", text, {}, opset=version)
    result = relayout.optimize(source)
    assert result.report.transposes == 0
    for axis in range(-4, 4):
        feed = feed_of(source, EXTENTS, {"k": [axis]})
        np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-5)


def test_axes_that_go_are_those_of_one_element() -> None:
    source = build("float[2,5,1,3] x, int64[1] k", "t = T0312(x) m = Squeeze(t, k) y = T021(m)", {}, opset=18)
    feed = feed_of(source, {}, {"k": [-1]})
    result = relayout.optimize(source)
    np.testing.assert_array_equal(run(result.proto, feed)[0], run(source, feed)[0])
    assert (result.report.source_transposes, result.report.transposes) == (2, 0)


@pytest.mark.parametrize("text", ["m = ReduceMean<keepdims=0>(t, k)", "m = Squeeze(t, k)"])
def test_axes_that_go_are_a_barrier_where_nobody_knows_which(text: str) -> None:
    source = build("float[n,h,w,3] x, int64[1] k", f"t = T0312(x) {text} y = T021(m)", {})
    feed = feed_of(source, EXTENTS | {"n": 1}, {"k": [0]})
    result = relayout.optimize(source)
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-5)
    assert result.report.transposes == 2
