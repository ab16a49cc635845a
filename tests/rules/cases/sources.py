from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import numpy_helper

from rules.cases.making import b, f, i
from rules.law import Case

SEVEN = numpy_helper.from_array(np.array([7], np.float32))


def cases() -> Iterator[Case]:
    """Draws are compared, so every one of them is certain."""
    yield Case("ConstantOfShape", {"s": i(2, 3, 4)}, ("s",), {"value": SEVEN})
    yield Case("ConstantOfShape", {"s": i(2, 3, 4)}, attributes={"value": SEVEN}, opset=9)
    yield Case("ConstantOfShape", {"s": i(2, 3, 4)}, attributes={"value": SEVEN}, split=True)
    yield Case("ConstantOfShape", {"s": i(2, 3, 4)}, ("s",), {"value": SEVEN}, split=True)
    yield Case("RandomNormal", {}, attributes={"shape": [2, 3, 4], "mean": 3.0, "scale": 1e-20})
    yield Case("RandomUniform", {}, attributes={"shape": [2, 3, 4], "low": 3.0, "high": 3.0})
    yield Case("RandomNormalLike", {"x": f(2, 3, 4)}, attributes={"mean": 3.0, "scale": 1e-20})
    yield Case("RandomUniformLike", {"x": f(2, 3, 4)}, attributes={"low": 3.0, "high": 3.0})
    yield Case("Bernoulli", {"x": b(2, 3, 4).astype(np.float32)})
    for k in (0, 1, -2):
        yield Case("EyeLike", {"x": f(4, 6)}, attributes={"k": k})
