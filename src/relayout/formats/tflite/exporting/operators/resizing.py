"""Images of another size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.builder import Operand
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable, exporter
from relayout.formats.tflite.exporting.resize_factors import (
    HALF,
    NEAREST_BUILTINS,
    SIZES,
    Factors,
    NearestBuiltin,
    is_new,
    real,
    stays_exact,
    stored_axis,
)
from relayout.graph.domains import RESIZE, RESIZING

# Images of a size that is known only at run time: places and weights are computed as ONNX Runtime computes them.
#
# place = (x + 0.5) / scale - 0.5        x = RANGE(count)
# nearest:  GATHER(tensor, rounded place)
# linear:   a + (b - a) * (place - floor(place)),    a and b by GATHER

CUBIC_TAPS = (-1, 0, 1, 2)
FLOAT = TensorType.FLOAT32
TIE = 1e-6  # how far from the middle between two elements ONNX Runtime still sees a tie
REACH = {"linear": 1.0, "cubic": 2.0}  # mode -> how far an element weighs, in elements of the smaller image


def _resized_along(
    factors: Factors,  # sizes and scales
    tensor: DraftTensor,  # what is resized; its other axes may be resized already
    axis: int,
    mode: str,  # `nearest`, `linear` or `cubic`
    coordinates: str,  # how a place is found
    stays: bool | DraftTensor,  # whether all extents stay, so that each element is its own
) -> DraftTensor:
    """Return a tensor resized along one axis."""
    op, number = factors.op, factors.number(axis)
    rounding, x, place = _rounding(op, number), _numbers(factors, axis), _place(factors, axis, coordinates)
    place = op.select(stays, x, place) if isinstance(stays, DraftTensor) else place
    counts_on_all = mode != "nearest" and axis < len(tensor.dims) - 1  # a product with a matrix does
    is_known = place.array is not None and number is not None and isinstance(tensor.dims[axis], int)
    if is_known and number is not None and (tensor.is_static or not counts_on_all):
        return _along(op, tensor, axis, place, number, mode)
    if mode == "nearest" and coordinates == "half_pixel_symmetric":
        raise OpenExtentError("half_pixel_symmetric of extents known only at run time, which needs double precision")
    if mode != "nearest" and op.integer("antialias") and (number is None or number < 1):
        return _smoothed(factors, tensor, axis, place, mode, stays)  # a weight reaches more elements of a smaller image
    is_positive = coordinates in ("asymmetric", "align_corners")
    return _interpolated(factors, tensor, axis, mode, rounding, place, is_positive=is_positive)


def _place_of_region(factors: Factors, axis: int) -> DraftTensor:
    """Return where along an axis the results of a region lie; one that keeps its extent is taken whole.

    place = start · (extent - 1) + x · (end - start) · (extent - 1) / (count - 1)
    """
    op, regions, place = factors.op, factors.op.cast(factors.op.input(1), FLOAT), factors.place_of[axis]
    start, end = (op.at(regions, 0, each) for each in (place, len(factors.place_of) + place))
    x, count, last = _numbers(factors, axis), op.tensor(factors.count(axis), TensorType.INT32), factors.last(axis)
    intervals = op.maximum(op.sub(op.cast(count, FLOAT), 1.0), 1.0)
    along = op.div(op.mul(op.mul(x, op.sub(end, start)), last), intervals)
    middle = op.mul(op.mul(op.add(start, end), HALF), last)
    positions = op.select(op.compare("GREATER", count, 1), op.add(op.mul(start, last), along), middle)
    if not factors.is_stretched:
        scale = factors.scale(axis)  # which may be another than 1 where the extent stays
        return op.select(op.compare("EQUAL", scale, 1.0), x, positions) if isinstance(scale, DraftTensor) else positions
    extent = op.tensor(factors.extent(axis), FLOAT)
    return op.select(op.compare("EQUAL", op.cast(count, FLOAT), extent), x, positions)


def _interpolated(
    factors: Factors,  # sizes and scales
    tensor: DraftTensor,
    axis: int,
    mode: str,  # `nearest`, `linear` or `cubic`
    rounding: str,  # how a place is rounded
    place: DraftTensor,  # the places, in elements of the tensor
    *,
    is_positive: bool,  # whether none lies before the first element
) -> DraftTensor:
    """Return what lies at places along one axis of a tensor, between its elements."""
    op, last = factors.op, factors.last(axis)
    dims: Dims = (*tensor.dims[:axis], factors.dims[axis], *tensor.dims[axis + 1 :])

    def taken(at: DraftTensor) -> DraftTensor:
        inside = op.minimum(at, last)
        if not is_positive or mode == "cubic":
            inside = op.maximum(inside, 0.0)
        return op.emit("GATHER", [tensor, op.cast(inside, TensorType.INT32)], dims, axis=axis)

    if mode == "nearest":
        return taken(_rounded(op, place, rounding))
    if tensor.type != TensorType.FLOAT32:
        raise OpenExtentError("integers that are interpolated by a scale that is known only at run time")
    behind = (1,) * (len(dims) - axis - 1)

    def column(weight: DraftTensor) -> DraftTensor:
        return op.reshape(weight, (weight.dims[0], *behind))

    if mode == "linear":  # a place is inside, so that no weight is outside
        inside = op.clamp(place, 0.0, last)
        below = op.each("FLOOR", inside)
        first = taken(below)
        step = op.sub(taken(op.add(below, 1.0)), first)
        return op.add(first, op.mul(step, column(op.sub(inside, below))))
    if mode != "cubic":
        raise OpenExtentError(f"a Resize by {mode} whose scale is known only at run time")
    return _cubic(factors, place, last, taken, column)


def _smoothed(
    factors: Factors, tensor: DraftTensor, axis: int, place: DraftTensor, mode: str, stays: bool | DraftTensor
) -> DraftTensor:
    """Return a tensor resized along one axis by antialiasing: a weight reaches as many elements as the image shrinks.

    Elements outside of the image are those of its border, or count for nothing (`exclude_outside`).
    """
    op = factors.op
    if tensor.type != FLOAT:
        raise OpenExtentError("integers that are interpolated by a scale that is known only at run time")
    if mode not in REACH:
        raise OpenExtentError(f"a Resize by {mode} with antialias whose scale is known only at run time")
    stretch = op.tensor(op.maximum(op.div(1.0, op.tensor(factors.scale(axis), FLOAT)), 1.0), FLOAT)
    stretch = op.select(stays, 1.0, stretch) if isinstance(stays, DraftTensor) else stretch
    extent, reach = op.tensor(factors.extent(axis), FLOAT), op.mul(stretch, 0.0)
    if not op.integer("exclude_outside"):
        reach = op.add(op.each("FLOOR", op.mul(stretch, REACH[mode])), 1.0)
    ends = [op.cast(each, TensorType.INT32) for each in (op.mul(reach, -1.0), op.add(extent, reach))]
    elements = op.cast(op.emit("RANGE", [*ends, op.ints(np.array(1))], (f"?{op.name}.{axis}",)), FLOAT)
    distance = op.sub(elements, op.reshape(place, (*place.dims, 1)))
    weights = _weights(factors, op.each("ABS", op.div(distance, stretch)), mode)
    weights = op.div(weights, op.reduce("SUM", weights, [1], keep=True))
    inside = op.clamp(elements, 0.0, factors.last(axis))
    neighbours = op.gather(tensor, op.cast(inside, TensorType.INT32), axis)
    if axis == len(neighbours.dims) - 1:
        return op.matmul(neighbours, weights, adj_y=True)
    behind = neighbours.dims[axis + 1 :]
    width = op.elements(behind, f"{axis}.behind")
    flat = neighbours if len(behind) == 1 else op.reshape(neighbours, (*neighbours.dims[: axis + 1], width), neighbours)
    product = op.matmul(weights, flat)
    return op.reshape(product, (*product.dims[:-1], *behind), product)


def _weights(factors: Factors, distance: DraftTensor, mode: str) -> DraftTensor:
    """Return how much elements weigh that lie so far away."""
    op, a = factors.op, factors.op.number("cubic_coeff_a", -0.75)
    if mode == "linear":
        return op.maximum(op.sub(1.0, distance), 0.0)
    near, far = (polynomial_at(op, distance, each) for each in cubics(a))
    outer = op.select(op.compare("LESS", distance, 2.0), far, 0.0)
    return op.select(op.compare("LESS_EQUAL", distance, 1.0), near, outer)


def cubics(a: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the polynomials of the distance up to 1, and from there up to 2."""
    return (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)


