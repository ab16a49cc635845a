"""Operators that pick elements by index or by condition."""

from __future__ import annotations

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import result_extents, unsqueeze
from relayout.formats.tflite.importing.registry import ANY_OPSET, Unsupported, operator

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


@operator("GATHER", options="GatherOptions", texts=ANY_OPSET)
def gather(op: Operation) -> None:
    """Gather; with batch dimensions GatherND, the axis brought behind them."""
    (x,), finish = op.carried(0)
    indices = op.stored(1)
    if indices.dtype == ir.DataType.INT16:
        indices = op.cast(indices, ir.DataType.INT32)
    axis, batch = op.axis(op.options.axis, len(dims(x))), op.options.batch_dims
    if batch:
        batch = op.axis(batch, len(dims(indices)) + 1)
    if batch > axis:
        raise ReadError(f"{batch} batch dimensions before axis {axis}", where=op.place)
    if batch:
        each = op.cast(unsqueeze(op, indices, [len(dims(indices))]), _INT64)
        rank, picked, between = len(dims(x)), len(dims(indices)) - batch, axis - batch
        if between:
            x = op.transpose(x, [*range(batch), axis, *range(batch, axis), *range(axis + 1, rank)])
        y = op.emit("GatherND", [x, each], batch_dims=batch)
        if between:
            first = range(batch + picked, batch + picked + between)
            last = range(batch + picked + between, len(dims(y)))
            y = op.transpose(y, [*range(batch), *first, *range(batch, batch + picked), *last])
        finish(y)
    else:
        finish(op.emit("Gather", [x, indices], axis=axis))


@operator("GATHER_ND", texts=ANY_OPSET)
def gather_nd(op: Operation) -> None:
    """GatherND."""
    (x,), finish = op.carried(0)
    indices = op.cast(op.stored(1), _INT64)
    depth = dims(indices)[-1]
    if not isinstance(depth, int) or depth > len(dims(x)):
        raise ReadError(f"indices of {depth} into rank {len(dims(x))}", where=op.place)
    finish(op.emit("GatherND", [x, indices]))


@operator("SCATTER_ND")
def scatter_nd(op: Operation) -> None:
    """ScatterND that adds to zeros: updates of the same element sum up."""
    updates = op.raw(1)
    extents, shape = result_extents(op, 2)
    zeros = op.emit("Expand", [op.number(0, updates, "zero"), extents], shape)
    op.result_whole(op.emit("ScatterND", [zeros, op.cast(op.stored(0), _INT64), updates], reduction="add"))


def chosen(op: Operation, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """Where; of booleans, logic."""
    if a.dtype != _BOOL:
        return op.emit("Where", [condition, a, b])
    # ONNX Runtime has no Where of booleans.
    other = op.emit("Not", [condition])
    return op.each("Or", op.each("And", condition, a), op.each("And", other, b))


@operator("SELECT_V2")
def select_v2(op: Operation) -> None:
    """Where, broadcast from the right."""
    (a, b), finish = op.carried(1, 2, types=BYTES_ONLY)
    finish(chosen(op, op.stored(0), a, b))


@operator("SELECT")
def select(op: Operation) -> None:
    """Where; a condition of one dimension chooses among whole rows."""
    (a, b), finish = op.carried(1, 2, types=BYTES_ONLY)
    condition = op.stored(0)
    missing = len(dims(a)) - len(dims(condition))
    if len(dims(condition)) == 1 and missing > 0:
        condition = unsqueeze(op, condition, range(1, 1 + missing))
    finish(chosen(op, condition, a, b))


def counted(op: Operation, count: ir.Value, extent: Dim) -> ir.Value:
    """The integers from 0 up to a count, which is an int64 scalar."""
    zero, step = op.number(0, count, "start"), op.number(1, count, "step")
    return op.emit("Range", [zero, count, step], (extent,))


@operator("ONE_HOT", options="OneHotOptions")
def one_hot(op: Operation) -> None:
    """Where the index equals the position, `on`, else `off`: an index out of range is nowhere, as in TFLite."""
    indices = op.cast(op.stored(0), _INT64)
    rank = len(dims(indices))
    axis = op.axis(op.options.axis, rank + 1)
    (on, off), finish = op.carried(2, 3, types=BYTES_ONLY)
    extent = op.integers(1, 1)[0] if op.is_constant(1) else None
    extent_dim = op.out_dims((*dims(indices)[:axis], extent, *dims(indices)[axis:]))[axis]
    count = op.number(extent, indices, "depth") if extent is not None else scalar(op, op.cast(op.stored(1), _INT64))
    positions = counted(op, count, extent_dim)
    if axis < rank:
        positions = unsqueeze(op, positions, range(1, rank - axis + 1))
    finish(chosen(op, op.each("Equal", unsqueeze(op, indices, [axis]), positions), on, off))


def _diagonal(op: Operation, x: ir.Value, row: int, column: int) -> ir.Value:
    """Return where row equals column in a matrix as large as two axes of a value."""

    def positions(axis: int) -> ir.Value:
        extent = dims(x)[axis]
        if isinstance(extent, int):
            return counted(op, op.number(extent, op.ints([0], "zero"), "extent"), extent)
        return counted(op, scalar(op, op.emit("Shape", [x], start=axis, end=axis + 1)), extent)

    return op.each("Equal", unsqueeze(op, positions(row), [1]), positions(column))


_WITH_DIAGONALS = ("FLOAT32", "INT64", "INT32", "INT16", "INT8", "UINT8")


def _has_kernel(op: Operation) -> None:
    if op.input(0).type.name not in _WITH_DIAGONALS:
        raise Unsupported(f"{op.input(0).type.name}, for which the kernel writes nothing")


@operator("MATRIX_DIAG")
def matrix_diag(op: Operation) -> None:
    """Where row equals column, the operand, else 0."""
    _has_kernel(op)
    x = op.raw(0)
    last = len(dims(x)) - 1
    row = unsqueeze(op, x, [last])
    # The rest is the integer 0, whatever that means.
    op.result_whole(chosen(op, _diagonal(op, x, last, last), row, op.number(0, x, "zero")))


@operator("MATRIX_SET_DIAG")
def matrix_set_diag(op: Operation) -> None:
    """Where row equals column, operand 1, else operand 0."""
    _has_kernel(op)
    x, diagonal = op.raw(0), op.raw(1)
    *_, rows, columns = dims(x)
    mask = _diagonal(op, x, len(dims(x)) - 2, len(dims(x)) - 1)
    rank = len(dims(diagonal))
    # Spread along the longer side, so that the diagonal's length fits the shorter.
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Unsupported("a matrix of unknown size, which decides along which side its diagonal is spread")
    down = rows <= columns
    spread = unsqueeze(op, diagonal, [rank if down else rank - 1])
    op.result_whole(chosen(op, mask, spread, x))
