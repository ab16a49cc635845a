"""What a hybrid operator of LiteRT makes of its operand: real numbers, each row rounded to 8 bits while it runs.

The operator computes with the rounded operand, exactly; on that it can be held against float arithmetic as closely as
any other. Which rounding it takes depends on the kernel and on an option of the operator, and so does what a row is:
what is multiplied by one row of weights, or all that the first axis counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from relayout.verification.side import Array, Feeds

LEAST, GREATEST = -128, 127


def delegated(rows: Array) -> Array:
    """Each row in 255 steps from its least to its greatest element, 0 among them; halves go to the even integer."""
    low, high = _ends(rows)
    scale = _nonzero(np.float32(GREATEST - LEAST) / _nonzero(high - low))
    zero = np.clip(np.rint(LEAST - low * scale), LEAST, GREATEST)
    rounded: Array = (np.clip(np.rint(rows * scale) + zero, LEAST, GREATEST) - zero) / scale
    return rounded


def asymmetric(rows: Array) -> Array:
    """The same with halves away from 0."""
    low, high = _ends(rows)
    step = _nonzero((high.astype(np.float64) - low) / (GREATEST - LEAST)).astype(np.float32)
    zero = _away(LEAST - low.astype(np.float64) / step).astype(np.float32)
    rounded: Array = (np.clip(_away(zero + rows / step), LEAST, GREATEST) - zero) * step
    return rounded


def symmetric(rows: Array) -> Array:
    """Each row in 127 steps on either side of 0."""
    step = _nonzero(np.abs(rows).max(1, keepdims=True) / np.float32(GREATEST))
    rounded: Array = _away(rows / step) * step
    return rounded


ROUNDINGS: tuple[Callable[[Array], Array], ...] = (delegated, asymmetric, symmetric)
"""Those of XNNPACK's kernels, and of the others with the option `asymmetric_quantize_inputs` and without it."""


def readings(values: Feeds, lengths: Mapping[str, tuple[int, ...]]) -> Iterator[Feeds]:
    """The values in all ways in which operands of hybrid operators may be rounded.

    Args:
        values: by name.
        lengths: name of an operand -> how many elements make a row, in each operator that reads it.
    """
    known = {name: found for name, found in lengths.items() if name in values and values[name].size}
    for rounding in ROUNDINGS:
        for place in range(max(map(len, known.values()), default=-1) + 1):
            yield {**values, **{name: _rounded(values[name], found, place, rounding) for name, found in known.items()}}


def _rounded(array: Array, lengths: tuple[int, ...], place: int, rounding: Callable[[Array], Array]) -> Array:
    """By rows of one of the lengths; after those, by all that the first axis counts."""
    length = lengths[place] if place < len(lengths) else array.size // array.shape[0]
    if length < 1 or array.size % length:
        return array
    return rounding(array.reshape(-1, length)).reshape(array.shape).astype(array.dtype)


def _ends(rows: Array) -> tuple[Array, Array]:
    none = np.float32(0)
    return np.minimum(rows.min(1, keepdims=True), none), np.maximum(rows.max(1, keepdims=True), none)


def _away(x: Array) -> Array:
    rounded: Array = np.copysign(np.floor(np.abs(x) + 0.5), x)
    return rounded


def _nonzero(step: Array) -> Array:
    return np.where(step > 0, step, step.dtype.type(1))