def _cubic(
    factors: Factors,
    place: DraftTensor,
    last: Operand,
    gather: Callable[[DraftTensor], DraftTensor],
    column: Callable[[DraftTensor], DraftTensor],
) -> DraftTensor:
    """Return the sum of four neighbours times their weights."""
    op = factors.op
    below = op.each("FLOOR", place)
    t = op.sub(place, below)
    weights = cubic_weights(op, t, op.number("cubic_coeff_a", -0.75))
    taps = [op.add(below, float(tap)) if tap else below for tap in CUBIC_TAPS]
    if factors.op.integer("exclude_outside"):
        zero = op.mul(t, 0.0)
        inside = [op.is_between(tap, 0.0, last) for tap in taps]
        weights = [op.select(shown, weight, zero) for shown, weight in zip(inside, weights, strict=True)]
        total = reduce(op.add, weights)
        weights = [op.div(weight, total) for weight in weights]
    return reduce(op.add, [op.mul(gather(tap), column(weight)) for tap, weight in zip(taps, weights, strict=True)])


def cubic_weights(op: NodeExport, t: DraftTensor, a: float) -> list[DraftTensor]:
    """Return how much the elements at `CUBIC_TAPS` weigh, of places that lie so far behind the second."""
    near, far = cubics(a)
    distances = [op.add(t, 1.0), t, op.sub(1.0, t), op.sub(2.0, t)]
    return [polynomial_at(op, *each) for each in zip(distances, (far, near, near, far), strict=True)]


