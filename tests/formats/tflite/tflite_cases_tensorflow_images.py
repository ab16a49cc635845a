"""Small models of operators on images that the converter leaves to the Flex delegate, and what TensorFlow computes."""

from __future__ import annotations

import colorsys
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tflite_cases import cases, rng
from tflite_cases_tensorflow import left
from tflite_cases_tensorflow_pooling import PADDINGS, places
from tflite_writing import Net


@cases("CUSTOM FlexResizeBicubic")
def flex_cubic() -> Iterator[Net]:
    for aligned, half in ((False, False), (True, False), (False, True)):
        for size in ((12, 14), (9, 14), (3, 4)):
            net = Net()
            kind = "uint8" if half and size == (9, 14) else "float32"
            operands = [net.input((2, 6, 7, 3), kind), net.const(size, "int32")]
            flags = {"align_corners": aligned, "half_pixel_centers": half}
            left(net, "ResizeBicubic", operands, net.output((2, *size, 3)), **flags)
            net.expected = lambda x, size=size, how=(aligned, half): cubic(cubic(x, 1, size[0], *how), 2, size[1], *how)
            yield net


def cubic(x: Any, axis: int, size: int, aligned: bool, half: bool) -> Any:
    """Each place between two elements is one of 1,024; outside, with half pixels, nothing has a weight."""
    extent, a = x.shape[axis], -0.5 if half else -0.75
    scale = (extent - 1) / (size - 1) if aligned and size > 1 else extent / size
    rows = np.zeros((size, extent))
    for i in range(size):
        at = (i + 0.5) * scale - 0.5 if half else i * scale
        first = int(np.floor(at))
        step = np.round((at - first) * 1024) / 1024
        for k in range(-1, 3):
            d = abs(k - step)
            near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            if not half or 0 <= first + k < extent:
                rows[i, min(max(first + k, 0), extent - 1)] += near if d <= 1 else far
    rows /= rows.sum(1, keepdims=True)
    return np.moveaxis(np.tensordot(rows, x.astype(np.float64), (1, axis)), 0, axis)


