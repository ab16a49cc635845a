"""Images of a size that is known only at run time: places and weights are computed as ONNX Runtime computes them.

place = (x + 0.5) / scale - 0.5        x = RANGE(count)
nearest:  GATHER(tensor, rounded place)
linear:   a + (b - a) * (place - floor(place)),    a and b by GATHER
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable
from relayout.formats.tflite.exporting.resize_factors import Factors, real, stored_axis
from relayout.formats.tflite.exporting.resize_places import HALF, TIE
from relayout.formats.tflite.exporting.steps import Operand, Steps

CUBIC_TAPS = (-1, 0, 1, 2)
FLOAT = TensorType.FLOAT32
REACH = {"linear": 1.0, "cubic": 2.0}
"""Mode -> how far an element weighs, in elements of the smaller image."""


def resized_along(
    factors: Factors,
    tensor: DraftTensor,
    axis: int,
    dims: Dims,
    mode: str,
    coordinates: str,
    rounding: str,
    stays: bool | DraftTensor,
) -> DraftTensor:
    """Return a tensor resized along one axis.

    Args:
        factors: sizes and scales.
        tensor: what is resized; its other axes may be resized already.
        axis: the axis.
        dims: the extents of the result of this step.
        mode: `nearest`, `linear` or `cubic`.
        coordinates: how a place is found.
        rounding: how a place is rounded.
        stays: whether all extents stay, so that each element is its own.

    Raises:
        Unwritable: there is no such mode, or it is computed in another precision than LiteRT has.
    """
    if mode == "nearest" and coordinates == "half_pixel_symmetric":
        raise OpenExtentError("half_pixel_symmetric of extents known only at run time, which needs double precision")
    place, number = _place(factors, axis, coordinates, stays), factors.number(axis)
    if mode != "nearest" and factors.op.integer("antialias") and (number is None or number < 1):
        return _smoothed(factors, tensor, axis, place, mode, stays)  # a weight reaches more elements of a smaller image
    is_positive = coordinates in ("asymmetric", "align_corners")
    return _interpolated(factors, tensor, axis, dims, mode, rounding, place, is_positive=is_positive)


def cropped(factors: Factors, tensor: DraftTensor, mode: str, rounding: str) -> DraftTensor:
    """Return a region of an image, resized; an axis that keeps its extent is taken whole, as ONNX Runtime does.

    place = start · (extent - 1) + x · (end - start) · (extent - 1) / (count - 1)

    Raises:
        Unwritable: it is known that an axis of the image keeps its extent, of which others take the region.
    """
    steps, op = factors.steps, factors.op
    changed = factors.changed()
    if any(axis not in changed for axis in factors.place_of if axis != stored_axis(op, 1) and axis):
        raise Unwritable("a region with as many places as the image: some runtimes take all of the image")
    result, inside = tensor, None
    for axis in changed:
        grown: Dims = (*result.dims[:axis], factors.dims[axis], *result.dims[axis + 1 :])
        place = _place_of_region(factors, axis)
        result = _interpolated(factors, result, axis, grown, mode, rounding, place, is_positive=False)
        within = steps.both(
            steps.compare("GREATER_EQUAL", place, 0.0), steps.compare("LESS_EQUAL", place, factors.last(axis))
        )
        column = steps.reshape(within, (*within.dims, *[1] * (len(grown) - axis - 1)))
        inside = column if inside is None else steps.both(inside, column)
    return result if inside is None else steps.select(inside, result, op.number("extrapolation_value"))


def _place_of_region(factors: Factors, axis: int) -> DraftTensor:
    """Return where along an axis the results of a region lie."""
    steps, regions, place = factors.steps, factors.op.input(1), factors.place_of[axis]
    start, end = (steps.at(regions, 0, each) for each in (place, len(factors.place_of) + place))
    x, count, last = _numbers(factors, axis), steps.tensor(factors.count(axis), TensorType.INT32), factors.last(axis)
    intervals = steps.maximum(steps.sub(steps.cast(count, FLOAT), 1.0), 1.0)
    along = steps.div(steps.mul(steps.mul(x, steps.sub(end, start)), last), intervals)
    middle = steps.mul(steps.mul(steps.add(start, end), HALF), last)
    found = steps.select(steps.compare("GREATER", count, 1), steps.add(steps.mul(start, last), along), middle)
    if not factors.is_stretched:
        scale = factors.scale(axis)  # which may be another than 1 where the extent stays
        return steps.select(steps.compare("EQUAL", scale, 1.0), x, found) if isinstance(scale, DraftTensor) else found
    extent = steps.tensor(factors.extent(axis), FLOAT)
    return steps.select(steps.compare("EQUAL", steps.cast(count, FLOAT), extent), x, found)


def _interpolated(
    factors: Factors,
    tensor: DraftTensor,
    axis: int,
    dims: Dims,
    mode: str,
    rounding: str,
    place: DraftTensor,
    *,
    is_positive: bool,
) -> DraftTensor:
    """Return what lies at places along one axis of a tensor, between its elements.

    Args:
        factors: sizes and scales.
        tensor: the tensor.
        axis: the axis.
        dims: the extents of the result.
        mode: `nearest`, `linear` or `cubic`.
        rounding: how a place is rounded.
        place: the places, in elements of the tensor.
        is_positive: whether none lies before the first element.
    """
    steps, op, last = factors.steps, factors.op, factors.last(axis)

    def taken(at: DraftTensor) -> DraftTensor:
        inside = steps.minimum(at, last)
        if not is_positive or mode == "cubic":
            inside = steps.maximum(inside, 0.0)
        return op.emit("GATHER", [tensor, steps.cast(inside, TensorType.INT32)], dims, axis=axis)

    if mode == "nearest":
        return taken(_rounded(steps, place, rounding))
    if tensor.type != TensorType.FLOAT32:
        raise OpenExtentError("integers that are interpolated by a scale that is known only at run time")
    behind = (1,) * (len(dims) - axis - 1)

    def column(weight: DraftTensor) -> DraftTensor:
        return steps.reshape(weight, (weight.dims[0], *behind))

    if mode == "linear":  # a place is inside, so that no weight is outside
        inside = steps.maximum(steps.minimum(place, last), 0.0)
        below = steps.each("FLOOR", inside)
        first = taken(below)
        step = steps.sub(taken(steps.add(below, 1.0)), first)
        return steps.add(first, steps.mul(step, column(steps.sub(inside, below))))
    if mode != "cubic":
        raise OpenExtentError(f"a Resize by {mode} whose scale is known only at run time")
    return _cubic(factors, place, last, taken, column)


def _smoothed(
    factors: Factors, tensor: DraftTensor, axis: int, place: DraftTensor, mode: str, stays: bool | DraftTensor
) -> DraftTensor:
    """Return a tensor resized along one axis by antialiasing: a weight reaches as many elements as the image shrinks.

    Elements outside of the image are those of its border, or count for nothing (`exclude_outside`).
    """
    steps, op = factors.steps, factors.op
    if tensor.type != FLOAT:
        raise OpenExtentError("integers that are interpolated by a scale that is known only at run time")
    if mode not in REACH:
        raise OpenExtentError(f"a Resize by {mode} with antialias whose scale is known only at run time")
    stretch = steps.tensor(steps.maximum(steps.div(1.0, steps.tensor(factors.scale(axis), FLOAT)), 1.0), FLOAT)
    stretch = steps.select(stays, 1.0, stretch) if isinstance(stays, DraftTensor) else stretch
    extent, reach = steps.tensor(factors.extent(axis), FLOAT), steps.mul(stretch, 0.0)
    if not op.integer("exclude_outside"):
        reach = steps.add(steps.each("FLOOR", steps.mul(stretch, REACH[mode])), 1.0)
    ends = [steps.cast(each, TensorType.INT32) for each in (steps.mul(reach, -1.0), steps.add(extent, reach))]
    elements = steps.cast(op.emit("RANGE", [*ends, steps.ints(np.array(1))], (f"?{op.name}.{axis}",)), FLOAT)
    distance = steps.sub(elements, steps.reshape(place, (*place.dims, 1)))
    weights = _weights(factors, steps.each("ABS", steps.div(distance, stretch)), mode)
    weights = steps.div(weights, steps.reduce("SUM", weights, [1], keep=True))
    inside = steps.maximum(steps.minimum(elements, factors.last(axis)), 0.0)
    taken = steps.gather(tensor, steps.cast(inside, TensorType.INT32), axis)
    last = [*(each for each in range(len(taken.dims)) if each != axis), axis]
    product = steps.matmul(steps.transpose(taken, last), weights, adj_y=True)
    return steps.transpose(product, np.argsort(last).tolist())


def _weights(factors: Factors, distance: DraftTensor, mode: str) -> DraftTensor:
    """Return how much elements weigh that lie so far away."""
    steps, a = factors.steps, factors.op.number("cubic_coeff_a", -0.75)
    if mode == "linear":
        return steps.maximum(steps.sub(1.0, distance), 0.0)
    near, far = (_polynomial(steps, distance, each) for each in _cubics(a))
    outer = steps.select(steps.compare("LESS", distance, 2.0), far, 0.0)
    return steps.select(steps.compare("LESS_EQUAL", distance, 1.0), near, outer)


def _cubics(a: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the polynomials of the distance up to 1, and from there up to 2."""
    return (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)