def polynomial_at(op: NodeExport, x: DraftTensor, coefficients: tuple[float, ...]) -> DraftTensor:
    """Return `((a x + b) x + c) x + d`."""
    first, *rest = coefficients
    value = op.mul(x, first)
    for place, coefficient in enumerate(rest, 1):
        value = op.add(value, coefficient) if coefficient else value
        value = op.mul(value, x) if place < len(rest) else value
    return value


def _numbers(factors: Factors, axis: int) -> DraftTensor:
    """Return the numbers of the results along an axis, from 0 on."""
    op = factors.op
    return op.cast(op.arange(factors.count(axis), factors.dims[axis]), FLOAT)


def _place(factors: Factors, axis: int, coordinates: str) -> DraftTensor:
    """Return where along an axis the results lie, by the factor of the axis: a constant where extents and factor are.

    They are computed in the precision in which ONNX Runtime computes them: a place decides which element a nearest
    neighbour is. From 14 elements to 2, the second result lies at `1 / float32(2 / 14)`, which is less than 7.
    """
    op, count, x = factors.op, factors.count(axis), _numbers(factors, axis)
    if coordinates == "asymmetric":
        return op.div(x, factors.scale(axis))
    if coordinates == "align_corners":
        divisor = op.maximum(op.sub(op.tensor(real(op, count), FLOAT), 1.0), 1.0)
        return op.div(op.mul(x, factors.last(axis)), divisor)
    if coordinates not in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise Unwritable(f"coordinates of a Resize by {coordinates}")
    scale, extent = factors.scale(axis), op.tensor(factors.extent(axis), FLOAT)
    centered = op.sub(op.div(op.add(x, HALF), scale), HALF)
    if coordinates == "pytorch_half_pixel":
        return op.select(op.compare("GREATER", op.tensor(count, TensorType.INT32), 1), centered, 0.0)
    number = factors.number(axis)
    if x.array is not None and extent.array is not None and number is not None and coordinates != "half_pixel":
        single = np.float32(number)  # in double precision but for the adjustment
        adjustment = float(np.float32(len(x.array)) / (single * extent.array))
        moved = extent.array.item() / 2 * (1 - adjustment)
        return op.const((moved + (x.array.astype(np.float64) + HALF) / float(single) - HALF).astype(np.float32))
    if coordinates == "half_pixel" or factors.is_stretched:
        return centered
    ratio = op.div(op.tensor(real(op, count), FLOAT), op.mul(extent, scale))
    return op.add(op.mul(op.mul(extent, HALF), op.sub(1.0, ratio)), centered)


