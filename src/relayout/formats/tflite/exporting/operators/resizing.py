"""Images of another size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.operators.run_time_resizing import cropped, resized_along
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.resize_factors import SIZES, Factors, is_new, stored_axis
from relayout.formats.tflite.exporting.resize_places import BUILTINS as NEAREST_BUILTINS
from relayout.formats.tflite.exporting.resize_places import (
    ROUNDINGS,
    NearestBuiltin,
    nearest_places,
    places,
    stays_exact,
)
from relayout.formats.tflite.exporting.steps import Steps

CROPPED = "tf_crop_and_resize"
"""The coordinates of a region of the image."""
PLAIN = NearestBuiltin(False, False)
LINEAR = {
    "half_pixel": NearestBuiltin(False, True),
    "align_corners": NearestBuiltin(True, False),
    "asymmetric": PLAIN,
}
"""Where the coordinates of linear interpolation lie -> the builtin's options."""
BUILTINS = {"linear": "RESIZE_BILINEAR", "nearest": "RESIZE_NEAREST_NEIGHBOR"}


@exporter("Resize", "Upsample")
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
        grown: Dims = (*result.dims[:axis], dims[axis], *result.dims[axis + 1 :])
        scale = factors.number(axis)
        rounding = _rounding(op, scale)
        of_others = () if mode == "nearest" or axis == rank - 1 else result.dims  # which a product counts on
        is_static = all(isinstance(dim, int) for dim in (operand.dims[axis], dims[axis], *of_others))
        if scale is None or not is_static or stays:
            result = resized_along(factors, result, axis, grown, mode, coordinates, rounding, stays)
            continue
        extent, count = known((operand.dims[axis], dims[axis]))
        if mode == "nearest":
            chosen = nearest_places(extent, count, scale, coordinates, rounding)
            result = op.emit("GATHER", [result, op.ints32(chosen.tolist())], grown, axis=axis)
        else:
            result = _along(op, result, axis, places(extent, count, scale, coordinates), scale, mode)
    op.give(result)


def _crop(op: NodeExport, operand: DraftTensor, dims: Dims, mode: str) -> None:
    """Resize a region, whose corners are given as parts of the extents; outside of the image lies one number."""
    if op.quantized:
        raise Unwritable("a quantized Resize that LiteRT has no kernel for")
    _require_interpolation(op, operand, dims, mode)
    region = op.constant(1)
    if region is None or not all(isinstance(dim, int) for dim in (*operand.dims, *dims)):
        op.give(cropped(Factors(op, dims), operand, mode, _rounding(op, 1.0)))
        return
    regions = region.astype(np.float32).reshape(2, -1)
    if not np.isfinite(regions).all():
        raise Unwritable("a region without end")
    rank, steps = op.rank(), Steps(op)
    corners = np.array([[0] * rank, [1] * rank], np.float32)
    for place, axis in enumerate(op.integers("axes", range(rank))):
        corners[:, stored_axis(op, axis % rank)] = regions[:, place]
    result, inside = operand, np.ones((1,) * rank, bool)
    for axis, (start, end) in enumerate(corners.T):
        if operand.dims[axis] == dims[axis]:
            if (start, end) == (0, 1):
                continue
            raise Unwritable("a region with as many places as the image: some runtimes take all of the image")
        extent, count = known((operand.dims[axis], dims[axis]))
        where = _places_of_region(start, end, extent, count)
        if mode == "nearest":
            chosen = ROUNDINGS[_rounding(op, 1.0)](where).clip(0, extent - 1).astype(int)
            grown: Dims = (*result.dims[:axis], count, *result.dims[axis + 1 :])
            result = op.emit("GATHER", [result, op.ints32(chosen.tolist())], grown, axis=axis)
        elif not np.array_equal(where, np.arange(extent)):
            result = _along(op, result, axis, where, 1.0, mode)
        within = (where >= 0) & (where <= extent - 1)
        inside = inside & within.reshape([-1 if each == axis else 1 for each in range(rank)])
    if not inside.all():
        result = steps.select(op.const(inside), result, op.number("extrapolation_value"))
    op.give(result)


def _require_interpolation(op: NodeExport, operand: DraftTensor, dims: Dims, mode: str) -> None:
    """Refuse regions between whose elements others lie that are not computed here.

    Raises:
        Unwritable: the region holds integers, or is smoothed as it shrinks.
    """
    if mode == "nearest":
        return
    if operand.type not in (TensorType.FLOAT32, TensorType.FLOAT16):
        raise Unwritable("a region of integers, between which others lie")
    grows = all(isinstance(b, int) and isinstance(a, int) and a <= b for a, b in zip(operand.dims, dims, strict=True))
    if op.integer("antialias") and not grows:
        raise Unwritable("a region that is smoothed")


def _places_of_region(start: np.float32, end: np.float32, extent: int, count: int) -> NDArray[np.float32]:
    """Return where along an axis the results of a region lie, in single precision."""
    most = np.float32(extent - 1)
    if count == 1:
        return np.array([np.float32(0.5) * (start + end) * most], np.float32)
    x = np.arange(count, dtype=np.float32)
    found: NDArray[np.float32] = start * most + x * (end - start) * most / np.float32(count - 1)
    return found


