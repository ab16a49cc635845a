"""Where along an axis the results of a Resize lie, in the precision in which ONNX Runtime computes it.

A place decides which element a nearest neighbour is. So single precision matters: from 14 elements to 2, the second
result lies at `1 / float32(2 / 14)`, which is less than 7.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.registry import Unwritable

HALF = 0.5
TIE = 1e-6
"""How far from the middle between two elements ONNX Runtime still sees a tie."""


def _rounded(least: float, *, includes: bool) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Return a rounding that goes up from some distance on."""

    def function(places: NDArray[np.float32]) -> NDArray[np.float32]:
        below = np.floor(places)
        distance, limit = places - below, np.float32(least)
        found: NDArray[np.float32] = below + (distance >= limit if includes else distance > limit)
        return found

    return function


ROUNDINGS: Mapping[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": _rounded(HALF + TIE, includes=False),
    "round_prefer_ceil": _rounded(HALF - TIE, includes=True),
}


def places(extent: int, count: int, scale: float, coordinates: str) -> NDArray[np.float32]:
    """Return where along an axis each result lies, in elements of the operand.

    Args:
        extent: elements of the operand.
        count: elements of the result.
        scale: the factor that the node states, or `count / extent`.
        coordinates: the node's `coordinate_transformation_mode`.

    Raises:
        Unwritable: there is no such mode.
    """
    x, s, half = np.arange(count, dtype=np.float32), np.float32(scale), np.float32(HALF)
    if coordinates == "half_pixel" or (coordinates == "pytorch_half_pixel" and count > 1):
        return (x + half) / s - half
    if coordinates == "half_pixel_symmetric":  # in double precision but for the adjustment
        adjustment = np.float32(count) / (s * np.float32(extent))
        centered = extent / 2 * (1 - float(adjustment)) + (x.astype(np.float64) + HALF) / float(s) - HALF
        return centered.astype(np.float32)
    if coordinates in ("pytorch_half_pixel", "align_corners"):
        return x * np.float32(extent - 1) / np.float32(max(count - 1, 1))
    if coordinates == "asymmetric":
        return x / s
    raise Unwritable(f"coordinates of a Resize by {coordinates}")


def nearest_places(extent: int, count: int, scale: float, coordinates: str, rounding: str) -> NDArray[np.int32]:
    """Return which element each result is. The arguments are those of `places`, and how a place is rounded."""
    found = ROUNDINGS[rounding](places(extent, count, scale, coordinates))
    return found.clip(0, extent - 1).astype(np.int32)


class NearestBuiltin(NamedTuple):
    """The options of RESIZE_NEAREST_NEIGHBOR."""

    align_corners: bool
    half_pixel_centers: bool

    def nearest_places(self, extent: int, count: int) -> NDArray[np.int32]:
        """Return which element each result is, as LiteRT's kernel computes it: with a factor, in single precision."""
        x = np.arange(count, dtype=np.float32)
        aligned = self.align_corners and count > 1
        factor = np.float32(extent - aligned) / np.float32(count - aligned)
        place = (x + np.float32(HALF if self.half_pixel_centers else 0)) * factor
        rounded = np.floor(place + np.float32(HALF)) if self.align_corners else np.floor(place)
        found: NDArray[np.int32] = rounded.clip(0, extent - 1).astype(np.int32)
        return found


BUILTINS = (NearestBuiltin(False, False), NearestBuiltin(False, True), NearestBuiltin(True, False))


def stays_exact(scale: float) -> bool:
    """Return whether RESIZE_NEAREST_NEIGHBOR repeats each element that many times, whatever the extent.

    Its factor is the inverse in single precision. Where that is less than the inverse, the first of the repeated
    elements may be the one before.
    """
    return scale == int(scale) and Fraction(float(np.float32(1) / np.float32(scale))) >= Fraction(1, int(scale))
