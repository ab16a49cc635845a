"""TensorFlow's lists of tensors, which are left to the Flex delegate: here the tensors of their rows (see `lists`).

Extents of a row that nobody knows when a list is made are 0 until a row is written: `zeros[n 0]` becomes `zeros[n *e]`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.contents import element
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import cut, joined, unsqueeze
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.registry import operator

_INT64 = ir.DataType.INT64


@operator("CUSTOM FlexTensorListReserve")
def reserve(op: Operation) -> None:
    """Expand of a zero. Operands: what is known of a row's shape, how many rows."""
    rows, count = _number(op, 1)
    op.result_stored(_zeros(op, rows, count))


@operator("CUSTOM FlexEmptyTensorList")
def empty(op: Operation) -> None:
    """A tensor of no rows. Operands: what is known of a row's shape, the most rows, which nobody asks for."""
    op.result_stored(_zeros(op, op.ints([0], "rows"), 0))


@operator("CUSTOM FlexTensorListFromTensor")
def from_tensor(op: Operation) -> None:
    """The tensor itself, whose rows the list holds."""
    op.result_stored(op.stored(0))


@operator("CUSTOM FlexTensorListSetItem")
def set_item(op: Operation) -> None:
    """ScatterND of one row. Operands: list, index, row."""
    place, _ = _number(op, 1)
    longer = attributes(op).number("resize_if_index_out_of_bounds")
    rows = _widened(op, op.stored(0), op.stored(2), place if longer else None)
    updates = unsqueeze(op, op.stored(2), [0])
    op.result_stored(op.emit("ScatterND", [rows, op.emit("Unsqueeze", [place, op.ints([0])]), updates]))


@operator("CUSTOM FlexTensorListPushBack")
def push_back(op: Operation) -> None:
    """Concat with one more row. Operands: list, row."""
    rows = _widened(op, op.stored(0), op.stored(1))
    op.result_stored(joined(op, [rows, unsqueeze(op, op.stored(1), [0])], 0))


@operator("CUSTOM FlexTensorListPopBack")
def pop_back(op: Operation) -> None:
    """Slice of all rows but the last, and Gather of that. Operands: list, what is known of a row's shape."""
    rows = op.stored(0)
    op.result_stored(cut(op, rows, [0], [-1], [0]), 0)
    op.result_stored(op.emit("Gather", [rows, op.number(-1, op.ints([0]), "last")], axis=0), 1)


@operator("CUSTOM FlexTensorListGetItem")
def get_item(op: Operation) -> None:
    """Gather of one row. Operands: list, index, what is known of a row's shape."""
    op.result_stored(op.emit("Gather", [op.stored(0), scalar(op, op.stored(1))], axis=0))


@operator("CUSTOM FlexTensorListGather")
def gather(op: Operation) -> None:
    """Gather of rows. Operands: list, indices, what is known of a row's shape."""
    rows, indices = op.stored(0), op.stored(1)
    op.result_stored(op.emit("Gather", [rows, indices], axis=0))


@operator("CUSTOM FlexTensorListStack")
def stack(op: Operation) -> None:
    """The list's tensor. Operands: list, what is known of a row's shape."""
    op.result_stored(op.stored(0))


@operator("CUSTOM FlexTensorListLength")
def length(op: Operation) -> None:
    """Shape."""
    op.result_whole(op.reshape(op.emit("Shape", [op.stored(0)], start=0, end=1), ()))


@operator("CUSTOM FlexTensorListResize")
def resize(op: Operation) -> None:
    """Slice and Pad to so many rows. Operands: list, how many."""
    rows = op.stored(0)
    wanted, count = _number(op, 1)
    shape = (None, *dims(rows)[1:])
    first = op.emit("Slice", [rows, op.ints([0], "first"), wanted, op.ints([0])], shape)
    op.result_stored(padded(op, first, wanted, (count, *shape[1:])))


def _number(op: Operation, i: int) -> tuple[ir.Value, Dim]:
    """Operand i, one integer, as int64 in one dimension; and what is known of it."""
    value = op.stored(i)
    return op.reshape(op.cast(value, _INT64), (1,)), element(value)


def _zeros(op: Operation, rows: ir.Value, count: Dim) -> ir.Value:
    """A list of so many rows, each of which is 0."""
    dtype, extents = op.tensors.dtype(op.output()), op.tensors.declared(op.output())[1:]
    shape = op.ints([extent if isinstance(extent, int) else 0 for extent in extents], "row")
    if isinstance(count, int):
        rows = op.ints([count], "rows")
    whole = op.emit("Concat", [rows, shape], axis=0)
    zero = op.builder.array(op.hint("zero"), np.zeros((), dtype.numpy()))
    return op.emit("Expand", [zero, whole], op.out_dims((count, *extents)))


def _widened(
    op: Operation,  # the operator
    rows: ir.Value,  # the list
    row: ir.Value,
    place: ir.Value | None = None,  # an index that the list has to reach; None where it does
) -> ir.Value:
    """A list whose rows have a row's shape: those written before had it, or there were none."""
    shape: Dims = (dims(rows)[0] if place is None else None, *dims(row))
    if shape == dims(rows):
        return rows
    have = op.emit("Shape", [rows], start=0, end=1)
    if place is not None:
        have = op.emit("Max", [have, op.emit("Add", [place, op.ints([1], "one")])])
    return padded(op, rows, op.emit("Concat", [have, op.emit("Shape", [row])], axis=0), shape)


def padded(op: Operation, rows: ir.Value, wanted: ir.Value, shape: Dims) -> ir.Value:
    """A list with zeros behind its elements: `wanted` are extents of its first axes."""
    count = dims(wanted)[0]
    have = op.emit("Shape", [rows], start=0, end=count)
    zeros = op.ints([0] * int(count or 0), "zeros")
    pads = op.emit("Concat", [zeros, op.emit("Sub", [wanted, have])], axis=0)
    zero = op.number(0, rows, "zero")
    return op.emit("Pad", [rows, pads, zero, op.ints(range(int(count or 0)))], op.out_dims(shape))
