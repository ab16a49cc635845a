"""Operators of TensorFlow on matrices that are left to the Flex delegate."""

from __future__ import annotations

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.extents import product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.complexes import multiplied
from relayout.formats.tflite.importing.operators.slicing import cut, joined, unsqueeze
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.operators.windows import bordered
from relayout.formats.tflite.importing.registry import Unsupported, of_complex, operator

MOST_DIAGONALS = 1 << 8


@of_complex("CUSTOM FlexBatchMatMulV2")
def adjoint_product(op: Operation) -> None:
    """What is transposed is conjugated, too."""
    given = attributes(op)
    multiplied(op, bool(given.number("adj_x")), bool(given.number("adj_y")))


@operator("CUSTOM FlexMatrixDiagPartV3")
def diagonal_part(op: Operation) -> None:
    """A Slice of the flattened matrix for each diagonal; of several Pad and Concat, the uppermost first."""
    numbers, x = op.integers(1, 2), op.stored(0)
    if len(dims(x)) < 2 or not numbers:
        raise ReadError(f"{op.operator.name} of rank {len(dims(x))}", where=op.place)
    low, high, (*outer, rows, columns) = numbers[0], numbers[-1], dims(x)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Unsupported("unknown dimensions of a matrix, which say where its diagonal lies")
    if not -rows < low <= high < columns:
        raise ReadError(f"diagonals {low} to {high} of {rows} rows and {columns} columns", where=op.place)
    if high - low >= MOST_DIAGONALS:
        raise Unsupported("many diagonals")
    last = len(outer)
    shape = (*outer, product((rows, columns)))
    flat = op.emit("Reshape", [x, op.ints([*[0] * last, rows * columns], "shape")], shape)
    places = range(high, low - 1, -1)
    lengths = [min(rows + min(d, 0), columns - max(d, 0)) for d in places]
    parts = []
    for d, length in zip(places, lengths, strict=True):
        first = max(d, 0) - min(d, 0) * columns
        end = first + (length - 1) * (columns + 1) + 1
        parts.append(cut(op, flat, [first], [end], [last], [columns + 1]))
    if len(numbers) == 1:
        op.result(parts[0])
        return
    above, _, below = attributes(op).text("align").partition("_")
    for i, (d, length) in enumerate(zip(places, lengths, strict=True)):
        at_front = (d >= 0 and above == "LEFT") or (d <= 0 and below == "LEFT")
        more, none = max(lengths) - length, [0] * last
        around = ([*none, 0], [*none, more]) if at_front else ([*none, more], [*none, 0])
        parts[i] = unsqueeze(op, bordered(op, parts[i], *around, op.stored(2)), [last])
    op.result(joined(op, parts, last))


@operator("CUSTOM FlexMatrixDeterminant")
def determinant(op: Operation) -> None:
    """Det."""
    if op.input(0).type != TensorType.FLOAT32:
        raise Unsupported(f"{op.input(0).type.name}, of which ONNX Runtime has no determinant")
    x = op.stored(0)
    op.result(op.emit("Det", [x], dims(x)[:-2], ir.DataType.FLOAT))