def patches(
    x: Any, window: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: str, fill: float = 0
) -> Any:
    n, *extents, c = x.shape
    reach = [(k - 1) * r + 1 for k, r in zip(window, rates, strict=True)]
    out = places(extents, reach, strides, padding)
    more = [max((o - 1) * s + k - e, 0) for o, s, k, e in zip(out, strides, reach, extents, strict=True)]
    x = np.pad(x, [(0, 0), *((m // 2, m - m // 2) for m in more), (0, 0)], constant_values=fill)
    y = np.empty((n, *out, *window, c), x.dtype)
    for i, j in np.ndindex(*window):
        top, first = i * rates[0], j * rates[1]
        y[:, :, :, i, j] = x[:, top :: strides[0], first :: strides[1]][:, : out[0], : out[1]]
    return y.reshape(n, *out, -1)


@cases("CUSTOM FlexExtractImagePatches")
def flex_patches() -> Iterator[Net]:
    for window, strides, rates, padding in (
        *itertools.product([(3, 2)], ((1, 1), (2, 3), (3, 2)), ((1, 1), (1, 2)), PADDINGS),
        ((1, 1), (2, 1), (1, 1), "VALID"),
    ):
        net = Net()
        x, lists = net.input((2, 7, 8, 3)), {"ksizes": window, "strides": strides, "rates": rates}
        out = patches(np.zeros((2, 7, 8, 3)), window, strides, rates, padding).shape
        given = {name: [1, *v, 1] for name, v in lists.items()}
        left(net, "ExtractImagePatches", [x], net.output(out), padding=padding, **given)
        net.expected = lambda x, how=(window, strides, rates, padding): patches(x, *how)
        yield net


@cases("CUSTOM FlexDilation2D")
def flex_dilations() -> Iterator[Net]:
    kernel = rng().uniform(-1, 1, (3, 2, 3)).astype(np.float32)
    for strides, rates, padding in itertools.product(((1, 1), (2, 3)), ((1, 1), (2, 2)), PADDINGS):
        net = Net()
        out = patches(np.zeros((2, 6, 7, 3)), (3, 2), strides, rates, padding).shape[:-1]
        lists = {"strides": [1, *strides, 1], "rates": [1, *rates, 1]}
        left(
            net,
            "Dilation2D",
            [net.input((2, 6, 7, 3)), net.const(kernel)],
            net.output((*out, 3)),
            padding=padding,
            **lists,
        )
        net.expected = lambda x, how=(strides, rates, padding): dilated(x, kernel, *how)
        yield net


def dilated(x: Any, kernel: Any, strides: Any, rates: Any, padding: str) -> Any:
    found = patches(x, kernel.shape[:2], strides, rates, padding, -np.inf)
    return (found.reshape(*found.shape[:-1], *kernel.shape) + kernel).max((3, 4))


@cases("CUSTOM FlexResizeBilinear", "CUSTOM FlexResizeNearestNeighbor")
def flex_resizes() -> Iterator[Net]:
    for name, kind in (("ResizeBilinear", "uint8"), ("ResizeBilinear", "int32"), ("ResizeNearestNeighbor", "int32")):
        for aligned, half in ((False, False), (True, False), (False, True)):
            net = Net()
            operands = [net.input((2, 4, 5, 3), kind, -99, 99), net.const((8, 3), "int32")]
            flags = {"align_corners": aligned, "half_pixel_centers": half}
            y = net.output((2, 8, 3, 3), "float32" if name == "ResizeBilinear" else kind)
            left(net, name, operands, y, **flags)
            how = (name == "ResizeBilinear", aligned, half)
            net.expected = lambda x, how=how: resized(resized(x, 1, 8, *how), 2, 3, *how)
            yield net


def resized(x: Any, axis: int, size: int, linear: bool, aligned: bool, half: bool) -> Any:
    extent = x.shape[axis]
    at = np.arange(size) * (extent - 1) / (size - 1) if aligned else (np.arange(size) + half / 2) * extent / size
    if not linear:
        return np.take(x, np.minimum(np.floor(at + aligned / 2).astype(int), extent - 1), axis)
    at = np.clip(at - half / 2, 0, extent - 1)
    low = np.floor(at).astype(int)
    share = (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
    return np.take(x, low, axis) * (1 - share) + np.take(x, np.minimum(low + 1, extent - 1), axis) * share


@cases("CUSTOM FlexDepthToSpace", "CUSTOM FlexSpaceToDepth")
def flex_blocks() -> Iterator[Net]:
    def deep(x: Any) -> Any:
        n, h, w, c = x.shape
        return x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h // 2, w // 2, 4 * c)

    def wide(x: Any) -> Any:
        n, h, w, c = x.shape
        return x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)

    for name, function, shape in (("DepthToSpace", wide, (2, 3, 5, 12)), ("SpaceToDepth", deep, (2, 4, 6, 3))):
        for layout in ("NHWC", "NCHW"):
            net, first = Net(), layout == "NCHW"
            out = function(np.zeros(shape)).shape
            shapes = [(s[0], s[3], s[1], s[2]) if first else s for s in (shape, out)]
            kind = "float32" if first else "float64"
            left(net, name, [net.input(shapes[0], kind)], net.output(shapes[1], kind), block_size=2, data_format=layout)
            there, back = ((0, 2, 3, 1), (0, 3, 1, 2)) if first else ((0, 1, 2, 3),) * 2
            net.expected = lambda x, f=function, there=there, back=back: f(x.transpose(there)).transpose(back)
            yield net


BOXES = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [-0.2, 0.3, 0.5, 1.3], [0.8, 0.9, 0.2, 0.1]], np.float32)


def crops(x: Any, size: tuple[int, int], method: str, outside: float) -> Any:
    y = np.empty((4, *size, x.shape[3]))
    for b, i, j in np.ndindex(*y.shape[:3]):
        at = []
        for k, axis in ((i, 0), (j, 1)):
            low, high, count, last = BOXES[b, axis], BOXES[b, axis + 2], size[axis], np.float32(x.shape[1 + axis] - 1)
            step = (high - low) * last / np.float32(max(count - 1, 1))
            at.append(low * last + np.float32(k) * step if count > 1 else np.float32(0.5) * (low + high) * last)
        image = x[(0, 1, 1, 0)[b]].astype(np.float64)
        if not all(0 <= a <= n - 1 for a, n in zip(at, image.shape, strict=False)):
            y[b, i, j] = outside
        elif method == "nearest":
            y[b, i, j] = image[int(at[0] + 0.5), int(at[1] + 0.5)]
        else:
            for axis, a in enumerate(at):
                low, high = int(np.floor(a)), int(np.ceil(a))
                share = a - np.float32(low)
                rest = image if axis == 0 else image[None]
                image = np.take(rest, low, axis) * (1 - share) + np.take(rest, high, axis) * share
                image = image[0] if axis else image
            y[b, i, j] = image
    return y


@cases("CUSTOM FlexCropAndResize")
def flex_crops() -> Iterator[Net]:
    for method, size in itertools.product(("bilinear", "nearest"), ((4, 5), (1, 5), (3, 1))):
        net = Net()
        kind = "uint8" if size == (3, 1) else "float32"
        x, images = net.input((2, 6, 7, 3), kind), net.const([0, 1, 1, 0], "int32")
        operands = [x, net.const(BOXES), images, net.const(size, "int32")]
        left(net, "CropAndResize", operands, net.output((4, *size, 3)), method=method, extrapolation_value=0.5)
        net.expected = lambda x, how=(size, method, 0.5): crops(x, *how)
        yield net


def hsv(x: Any) -> Any:
    return np.apply_along_axis(lambda c: colorsys.rgb_to_hsv(*c), -1, x.astype(np.float64))


def rgb(x: Any) -> Any:
    return np.apply_along_axis(lambda c: colorsys.hsv_to_rgb(*c), -1, x.astype(np.float64))


@cases("CUSTOM FlexRGBToHSV", "CUSTOM FlexHSVToRGB")
def flex_colours() -> Iterator[Net]:
    for shape in ((2, 3, 5, 3), (64, 3)):
        for name, function in {"RGBToHSV": hsv, "HSVToRGB": rgb}.items():
            net = Net()
            left(net, name, [net.input(shape, low=0, high=1)], net.output(shape))
            net.expected = function
            yield net
    net = Net()
    whole = net.tensor((9, 3))
    net.op("CAST", [net.input((9, 3), "int32", 0, 1)], [whole])
    left(net, "RGBToHSV", [whole], net.output((9, 3)))  # of grey there is no hue, and black is not saturated
    net.expected = hsv
    yield net


@cases("CUSTOM FlexAdjustHue", "CUSTOM FlexAdjustSaturation", "CUSTOM FlexAdjustContrastv2")
def flex_adjusted() -> Iterator[Net]:
    def hue(x: Any, by: Any) -> Any:
        return rgb(np.mod(hsv(x) + np.array([float(by), 0, 0]), [1, 2, 2]))

    def saturation(x: Any, by: Any) -> Any:
        return rgb(np.clip(hsv(x) * [1, float(by), 1], 0, [2, 1, 2]))

    def contrast(x: Any, by: Any) -> Any:
        mean = x.mean((-3, -2), keepdims=True)
        return (x - mean) * by + mean

    for name, function, by in (
        ("AdjustHue", hue, 0.3),
        ("AdjustHue", hue, -0.7),
        ("AdjustSaturation", saturation, 1.7),
        ("AdjustContrastv2", contrast, 1.5),
    ):
        net = Net()
        left(net, name, [net.input((2, 6, 7, 3), low=0, high=1), net.const(by)], net.output((2, 6, 7, 3)))
        net.expected = lambda x, function=function, by=by: function(x, by)
        yield net
