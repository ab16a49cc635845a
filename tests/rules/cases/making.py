"""Arrays for cases: random, small, a different extent in every dimension."""

from __future__ import annotations

import numpy as np

from rules.law import Array

rng = np.random.default_rng(0)


def restart() -> None:
    """Draw the same numbers again, whoever drew before."""
    rng.bit_generator.state = np.random.default_rng(0).bit_generator.state


X = (2, 3, 4, 6)
"""The usual input: all extents differ, and two can be split."""


def f(*shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return (rng.random(shape) + 0.5).astype(np.float32)


def b(*shape: int) -> Array:
    return rng.random(shape) > 0.5


def i(*values: int) -> Array:
    return np.array(values, np.int64)


def n(value: int) -> Array:
    return np.array(value, np.int64)


def s(value: float) -> Array:
    return np.array(value, np.float32)


def u(value: int) -> Array:
    return np.array(value, np.uint8)


def ints(*shape: int, low: int = 0, high: int = 100, dtype: type = np.int32) -> Array:
    return rng.integers(low, high, shape).astype(dtype)


def bytes_(*shape: int) -> Array:
    return ints(*shape, high=255, dtype=np.uint8)
