from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import f, i, ints, positive
from rules.law import Case

IMAGE = (2, 6, 9, 8)


def cases() -> Iterator[Case]:
    yield from convolutions()
    yield from pools()
    yield from sampling()
    yield from regions()
    yield from recurrent()


def convolutions() -> Iterator[Case]:
    image = f(*IMAGE)
    yield Case("Conv", {"x": image, "w": f(4, 6, 3, 2)}, ("w",))
    yield Case("Conv", {"x": image, "w": f(4, 6, 3, 2)})
    yield Case(
        "Conv", {"x": image, "w": f(4, 6, 3, 2), "b": f(4)}, ("w", "b"), {"strides": [2, 1], "pads": [1, 0, 1, 1]}
    )
    yield Case("Conv", {"x": image, "w": f(6, 1, 3, 2), "b": f(6)}, ("w", "b"), {"group": 6})
    yield Case("Conv", {"x": image, "w": f(4, 3, 3, 2)}, ("w",), {"group": 2})
    yield Case("Conv", {"x": image, "w": f(12, 1, 3, 2)}, ("w",), {"group": 6})
    yield Case("Conv", {"x": f(2, 6, 9), "w": f(4, 6, 3), "b": f(4)}, ("w", "b"))
    yield Case("Conv", {"x": f(2, 4, 5, 7, 6), "w": f(6, 4, 3, 2, 1)}, ("w",), opset=7)
    for extra in ({}, {"b": f(4)}, {"b": f(4), "z": f(2, 4, 7, 7)}):
        given = {"x": image, "w": f(4, 6, 3, 2), **extra}
        yield Case("FusedConv", given, ("w",), {"activation": "Relu"}, domain="com.microsoft")
    yield Case("ConvTranspose", {"x": image, "w": f(6, 4, 3, 2), "b": f(4)}, ("w", "b"), {"strides": [2, 1]})
    yield Case("ConvTranspose", {"x": image, "w": f(6, 2, 3, 2)}, ("w",), {"group": 3})
    yield Case("ConvTranspose", {"x": f(2, 6, 9), "w": f(6, 4, 3)}, ("w",), opset=7)
    yield Case("ConvTranspose", {"x": f(2, 4, 5, 7, 6), "w": f(4, 6, 3, 2, 1)}, ("w",), {"strides": [2, 1, 2]})
    dynamic = {"x": image, "w": f(6, 4, 3, 2), "p": i(0, 1, 1, 0), "b": f(4)}
    yield Case("ConvTransposeWithDynamicPads", dynamic, ("w", "p", "b"), domain="com.microsoft")
    deform = {"x": image, "w": f(4, 6, 3, 2), "o": f(2, 12, 7, 7), "b": f(4), "m": positive(2, 6, 7, 7)}
    yield Case("DeformConv", deform, ("w", "b"))
    grouped = deform | {"w": f(4, 3, 3, 2), "b": None, "o": f(2, 24, 7, 7), "m": positive(2, 12, 7, 7)}
    yield Case("DeformConv", grouped, ("w",), {"group": 2, "offset_group": 2}, opset=19)
    folded = {"x": f(2, 12, 16), "s": i(6, 5), "k": i(3, 2)}
    yield Case("Col2Im", folded, ("s", "k"))


def pools() -> Iterator[Case]:
    image = f(*IMAGE)
    window = {"kernel_shape": [3, 2]}
    for op in ("MaxPool", "AveragePool", "LpPool"):
        yield Case(op, {"x": image}, attributes=window)
        yield Case(op, {"x": image}, attributes={**window, "pads": [1, 0, 1, 1], "strides": [2, 1]}, opset=11)
        yield Case(op, {"x": f(2, 6, 8)}, attributes={"kernel_shape": [3]})
    yield Case("MaxPool", {"x": image}, attributes=window, outputs=2)
    yield Case("MaxPool", {"x": image}, attributes=window, outputs=("y", ""))
    yield Case("MaxPool", {"x": ints(*IMAGE, dtype=np.int8)}, attributes=window, opset=12)
    yield Case("MaxPool", {"x": image}, attributes={**window, "storage_order": 1}, outputs=2, opset=8)
    yield Case("NhwcMaxPool", {"x": ints(2, 9, 8, 6, dtype=np.uint8)}, attributes=window, domain="com.microsoft")
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield Case(op, {"x": image})
        yield Case(op, {"x": f(2, 6, 8)}, opset=7)
    small = f(2, 4, 5, 3)
    where = np.random.default_rng(0).permutation(2 * 4 * 10 * 6)[: small.size].reshape(small.shape)
    yield Case("MaxUnpool", {"x": small, "i": where}, attributes={"kernel_shape": [2, 2], "strides": [2, 2]})


