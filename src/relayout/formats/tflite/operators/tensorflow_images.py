"""Operators of TensorFlow on images `n h w c` that are left to the Flex delegate: cubic resizes, patches, crops."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.builder import dims
from relayout.formats.tflite.enums import Padding
from relayout.formats.tflite.extents import product
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.elementwise import one, two
from relayout.formats.tflite.operators.resize import resized, size_of
from relayout.formats.tflite.operators.shape import scalar
from relayout.formats.tflite.operators.slicing import LAST, cut, joined, unsqueeze
from relayout.formats.tflite.operators.tensorflow import attributes
from relayout.formats.tflite.operators.tensorflow_pooling import padding, sides
from relayout.formats.tflite.operators.windows import bordered
from relayout.formats.tflite.registry import Unsupported, operator
from relayout.formats.tflite.window import TO_FIRST, TO_LAST, is_open, pads, slid

_F32, _INT64, _BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL

_STEPS = 1 << 10
"""TensorFlow takes cubic weights from a table: a place between two elements is one of so many."""


@operator("CUSTOM FlexResizeBicubic")
def resize_bicubic(op: Operation) -> None:
    """Resize, cubic; of known extents, where TensorFlow rounds places to 1024ths, Gathers and weights.

    With half pixels its coefficient is -0.5, and what lies outside has no weight; else -0.75, and the edge is repeated.
    Of open extents places are not rounded. Beside a Transpose, ONNX Runtime shrinks nothing with a cubic Resize: it
    moves the Transpose through, and has no kernel for what that gives.
    """
    op.require_rank(0, 4)
    given = attributes(op)
    aligned, half = given.number("align_corners"), given.number("half_pixel_centers")
    op.options = Table("ResizeBicubic", 0, {"align_corners": bool(aligned), "half_pixel_centers": bool(half)})
    x = op.cast(op.stored(0), _F32)
    known = [
        (extent, size)
        for extent, size in zip(dims(x)[1:3], size_of(op), strict=True)
        if isinstance(extent, int) and isinstance(size, int)
    ]
    places = [_places(*pair, bool(aligned), bool(half)) for pair in known]
    if len(known) == 2 and (any(map(_rounds, places)) or any(size < extent for extent, size in known)):
        for axis, found in enumerate(places, 1):
            x = _weighted(op, x, axis, found, bool(half))
        op.result(x)
        return
    y = resized(
        op,
        op.transpose(x, TO_FIRST),
        mode="cubic",
        cubic_coeff_a=-0.5 if half else -0.75,
        exclude_outside=half,
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


MOST_SLICES = 1 << 10
"""Rows and columns of a patch."""


@operator("CUSTOM FlexExtractImagePatches")
def extract_patches(op: Operation) -> None:
    """Reshape, Transpose, Reshape where patches do not overlap; else Slices along either axis, and their Concats."""
    op.require_rank(0, 4)
    given = attributes(op)
    window, strides, rates = (sides(op, given, name) for name in ("ksizes", "strides", "rates"))
    if sum(window) > MOST_SLICES:
        raise Unsupported("patches of many rows and columns")
    same, x = padding(op, given) == Padding.SAME, op.stored(0)
    if same and is_open(dims(x)[1:3], window, strides, rates):
        raise Unsupported("unknown dimensions, around which SAME puts a border")
    around = pads(dims(x)[1:3], window, strides, rates, same)
    x = bordered(op, x, [0, *around[:2], 0], [0, *around[2:], 0], op.number(0, x, "zero"))
    reaches = [(k - 1) * rate for k, rate in zip(window, rates, strict=True)]
    _, h, w, _ = dims(x)
    if any(isinstance(d, int) and d <= r for d, r in zip((h, w), reaches, strict=True)):
        raise ReadError(f"patches of {window} do not fit {[h, w]}", where=op.place)
    if window == strides and reaches == [k - 1 for k in window] and isinstance(h, int) and isinstance(w, int):
        op.result(_side_by_side(op, x, window, (h // window[0], w // window[1])))
        return
    for axis in (2, 1):  # columns first: of the elements of a patch, rows are outermost
        k, stride, rate, reach = (values[axis - 1] for values in (window, strides, rates, reaches))
        shape = list(dims(x))
        shape[axis] = slid(shape[axis], k, stride, rate, same=False)
        bounds = [([i * rate], [i * rate - reach or LAST], [axis], [stride]) for i in range(k)]
        names = ("starts", "ends", "axes", "steps")
        parts = [op.emit("Slice", [x, *map(op.ints, of, names)], tuple(shape)) for of in bounds]
        x = joined(op, parts, 3)
    op.result(x)


def _side_by_side(op: Operation, x: ir.Value, window: list[int], count: tuple[int, int]) -> ir.Value:
    """`n (h a) (w b) c -> n h w (a b c)`."""
    (a, b), (rows, columns), (n, _, _, c) = window, count, dims(x)
    x = cut(op, x, [0, 0], [rows * a, columns * b], [1, 2]) if dims(x)[1:3] != (rows * a, columns * b) else x
    x = op.reshape(x, (n, rows, a, columns, b, c))
    x = op.transpose(x, (0, 1, 3, 2, 4, 5), op.hint("transposed"))
    depth = c * a * b if isinstance(c, int) else None
    return op.reshape(x, (n, rows, columns, depth))


@operator("CUSTOM FlexCropAndResize")
def crop_and_resize(op: Operation) -> None:
    """Gather of the four neighbours (or the nearest) of each place in each box, from the rows of all images.

    A place outside of its image, if only by a fraction of a pixel, has the value that the attribute says.
    """
    op.require_rank(0, 4)
    given = attributes(op)
    method, size = given.text("method"), op.integers(3)
    if method not in ("bilinear", "nearest"):
        raise Unsupported(f"the method {method}")
    if len(size) != 2 or min(size) < 1 or dims(op.stored(1))[1:] != (4,):
        raise ReadError(f"crops of {size} and boxes of {list(dims(op.stored(1)))}", where=op.place)
    x, images = op.stored(0), unsqueeze(op, op.cast(op.stored(2), _INT64), [1, 2])
    n, height, width, c = dims(x)
    if not isinstance(c, int):
        raise Unsupported("unknown dimensions, of whose images rows are made")
    extents = [_extent(op, x, axis) for axis in (1, 2)]
    (y, inside), (x_, within) = (_in_boxes(op, axis, size[axis], extents[axis]) for axis in (0, 1))
    rows = op.emit("Reshape", [x, op.ints([-1, c], "rows")], (product((n, height, width)), c))

    def at(row: ir.Value, column: ir.Value) -> ir.Value:
        row, column = (op.cast(v, _INT64) for v in (row, column))
        index = two(op, "Add", two(op, "Mul", images, extents[0]), row)
        index = two(op, "Add", two(op, "Mul", index, extents[1]), column)
        return op.cast(op.emit("Gather", [rows, index], (*dims(index), c), axis=0), _F32)

    def between(low: ir.Value, high: ir.Value, share: ir.Value) -> ir.Value:
        return two(op, "Add", low, two(op, "Mul", two(op, "Sub", high, low), share))

    if method == "nearest":
        half = op.number(0.5, y, "half")
        found = at(*(one(op, "Floor", two(op, "Add", v, half)) for v in (y, x_)))
    else:
        (top, bottom, down), (left, right, along) = (_between(op, v) for v in (y, x_))
        upper, lower = (between(at(row, left), at(row, right), along) for row in (top, bottom))
        found = between(upper, lower, down)
    inside = unsqueeze(op, two(op, "And", inside, within), [3])
    outside = op.number(given.real("extrapolation_value"), found, "outside")
    op.result(op.emit("Where", [inside, found, outside], dims(found), _F32))


def _extent(op: Operation, x: ir.Value, axis: int) -> ir.Value:
    extent = dims(x)[axis]
    if isinstance(extent, int):
        return op.number(extent, op.ints([0]), "extent")
    return scalar(op, op.emit("Shape", [x], (1,), _INT64, start=axis, end=axis + 1))


def _in_boxes(op: Operation, axis: int, count: int, extent: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Places in each box along an axis, rows `b i 1` or columns `b 1 i`, and whether the image has them."""
    boxes = unsqueeze(op, op.stored(1), [2])
    low, high = (cut(op, boxes, [axis + 2 * end], [axis + 2 * end + 1], [1]) for end in (0, 1))
    last = op.cast(two(op, "Sub", extent, op.number(1, extent, "one")), _F32)
    if count > 1:
        step = two(op, "Mul", two(op, "Sub", high, low), last)
        step = two(op, "Div", step, op.number(count - 1, step, "steps"))
        numbers = np.arange(count, dtype=np.float32).reshape((-1, 1) if axis == 0 else (-1,))
        at = two(op, "Mul", op.builder.array(op.hint("numbers"), numbers), step)
        at = two(op, "Add", two(op, "Mul", low, last), at)
    else:
        at = two(op, "Mul", two(op, "Add", low, high), op.number(0.5, low, "half"))
        at = two(op, "Mul", at, last)
    zero = op.number(0, at, "zero")
    inside = two(op, "And", two(op, "GreaterOrEqual", at, zero, _BOOL), two(op, "LessOrEqual", at, last, _BOOL))
    return two(op, "Min", two(op, "Max", at, zero), last), inside


def _between(op: Operation, at: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The elements before and after a place, and the share of the latter."""
    low = one(op, "Floor", at)
    return low, one(op, "Ceil", at), unsqueeze(op, two(op, "Sub", at, low), [3])
