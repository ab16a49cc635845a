from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import X, b, bytes_, f, ints, positive, s, u
from rules.law import Case

MS = "com.microsoft"
IMAGE = (2, 6, 9, 8)


def cases() -> Iterator[Case]:
    yield from both_ways()
    yield from elementwise()
    yield from along()
    yield from layers()


def both_ways() -> Iterator[Case]:
    scale, zero = positive(6), ints(6, dtype=np.int8)
    for domain in ("", MS):
        x, q = f(*X) * np.float32(5), ints(*X, dtype=np.int8)
        one = {"s": s(0.1), "z": np.array(3, np.int8)}
        each = {"s": scale, "z": zero}
        for axis in (3, -1):
            yield Case("QuantizeLinear", {"x": x, **each}, ("s", "z"), {"axis": axis}, domain=domain)
            yield Case("DequantizeLinear", {"x": q, **each}, ("s", "z"), {"axis": axis}, domain=domain)
        yield Case("QuantizeLinear", {"x": x, **one}, ("s", "z"), domain=domain)
        yield Case("DequantizeLinear", {"x": q, **one}, ("s", "z"), domain=domain)
    third = {"s": positive(3), "z": ints(3, dtype=np.int8)}
    yield Case("QuantizeLinear", {"x": x, **third}, (), {"axis": 1}, opset=13)
    yield Case("DequantizeLinear", {"x": q, **third}, ("s", "z"), opset=13)
    yield Case("DequantizeLinear", {"x": q, **one}, ("s", "z"), opset=10)
    yield Case("DequantizeLinear", {"x": ints(6), "s": scale}, ("s",), {"axis": 0})
    blocked = {"s": positive(2, 3, 4, 3), "z": ints(2, 3, 4, 3, dtype=np.int8)}
    for axis in (3, -1):
        attributes = {"axis": axis, "block_size": 2}
        yield Case("QuantizeLinear", {"x": x, **blocked}, ("s", "z"), attributes)
        yield Case("DequantizeLinear", {"x": q, **blocked}, (), attributes)
    yield Case("DynamicQuantizeLinear", {"x": x}, outputs=3)


def elementwise() -> Iterator[Case]:
    for op in ("QLinearAdd", "QLinearMul"):
        for shape in (X, (6,), (4, 6), (2, 1, 4, 1), (3, 1, 1), ()):
            left = {"x": bytes_(*X), "xs": s(0.1), "xz": u(7)}
            right = {"y": bytes_(*shape), "ys": s(0.2), "yz": u(9)}
            result = {"zs": s(0.7), "zz": u(5)}
            yield Case(op, {**left, **right, **result}, ("xs", "xz", "ys", "yz", "zs", "zz"), domain=MS)
            yield Case(op, {**right, **left, **result}, ("y",), domain=MS)
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        given = {"x": bytes_(*X), "xs": s(0.1), "xz": u(7), "zs": s(0.2), "zz": u(5)}
        yield Case(op, given, ("xs", "xz", "zs", "zz"), domain=MS)
    where = {
        "x": bytes_(*X),
        "xs": s(0.1),
        "xz": u(7),
        "y": bytes_(6),
        "ys": s(0.2),
        "yz": u(9),
        "zs": s(0.3),
        "zz": u(5),
    }
    for shape in (X, (4, 1)):
        yield Case("QLinearWhere", {"q": b(*shape), **where}, ("xs", "xz", "y", "ys", "yz", "zs", "zz"), domain=MS)


def along() -> Iterator[Case]:
    first = {"x": bytes_(*X), "xs": s(0.1), "xz": u(7)}
    second = {"y": bytes_(2, 3, 5, 6), "ys": s(0.2), "yz": u(9)}
    constants = ("xs", "xz", "ys", "yz", "zs", "zz")
    for axis in (2, -2):
        given = {"zs": s(0.3), "zz": u(5), **first, **second}
        yield Case("QLinearConcat", given, constants, {"axis": axis}, domain=MS)
        yield Case("QLinearConcat", given, (*constants, "y"), {"axis": axis}, domain=MS)
    soft = {**first, "zs": s(1 / 256), "zz": u(0)}
    for opset in (11, 13):
        for axis in (1, 2, -1):
            attributes = {"axis": axis, "opset": opset}
            yield Case("QLinearSoftmax", soft, ("xs", "xz", "zs", "zz"), attributes, domain=MS)


def layers() -> Iterator[Case]:
    image = {"x": bytes_(*IMAGE), "xs": s(0.1), "xz": u(7)}
    last = {"x": bytes_(2, 9, 8, 6), "xs": s(0.1), "xz": u(7)}
    result = {"ys": s(9), "yz": u(3)}
    scales = ("w", "xs", "xz", "ws", "wz", "ys", "yz")
    yield Case("ConvInteger", {"x": image["x"], "w": bytes_(4, 6, 3, 2)}, ("w",))
    yield Case("ConvInteger", {"x": image["x"], "w": bytes_(4, 6, 3, 2), "xz": u(7), "wz": u(9)}, ("w",))
    for kernel, group in (((4, 6, 3, 2), 1), ((6, 1, 3, 2), 6), ((4, 3, 3, 2), 2)):
        w = ints(*kernel, dtype=np.int8)
        one = {"w": w, "ws": s(0.1), "wz": np.array(0, np.int8)}
        each = {"w": w, "ws": positive(kernel[0]), "wz": np.zeros(kernel[0], np.int8)}
        bias = {"b": ints(kernel[0])}
        group_ = {"group": group}
        for domain in ("", MS):
            yield Case("QLinearConv", {**image, **one, **result}, scales, group_, domain=domain)
            yield Case("QLinearConv", {**image, **each, **result, **bias}, (*scales, "b"), group_, domain=domain)
        turned = {**group_, "channels_last": 1}
        yield Case("QLinearConv", {**last, **each, **result, **bias}, (*scales, "b"), turned, domain=MS)
    window = {"kernel_shape": [3, 2]}
    pooled = ("xs", "xz", "ys", "yz")
    for given, flag in ((image, 0), (last, 1)):
        attributes = {**window, "channels_last": flag, "pads": [1, 0, 1, 1], "strides": [2, 1]}
        yield Case("QLinearAveragePool", {**given, "ys": s(0.2), "yz": u(3)}, pooled, attributes, domain=MS)
        glob = {**given, "ys": s(0.05), "yz": u(3)}
        yield Case("QLinearGlobalAveragePool", glob, pooled, {"channels_last": flag}, domain=MS)