def _cubic(
    factors: Factors,
    place: DraftTensor,
    last: Operand,
    taken: Callable[[DraftTensor], DraftTensor],
    column: Callable[[DraftTensor], DraftTensor],
) -> DraftTensor:
    """Return the sum of four neighbours times their weights."""
    steps, a = factors.steps, factors.op.number("cubic_coeff_a", -0.75)
    below = steps.each("FLOOR", place)
    t = steps.sub(place, below)
    near, far = _cubics(a)
    distances = [steps.add(t, 1.0), t, steps.sub(1.0, t), steps.sub(2.0, t)]
    weights = [
        _polynomial(steps, x, polynomial) for x, polynomial in zip(distances, (far, near, near, far), strict=True)
    ]
    taps = [steps.add(below, float(tap)) if tap else below for tap in CUBIC_TAPS]
    if factors.op.integer("exclude_outside"):
        zero = steps.mul(t, 0.0)
        inside = [
            steps.both(steps.compare("GREATER_EQUAL", tap, 0.0), steps.compare("LESS_EQUAL", tap, last)) for tap in taps
        ]
        weights = [steps.select(shown, weight, zero) for shown, weight in zip(inside, weights, strict=True)]
        total = _sum(steps, weights)
        weights = [steps.div(weight, total) for weight in weights]
    return _sum(steps, [steps.mul(taken(tap), column(weight)) for tap, weight in zip(taps, weights, strict=True)])


