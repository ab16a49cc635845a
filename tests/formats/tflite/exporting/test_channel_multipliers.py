"""Depthwise convolutions with several results for each channel or by large windows, in LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees
from node_tests import run

import relayout
from litert_runs import operators
from rules.law import Case, with_runtime
from small import build
from targets.quantizing import quantized
from text_form import floats

VARIANTS = {
    "one axis": ("2,16,9", (2, 16, 9), 2, (3,), "pads=[1,1]"),
    "every second pixel": ("1,16,9,8", (1, 16, 9, 8), 2, (3, 3), "strides=[2,2], pads=[1,1,1,1]"),
    "an open batch": ("n,20,5,7", (2, 20, 5, 7), 3, (3, 2), "strides=[2,1], pads=[1,0,1,1]"),
    "an open length": ("1,16,l", (1, 16, 8), 2, (3,), "pads=[1,1]"),
    "dilations": ("2,16,9,8", (2, 16, 9, 8), 4, (2, 3), "dilations=[2,1]"),
    "a large window": ("1,16,12,12", (1, 16, 12, 12), 2, (7, 7), "pads=[3,3,3,3]"),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", VARIANTS)
def test_each_result_of_a_channel_is_a_convolution(name: str, bias: bool) -> None:
    shape, extents, count, window, said = VARIANTS[name]
    channels = extents[1]
    weights: dict[str, tuple[int, ...]] = {"w": (count * channels, 1, *window)}
    weights |= {"b": (count * channels,)} if bias else {}
    model = build(f"float[{shape}] x", f"y = Conv<group={channels}, {said}>({', '.join(['x', *weights])})", weights)
    agrees(model, {"x": floats(*extents)})
    found = operators(relayout.convert(model, format="tflite").tflite)
    assert found.count("DEPTHWISE_CONV_2D") % count == 0
    assert found.count("CONCATENATION") == 1


def test_the_next_convolution_takes_the_channels_as_they_lie() -> None:
    text = "a = Conv<group=16, pads=[1,1,1,1]>(x, w) r = Relu(a) y = Conv(r, v)"
    model = build("float[1,16,6,5] x", text, {"w": (32, 1, 3, 3), "v": (8, 32, 1, 1)})
    agrees(model, {"x": floats(1, 16, 6, 5)})
    report = relayout.convert(model, format="tflite", io="convert").report
    assert (report.transposes, report.operators["DEPTHWISE_CONV_2D"]) == (0, 2)


@pytest.mark.parametrize(
    ("channels", "count", "target", "image"),
    [(8, 2, "litert", "6,5"), (16, 5, "litert", "6,5"), (16, 2, "litert-gpu", "6,5"), (16, 2, "litert", "h,w")],
)
def test_one_builtin_where_that_takes_less_time(channels: int, count: int, target: str, image: str) -> None:
    """Of few channels the kernel for groups takes less time, and other runtimes have one for the operator."""
    model = build(
        f"float[1,{channels},{image}] x", f"y = Conv<group={channels}>(x, w)", {"w": (count * channels, 1, 3, 3)}
    )
    assert operators(relayout.convert(model, format="tflite", target=target).tflite).count("DEPTHWISE_CONV_2D") == 1


def test_a_file_of_litert_comes_back_with_its_builtin() -> None:
    model = build("float[1,16,6,5] x", "y = Conv<group=16>(x, w)", {"w": (32, 1, 3, 3)})
    source = relayout.convert(model, format="tflite", target="litert-gpu").tflite
    assert operators(relayout.convert(source, format="tflite").tflite).count("DEPTHWISE_CONV_2D") == 1


@pytest.mark.parametrize(
    ("channels", "count", "size", "builtins"), [(8, 2, 3, 2), (8, 8, 5, 8), (8, 2, 7, 4), (16, 2, 7, 8), (4, 2, 3, 1)]
)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_integers_are_rounded_as_by_one_convolution(
    dtype: type, channels: int, count: int, size: int, builtins: int
) -> None:
    weights = {"w": floats(count * channels, 1, size, size), "b": floats(count * channels, seed=1)}
    attributes = {"group": channels, "pads": [size // 2] * 4}
    case = Case("Conv", {"x": floats(1, channels, 9, 8), **weights}, ("w", "b"), attributes)
    model, feed = quantized(case, dtype, alike=False)
    content = relayout.convert(model, format="tflite").tflite
    assert operators(content).count("DEPTHWISE_CONV_2D") == builtins
    (got,), (wanted,) = run(content, feed), with_runtime(model, feed)
    assert got.dtype == wanted.dtype
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1


@pytest.mark.parametrize(("dtype", "parts"), [(np.int8, 4), (np.uint8, 4), (np.int16, 1)])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_large_window_between_integers_is_a_sum_of_real_numbers(dtype: type, parts: int, stride: int) -> None:
    """LiteRT's own kernel takes 50 times as long; what is rounded at the end is within one step."""
    channels = 24
    attributes = {"group": channels, "pads": [3] * 4, "strides": [stride] * 2}
    weights = {"w": floats(channels, 1, 7, 7), "b": floats(channels, seed=1)}
    case = Case("Conv", {"x": floats(1, channels, 15, 14), **weights}, ("w", "b"), attributes)
    source, feed = quantized(case, dtype, alike=False)
    content = relayout.convert(source, format="tflite").tflite
    builtins = operators(content)
    assert builtins.count("DEPTHWISE_CONV_2D") == (min(parts, 3) if stride == 2 else parts)
    assert ("ADD" in builtins) == (parts > 1)
    (got,), (wanted,) = run(content, feed), with_runtime(source, feed)
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1
