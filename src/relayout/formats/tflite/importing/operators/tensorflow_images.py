"""Operators of TensorFlow on images `n h w c` that are left to the Flex delegate: patches, windows, crops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.extents import product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import one, two
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import LAST, cut, joined, unsqueeze
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.operators.tensorflow_pooling import MOST, padding, sides
from relayout.formats.tflite.importing.operators.windows import bordered
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.window import is_open, pads, slid

_F32, _INT64, _BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL

MOST_SLICES, MOST_ELEMENTS = 1 << 10, 1 << 8
"""Rows and columns of a patch; elements of a window, each of which is a Slice."""


@operator("CUSTOM FlexExtractImagePatches")
def extract_patches(op: Operation) -> None:
    """Reshape, Transpose, Reshape where patches do not overlap; else Slices along either axis, and their Concats."""
    op.require_rank(0, 4)
    given = attributes(op)
    window, strides, rates = (sides(op, given, name) for name in ("ksizes", "strides", "rates"))
    if sum(window) > MOST_SLICES:
        raise Unsupported("patches of many rows and columns")
    x = surrounded(op, window, strides, rates, padding(op, given), 0)
    reaches = [(k - 1) * rate for k, rate in zip(window, rates, strict=True)]
    _, h, w, _ = dims(x)
    if window == strides and reaches == [k - 1 for k in window] and isinstance(h, int) and isinstance(w, int):
        op.result(_side_by_side(op, x, window, (h // window[0], w // window[1])))
        return
    for axis in (2, 1):  # columns first: of the elements of a patch, rows are outermost
        x = joined(op, slices(op, x, axis, window[axis - 1], strides[axis - 1], rates[axis - 1]), 3)
    op.result(x)


def surrounded(
    op: Operation, window: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: Padding, fill: float
) -> ir.Value:
    """Operand 0, `n h w c`, with the border that windows need."""
    x, same = op.stored(0), padding == Padding.SAME
    if same and is_open(dims(x)[1:3], window, strides, rates):
        raise Unsupported("unknown dimensions, around which SAME puts a border")
    around = pads(dims(x)[1:3], window, strides, rates, same)
    x = bordered(op, x, [0, *around[:2], 0], [0, *around[2:], 0], op.number(fill, x, "fill"))
    sides = zip(dims(x)[1:3], window, rates, strict=True)
    if any(isinstance(d, int) and d <= (k - 1) * rate for d, k, rate in sides):
        raise ReadError(f"windows of {list(window)} do not fit {list(dims(x))}", where=op.place)
    return x


def slices(op: Operation, x: ir.Value, axis: int, count: int, stride: int, rate: int) -> list[ir.Value]:
    """Along an axis, the first elements of all windows, the second ones, and so on."""
    shape, reach = list(dims(x)), (count - 1) * rate
    shape[axis] = slid(shape[axis], count, stride, rate, same=False)
    bounds = [([i * rate], [i * rate - reach or LAST], [axis], [stride]) for i in range(count)]
    names = ("starts", "ends", "axes", "steps")
    return [op.emit("Slice", [x, *map(op.ints, of, names)], tuple(shape)) for of in bounds]


@operator("CUSTOM FlexDilation2D")
def dilation(op: Operation) -> None:
    """Max of Slices, to each of which its element of the kernel is added; what lies outside does not count."""
    op.require_rank(0, 4)
    op.require_rank(1, 3)
    given, kernel = attributes(op), op.constant(1)
    (rows, columns, _), strides, rates = kernel.shape, *(sides(op, given, name) for name in ("strides", "rates"))
    if op.input(0).type not in (TensorType.FLOAT32, TensorType.FLOAT64):
        raise Unsupported(f"{op.input(0).type.name}, of which a border has no least number")
    if rows * columns > MOST_ELEMENTS:
        raise Unsupported("windows of many elements")
    least = float(np.finfo(kernel.dtype).min)
    x = surrounded(op, (rows, columns), strides, rates, padding(op, given), least)
    found: list[ir.Value] = []
    for i, strip in enumerate(slices(op, x, 1, rows, strides[0], rates[0])):
        for j, part in enumerate(slices(op, strip, 2, columns, strides[1], rates[1])):
            found.append(two(op, "Add", part, op.builder.array(op.hint("kernel"), kernel[i, j])))
    op.result(op.emit("Max", found, dims(found[0])))


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
    if len(size) != 2 or not all(1 <= k <= MOST for k in size) or dims(op.stored(1))[1:] != (4,):
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