def _sum(steps: Steps, terms: list[DraftTensor]) -> DraftTensor:
    total = terms[0]
    for term in terms[1:]:
        total = steps.add(total, term)
    return total


def _polynomial(steps: Steps, x: DraftTensor, coefficients: tuple[float, ...]) -> DraftTensor:
    """Return `((a x + b) x + c) x + d`."""
    first, *rest = coefficients
    found = steps.mul(x, first)
    for place, coefficient in enumerate(rest, 1):
        found = steps.add(found, coefficient) if coefficient else found
        found = steps.mul(found, x) if place < len(rest) else found
    return found


def _place(factors: Factors, axis: int, coordinates: str, stays: bool | DraftTensor) -> DraftTensor:
    """Return where along an axis each result lies, in elements of the operand."""
    x = _numbers(factors, axis)
    place = _scaled(factors, axis, coordinates, x)
    return factors.steps.select(stays, x, place) if isinstance(stays, DraftTensor) else place


def _numbers(factors: Factors, axis: int) -> DraftTensor:
    """Return the numbers of the results along an axis, from 0 on."""
    steps = factors.steps
    return steps.cast(steps.numbers(factors.count(axis), factors.dims[axis]), FLOAT)


def _scaled(factors: Factors, axis: int, coordinates: str, x: DraftTensor) -> DraftTensor:
    """Return where along an axis the results `x` lie, by the factor of the axis."""
    steps, count = factors.steps, factors.count(axis)
    if coordinates == "asymmetric":
        return steps.div(x, factors.scale(axis))
    if coordinates == "align_corners":
        divisor = steps.maximum(steps.sub(steps.tensor(real(steps, count), TensorType.FLOAT32), 1.0), 1.0)
        return steps.div(steps.mul(x, factors.last(axis)), divisor)
    if coordinates not in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise Unwritable(f"coordinates of a Resize by {coordinates}")
    scale = factors.scale(axis)
    centered = steps.sub(steps.div(steps.add(x, HALF), scale), HALF)
    if coordinates == "pytorch_half_pixel":
        several = steps.compare("GREATER", steps.tensor(count, TensorType.INT32), 1)
        return steps.select(several, centered, 0.0)
    if coordinates == "half_pixel_symmetric" and not factors.is_stretched:
        extent = steps.tensor(factors.extent(axis), TensorType.FLOAT32)
        ratio = steps.div(steps.tensor(real(steps, count), TensorType.FLOAT32), steps.mul(extent, scale))
        return steps.add(steps.mul(steps.mul(extent, HALF), steps.sub(1.0, ratio)), centered)
    return centered


def _rounded(steps: Steps, place: DraftTensor, rounding: str) -> DraftTensor:
    """Return places as whole numbers; ONNX Runtime sees a tie within `TIE`."""
    if rounding == "ceil":
        return steps.mul(steps.each("FLOOR", steps.mul(place, -1.0)), -1.0)
    below = steps.each("FLOOR", place)
    if rounding == "floor":
        return below
    distance = steps.sub(place, below)
    is_low = rounding == "round_prefer_floor"
    goes_up = steps.compare("GREATER" if is_low else "GREATER_EQUAL", distance, HALF + TIE if is_low else HALF - TIE)
    return steps.add(below, steps.cast(goes_up, TensorType.FLOAT32))
