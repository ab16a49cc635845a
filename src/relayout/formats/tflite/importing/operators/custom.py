"""Custom operators: their options, those that are carried over as they are, and MediaPipe's.

Options of MediaPipe's are C structs as the runtime holds them: 32-bit integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.flexbuffer import FlexValue, parse
from relayout.formats.tflite.importing import activation
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.slicing import cut, joined
from relayout.formats.tflite.importing.program import NO_TRANSLATION
from relayout.formats.tflite.importing.registry import ANY_OPSET, Entry, Unsupported, operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST, pads, slid

_LARGEST = float(np.finfo(np.float32).max)


class Options:
    """The options of a custom operator: a FlexBuffer map."""

    def __init__(self, op: Operation) -> None:
        self.op = op
        option_map = parse(np.asarray(op.operator.custom_options).tobytes(), op.place)
        if not isinstance(option_map, dict):
            raise op.damaged(f"the options of {op.operator.name} are no map")
        self.fields = option_map

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number; a boolean counts as one."""
        value = self.fields.get(name, default)
        if not isinstance(value, int | float):
            raise self.op.damaged(f"{self.op.operator.name} lacks the option {name}")
        if not abs(value) <= _LARGEST:
            raise self.op.damaged(f"the option {name} is {value}")
        return float(value)

    def count(self, name: str, default: int | None = None, most: int = 1 << 31) -> int:
        """Return a whole number from 1 on."""
        value = self.number(name, default)
        if not (1 <= value <= most and value == int(value)):
            raise self.op.damaged(f"the option {name} is {value}")
        return int(value)


def carried_over(op: Operation) -> None:
    """Write the same operator in a domain of the user's choice, its options as attributes.

    1. Operands and results are what the file's tensors hold: integers where those are quantized.
    2. Each number, text, or list of numbers or texts in a FlexBuffer map becomes an attribute of its name.
    3. What is no such map becomes one attribute, `custom_options`, a tensor of its bytes.
    """
    name = op.operator.name.removeprefix("CUSTOM ")
    if (domain := op.program.choices.custom_ops.get(name)) is None:
        raise Unsupported(NO_TRANSLATION)
    op.program.domains.setdefault(domain, 1)
    results = [op.output(i) for i in range(len(op.operator.outputs))]
    outputs = [
        (op.hint("custom"), op.tensors.plain_dtype(tensor), op.out_dims(op.tensors.declared(tensor), i))
        for i, tensor in enumerate(results)
    ]
    inputs = [op.raw(i) if op.has(i) else None for i in range(len(op.operator.inputs))]
    values = op.builder.emit(name, inputs, outputs, source=op.source, domain=domain)
    node = values[0].producer()
    for attribute in ir.convenience.convert_attributes(_attributes(np.asarray(op.operator.custom_options).tobytes())):
        if node is not None:
            node.attributes.add(attribute)
    for i, value in enumerate(values):
        op.result_stored(value, i)


def _attributes(options: bytes) -> dict[str, Any]:
    if not options:
        return {}
    try:
        option_map = parse(options)
    except ReadError:
        option_map = None  # options of another kind: a struct, for one
    if not isinstance(option_map, dict):
        return {"custom_options": _bytes(options)}
    attributes = {name: _attribute(value) for name, value in option_map.items()}
    if "" in attributes or any(value is None for value in attributes.values()):
        return {"custom_options": _bytes(options)}
    return attributes


def _bytes(content: bytes) -> ir.TensorProtocol:
    return ir.Tensor(np.frombuffer(content, np.uint8))


def _attribute(value: FlexValue) -> Any:
    """Return what ONNX can hold: numbers, texts, and lists of them, all of one kind; None for anything else."""
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 63 else None
    if isinstance(value, float | str):
        return value
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, list) and value:
        if all(isinstance(v, int) and abs(v) < 1 << 63 for v in value):
            return [int(v) for v in value if isinstance(v, int)]
        if all(isinstance(v, int | float) for v in value):
            return [float(v) for v in value if isinstance(v, int | float)]
        if all(isinstance(v, str) for v in value):
            return value
    return None


CARRIED = Entry("CUSTOM", carried_over, "", texts=ANY_OPSET)
"""What an operator falls back to that has no translation of its own."""


