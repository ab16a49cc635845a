"""MediaPipe's custom operators that follow landmarks: a crop around some of them, and the way back from it.

A transform is `m[1 4 4]`, row-major, as in homogeneous coordinates: a point (x, y) of the crop lies at
(m00 x + m01 y + m03, m10 x + m11 y + m13) of the image. These are the second
versions of the operators: the first have points of rank 4.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.custom import Options
from relayout.formats.tflite.importing.operators.elementwise import one, two
from relayout.formats.tflite.importing.operators.slicing import cut, joined
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST

_MATRIX = (1, 4, 4)
_MOST = 1 << 14
"""Rows or columns of a crop."""


def _floats(op: Operation) -> None:
    for i in range(len(op.operator.inputs)):
        if op.input(i).type != TensorType.FLOAT32:
            raise Unsupported("an element type that its kernel does not take")


def _points(op: Operation, *axes: int) -> tuple[ir.Value, int, int]:
    """`points[1 k q]`, k and q, which is one of `axes`."""
    points = op.real(0)
    batch, count, axis = dims(points) if len(dims(points)) == 3 else (None, None, None)
    if batch != 1 or not isinstance(count, int) or not isinstance(axis, int) or axis not in axes:
        raise Unsupported("points that its kernel does not take")
    return points, count, axis


def _matrix(op: Operation, i: int) -> ir.Value:
    matrix = op.real(i)
    if dims(matrix) != _MATRIX:
        raise ReadError(f"a transform of shape {list(dims(matrix))}, not {list(_MATRIX)}", where=op.place)
    return op.reshape(matrix, (16,))


def _column(op: Operation, matrix: ir.Value, column: int) -> ir.Value:
    """What a column of the transform adds to x and to y: `[2]`."""
    return op.emit("Gather", [matrix, op.ints([column, 4 + column], "column")], (2,))


def _moved(op: Operation, matrix: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """Where the points (x, y), `[… 1]` each, lie: `[… 2]`."""
    along_x, along_y = (two(op, "Mul", value, _column(op, matrix, i)) for i, value in enumerate((x, y)))
    return two(op, "Add", two(op, "Add", along_x, along_y), _column(op, matrix, 3))


@operator("CUSTOM TransformLandmarks")
def transform_landmarks(op: Operation) -> None:
    """`points[1 k q], m[1 4 4] -> [1 k q]`: sums of the transform's columns; a third coordinate stays."""
    _floats(op)
    points, _, axes = _points(op, 2, 3)
    x, y = (cut(op, points, [i], [i + 1], [2]) for i in range(2))
    found = _moved(op, _matrix(op, 1), x, y)
    op.result(found if axes == 2 else joined(op, [found, cut(op, points, [2], [3], [2])], 2))


@operator("CUSTOM TransformTensorBilinear")
def transform_tensor_bilinear(op: Operation) -> None:
    """`image[1 h w c], m[1 4 4] -> [1 p q c]`: GridSample; zeros where the centre is beyond those of the image.

    The transform is of points whose pixels have their centres at halves.
    """
    _floats(op)
    op.require_rank(0, 4)
    options = Options(op)
    rows, columns = (options.count(f"output_{side}", most=_MOST) for side in ("height", "width"))
    image = op.real(0, TO_FIRST)
    batch, channels, height, width = dims(image)
    if batch != 1 or not isinstance(height, int) or not isinstance(width, int):
        raise Unsupported("an image that its kernel does not take")
    centres = (np.arange(columns).reshape(1, 1, -1, 1), np.arange(rows).reshape(1, -1, 1, 1))
    x, y = (op.builder.array(op.hint("centres"), each.astype(np.float32) + np.float32(0.5)) for each in centres)
    moved = _moved(op, _matrix(op, 1), x, y)
    place = two(op, "Sub", moved, op.number(0.5, moved, "half"))
    last, zero = np.array([width - 1, height - 1], np.float32), op.number(0, place, "zero")
    # How far each place is from the first and from the last row and column: inside, where none is below 0.
    after = two(op, "Sub", op.builder.array(op.hint("last"), last), place)
    around = joined(op, [place, after], 3)
    least = op.emit("ReduceMin", [around, op.ints([3])], (1, rows, columns, 1), keepdims=1)
    inside = op.reshape(two(op, "LessOrEqual", zero, least, ir.DataType.BOOL), (1, 1, rows, columns))
    span = op.builder.array(op.hint("span"), np.maximum(last, 1) / 2)
    grid = two(op, "Sub", two(op, "Div", place, span), op.number(1, place, "one"))
    sampled = op.emit(
        "GridSample",
        [image, grid],
        (1, channels, rows, columns),
        align_corners=1,
        mode="linear" if op.builder.opset >= 20 else "bilinear",
        padding_mode="border",
    )
    op.result(op.emit("Where", [inside, sampled, zero], dims(sampled), ir.DataType.FLOAT), perm=TO_LAST)