def _rounded(op: NodeExport, place: DraftTensor, rounding: str) -> DraftTensor:
    """Return places as whole numbers; ONNX Runtime sees a tie within `TIE`."""
    if rounding == "ceil":
        return op.mul(op.each("FLOOR", op.mul(place, -1.0)), -1.0)
    below = op.each("FLOOR", place)
    if rounding == "floor":
        return below
    distance = op.sub(place, below)
    is_low = rounding == "round_prefer_floor"
    goes_up = op.compare("GREATER" if is_low else "GREATER_EQUAL", distance, HALF + TIE if is_low else HALF - TIE)
    return op.add(below, op.cast(goes_up, FLOAT))


CROPPED = "tf_crop_and_resize"  # the coordinates of a region of the image
PLAIN = NearestBuiltin(False, False)
LINEAR = {  # where the coordinates of linear interpolation lie -> the builtin's options
    "half_pixel": NearestBuiltin(False, True),
    "align_corners": NearestBuiltin(True, False),
    "asymmetric": PLAIN,
}
BUILTINS = {"linear": "RESIZE_BILINEAR", "nearest": "RESIZE_NEAREST_NEIGHBOR"}


@exporter(*RESIZING)
def resize(op: NodeExport) -> None:
    """RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR; else GATHERs or products with matrices, axis by axis."""
    operand, dims = op.input(0), op.out_dims()
    rank = op.rank()
    if op.layouts[0] and not op.layouts[0].endswith("c"):
        raise Unwritable("its channels do not come last")
    mode = op.text("mode", "nearest")
    coordinates = op.text("coordinate_transformation_mode", "half_pixel" if is_new(op) else "asymmetric")
    if coordinates == CROPPED:
        _crop(op, operand, dims, mode)
        return
    factors = Factors(op, dims)
    changed = factors.changed()
    stays = factors.stays(changed)
    if stays is True:
        op.give(operand)
        return
    over_space = rank == 4 and set(changed) <= {1, 2}
    options = _options(factors, mode, coordinates) if over_space else None
    if options is not None:
        if coordinates == "pytorch_half_pixel":
            operand = _first_of_single(factors, operand)
        op.result(BUILTINS[mode], [operand, _size(factors)], **options._asdict())
        return
    if op.quantized:
        raise Unwritable("a quantized Resize that LiteRT has no kernel for")
    result = operand
    for axis in changed:
        result = _resized_along(factors, result, axis, mode, coordinates, stays)
    op.give(result)


def _crop(op: NodeExport, operand: DraftTensor, dims: Dims, mode: str) -> None:
    """Resize a region, whose corners are given as parts of the extents; outside of the image lies one number."""
    if op.quantized:
        raise Unwritable("a quantized Resize that LiteRT has no kernel for")
    _require_interpolation(op, operand, dims, mode)
    factors, region = Factors(op, dims), op.constant(1)
    is_static = region is not None and all_known((*operand.dims, *dims))
    changed = [axis for axis in factors.changed() if not is_static or operand.dims[axis] != dims[axis]]
    _require_whole_axes(factors, changed, region if is_static else None)
    result, inside = operand, None
    for axis in changed:
        place = _place_of_region(factors, axis)
        if not is_static or place.array is None:
            result = _interpolated(factors, result, axis, mode, _rounding(op, 1.0), place, is_positive=False)
        elif mode == "nearest" or not np.array_equal(place.array, np.arange(known(operand.dims)[axis])):
            result = _along(op, result, axis, place, 1.0, mode)
        within = op.is_between(place, 0.0, factors.last(axis))
        column = op.reshape(within, (*within.dims, *[1] * (len(result.dims) - axis - 1)))
        inside = column if inside is None else op.both(inside, column)
    is_inside = inside is None or (inside.array is not None and bool(inside.array.all()))
    op.give(result if inside is None or is_inside else op.select(inside, result, op.number("extrapolation_value")))


def _require_whole_axes(factors: Factors, changed: Sequence[int], region: NDArray[np.generic] | None) -> None:
    """Refuse a region without end, or one of an axis that keeps its extent, unless it is all of the axis.

    Of a region that is computed that is known of the batch and of channels.
    """
    op, corners = factors.op, None if region is None else region.astype(np.float32).reshape(2, -1)
    if corners is not None and not np.isfinite(corners).all():
        raise Unwritable("a region without end")
    for axis, place in factors.place_of.items():
        is_whole = axis in (0, stored_axis(op, 1)) if corners is None else corners[:, place].tolist() == [0, 1]
        if axis not in changed and not is_whole:
            raise Unwritable("a region with as many places as the image: some runtimes take all of the image")