# MediaPipe's custom operators that follow landmarks: a crop around some of them, and the way back from it.
#
# A transform is `m[1 4 4]`, row-major, as in homogeneous coordinates: a point (x, y) of the crop lies at
# (m00 x + m01 y + m03, m10 x + m11 y + m13) of the image. These are the second
# versions of the operators: the first have points of rank 4.

_MATRIX = (1, 4, 4)
_MOST_PIXELS = 1 << 14  # rows or columns of a crop


def _require_floats(op: Operation, *operands: int) -> None:
    if any(op.input(i).type != TensorType.FLOAT32 for i in operands or range(len(op.operator.inputs))):
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
        raise op.damaged(f"a transform of shape {list(dims(matrix))}, not {list(_MATRIX)}")
    return op.reshape(matrix, (16,))


def _column(op: Operation, matrix: ir.Value, column: int) -> ir.Value:
    """Return what a column of the transform adds to x and to y: `[2]`."""
    return op.emit("Gather", [matrix, op.ints([column, 4 + column], "column")])


def _moved(op: Operation, matrix: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return where the points (x, y), `[… 1]` each, lie: `[… 2]`."""
    along_x, along_y = (op.each("Mul", value, _column(op, matrix, i)) for i, value in enumerate((x, y)))
    return op.each("Add", op.each("Add", along_x, along_y), _column(op, matrix, 3))


@operator("CUSTOM TransformLandmarks")
def transform_landmarks(op: Operation) -> None:
    """`points[1 k q], m[1 4 4] -> [1 k q]`: sums of the transform's columns; a third coordinate stays."""
    _require_floats(op)
    points, _, axes = _points(op, 2, 3)
    x, y = (cut(op, points, [i], [i + 1], [2]) for i in range(2))
    moved_points = _moved(op, _matrix(op, 1), x, y)
    op.result(moved_points if axes == 2 else joined(op, [moved_points, cut(op, points, [2], [3], [2])], 2))


@operator("CUSTOM TransformTensorBilinear")
def transform_tensor_bilinear(op: Operation) -> None:
    """`image[1 h w c], m[1 4 4] -> [1 p q c]`: GridSample; zeros where the centre is beyond those of the image.

    The transform is of points whose pixels have their centres at halves.
    """
    _require_floats(op)
    op.require_rank(0, 4)
    options = Options(op)
    rows, columns = (options.count(f"output_{side}", most=_MOST_PIXELS) for side in ("height", "width"))
    image = op.real(0, TO_FIRST)
    batch, channels, height, width = dims(image)
    if batch != 1 or not isinstance(height, int) or not isinstance(width, int):
        raise Unsupported("an image that its kernel does not take")
    centres = (np.arange(columns).reshape(1, 1, -1, 1), np.arange(rows).reshape(1, -1, 1, 1))
    x, y = (op.array("centres", each.astype(np.float32) + np.float32(0.5)) for each in centres)
    moved = _moved(op, _matrix(op, 1), x, y)
    place = op.each("Sub", moved, op.number(0.5, moved, "half"))
    last, zero = np.array([width - 1, height - 1], np.float32), op.number(0, place, "zero")
    # How far each place is from the first and from the last row and column: inside, where none is below 0.
    after = op.each("Sub", op.array("last", last), place)
    around = joined(op, [place, after], 3)
    least = op.emit("ReduceMin", [around, op.ints([3])], keepdims=1)
    inside = op.reshape(op.each("LessOrEqual", zero, least), (1, 1, rows, columns))
    span = op.array("span", np.maximum(last, 1) / 2)
    grid = op.each("Sub", op.each("Div", place, span), op.number(1, place, "one"))
    sampled = op.emit(
        "GridSample",
        [image, grid],
        (1, channels, rows, columns),
        align_corners=1,
        mode="linear" if op.builder.opset >= 20 else "bilinear",
        padding_mode="border",
    )
    op.result(op.emit("Where", [inside, sampled, zero]), perm=TO_LAST)


@operator("CUSTOM Landmarks2TransformMatrix")
def landmarks_to_transform_matrix(op: Operation) -> None:
    """`points[1 k 3] -> m[1 4 4]`: the box around some points, turned until two of them lie level, as a crop.

    With r the angle that turns them (a target less their own), and c and s its cosine and sine:

    1. The box's extents and its middle are those of the points turned by r.
    2. m scales the crop to the box, turns it by -r, and brings its middle to that of the box.
    """
    _require_floats(op)
    options, (points, count, _) = Options(op), _points(op, 3)
    ends = [int(options.number(f"{side}_rotation_idx")) for side in ("left", "right")]
    listed = options.fields.get("subset_idxs")
    chosen = [i for i in listed if isinstance(i, int)] if isinstance(listed, list) else []
    if not chosen or chosen != listed or not all(0 <= i < count for i in (*ends, *chosen)):
        raise op.damaged(f"not each of its points is one of {count}")
    sizes = [options.count(f"output_{side}", most=_MOST_PIXELS) for side in ("width", "height")]
    scales = [options.number(f"scale_{axis}") / size for axis, size in zip("xy", sizes, strict=True)]

    plane = cut(op, points, [0], [2], [2])
    back, forth = _turns(op, plane, ends, options.number("target_rotation_radians", 0))
    some = op.emit("Gather", [plane, op.ints(chosen, "chosen")], axis=1)
    turned = op.emit("MatMul", [some, back])
    high, low = (op.emit(f"Reduce{which}", [turned, op.ints([1])], keepdims=1) for which in ("Max", "Min"))
    middle = op.each("Mul", op.each("Add", high, low), op.number(0.5, high, "half"))
    centre = op.emit("MatMul", [middle, forth])
    extents = op.array("scales", np.array(scales, np.float32))
    scaled = op.each("Mul", back, op.each("Mul", op.each("Sub", high, low), extents))
    corner = op.array("corner", -np.array(sizes, np.float32).reshape(1, 2, 1) / 2)
    shift = op.each("Add", op.reshape(centre, (1, 2, 1)), op.emit("MatMul", [scaled, corner]))
    level = op.array("level", np.zeros((1, 2, 1), np.float32))
    rest = op.array("rest", np.eye(4, dtype=np.float32)[None, 2:])
    op.result(joined(op, [joined(op, [scaled, level, shift], 2), rest], 1))


def _turns(op: Operation, plane: ir.Value, ends: list[int], target: float) -> list[ir.Value]:
    """`(c s; -s c)` and `(c -s; s c)`, `[1 2 2]`, of the angle from one end's way to the other to a target angle.

    No arc is needed: of the way's own angle the cosine and the sine are its coordinates, divided by its length.
    """
    first, last = (op.emit("Gather", [plane, op.ints([end], "end")], axis=1) for end in ends)
    way = op.each("Sub", last, first)
    squares = op.emit("ReduceSumSquare", [way, op.ints([2])], keepdims=1)
    none = op.each("Equal", squares, op.number(0, squares, "zero"))
    level = op.array("level", np.array([1, 0], np.float32))  # the kernel's arc of no way is 0
    unit = op.each("Div", way, op.each("Sqrt", squares))
    unit = op.emit("Where", [none, level, unit])
    # The cosine and the sine of target - own, as sums of the own cosine and sine.
    c, s = np.array([math.cos(target), math.sin(target)]), np.array([math.sin(target), -math.cos(target)])
    turns = (np.stack(turn, 1).astype(np.float32) for turn in ([c, s, -s, c], [c, -s, s, c]))
    weights = (op.array("turn", turn) for turn in turns)
    return [op.reshape(op.emit("MatMul", [unit, weight]), (1, 2, 2)) for weight in weights]


_INT64 = ir.DataType.INT64
_SAME, _VALID = 1, 2  # TfLitePadding; the schema counts otherwise

_MOST = 1 << 16  # rows or columns of a window, or between two windows


def _struct(op: Operation, count: int) -> list[int]:
    """Return the first integers of the options; the first is the padding, the others are extents."""
    data = np.asarray(op.operator.custom_options).tobytes()
    if len(data) < 4 * count:
        raise op.damaged(f"{op.operator.name} has {len(data)} bytes of options, not {4 * count}")
    numbers = [int(n) for n in np.frombuffer(data, "<i4", count)]
    if numbers[0] not in (_SAME, _VALID) or not all(1 <= n <= _MOST for n in numbers[1:5]):
        raise op.damaged(f"{op.operator.name} has the options {numbers}")
    return numbers


def _fixed(op: Operation, value: ir.Value, *axes: int) -> list[int]:
    return op.fixed([dims(value)[axis] for axis in axes], "a window over unknown dimensions")


@operator("CUSTOM MaxPoolingWithArgmax2D")
def max_pooling_with_argmax(op: Operation) -> None:
    """MaxPool; its indices, counted from the window's corner, as floats 0.1 above the whole number.

    ONNX counts `n c h w` flattened: modulo the plane that is row and column, from which each window's corner goes off.
    """
    padding, stride_x, stride_y, width, height, fused = _struct(op, 6)
    _require_floats(op, 0)
    op.require_rank(0, 4)
    x = op.real(0, TO_FIRST)
    rows, columns = _fixed(op, x, 2, 3)
    window, strides, same = [height, width], [stride_y, stride_x], padding == _SAME
    out = [slid(e, k, s, 1, same) for e, k, s in zip((rows, columns), window, strides, strict=True)]
    around = pads([rows, columns], window, strides, [1, 1], same)
    shape: Dims = (*dims(x)[:2], *out)
    y, flat = op.builder.emit(
        "MaxPool",
        [x],
        [(op.hint("maxpool"), ir.DataType.FLOAT, shape), (op.hint("flat"), _INT64, shape)],
        source=op.source,
        kernel_shape=window,
        strides=strides,
        pads=around,
    )
    column = op.each("Mod", flat, op.number(columns, flat, "columns"))
    row = op.each("Mod", op.each("Div", flat, op.number(columns, flat, "columns")), op.number(rows, flat, "rows"))
    tops, lefts = (
        np.arange(n) * stride - before
        for n, stride, before in zip((d for d in out if isinstance(d, int)), strides, around, strict=False)
    )
    row = op.each("Sub", row, op.array("tops", tops.astype(np.int64).reshape(-1, 1)))
    column = op.each("Sub", column, op.array("lefts", lefts.astype(np.int64)))
    place = op.each("Add", op.each("Mul", row, op.number(width, row, "width")), column)
    place = op.cast(place, ir.DataType.FLOAT)
    low, high = activation.clamp(fused)
    op.result(y if low == -high else activation.clip(op, y, low, high), 0, perm=TO_LAST)
    op.result(op.each("Add", place, op.number(0.1, place, "tenth")), 1, perm=TO_LAST)


@operator("CUSTOM MaxUnpooling2D")
def max_unpooling(op: Operation) -> None:
    """Each element where its index says in its window, zeros elsewhere: a comparison with every place of the window."""
    _, stride_x, stride_y, width, height = _struct(op, 5)
    _require_floats(op, 0, 1)
    op.require_rank(0, 4)
    if (stride_x, stride_y) != (width, height):
        raise Unsupported("windows that overlap or leave gaps")
    x, places = op.stored(0), op.cast(op.stored(1), _INT64)
    if dims(places) != dims(x):
        raise op.damaged(f"indices of shape {list(dims(places))} for {list(dims(x))}")
    spread = op.ints([2, 4], "axes")
    x, places = (op.emit("Unsqueeze", [value, spread]) for value in (x, places))
    each = np.arange(width * height).reshape(1, 1, height, 1, width, 1)
    here = op.emit("Equal", [places, op.array("places", each)])
    chosen = op.emit("Where", [here, x, op.number(0, x, "zero")])
    tall, wide, deep = _fixed(op, x, 1, 3, 5)
    op.result(op.reshape(chosen, (dims(x)[0], tall * height, wide * width, deep)))


@operator("CUSTOM Convolution2DTransposeBias")
def convolution_transpose_bias(op: Operation) -> None:
    """ConvTranspose; SAME takes away what reaches beyond the last stride, the larger half at the end."""
    padding, stride_x, stride_y = _struct(op, 3)
    _require_floats(op, 0, 1, 2)
    op.require_rank(0, 4)
    op.require_rank(1, 4)
    x, kernel = op.real(0, TO_FIRST), op.real(1, (3, 0, 1, 2))
    (units,), window, extents = _fixed(op, kernel, 1), _fixed(op, kernel, 2, 3), _fixed(op, x, 2, 3)
    strides = [stride_y, stride_x]
    excess = [
        max(k - (e - 1) % s - 1, 0) if padding == _SAME else 0 for e, k, s in zip(extents, window, strides, strict=True)
    ]
    out = [s * (e - 1) + k - over for e, k, s, over in zip(extents, window, strides, excess, strict=True)]
    y = op.emit(
        "ConvTranspose",
        [x, kernel, op.real(2)],
        (dims(x)[0], units, *out),
        kernel_shape=window,
        strides=strides,
        pads=[over // 2 for over in excess] + [over - over // 2 for over in excess],
    )
    op.result(y, perm=TO_LAST)
