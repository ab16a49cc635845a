"""Resizes and the exchange of space for depth that TensorFlow's converter leaves to the Flex delegate, `n h w c`."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.resize import (
    depth_to_space,
    resize_nearest_neighbor,
    resized,
    scaled,
    size_of,
    space_to_depth,
)
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.operators.tensorflow_pooling import MOST, planar
from relayout.formats.tflite.importing.registry import Translation, Unsupported, described, operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST

_F32 = ir.DataType.FLOAT

_STEPS = 1 << 10
"""TensorFlow takes cubic weights from a table: a place between two elements is one of so many."""


def _resize_options(op: Operation) -> None:
    given = attributes(op)
    names = ("align_corners", "half_pixel_centers")
    op.options = Table("Resize", 0, {name: bool(given.number(name)) for name in names})


@operator("CUSTOM FlexResizeBilinear")
def resize_bilinear(op: Operation) -> None:
    """Resize, linear; of integers, too, the result is real."""
    op.require_rank(0, 4)
    _resize_options(op)
    x = op.transpose(op.cast(op.stored(0), _F32), TO_FIRST)
    op.result(resized(op, x, mode="linear"), perm=TO_LAST)


@operator("CUSTOM FlexResizeNearestNeighbor")
def resize_nearest(op: Operation) -> None:
    """As RESIZE_NEAREST_NEIGHBOR."""
    if op.input(0).type in (TensorType.FLOAT64, TensorType.INT64):
        raise Unsupported(f"{op.input(0).type.name}, which ONNX Runtime does not resize")
    _resize_options(op)
    resize_nearest_neighbor(op)


@operator("CUSTOM FlexResizeBicubic")
def resize_bicubic(op: Operation) -> None:
    """Resize, cubic; of known extents, where TensorFlow rounds places to 1024ths, Gathers and weights.

    With half pixels its coefficient is -0.5, and what lies outside has no weight; else -0.75, and the edge is repeated.
    Of open extents places are not rounded. Beside a Transpose, ONNX Runtime shrinks nothing with a cubic Resize: it
    moves the Transpose through, and has no kernel for what that gives.
    """
    op.require_rank(0, 4)
    _resize_options(op)
    aligned, half = op.options.align_corners, op.options.half_pixel_centers
    x = op.cast(op.stored(0), _F32)
    known = [
        (extent, size)
        for extent, size in zip(dims(x)[1:3], size_of(op), strict=True)
        if isinstance(extent, int) and isinstance(size, int) and size <= MOST
    ]
    places = [_places(*pair, aligned, half) for pair in known]
    if len(known) == 2 and (any(map(_rounds, places)) or any(size < extent for extent, size in known)):
        for axis, found in enumerate(places, 1):
            x = _weighted(op, x, axis, found, half)
        op.result(x)
        return
    y = resized(
        op,
        op.transpose(x, TO_FIRST),
        mode="cubic",
        cubic_coeff_a=-0.5 if half else -0.75,
        exclude_outside=int(half),
    )
    op.result(y, perm=TO_LAST)


def _places(extent: int, size: int, aligned: bool, half: bool) -> npt.NDArray[np.float32]:
    """Where the elements of the result lie, as TensorFlow computes it in single precision."""
    if aligned and size > 1:
        scale = np.float32(extent - 1) / np.float32(size - 1)
    else:
        scale = np.float32(extent) / np.float32(size)
    at = np.arange(size, dtype=np.float32)
    found: npt.NDArray[np.float32] = (at + np.float32(0.5)) * scale - np.float32(0.5) if half else at * scale
    return found


def _rounds(places: npt.NDArray[np.float32]) -> bool:
    steps = (places - np.floor(places)) * _STEPS
    return bool(np.any(np.abs(steps - np.round(steps)) > 2**-8))


def _weighted(op: Operation, x: ir.Value, axis: int, places: npt.NDArray[np.float32], half: bool) -> ir.Value:
    """Four neighbours along an axis, each with its weight from the table."""
    extent = dims(x)[axis]
    if not isinstance(extent, int):
        raise ValueError("an unknown extent")
    first = np.floor(places).astype(np.int64)
    step = np.round((places - first.astype(np.float32)) * _STEPS) / _STEPS
    a = -0.5 if half else -0.75
    distances = np.abs(np.stack([step + 1, step, 1 - step, 2 - step]))
    inner, outer = (
        ((a + 2) * distances - (a + 3)) * distances**2 + 1,
        ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a,
    )
    indices, weights = first + np.array([[-1], [0], [1], [2]]), np.where(distances <= 1, inner, outer)
    inside = np.clip(indices, 0, extent - 1)
    if half:
        weights = np.where(inside == indices, weights, 0)
        weights /= weights.sum(0)
    shape = (*dims(x)[:axis], len(places), *dims(x)[axis + 1 :])
    behind = (1,) * (len(shape) - axis - 1)
    parts = []
    for index, weight in zip(inside, weights, strict=True):
        part = op.emit("Gather", [x, op.ints([int(i) for i in index], "places")], shape, axis=axis)
        by = op.builder.array(op.hint("weights"), weight.astype(np.float32).reshape(-1, *behind))
        parts.append(two(op, "Mul", part, by))
    return reduce(partial(two, op, "Add"), parts)


def _exchange(op_type: str, translate: Translation, down: bool) -> Translation:
    def exchanged(op: Operation) -> None:
        given = attributes(op)
        block = given.number("block_size")
        if not planar(given):
            op.options = Table(op_type, 0, {"block_size": block})
            translate(op)
            return
        op.require_rank(0, 4)
        x = op.stored(0)
        n, c, h, w = dims(x)
        shape = (n, scaled(c, block * block, not down, op), scaled(h, block, down, op), scaled(w, block, down, op))
        mode = None if down else "DCR"
        op.result(op.emit(op_type, [x], op.out_dims(shape), blocksize=block, mode=mode))

    return described(exchanged, op_type.lower(), f"{op_type}, of channels first, too.")


operator("CUSTOM FlexDepthToSpace")(_exchange("DepthToSpace", depth_to_space, down=False))
operator("CUSTOM FlexSpaceToDepth")(_exchange("SpaceToDepth", space_to_depth, down=True))