def _size(factors: Factors) -> DraftTensor:
    """Return height and width of a builtin's result."""
    op, dims = factors.op, factors.dims
    if all(isinstance(dim, int) for dim in dims[1:3]):
        return op.ints32(known(dims[1:3]), "size")
    if not op.has(SIZES):
        steps, scales = factors.steps, [factors.number(axis) or 0.0 for axis in (1, 2)]
        return steps.mul(steps.part(steps.extents(op.input(0)), 0, 1, 2), np.array(scales))
    if op.integers("axes"):
        return factors.size()
    sizes = op.cast(op.input(SIZES), TensorType.INT32)
    return op.emit("SLICE", [sizes, op.ints32([2 if op.layouts[0] else 1]), op.ints32([2])], (2,))


def _first_of_single(factors: Factors, operand: DraftTensor) -> DraftTensor:
    """Return an image of which an axis that becomes one element has its first alone, as `pytorch_half_pixel` asks."""
    op, steps, dims = factors.op, factors.steps, factors.dims
    if factors.scales is not None or all(isinstance(dim, int) for dim in dims[1:3]):
        return operand
    size = steps.cast(factors.size(), TensorType.INT32)
    kept = steps.select(steps.compare("EQUAL", size, 1), 1, steps.ints([-1, -1]))
    sizes = steps.concat([steps.ints([-1]), kept, steps.ints([-1])], 0)
    names = (f"?{op.name}.height", f"?{op.name}.width")
    return op.emit("SLICE", [operand, steps.ints([0] * 4), sizes], (operand.dims[0], *names, operand.dims[3]))


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
    if all(isinstance(dim, int) for dim in (*before[1:3], *dims[1:3])):
        return _nearest_builtin(op, coordinates, axes)
    is_plain = coordinates == "asymmetric" and _repeats(op, [scale for *_, scale in axes])
    return PLAIN if is_plain else None


def _repeats(op: NodeExport, scales: Sequence[float | None]) -> bool:
    """Return whether whole scales say how often elements are repeated, as the kernel does whatever the extents."""
    if not all(scale is not None and scale >= 1 and stays_exact(scale) for scale in scales):
        return False
    rounding = _rounding(op, 1.0)
    return rounding == "floor" or (rounding == "round_prefer_floor" and all(scale in (1.0, 2.0) for scale in scales))


def _nearest_builtin(
    op: NodeExport, coordinates: str, axes: Sequence[tuple[int | str, int | str, float | None]]
) -> NearestBuiltin | None:
    """Return the options with which the kernel takes the same elements along both axes."""
    if any(scale is None for *_, scale in axes):
        return None
    for builtin in NEAREST_BUILTINS:
        if all(
            np.array_equal(
                nearest_places(int(extent), int(count), scale or 0.0, coordinates, _rounding(op, scale)),
                builtin.nearest_places(int(extent), int(count)),
            )
            for extent, count, scale in axes
        ):
            return builtin
    return None


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
    if op.op_type == "Resize" and scale is None:
        raise Unwritable("scales of the first Resize that are computed")
    return "ceil" if op.op_type == "Resize" and scale is not None and scale < 1 else "floor"


def _along(
    op: NodeExport, tensor: DraftTensor, axis: int, where: NDArray[np.float32], scale: float, mode: str
) -> DraftTensor:
    """Return what lies at places along one axis of a tensor."""
    (extent,) = known(tensor.dims[axis : axis + 1])
    grown: Dims = (*tensor.dims[:axis], len(where), *tensor.dims[axis + 1 :])
    matrix = _matrix(op, where.astype(np.float64), extent, scale, mode)
    return _product(op, tensor, axis, matrix.astype(np.float32), grown)


def _matrix(op: NodeExport, places: NDArray[np.float64], extent: int, scale: float, mode: str) -> NDArray[np.float64]:
    """Return the weights of an axis, `result extent`."""
    antialias = bool(op.integer("antialias")) and scale < 1
    stretch = 1 / scale if antialias else 1.0
    if mode == "linear":
        radius = 1.0

        def weight(x: NDArray[np.float64]) -> NDArray[np.float64]:
            found: NDArray[np.float64] = np.maximum(1 - np.abs(x), 0)
            return found
    elif mode == "cubic":
        radius, a = 2.0, op.number("cubic_coeff_a", -0.75)

        def weight(x: NDArray[np.float64]) -> NDArray[np.float64]:
            x = np.abs(x)
            near = (a + 2) * x**3 - (a + 3) * x**2 + 1
            far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
            weights: NDArray[np.float64] = np.where(x <= 1, near, np.where(x < 2, far, 0))
            return weights
    else:
        raise Unwritable(f"a Resize by {mode}")
    reach = int(np.ceil(radius * stretch)) + 1
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


def _product(op: NodeExport, tensor: DraftTensor, axis: int, matrix: NDArray[np.float32], dims: Dims) -> DraftTensor:
    """Return a matrix times a tensor along one axis."""
    rank = len(tensor.dims)
    if axis == rank - 1:
        return op.emit("FULLY_CONNECTED", [tensor, op.const(matrix)], dims, keep_num_dims=True)
    front = [dim for dim in tensor.dims[:axis] if dim != 1]
    shape = known(tensor.dims)
    back = int(np.prod(shape[axis + 1 :]))
    flat: Dims = (int(np.prod(shape[:axis])), shape[axis], back) if front else (shape[axis], back)
    made: Dims = (*flat[:-2], matrix.shape[0], back)
    weights = op.const(matrix if len(flat) == 2 else np.broadcast_to(matrix, (1, *matrix.shape)))
    product = op.emit("BATCH_MATMUL", [weights, op.reshaped(tensor, flat)], made, tensor.type)
    return op.reshaped(product, dims)
