"""MediaPipe's custom operators. Their options are C structs as the runtime holds them: 32-bit integers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing import activation
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST, pads, slid

_INT64 = ir.DataType.INT64
_SAME, _VALID = 1, 2
"""TfLitePadding; the schema counts otherwise."""

_MOST = 1 << 16
"""Rows or columns of a window, or between two windows."""


def _struct(op: Operation, count: int) -> list[int]:
    """The first integers of the options; the first is the padding, the others are extents."""
    data = np.asarray(op.operator.custom_options).tobytes()
    if len(data) < 4 * count:
        raise ReadError(f"{op.operator.name} has {len(data)} bytes of options, not {4 * count}", where=op.place)
    numbers = [int(n) for n in np.frombuffer(data, "<i4", count)]
    if numbers[0] not in (_SAME, _VALID) or not all(1 <= n <= _MOST for n in numbers[1:5]):
        raise ReadError(f"{op.operator.name} has the options {numbers}", where=op.place)
    return numbers


def _floats(op: Operation, *operands: int) -> None:
    if any(op.input(i).type != TensorType.FLOAT32 for i in operands):
        raise Unsupported("an element type that its kernel does not take")


def _fixed(op: Operation, value: ir.Value, *axes: int) -> list[int]:
    found = [dim for axis in axes if isinstance(dim := dims(value)[axis], int)]
    if len(found) != len(axes):
        raise Unsupported("a window over unknown dimensions")
    return found


@operator("CUSTOM MaxPoolingWithArgmax2D")
def max_pooling_with_argmax(op: Operation) -> None:
    """MaxPool; its indices, counted from the window's corner, as floats 0.1 above the whole number.

    ONNX counts `n c h w` flattened: modulo the plane that is row and column, from which each window's corner goes off.
    """
    padding, stride_x, stride_y, width, height, fused = _struct(op, 6)
    _floats(op, 0)
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
    column = two(op, "Mod", flat, op.number(columns, flat, "columns"))
    row = two(op, "Mod", two(op, "Div", flat, op.number(columns, flat, "columns")), op.number(rows, flat, "rows"))
    tops, lefts = (
        np.arange(n) * stride - before
        for n, stride, before in zip((d for d in out if isinstance(d, int)), strides, around, strict=False)
    )
    row = two(op, "Sub", row, op.builder.array(op.hint("tops"), tops.astype(np.int64).reshape(-1, 1)))
    column = two(op, "Sub", column, op.builder.array(op.hint("lefts"), lefts.astype(np.int64)))
    place = two(op, "Add", two(op, "Mul", row, op.number(width, row, "width")), column)
    place = op.cast(place, ir.DataType.FLOAT)
    low, high = activation.clamp(fused)
    op.result(y if low == -high else activation.clip(op, y, low, high), 0, perm=TO_LAST)
    op.result(two(op, "Add", place, op.number(0.1, place, "tenth")), 1, perm=TO_LAST)


@operator("CUSTOM MaxUnpooling2D")
def max_unpooling(op: Operation) -> None:
    """Each element where its index says in its window, zeros elsewhere: a comparison with every place of the window."""
    _, stride_x, stride_y, width, height = _struct(op, 5)
    _floats(op, 0, 1)
    op.require_rank(0, 4)
    if (stride_x, stride_y) != (width, height):
        raise Unsupported("windows that overlap or leave gaps")
    x, places = op.stored(0), op.cast(op.stored(1), _INT64)
    n, rows, columns, channels = dims(x)
    if dims(places) != dims(x):
        raise ReadError(f"indices of shape {list(dims(places))} for {list(dims(x))}", where=op.place)
    spread = op.ints([2, 4], "axes")
    apart: Dims = (n, rows, 1, columns, 1, channels)
    x, places = (op.emit("Unsqueeze", [value, spread], apart) for value in (x, places))
    each = np.arange(width * height).reshape(1, 1, height, 1, width, 1)
    whole: Dims = (n, rows, height, columns, width, channels)
    here = op.emit("Equal", [places, op.builder.array(op.hint("places"), each)], whole, ir.DataType.BOOL)
    chosen = op.emit("Where", [here, x, op.number(0, x, "zero")], whole, ir.DataType.FLOAT)
    tall, wide, deep = _fixed(op, x, 1, 3, 5)
    op.result(op.reshape(chosen, (n, tall * height, wide * width, deep)))


@operator("CUSTOM Convolution2DTransposeBias")
def convolution_transpose_bias(op: Operation) -> None:
    """ConvTranspose; SAME takes away what reaches beyond the last stride, the larger half at the end."""
    padding, stride_x, stride_y = _struct(op, 3)
    _floats(op, 0, 1, 2)
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
