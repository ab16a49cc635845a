"""Images of another size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps

ROUNDINGS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}
CROPPED = "tf_crop_and_resize"
"""The coordinates of a region of the image."""
BUILTINS = {"linear": "RESIZE_BILINEAR", "nearest": "RESIZE_NEAREST_NEIGHBOR"}


@exporter("Resize", "Upsample")
def resize(op: NodeExport) -> None:
    """RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR; else GATHERs or products with matrices, axis by axis."""
    operand, dims = op.input(0), op.out_dims()
    rank = op.rank()
    if op.layouts[0] and not op.layouts[0].endswith("c"):
        raise Unwritable("its channels do not come last")
    mode = op.text("mode", "nearest")
    coordinates = op.text(
        "coordinate_transformation_mode", "half_pixel" if op.op_type == "Resize" and op.version > 10 else "asymmetric"
    )
    if coordinates == CROPPED:
        _crop(op, operand, dims, mode)
        return
    changed = _changed(op, operand, dims)
    if not changed:
        op.give(operand)
        return
    over_space = rank == 4 and set(changed) <= {1, 2}
    options = _options(op, mode, coordinates, operand, dims)
    if over_space and options is not None:
        op.result(BUILTINS[mode], [operand, _size(op, dims)], **options)
        return
    if op.quantized:
        raise Unwritable("a quantized Resize that LiteRT has no kernel for")
    result = operand
    for axis in changed:
        scale = _scales(op, op.dims(), dims)[axis]
        extent, count = known((result.dims[axis], dims[axis]))
        places = _places(extent, count, scale, coordinates)
        result = _along(op, result, axis, places, scale, mode)
    op.give(result)


def _crop(op: NodeExport, operand: DraftTensor, dims: Dims, mode: str) -> None:
    """Resize a region, whose corners are given as parts of the extents; outside of the image lies one number."""
    if op.quantized:
        raise Unwritable("a quantized Resize that LiteRT has no kernel for")
    regions = op.required_constant(1, "the region of a Resize").astype(np.float32).reshape(2, -1)
    rank, steps = op.rank(), Steps(op)
    corners = np.array([[0] * rank, [1] * rank], np.float32)
    for place, axis in enumerate(op.integers("axes", range(rank))):
        corners[:, _stored_axis(op, axis % rank)] = regions[:, place]
    result, inside = operand, np.ones((1,) * rank, bool)
    for axis, (start, end) in enumerate(corners.T):
        if operand.dims[axis] == dims[axis]:
            if (start, end) == (0, 1):
                continue
            raise Unwritable("a region with as many places as the image: some runtimes take all of the image")
        extent, count = known((operand.dims[axis], dims[axis]))
        places = _places_of_region(start, end, extent, count)
        if not np.array_equal(places, np.arange(extent)):
            result = _along(op, result, axis, places.astype(np.float64), 1.0, mode)
        within = (places >= 0) & (places <= extent - 1)
        inside = inside & within.reshape([-1 if each == axis else 1 for each in range(rank)])
    if not inside.all():
        result = steps.select(op.const(inside), result, op.number("extrapolation_value"))
    op.give(result)


def _places_of_region(start: np.float32, end: np.float32, extent: int, count: int) -> NDArray[np.float32]:
    """Return where along an axis the results of a region lie, in single precision."""
    most = np.float32(extent - 1)
    if count == 1:
        return np.array([np.float32(0.5) * (start + end) * most], np.float32)
    x = np.arange(count, dtype=np.float32)
    found: NDArray[np.float32] = start * most + x * (end - start) * most / np.float32(count - 1)
    return found


def _changed(op: NodeExport, operand: DraftTensor, dims: Dims) -> list[int]:
    """Return the axes along which the result may have another extent."""
    changed = [axis for axis in range(op.rank()) if operand.dims[axis] != dims[axis]]
    if all(isinstance(dim, int) for dim in dims):
        return changed
    if op.has(3) and op.dims(3) != (0,):
        # Two of four axes are interpolated at most: if channels keep their extent, an unnamed batch does, too.
        keeps_channels = operand.dims[-1] == dims[-1]
        is_spatial = op.rank() == 4 and op.layouts[0] and keeps_channels and op.text("mode", "nearest") == "linear"
        return [axis for axis in changed if axis in (1, 2)] if is_spatial else changed
    return [axis for axis, scale in enumerate(_scales(op, operand.dims, dims)) if scale != 1.0]


def _size(op: NodeExport, dims: Dims) -> DraftTensor:
    if all(isinstance(dim, int) for dim in dims[1:3]):
        return op.ints32(known(dims[1:3]), "size")
    if not op.has(3):
        return _scaled_size(op, dims)
    if op.integers("axes"):
        raise Unwritable("computed sizes of some axes")
    sizes = op.cast(op.input(3), TensorType.INT32)
    return op.emit("SLICE", [sizes, op.ints32([2 if op.layouts[0] else 1]), op.ints32([2])], (2,))


def _scaled_size(op: NodeExport, dims: Dims) -> DraftTensor:
    """Return multiples of extents that are known only at run time."""
    steps, operand = Steps(op), op.input(0)
    scales = _scales(op, operand.dims, dims)[1:3]
    shape = op.emit("SHAPE", [operand], (op.rank(),), TensorType.INT32, out_type=TensorType.INT32)
    extents = steps.part(shape, 0, 1, 2)
    if any(scale != int(scale) for scale in scales):
        raise Unwritable("a size that is no whole multiple of extents known only at run time")
    return steps.mul(extents, np.array(scales))


def _scales(op: NodeExport, operand: Dims, dims: Dims) -> list[float]:
    slot = 2 if _is_new(op) else 1
    given = op.constant(slot)
    if given is None and op.has(slot) and not op.has(3) and op.dims(slot) != (0,):
        raise Unwritable("scales that are computed")
    if op.node.attributes.get("scales") is not None:
        given = np.array(op.numbers("scales"))
    if given is not None and given.size:
        axes = op.integers("axes", range(len(operand)))
        found = [1.0] * len(operand)
        for axis, scale in zip(axes, given.tolist(), strict=True):
            found[_stored_axis(op, axis % len(operand))] = float(scale)
        return found
    return [
        b / a if isinstance(a, int) and isinstance(b, int) and a else 1.0 for a, b in zip(operand, dims, strict=True)
    ]


def _stored_axis(op: NodeExport, axis: int) -> int:
    """Return where an axis of the source lies: operands of an operator in another layout count in the source's."""
    if not op.layouts[0] or axis == 0:
        return axis
    return op.rank() - 1 if axis == 1 else axis - 1


