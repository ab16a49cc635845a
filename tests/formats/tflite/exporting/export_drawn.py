"""Models of random numbers whose outputs are certain: ranges, and moments five deviations from where they round up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rules.law import Array
from small import build


def _moments(drawn: str, *, values: Mapping[str, Any], factor: float, inputs: str = "float[40,50] x") -> Any:
    """Return a model of what is drawn as `r`: mean, mean square and ends, so coarse that they are certain."""
    text = f"""{drawn}
m = ReduceMean<keepdims=0>(r) n = Mul (m, factor) mean = Round (n)
q = Mul (r, r) s = ReduceMean<keepdims=0>(q) t = Mul (s, factor) square = Round (t)"""
    if "Normal" in drawn:
        return build(inputs, text, {"factor": np.array(factor, np.float32), **values}, outputs=("mean", "square"))
    text += """
low = ReduceMin<keepdims=0>(r) least = Floor (low)
high = ReduceMax<keepdims=0>(r) most = Ceil (high)"""
    outputs = ("mean", "square", "least", "most")
    return build(inputs, text, {"factor": np.array(factor, np.float32), **values}, outputs=outputs)


def _fed(*shape: int, value: float = 1.0) -> Mapping[str, Array]:
    return {"x": np.full(shape, value, np.float32)}


DRAWN: Mapping[str, Callable[[], tuple[Any, Mapping[str, Array]]]] = {
    "RandomUniform": lambda: (
        _moments("u = RandomUniform<shape=[40,50], low=-1.0, high=3.0>() r = Mul (u, x)", values={}, factor=0.4),
        _fed(40, 50),
    ),
    "RandomUniformLike": lambda: (
        _moments("r = RandomUniformLike<seed=3.0>(x)", values={}, factor=12.0, inputs="float[n,50] x"),
        _fed(40, 50),
    ),
    "RandomNormal": lambda: (
        _moments("u = RandomNormal<shape=[40,50], mean=2.0>() r = Mul (u, x)", values={}, factor=1.0),
        _fed(40, 50),
    ),
    "RandomNormalLike": lambda: (
        _moments("r = RandomNormalLike<scale=2.0>(x)", values={}, factor=0.5, inputs="float[n,50] x"),
        _fed(40, 50),
    ),
    "Bernoulli": lambda: (_moments("r = Bernoulli (x)", values={}, factor=10.0), _fed(40, 50, value=0.3)),
    "Dropout": lambda: (
        _moments(
            "d, k = Dropout (x, ratio, on) c = Cast<to=1>(k) r = Add (d, c)",
            values={"ratio": np.array(0.2, np.float32), "on": np.array(True)},
            factor=1.0,
        ),
        _fed(40, 50),
    ),
}
"""Operator -> a model of it, and what it is fed."""
