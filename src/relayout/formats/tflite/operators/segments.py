"""Sums, products and extremes of the rows that belong together."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.builder import Dim, dims
from relayout.formats.tflite.contents import element
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.elementwise import two
from relayout.formats.tflite.operators.slicing import LAST, unsqueeze
from relayout.formats.tflite.registry import Translation, described, operator

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


def _limits(dtype: ir.DataType) -> tuple[float, float]:
    if dtype.is_floating_point():
        limits = np.finfo(dtype.numpy())
        return float(limits.min), float(limits.max)
    bounds = np.iinfo(dtype.numpy())
    return int(bounds.min), int(bounds.max)


def _scattered(op: Operation, reduction: str, start: str, count: ir.Value, known: Dim) -> None:
    """One row for each segment, all of them `start` at first.

    Args:
        op: the operator, whose operands 0 and 1 are the rows and the segment of each.
        reduction: how the rows of a segment are combined.
        start: what a segment without a row is.
        count: how many segments there are, an int64 vector of one element.
        known: the same, if it is known.
    """
    x, ids = op.stored(0), op.cast(op.stored(1), _INT64)
    rank, all_ = len(dims(ids)), len(dims(x))
    low, high = _limits(x.dtype or ir.DataType.FLOAT)
    first = {"zero": 0.0, "one": 1.0, "lowest": low, "highest": high}[start]
    rest = dims(x)[rank:]
    # One row more takes what belongs to no segment; it is cut off again.
    rows = two(op, "Add", count, op.ints([1], "one"))
    if rest:
        extents = op.emit("Shape", [x], (len(rest),), _INT64, start=rank, end=all_)
        rows = op.emit("Concat", [rows, extents], (1 + len(rest),), axis=0)
    more = (known + 1 if isinstance(known, int) else None, *rest)
    data = op.emit("Expand", [op.number(first, x, "start"), rows], more)
    negative = two(op, "Less", ids, op.number(0, ids, "zero"), _BOOL)
    ids = op.emit("Where", [negative, count, ids], dims(ids), _INT64)
    y = op.emit("ScatterND", [data, unsqueeze(op, ids, [rank]), x], more, reduction=reduction)
    ends = [op.ints([0], "starts"), op.ints([-1], "ends"), op.ints([0], "axes")]
    op.result_stored(op.emit("Slice", [y, *ends], op.out_dims((known, *rest))))


def _unsorted(reduction: str, start: str) -> Translation:
    def translate(op: Operation) -> None:
        if op.is_constant(2):
            (known,) = op.integers(2, 1)
            count = op.ints([known], "count")
            _scattered(op, reduction, start, count, known)
        else:
            count = op.cast(op.emit("Reshape", [op.stored(2), op.ints([1], "shape")], (1,)), _INT64)
            _scattered(op, reduction, start, count, element(op.stored(2)))

    return described(
        translate, f"scatter_{reduction}", f"ScatterND, reduction {reduction}; a negative segment is dropped."
    )


for _name, _reduction, _start in (
    ("UNSORTED_SEGMENT_MAX", "max", "lowest"),
    ("UNSORTED_SEGMENT_MIN", "min", "highest"),
    ("UNSORTED_SEGMENT_PROD", "mul", "one"),
    ("UNSORTED_SEGMENT_SUM", "add", "zero"),
):
    operator(_name)(_unsorted(_reduction, _start))


@operator("SEGMENT_SUM")
def segment_sum(op: Operation) -> None:
    """ScatterND that adds; the last row's segment is the last one."""
    if op.is_constant(1):
        ids = op.constant(1)
        known: Dim = int(ids.max(initial=-1)) + 1
        _scattered(op, "add", "zero", op.ints([int(ids.max(initial=-1)) + 1], "count"), known)
        return
    ids_ = op.cast(op.stored(1), _INT64)
    bounds = [op.ints([-1], "starts"), op.ints([LAST], "ends"), op.ints([0], "axes")]
    last = op.emit("Slice", [ids_, *bounds], (1,))
    count = two(op, "Add", last, op.ints([1], "one"))
    _scattered(op, "add", "zero", count, op.tensors.symbol(op.output(), 0))
