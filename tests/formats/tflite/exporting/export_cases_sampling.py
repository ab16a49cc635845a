"""Images read at places, boxes that are selected, spectra, and what else a tensor's places decide."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import b, f, i, ints, n, rng, s
from rules.law import Array, Case


def cases() -> Iterator[Case]:
    yield from grids()
    yield from deformed()
    yield from boxes()
    yield from unique()
    yield from spectra()
    yield from pools()
    yield from resized()
    yield Case("EyeLike", {"x": f(3, 5)}, attributes={"k": 1, "dtype": 6})
    yield Case("Det", {"x": f(2, 4, 4)})
    for kind in (np.int8, np.uint8):
        given = {"x": ints(2, 3, 600, high=127, dtype=kind), "y": ints(600, 4, high=127, dtype=np.uint8)}
        zeros = {"a": np.array(3, kind), "b": np.array(5, np.uint8)}
        yield Case("MatMulInteger", {**given, **zeros})
        yield Case("MatMulInteger", {**given, **zeros}, ("y", "a", "b"))
    for kind in (np.int8, np.uint8):
        given = {"x": ints(2, 70, 7, 6, high=127, dtype=kind), "w": ints(3, 70, 3, 2, high=127, dtype=np.uint8)}
        zeros = {"a": np.array(3, kind), "b": np.array(5, np.uint8)}
        options = {"pads": [1, 0, 2, 1], "strides": [2, 1]}
        yield Case("ConvInteger", {**given, **zeros}, (), options)
        yield Case("ConvInteger", {**given, **zeros}, ("w", "a", "b"), options)
    grouped = {"x": ints(1, 6, 5, 4, high=127, dtype=np.uint8), "w": ints(4, 3, 3, 2, high=127, dtype=np.int8)}
    yield Case("ConvInteger", grouped, ("w",), {"group": 2, "auto_pad": "SAME_UPPER"})
    yield Case("CumProd", {"x": f(3, 5), "a": n(1)}, ("a",), {"exclusive": 1, "reverse": 1}, opset=26)


def grids() -> Iterator[Case]:
    grid = (rng.random((2, 4, 7, 2)) * 3 - 1.5).astype(np.float32)
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for aligned in (0, 1):
                options = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
                yield Case("GridSample", {"x": f(2, 3, 5, 6), "g": grid}, attributes=options, opset=20)
    volume = (rng.random((2, 2, 4, 3, 3)) * 2 - 1).astype(np.float32)
    yield Case("GridSample", {"x": f(2, 3, 4, 5, 6), "g": volume}, opset=20)
    options = {"mode": "bilinear", "align_corners": 1}
    yield Case("GridSample", {"x": f(2, 3, 5, 6), "g": grid}, attributes=options, opset=16)
    regions = np.array([[0, 0, 5, 4], [1, 2, 9, 11], [3, 3, 3, 3]], np.float32)
    for mode in ("avg", "max"):
        for half in ("half_pixel", "output_half_pixel"):
            options = {"mode": mode, "coordinate_transformation_mode": half, "sampling_ratio": 2}
            size = {"output_height": 2, "output_width": 3, "spatial_scale": 0.5}
            yield Case("RoiAlign", {"x": f(2, 3, 8, 6), "r": regions, "n": i(0, 1, 1)}, attributes={**options, **size})
    corners = np.sort((rng.random((40, 2, 2)) * 18 - 4).astype(np.float32), 1).reshape(40, 4)
    corners[0], corners[1], corners[2] = (-100, -100, 200, 300), (2, 3, 2, 3), (-9, -9, -3, -4)
    corners[3:20, 2:] = corners[3:20, :2] + (2.05, 3.1)  # two samples a bin, which lie closest
    for batch in (1, 3):
        for half in ("half_pixel", "output_half_pixel"):
            options = {"coordinate_transformation_mode": half, "output_height": 3, "output_width": 2}
            given = {"x": f(batch, 3, 9, 7), "r": corners, "n": rng.integers(0, batch, 40)}
            yield Case("RoiAlign", given, ("n",), {**options, "spatial_scale": 0.75})
            yield Case("RoiAlign", given, ("r",), options)


def deformed() -> Iterator[Case]:
    """Offsets that leave the image, several groups, and a kernel that is computed."""
    for group, moved, stride, pad in ((1, 1, 1, 0), (2, 1, 2, 1), (1, 2, 1, 2), (2, 4, 3, 1)):
        size = [(6 + 2 * pad - 3) // stride + 1, (9 + 2 * pad - 5) // stride + 1]
        given = {"x": f(2, 4, 6, 9), "w": f(6, 4 // group, 3, 3), "o": f(2, 18 * moved, *size) * 3, "b": f(6)}
        masked = given | {"m": f(2, 9 * moved, *size)}
        options = {
            "strides": [stride] * 2,
            "pads": [pad] * 4,
            "dilations": [1, 2],
            "group": group,
            "offset_group": moved,
        }
        yield Case("DeformConv", given, ("w", "b"), options, opset=19)
        yield Case("DeformConv", masked, ("w", "b"), options, opset=22)
        yield Case("DeformConv", masked, (), options, opset=22)


def unique() -> Iterator[Case]:
    """Rows of few different elements, so that some are equal and others begin alike."""
    for kind in (np.float32, np.int64, np.int8):
        rows = rng.integers(-1, 2, (9, 3, 2)).astype(kind)
        for ordered in (0, 1):
            for axis in (0, 1, -1):
                given = np.moveaxis(np.concatenate([rows, rows[:2]]), 0, axis)
                yield Case("Unique", {"x": np.ascontiguousarray(given)}, (), {"axis": axis, "sorted": ordered}, 4)


def boxes() -> Iterator[Case]:
    corners = np.sort(rng.random((2, 9, 4)).astype(np.float32), -1)[..., [0, 1, 3, 2]]
    corners[..., 2:] += 0.3
    scores: Array = rng.random((2, 3, 9)).astype(np.float32)
    limits = {"m": i(4), "t": np.array([0.4], np.float32), "l": np.array([0.2], np.float32)}
    for center in (0, 1):
        given = {"b": corners, "s": scores, **limits}
        yield Case("NonMaxSuppression", given, ("m", "t", "l"), {"center_point_box": center})
    yield Case("NonMaxSuppression", {"b": corners, "s": scores, "m": i(2)}, ("m",))
    equal = np.round(rng.random((1, 2, 40)) * 4).astype(np.float32) / 4
    apart = np.arange(40, dtype=np.float32)[:, None] + np.array([0, 0, 0.9, 0.9], np.float32)
    yield Case("NonMaxSuppression", {"b": apart[None], "s": equal, **limits, "m": i(30)}, ("m", "t", "l"))


def spectra() -> Iterator[Case]:
    for parts in (1, 2):
        for inverse in (0, 1):
            given = {"x": f(2, 9, 4, parts), "l": None, "a": n(1)}
            yield Case("DFT", given, ("a",), {"inverse": inverse}, opset=20)
            yield Case("DFT", {"x": f(2, 9, 4, parts)}, attributes={"axis": 2, "inverse": inverse}, opset=17)
    yield Case("DFT", {"x": f(2, 9, 1), "l": n(6), "a": n(1)}, ("l", "a"), {"onesided": 1}, opset=20)
    half = {"x": f(2, 6, 4, 2), "l": n(10), "a": n(1)}
    yield Case("DFT", half, ("l", "a"), {"inverse": 1, "onesided": 1}, opset=20)
    window = {"w": f(6), "l": n(6)}
    yield Case("STFT", {"x": f(2, 20, 1), "h": n(3), **window}, ("h", "w", "l"))
    yield Case("STFT", {"x": f(2, 20, 2), "h": n(4), "w": None, "l": n(7)}, ("h", "l"), {"onesided": 0})
    yield Case("STFT", {"x": f(2, 20, 2), "h": n(4), "w": f(7)}, ("h",), {"onesided": 0})
    yield Case("STFT", {"x": f(2, 20, 1), "h": n(3), **window}, ("h", "l"))


def pools() -> Iterator[Case]:
    dilated = {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 1, 0, 2], "strides": [1, 2]}
    for name in ("MaxPool", "AveragePool", "LpPool"):
        yield Case(name, {"x": f(2, 3, 8, 9)}, attributes=dilated, opset=19)
    options = {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [2, 2]}
    yield Case("MaxPool", {"x": f(2, 3, 8, 9)}, attributes=options, outputs=2)
    yield Case("MaxPool", {"x": f(2, 3, 8, 9)}, attributes={**options, "storage_order": 1}, outputs=2)
    for p in (1, 2, 3):
        yield Case("LpPool", {"x": f(2, 3, 8)}, attributes={"kernel_shape": [3], "p": p}, opset=18)
        yield Case("GlobalLpPool", {"x": f(2, 3, 4, 5)}, attributes={"p": p})
    unpooled = {"x": f(1, 1, 2, 2), "n": np.array([[[[5, 7], [13, 15]]]])}
    yield Case("MaxUnpool", unpooled, attributes={"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Case("Compress", {"x": f(3, 4), "q": b(3)}, attributes={"axis": 0})
    yield Case("Dropout", {"x": f(3, 4), "r": s(0.5)}, outputs=2)


def resized() -> Iterator[Case]:
    for mode in ("linear", "cubic"):
        for antialias in (0, 1):
            for size in (i(1, 2, 3, 5), i(1, 2, 7, 11), i(1, 2, 5, 4)):
                sized = {"x": f(1, 2, 6, 8), "r": None, "s": None, "z": size}
                yield Case("Resize", sized, ("z",), {"mode": mode, "antialias": antialias}, opset=18)
        scales = np.array([1, 1, 0.6, 0.7], np.float32)
        for coordinates in ("half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric", "pytorch_half_pixel"):
            options = {"mode": mode, "coordinate_transformation_mode": coordinates}
            yield Case("Resize", {"x": f(1, 2, 6, 8), "r": None, "s": scales}, ("s",), options, opset=19)
    for mode in ("linear", "nearest", "cubic"):
        for region in ((0, 0, 0.1, -0.2, 1, 1, 0.8, 1.3), (0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 0.6, 0.3, 1, 1, 0.2, 0.3)):
            for size in (i(1, 2, 7, 11), i(1, 2, 3, 12), i(1, 2, 1, 4)):
                options = {
                    "mode": mode,
                    "coordinate_transformation_mode": "tf_crop_and_resize",
                    "extrapolation_value": 2.5,
                }
                given = {"x": f(1, 2, 6, 8), "r": np.array(region, np.float32), "s": None, "z": size}
                yield Case("Resize", given, ("r", "z"), options, opset=19)
    options = {"axes": [2, 3], "coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
    given = {"x": f(1, 2, 6, 8), "r": np.array([0.1, -0.2, 0.8, 1.3], np.float32), "s": None, "z": i(7, 11)}
    yield Case("Resize", given, ("r", "z"), options, opset=19)
    for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        for coordinates in ("half_pixel", "align_corners", "asymmetric"):
            options = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
            sized = {"x": f(1, 2, 6, 8), "r": None, "s": None, "z": i(1, 2, 9, 5)}
            yield Case("Resize", sized, ("z",), options, opset=19)
