"""Sums, products and extremes of the rows that belong together."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.contents import element
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.slicing import LAST, unsqueeze
from relayout.formats.tflite.importing.registry import Translation, described, operator
from relayout.light_dataclass import dataclass

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


def _limits(dtype: ir.DataType) -> tuple[float, float]:
    if dtype.is_floating_point():
        limits = np.finfo(dtype.numpy())
        return float(limits.min), float(limits.max)
    bounds = np.iinfo(dtype.numpy())
    return int(bounds.min), int(bounds.max)


@dataclass(frozen=True)
class _Segments:
    """Which segment each row belongs to.

    Args:
        ids: the segment of each, int64.
        count: how many segments there are, an int64 vector of one element.
        known: the same, if it is known.
    """

    ids: ir.Value
    count: ir.Value
    known: Dim


def _scattered(op: Operation, x: ir.Value, into: _Segments, reduction: str, start: str) -> ir.Value:
    """One row for each segment, all of them `start` at first; `reduction` is how its rows are combined."""
    rank, all_ = len(dims(into.ids)), len(dims(x))
    low, high = _limits(x.dtype or ir.DataType.FLOAT)
    first = {"zero": 0.0, "one": 1.0, "lowest": low, "highest": high}[start]
    rest = dims(x)[rank:]
    # One row more takes what belongs to no segment; it is cut off again.
    rows = two(op, "Add", into.count, op.ints([1], "one"))
    if rest:
        extents = op.emit("Shape", [x], (len(rest),), _INT64, start=rank, end=all_)
        rows = op.emit("Concat", [rows, extents], (1 + len(rest),), axis=0)
    more = (into.known + 1 if isinstance(into.known, int) else None, *rest)
    data = op.emit("Expand", [op.number(first, x, "start"), rows], more)
    negative = two(op, "Less", into.ids, op.number(0, into.ids, "zero"), _BOOL)
    ids = op.emit("Where", [negative, into.count, into.ids], dims(into.ids), _INT64)
    y = op.emit("ScatterND", [data, unsqueeze(op, ids, [rank]), x], more, reduction=reduction)
    ends = [op.ints([0], "starts"), op.ints([-1], "ends"), op.ints([0], "axes")]
    return op.emit("Slice", [y, *ends], op.out_dims((into.known, *rest)))


def _unsorted(reduction: str, start: str) -> Translation:
    def translate(op: Operation) -> None:
        ids = op.cast(op.stored(1), _INT64)
        if op.is_constant(2):
            (known,) = op.integers(2, 1)
            into = _Segments(ids, op.ints([known], "count"), known)
        else:
            count = op.cast(op.emit("Reshape", [op.stored(2), op.ints([1], "shape")], (1,)), _INT64)
            into = _Segments(ids, count, element(op.stored(2)))
        op.result_stored(_scattered(op, op.stored(0), into, reduction, start))

    return described(
        translate, f"scatter_{reduction}", f"ScatterND, reduction {reduction}; a negative segment is dropped."
    )


for _name, _reduction, _start in (
    ("Max", "max", "lowest"),
    ("Min", "min", "highest"),
    ("Prod", "mul", "one"),
    ("Sum", "add", "zero"),
):
    _translation = _unsorted(_reduction, _start)
    operator(f"UNSORTED_SEGMENT_{_name.upper()}", f"CUSTOM FlexUnsortedSegment{_name}")(_translation)


def _sorted(op: Operation) -> _Segments:
    """Segments of which the last row's is the last one."""
    ids = op.cast(op.stored(1), _INT64)
    if op.is_constant(1):
        known = int(op.constant(1).max(initial=-1)) + 1
        return _Segments(ids, op.ints([known], "count"), known)
    bounds = [op.ints([-1], "starts"), op.ints([LAST], "ends"), op.ints([0], "axes")]
    last = op.emit("Slice", [ids, *bounds], (1,))
    return _Segments(ids, two(op, "Add", last, op.ints([1], "one")), op.tensors.symbol(op.output(), 0))


@operator("SEGMENT_SUM", "CUSTOM FlexSegmentSum")
def segment_sum(op: Operation) -> None:
    """ScatterND that adds; the last row's segment is the last one."""
    op.result_stored(_scattered(op, op.stored(0), _sorted(op), "add", "zero"))


@operator("CUSTOM FlexSegmentProd")
def segment_product(op: Operation) -> None:
    """ScatterND that multiplies; the last row's segment is the last one."""
    op.result_stored(_scattered(op, op.stored(0), _sorted(op), "mul", "one"))


def _rows_of(op: Operation, into: _Segments, y: ir.Value) -> ir.Value:
    """How many rows there are in each segment, with axes of 1 behind."""
    extents = op.emit("Shape", [into.ids], (len(dims(into.ids)),), _INT64)
    ones = op.emit("Expand", [op.number(1, y, "one"), extents], dims(into.ids))
    found = _scattered(op, ones, into, "add", "zero")
    return unsqueeze(op, found, range(1, len(dims(y)))) if len(dims(y)) > 1 else found


@operator("CUSTOM FlexSegmentMean")
def segment_mean(op: Operation) -> None:
    """ScatterND that adds, over how many rows there are; where there is none, 0."""
    into = _sorted(op)
    total = _scattered(op, op.stored(0), into, "add", "zero")
    count = _rows_of(op, into, total)
    op.result_stored(two(op, "Div", total, two(op, "Max", count, op.number(1, count, "least"))))


def _extreme(reduction: str, start: str) -> Translation:
    def translate(op: Operation) -> None:
        into = _sorted(op)
        y = _scattered(op, op.stored(0), into, reduction, start)
        zero = op.number(0, y, "zero")
        some = two(op, "Greater", _rows_of(op, into, y), zero, _BOOL)
        op.result_stored(op.emit("Where", [some, y, zero], dims(y), y.dtype))

    return described(
        translate, f"segment_{reduction}", f"ScatterND, reduction {reduction}; a segment without rows is 0."
    )


operator("CUSTOM FlexSegmentMax")(_extreme("max", "lowest"))
operator("CUSTOM FlexSegmentMin")(_extreme("min", "highest"))