@operator("CUSTOM Landmarks2TransformMatrix")
def landmarks_to_transform_matrix(op: Operation) -> None:
    """`points[1 k 3] -> m[1 4 4]`: the box around some points, turned until two of them lie level, as a crop.

    With r the angle that turns them (a target less their own), and c and s its cosine and sine:

    1. The box's extents and its middle are those of the points turned by r.
    2. m scales the crop to the box, turns it by -r, and brings its middle to that of the box.
    """
    _floats(op)
    options, (points, count, _) = Options(op), _points(op, 3)
    ends = [int(options.number(f"{side}_rotation_idx")) for side in ("left", "right")]
    listed = options.found.get("subset_idxs")
    chosen = [i for i in listed if isinstance(i, int)] if isinstance(listed, list) else []
    if not chosen or chosen != listed or not all(0 <= i < count for i in (*ends, *chosen)):
        raise ReadError(f"not each of its points is one of {count}", where=op.place)
    sizes = [options.count(f"output_{side}", most=_MOST) for side in ("width", "height")]
    scales = [options.number(f"scale_{axis}") / size for axis, size in zip("xy", sizes, strict=True)]

    plane = cut(op, points, [0], [2], [2])
    back, forth = _turns(op, plane, ends, options.number("target_rotation_radians", 0))
    some = op.emit("Gather", [plane, op.ints(chosen, "chosen")], (1, len(chosen), 2), axis=1)
    turned = op.emit("MatMul", [some, back], (1, len(chosen), 2))
    high, low = (op.emit(f"Reduce{which}", [turned, op.ints([1])], (1, 1, 2), keepdims=1) for which in ("Max", "Min"))
    middle = two(op, "Mul", two(op, "Add", high, low), op.number(0.5, high, "half"))
    centre = op.emit("MatMul", [middle, forth], (1, 1, 2))
    extents = op.builder.array(op.hint("scales"), np.array(scales, np.float32))
    scaled = two(op, "Mul", back, two(op, "Mul", two(op, "Sub", high, low), extents))
    corner = op.builder.array(op.hint("corner"), -np.array(sizes, np.float32).reshape(1, 2, 1) / 2)
    shift = two(op, "Add", op.reshape(centre, (1, 2, 1)), op.emit("MatMul", [scaled, corner], (1, 2, 1)))
    level = op.builder.array(op.hint("level"), np.zeros((1, 2, 1), np.float32))
    rest = op.builder.array(op.hint("rest"), np.eye(4, dtype=np.float32)[None, 2:])
    op.result(joined(op, [joined(op, [scaled, level, shift], 2), rest], 1))


def _turns(op: Operation, plane: ir.Value, ends: list[int], target: float) -> list[ir.Value]:
    """`(c s; -s c)` and `(c -s; s c)`, `[1 2 2]`, of the angle from one end's way to the other to a target angle.

    No arc is needed: of the way's own angle the cosine and the sine are its coordinates, divided by its length.
    """
    first, last = (op.emit("Gather", [plane, op.ints([end], "end")], (1, 1, 2), axis=1) for end in ends)
    way = two(op, "Sub", last, first)
    squares = op.emit("ReduceSumSquare", [way, op.ints([2])], (1, 1, 1), keepdims=1)
    none = two(op, "Equal", squares, op.number(0, squares, "zero"), ir.DataType.BOOL)
    level = op.builder.array(op.hint("level"), np.array([1, 0], np.float32))  # the kernel's arc of no way is 0
    unit = two(op, "Div", way, one(op, "Sqrt", squares))
    unit = op.emit("Where", [none, level, unit], (1, 1, 2), ir.DataType.FLOAT)
    # The cosine and the sine of target - own, as sums of the own cosine and sine.
    c, s = np.array([math.cos(target), math.sin(target)]), np.array([math.sin(target), -math.cos(target)])
    turns = (np.stack(turn, 1).astype(np.float32) for turn in ([c, s, -s, c], [c, -s, s, c]))
    weights = (op.builder.array(op.hint("turn"), turn) for turn in turns)
    return [op.reshape(op.emit("MatMul", [unit, weight], (1, 1, 4)), (1, 2, 2)) for weight in weights]