def sampling() -> Iterator[Case]:
    image = f(*IMAGE)
    linear = {"mode": "linear"}
    yield Case("Resize", {"x": image, "r": None, "c": None, "s": i(2, 6, 13, 5)}, ("s",), linear)
    yield Case("Resize", {"x": f(2, 9, 8, 6), "r": None, "c": None, "s": i(2, 13, 5, 6)}, ("s",), linear)
    scales = np.array([2, 3], np.float32)
    yield Case("Resize", {"x": image, "r": None, "c": scales}, ("c",), {"mode": "nearest", "axes": [2, 3]})
    full = np.array([1, 1, 1.5, 2], np.float32)
    yield Case("Resize", {"x": image, "r": None, "c": full}, ("c",), linear)
    yield Case("Resize", {"x": image, "r": f(0), "c": full}, ("r", "c"), {"mode": "nearest"}, opset=11)
    yield Case("Resize", {"x": image, "c": full}, ("c",), linear, opset=10)
    roi = np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 0.8], np.float32)
    crop = {**linear, "coordinate_transformation_mode": "tf_crop_and_resize"}
    yield Case("Resize", {"x": image, "r": roi, "c": None, "s": i(2, 6, 9, 5)}, ("r", "s"), crop, opset=13)
    yield Case("Upsample", {"x": image, "c": full}, ("c",), linear, opset=9)
    yield Case("Upsample", {"x": image}, attributes={"mode": "nearest", "scales": [1.0, 1.0, 2.0, 3.0]}, opset=7)
    last = f(2, 9, 8, 6)
    for said in (linear, {"mode": "nearest"}, {"mode": "cubic"}, {**linear, "antialias": 1}):
        yield Case("Resize", {"x": last, "r": None, "c": None, "s": i(2, 13, 11, 6)}, attributes=said, opset=18)
        yield Case("Resize", {"x": last, "r": None, "c": scales}, ("c",), {**said, "axes": [2, 1]}, opset=18)
    within = np.array([0, 0.1, 0.2, 0, 1, 0.9, 0.8, 1], np.float32)
    wide = np.array([1, 1.5, 2, 1], np.float32)
    yield Case("Resize", {"x": last, "r": within, "c": wide}, attributes=crop, opset=13)
    yield Case("Upsample", {"x": last, "c": wide}, (), linear, opset=9)
    yield Case("Upsample", {"x": last}, attributes={"mode": "nearest", "scales": [1.0, 2.0, 3.0, 1.0]}, opset=7)
    yield Case("DepthToSpace", {"x": f(2, 12, 3, 5)}, attributes={"blocksize": 2})
    yield Case("DepthToSpace", {"x": f(2, 12, 3, 5)}, attributes={"blocksize": 2, "mode": "CRD"})
    yield Case("SpaceToDepth", {"x": f(2, 3, 4, 6)}, attributes={"blocksize": 2})
    grid = f(2, 5, 7, 2).clip(-1.2, 1.2)
    for opset, mode in ((16, "bilinear"), (20, "linear"), (22, "nearest")):
        yield Case("GridSample", {"x": image, "g": grid}, attributes={"mode": mode}, opset=opset)
    yield Case("GridSample", {"x": image, "g": grid}, domain="com.microsoft")
    yield Case("GridSample", {"x": f(4, 6, 3, 5, 2), "g": f(4, 7, 2, 5, 3).clip(-1, 1)}, opset=20)
    yield Case("AffineGrid", {"t": f(4, 2, 3), "s": i(4, 3, 5, 6)}, ("s",), opset=20)
    yield Case("AffineGrid", {"t": f(4, 3, 4), "s": i(4, 3, 5, 6, 2)}, ("s",), {"align_corners": 1}, opset=20)


def regions() -> Iterator[Case]:
    corners = np.array([[0, 0, 5, 6], [1, 2, 7, 8], [2, 1, 5, 7], [0, 3, 3, 8]], np.float32)
    which = np.array([0, 1, 1, 0], np.int64)
    size = {"output_height": 3, "output_width": 2}
    given = {"x": f(*IMAGE), "r": corners, "n": which}
    for opset in (10, 16):
        yield Case("RoiAlign", given, attributes=size, opset=opset)
    yield Case("RoiAlign", given, ("r", "n"), {**size, "sampling_ratio": 2})
    numbered = np.concatenate([which[:, None].astype(np.float32), corners], 1)
    yield Case("MaxRoiPool", {"x": f(*IMAGE), "r": numbered}, attributes={"pooled_shape": [3, 2]})
    unit = {"r": corners / np.float32(8), "n": which.astype(np.int32), "s": ints(2, low=3, high=6)}
    yield Case("CropAndResize", {"x": f(*IMAGE), **unit}, ("s",), domain="com.microsoft")


def recurrent() -> Iterator[Case]:
    t, b, size, h = 3, 6, 8, 4
    x = f(t, b, size)
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction, d in (("forward", 1), ("bidirectional", 2)):
            weights = {"w": f(d, gates * h, size), "r": f(d, gates * h, h)}
            attributes = {"hidden_size": h, "direction": direction}
            yield Case(op, {"x": x, **weights}, ("w", "r"), attributes, 2)
            state = {"b": f(d, 2 * gates * h), "n": ints(b, low=1, high=t + 1), "h": f(d, b, h)}
            yield Case(op, {"x": x, **weights, **state}, ("w", "r", "b"), attributes, ("", "last"), opset=7)
    state = {"b": None, "n": None, "h": f(1, b, h), "c": f(1, b, h), "p": f(1, 3 * h)}
    lstm = {"x": x, "w": f(1, 4 * h, size), "r": f(1, 4 * h, h), **state}
    yield Case("LSTM", lstm, ("w", "r", "p"), {"hidden_size": h}, 3)
    bytes_ = {"w": ints(1, size, 4 * h, dtype=np.uint8), "r": ints(1, h, 4 * h, dtype=np.uint8)}
    zero = np.array([100], np.uint8)
    scale = {"ws": positive(1) / 99, "wz": zero, "rs": positive(1) / 99, "rz": zero}
    given = {"x": x, **bytes_, "b": None, "n": None, "h": f(1, b, h), "c": None, "p": None, **scale}
    constants = ("w", "r", "ws", "wz", "rs", "rz")
    yield Case("DynamicQuantizeLSTM", given, constants, {"hidden_size": h}, 3, domain="com.microsoft")
