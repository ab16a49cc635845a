from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import X, f, ints, positive
from rules.law import Case

IMAGE = (2, 6, 4, 3)


def cases() -> Iterator[Case]:
    yield from per_channel()
    yield from over_last()
    yield from losses()


def per_channel() -> Iterator[Case]:
    statistics = {"s": f(6), "b": f(6), "m": f(6), "v": positive(6)}
    constants = tuple(statistics)
    for shape in (IMAGE, (2, 6), (2, 6, 4), (2, 6, 4, 3, 5)):
        for opset in (7, 9, 14, 15):
            yield Case("BatchNormalization", {"x": f(*shape), **statistics}, constants, opset=opset)
    yield Case("BatchNormalization", {"x": f(*IMAGE), **statistics})
    many = {"s": f(128), "b": f(128), "m": f(128), "v": positive(128)}
    for shape in ((2, 128, 2, 3), (2, 128, 3)):
        yield Case("BatchNormalization", {"x": f(*shape), **many}, constants, {"epsilon": 0.1})
    for opset in (6, 22):
        for shape in (IMAGE, (2, 6, 4)):
            norm = {"x": f(*shape), "s": f(6), "b": f(6)}
            yield Case("InstanceNormalization", norm, ("s", "b"), opset=opset)
    yield Case("GroupNormalization", {"x": f(*IMAGE), "s": f(6), "b": f(6)}, ("s", "b"), {"num_groups": 3})
    yield Case("GroupNormalization", {"x": f(*IMAGE), "s": f(6), "b": f(6)}, (), {"num_groups": 2})
    yield Case("GroupNormalization", {"x": f(*IMAGE), "s": f(3), "b": f(3)}, ("s", "b"), {"num_groups": 3}, opset=18)
    yield Case("MeanVarianceNormalization", {"x": f(*IMAGE)})
    yield Case("MeanVarianceNormalization", {"x": f(*IMAGE)}, attributes={"axes": [0, 1, 2, 3]}, opset=9)
    yield Case("LRN", {"x": f(2, 6, 4, 3)}, attributes={"size": 3})
    numbers = {"scale": 2.0, "bias": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}
    yield Case("ImageScaler", {"x": f(*IMAGE)}, attributes=numbers, opset=7)
    yield Case("Crop", {"x": f(2, 6, 8, 9)}, attributes={"border": [1, 2, 1, 3]}, opset=7)
    yield Case("Crop", {"x": f(2, 6, 8, 9)}, attributes={"border": [1, 2, 1, 3], "scale": [3, 2]}, opset=7)


def over_last() -> Iterator[Case]:
    for outputs in (1, 3):
        for axis in (-1, 3):
            norm = {"x": f(*X), "s": f(6), "b": f(6)}
            yield Case("LayerNormalization", norm, ("s", "b"), {"axis": axis}, outputs)
    yield Case("LayerNormalization", {"x": f(*X), "s": f(6)})
    for ones in (1, 3):
        norm = {"x": f(*X), "s": f(*[1] * ones, 6), "b": f(6)}
        yield Case("LayerNormalization", norm, ("s", "b"))
        yield Case("LayerNormalization", norm)
    for axis in (1, -2):
        tail = X[axis:]
        yield Case("LayerNormalization", {"x": f(*X), "s": f(*tail), "b": f(*tail)}, ("s",), {"axis": axis}, 3)
        yield Case("RMSNormalization", {"x": f(*X), "s": f(*tail)}, ("s",), {"axis": axis}, opset=23)
    yield Case("RMSNormalization", {"x": f(*X), "s": f(6)}, opset=23)
    yield Case("RMSNormalization", {"x": f(4, 2, 6), "s": f(6)}, ("s",), {"axis": 2}, opset=23)
    yield Case("SimplifiedLayerNormalization", {"x": f(4, 2, 6), "s": f(6)}, ("s",), {"axis": 2})
    yield Case("SimplifiedLayerNormalization", {"x": f(*X), "s": f(6)}, ("s",), {"axis": -1})
    sequence = {"x": f(2, 4, 6), "skip": f(2, 4, 6), "s": f(6)}
    domain = "com.microsoft"
    named = ("y", "", "", "sum")
    yield Case(
        "SkipLayerNormalization", sequence | {"b": f(6), "c": f(6)}, ("s", "b", "c"), outputs=named, domain=domain
    )
    yield Case("SkipLayerNormalization", sequence, domain=domain)
    yield Case("SkipSimplifiedLayerNormalization", sequence, ("s",), outputs=named, domain=domain)


def losses() -> Iterator[Case]:
    labels = ints(2, 4, 3, high=6, dtype=np.int64)
    for reduction in ("none", "mean", "sum"):
        given = {"x": f(*IMAGE), "y": labels, "w": positive(6)}
        yield Case("NegativeLogLikelihoodLoss", given, ("w",), {"reduction": reduction})
        yield Case("SoftmaxCrossEntropyLoss", given, ("w",), {"reduction": reduction}, 2)
    yield Case("NegativeLogLikelihoodLoss", {"x": f(4, 6), "y": ints(4, high=6, dtype=np.int64)})
    yield Case("SoftmaxCrossEntropyLoss", {"x": f(*IMAGE), "y": labels}, attributes={"ignore_index": 2})
