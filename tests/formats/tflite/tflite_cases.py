"""Where the operators' cases come together: operator -> functions that yield small models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
from tflite_writing import Net, Scale

Cases = Callable[[], Iterator[Net]]
CASES: dict[str, list[Cases]] = {}

WITHOUT_KERNEL = {
    "CUSTOM Convolution2DTransposeBias": 1,
    "CUSTOM Landmarks2TransformMatrix": 2,
    "CUSTOM MaxPoolingWithArgmax2D": 1,
    "CUSTOM MaxUnpooling2D": 1,
    "CUSTOM TransformLandmarks": 2,
    "CUSTOM TransformTensorBilinear": 2,
}
"""Operators that the interpreter cannot run, and the versions that `test_tflite_mediapipe` holds against MediaPipe."""

U8, I8, OUT8 = Scale(0.05, 120), Scale(0.04, -5), Scale(0.11, 3)
"""Parameters that differ from one another."""


def cases(*operators: str) -> Callable[[Cases], Cases]:
    """The models that a function yields exercise these operators."""

    def register(function: Cases) -> Cases:
        for name in operators:
            CASES.setdefault(name, []).append(function)
        return function

    return register


def every() -> dict[str, Net]:
    """All models by name, each once."""
    for path in sorted(Path(__file__).parent.glob("tflite_cases_*.py")):
        import_module(path.stem)
    functions = {f.__name__: f for group in CASES.values() for f in group}
    return {f"{name}[{i}]": net for name, f in sorted(functions.items()) for i, net in enumerate(f())}


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)