def _require_interpolation(op: NodeExport, operand: DraftTensor, dims: Dims, mode: str) -> None:
    """Refuse regions between whose elements others lie that are not computed here."""
    if mode == "nearest":
        return
    if operand.type not in (TensorType.FLOAT32, TensorType.FLOAT16):
        raise Unwritable("a region of integers, between which others lie")
    grows = all(isinstance(b, int) and isinstance(a, int) and a <= b for a, b in zip(operand.dims, dims, strict=True))
    if op.integer("antialias") and not grows:
        raise Unwritable("a region that is smoothed")


def _size(factors: Factors) -> DraftTensor:
    """Return height and width of a builtin's result."""
    op, dims = factors.op, factors.dims
    if all_known(dims[1:3]):
        return op.ints(known(dims[1:3]), "size")
    if not op.has(SIZES):
        scales = np.array([factors.number(axis) or 0.0 for axis in (1, 2)])
        return op.mul(op.part(op.extents(op.input(0)), 0, 1, 2), scales)
    if op.integers("axes"):
        return factors.size()
    sizes = op.cast(op.input(SIZES), TensorType.INT32)
    return op.emit("SLICE", [sizes, op.ints([2 if op.layouts[0] else 1]), op.ints([2])], (2,))


def _first_of_single(factors: Factors, operand: DraftTensor) -> DraftTensor:
    """Return an image of which an axis that becomes one element has its first alone, as `pytorch_half_pixel` asks."""
    op, dims = factors.op, factors.dims
    if factors.scales is not None or all_known(dims[1:3]):
        return operand
    size = op.cast(factors.size(), TensorType.INT32)
    spatial_sizes = op.select(op.compare("EQUAL", size, 1), 1, op.ints([-1, -1]))
    sizes = op.concat([op.ints([-1]), spatial_sizes, op.ints([-1])], 0)
    names = (f"?{op.name}.height", f"?{op.name}.width")
    return op.emit("SLICE", [operand, op.ints([0] * 4), sizes], (operand.dims[0], *names, operand.dims[3]))


def _options(factors: Factors, mode: str, coordinates: str) -> NearestBuiltin | None:
    """Return the options of the builtin that computes the same; None where there is none."""
    op, dims, before = factors.op, factors.dims, factors.op.dims()
    is_smoothed = op.integer("antialias") and any((factors.number(axis) or 0.0) < 1 for axis in (1, 2))
    if mode not in BUILTINS or is_smoothed or op.integer("exclude_outside"):
        return None
    axes = [(before[axis], dims[axis], factors.number(axis)) for axis in (1, 2)]
    if mode == "linear":
        if coordinates == "pytorch_half_pixel" and all(dim != 1 for dim in dims[1:3]):
            coordinates = "half_pixel"
        return LINEAR.get(coordinates) if all(_is_exact(op, *axis) for axis in axes) else None
    if all_known((*before[1:3], *dims[1:3])):
        return _nearest_builtin(factors, coordinates)
    is_plain = coordinates == "asymmetric" and _repeats(op, [scale for *_, scale in axes])
    return PLAIN if is_plain else None


def _repeats(op: NodeExport, scales: Sequence[float | None]) -> bool:
    """Return whether whole scales say how often elements are repeated, as the kernel does whatever the extents."""
    if not all(scale is not None and scale >= 1 and stays_exact(scale) for scale in scales):
        return False
    rounding = _rounding(op, 1.0)
    return rounding == "floor" or (rounding == "round_prefer_floor" and all(scale in (1.0, 2.0) for scale in scales))


def _nearest_builtin(factors: Factors, coordinates: str) -> NearestBuiltin | None:
    """Return the options with which the kernel takes the same elements along both axes of known extents."""
    elements_by_axis = []
    for axis in (1, 2):
        (extent, count), scale = known((factors.op.dims()[axis], factors.dims[axis])), factors.number(axis)
        if scale is None:
            return None
        elements = _elements(factors.op, _place(factors, axis, coordinates), extent, _rounding(factors.op, scale))
        elements_by_axis.append((extent, count, elements))

    def takes_them(builtin: NearestBuiltin) -> bool:
        return all(np.array_equal(elements, builtin.nearest_places(*sizes)) for *sizes, elements in elements_by_axis)

    return next(filter(takes_them, NEAREST_BUILTINS), None)