def _options(op: NodeExport, mode: str, coordinates: str, operand: DraftTensor, dims: Dims) -> dict[str, bool] | None:
    """Return the options of the builtin that computes the same; None where there is none."""
    if mode not in BUILTINS or op.integer("antialias") or op.integer("exclude_outside"):
        return None
    scales = _scales(op, operand.dims, dims)
    exact = all(
        abs(scale - b / a) < 1e-6 * scale if isinstance(a, int) and isinstance(b, int) else scale == int(scale)
        for a, b, scale in zip(operand.dims, dims, scales, strict=True)
    )
    if not exact:
        return None
    whole = all(scale == int(scale) for scale in scales)
    if mode == "linear":
        kinds = {"half_pixel": (False, True), "align_corners": (True, False), "asymmetric": (False, False)}
        if coordinates == "pytorch_half_pixel" and all(dim != 1 for dim in dims[1:3]):
            coordinates = "half_pixel"
        if coordinates not in kinds:
            return None
        align, half = kinds[coordinates]
        return {"align_corners": align, "half_pixel_centers": half}
    rounding = op.text("nearest_mode", "round_prefer_floor" if op.op_type == "Resize" and op.version > 10 else "floor")
    if coordinates == "asymmetric" and (
        rounding == "floor" or (whole and rounding == "round_prefer_floor" and _cuts_halves(scales))
    ):
        return {"align_corners": False, "half_pixel_centers": False}
    return None


def _is_new(op: NodeExport) -> bool:
    """Return whether a node says its coordinates and its rounding."""
    return op.op_type == "Resize" and op.version > 10


def _rounding(op: NodeExport) -> str:
    return op.text("nearest_mode", "round_prefer_floor" if _is_new(op) else "floor")


def _cuts_halves(scales: Sequence[float]) -> bool:
    """Return whether rounding a multiple of `1 / scale` half down is cutting it off."""
    return all(scale in (1.0, 2.0) for scale in scales)


def _places(extent: int, result: int, scale: float, coordinates: str) -> NDArray[np.float64]:
    """Return where along an axis each result lies, in elements of the operand."""
    x = np.arange(result, dtype=np.float64)
    scale = float(np.float32(scale))
    if coordinates == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        adjusted = result / (scale * extent)
        center = extent / 2
        return center * (1 - adjusted) + (x + 0.5) / scale - 0.5
    if coordinates == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if result > 1 else np.zeros(1)
    if coordinates == "align_corners":
        return x * (extent - 1) / (result - 1) if result > 1 else np.zeros(1)
    if coordinates == "asymmetric":
        return x / scale
    raise Unwritable(f"coordinates of a Resize by {coordinates}")


def _along(
    op: NodeExport, tensor: DraftTensor, axis: int, places: NDArray[np.float64], scale: float, mode: str
) -> DraftTensor:
    """Return what lies at places along one axis of a tensor."""
    (extent,) = known(tensor.dims[axis : axis + 1])
    grown: Dims = (*tensor.dims[:axis], len(places), *tensor.dims[axis + 1 :])
    if mode == "nearest":
        indices = ROUNDINGS[_rounding(op)](places).clip(0, extent - 1).astype(int)
        return op.emit("GATHER", [tensor, op.ints32(indices.tolist())], grown, axis=axis)
    matrix = _matrix(op, places, extent, scale, mode)
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
