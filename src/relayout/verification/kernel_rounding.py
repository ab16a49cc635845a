"""How far an operator of real numbers is off by rounding within its kernel, beyond the rounding of its result."""

from __future__ import annotations

import numpy as np

from relayout.verification.compare import Difference, difference, wider
from relayout.verification.side import Array, Feeds, Forced, ModelValue

EPSILON = float(np.finfo(np.float32).eps)
SUMS = frozenset(["MEAN", "SUM", "ReduceMean", "ReduceSum", "GlobalAveragePool"])
"""Operators whose kernels may add one element after another: equal elements are then all rounded in one direction."""
SAMPLES = frozenset(["RESIZE_BILINEAR", "Resize", "Upsample"])
"""Operators that compute, in float32, the places at which they take their operand."""
ROUNDING_KERNELS = SUMS | SAMPLES
SCALES = (1.1, 1.25, 1.4, 1.6, 1.75, 1.9)  # numbers that terms are multiplied by, to see the rounding of their sum


def spread_of_kernel(
    value: ModelValue,  # the result of one of ROUNDING_KERNELS
    forced: Forced | None,  # the part of the model that makes it alone
    feeds: Feeds,  # what the part is fed
) -> Difference | None:
    """Return how far the kernel that makes a value is off by its own rounding; None if that is not known."""
    if forced is None:
        return None
    names = forced.entries.values() or value.operands  # an operand that is an input of the model has its own name
    operands = {name: feeds[name] for name in names if name in feeds}
    if value.operator in SAMPLES:
        # A place in an image is off by a rounding of the image's extent, and neighbours differ by twice the largest.
        shape = forced.run(feeds, [value.name])[value.name].shape
        axes = (zip(array.shape, shape, strict=True) for array in operands.values() if array.ndim == len(shape))
        extents = [extent for pairs in axes for extent, resized in pairs if extent != resized]
        return Difference(0.0, 2 * EPSILON * max(extents, default=0), 0.0, True)

    def scaled(number: float) -> Array:
        factor = np.float32(number)
        terms = {name: array * factor if array.dtype == np.float32 else array for name, array in operands.items()}
        return forced.run({**feeds, **terms}, [value.name])[value.name].astype(np.float64) / float(factor)

    # A sum of scaled terms is the scaled sum. A kernel that is wrong by a factor is wrong by it at every scale.
    base = scaled(1)
    if not np.array_equal(scaled(2), base):
        return None  # no sum alone
    return wider(*(difference(base, scaled(number)) for number in SCALES))