def _is_exact(op: NodeExport, extent: int | str, count: int | str, scale: float | None) -> bool:
    """Return whether the scale is that of the extents, which a builtin takes for it."""
    if scale is None:
        return op.has(SIZES) and op.text("keep_aspect_ratio_policy", "stretch") == "stretch"
    if isinstance(extent, int) and isinstance(count, int):
        return abs(scale - count / extent) < 1e-6 * scale
    return scale == int(scale)


def _rounding(op: NodeExport, scale: float | None) -> str:
    """Return how places are rounded; the first Resize takes the next element where the image becomes smaller."""
    if is_new(op):
        return op.text("nearest_mode", "round_prefer_floor")
    if op.op_type == RESIZE and scale is None:
        raise Unwritable("scales of the first Resize that are computed")
    return "ceil" if op.op_type == RESIZE and scale is not None and scale < 1 else "floor"


def _along(op: NodeExport, tensor: DraftTensor, axis: int, place: DraftTensor, scale: float, mode: str) -> DraftTensor:
    """Return what lies at constant places along one axis of a tensor: its elements, or a product with a matrix."""
    (extent,), where = known(tensor.dims[axis : axis + 1]), place.array
    assert where is not None
    if mode == "nearest":
        return op.gather(tensor, op.ints(_elements(op, place, extent, _rounding(op, scale))), axis)
    matrix = _matrix(op, where.astype(np.float64), extent, scale, mode).astype(np.float32)
    dims: Dims = (*tensor.dims[:axis], len(where), *tensor.dims[axis + 1 :])
    if axis == len(dims) - 1:
        return op.emit("FULLY_CONNECTED", [tensor, op.const(matrix)], dims, keep_num_dims=True)
    shape = known(tensor.dims)
    back = prod(shape[axis + 1 :])
    has_front = any(dim != 1 for dim in shape[:axis])
    flat: Dims = (prod(shape[:axis]), shape[axis], back) if has_front else (shape[axis], back)
    weights = op.const(np.broadcast_to(matrix, (1, *matrix.shape)) if has_front else matrix)
    product = op.emit("BATCH_MATMUL", [weights, op.reshape(tensor, flat)], (*flat[:-2], len(where), back), tensor.type)
    return op.reshape(product, dims)


def _elements(op: NodeExport, place: DraftTensor, extent: int, rounding: str) -> NDArray[np.int32]:
    """Return which elements lie nearest to constant places."""
    rounded_places = _rounded(op, place, rounding).array
    assert rounded_places is not None
    return rounded_places.clip(0, extent - 1).astype(np.int32)


def _matrix(op: NodeExport, places: NDArray[np.float64], extent: int, scale: float, mode: str) -> NDArray[np.float64]:
    """Return the weights of an axis, `result extent`."""
    antialias = bool(op.integer("antialias")) and scale < 1
    stretch, a = 1 / scale if antialias else 1.0, op.number("cubic_coeff_a", -0.75)
    if mode not in REACH:
        raise Unwritable(f"a Resize by {mode}")

    def weight(x: NDArray[np.float64]) -> NDArray[np.float64]:
        x = np.abs(x)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        cubic = np.where(x <= 1, near, np.where(x < 2, far, 0))
        weights: NDArray[np.float64] = np.maximum(1 - x, 0) if mode == "linear" else cubic
        return weights

    reach = int(np.ceil(REACH[mode] * stretch)) + 1
    matrix = np.zeros((len(places), extent))
    for row, place in enumerate(places):
        if mode == "linear" and not antialias:
            place = min(max(place, 0), extent - 1)
        center = int(np.floor(place))
        taps = np.arange(center - reach, center + reach + 1)
        weights = weight((taps - place) / stretch)
        if op.integer("exclude_outside"):
            inside = (taps >= 0) & (taps < extent)
            taps, weights = taps[inside], weights[inside]
        if op.integer("exclude_outside") or antialias:
            weights = weights / weights.sum()
        np.add.at(matrix[row], taps.clip(0, extent - 1), weights)
    return matrix
