"""STRIDED_SLICE: one operator that cuts, indexes and inserts axes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.contents import contents
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.slicing import FIRST, LAST, cut, squeeze, unsqueeze
from relayout.formats.tflite.importing.registry import ANY_OPSET, Unsupported, operator
from relayout.light_dataclass import dataclass

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


@dataclass(frozen=True)
class _Position:
    """One position of the specification that speaks of an axis."""

    index: int
    axis: int
    open_begin: bool
    open_end: bool
    shrink: bool


def _positions(op: Operation, count: int, rank: int) -> tuple[list[_Position], list[int]]:
    """The positions that cut, and where new axes come in the result.

    Bit i of a mask speaks of position i of the specification, which is not axis i where an ellipsis or a new axis
    comes before it.
    """
    options = op.options

    def bit(mask: int, i: int) -> bool:
        return bool(mask >> i & 1)

    ellipses = [i for i in range(count) if bit(options.ellipsis_mask, i)]
    new = [i for i in range(count) if bit(options.new_axis_mask, i) and i not in ellipses]
    consumed = count - len(new) - len(ellipses)
    if len(ellipses) > 1 or consumed > rank:
        raise ReadError(f"{count} positions do not fit rank {rank}", where=op.place)
    found: list[_Position] = []
    inserted: list[int] = []
    axis = place = 0
    for i in range(count):
        if i in ellipses:
            axis, place = axis + rank - consumed, place + rank - consumed
        elif i in new:
            inserted.append(place)
            place += 1
        else:
            shrink = bit(options.shrink_axis_mask, i)
            found.append(_Position(i, axis, bit(options.begin_mask, i), bit(options.end_mask, i), shrink))
            place, axis = place + (not shrink), axis + 1
    return found, inserted


@operator("STRIDED_SLICE", options="StridedSliceOptions", texts=ANY_OPSET)
def strided_slice(op: Operation) -> None:
    """Slice, then Squeeze of the axes that are indexed, then Unsqueeze of new ones."""
    (x,), finish = op.carried(0)
    rank = len(dims(x))
    bounds = [_numbers(op, i) for i in (1, 2, 3)]
    counts = {len(b) if b is not None else dims(op.stored(i))[0] for i, b in enumerate(bounds, 1)}
    count = counts.pop()
    if counts or not isinstance(count, int):
        raise ReadError("begin, end and strides differ in length", where=op.place)
    positions, inserted = _positions(op, count, rank)
    begin, end, steps = bounds
    if steps is not None and 0 in steps:
        raise ReadError("a stride is 0", where=op.place)
    if op.options.offset and (begin is None or end is None):
        raise Unsupported("computed bounds with an offset")  # the interpreter crashes on them
    if not positions:
        y = x
    elif begin is None or end is None or steps is None or _is_offset_below_0(op, x, positions, begin):
        y = _computed(op, x, positions, steps)
    else:
        y = _constant(op, x, positions, begin, end, steps)
    squeezed = [p.axis for p in positions if p.shrink]
    y = squeeze(op, y, squeezed) if squeezed else y
    finish(unsqueeze(op, y, inserted) if inserted else y)


def _is_offset_below_0(op: Operation, x: ir.Value, positions: list[_Position], begin: list[int]) -> bool:
    """Tell whether an end is counted from a begin that is counted from the end of an unknown extent."""
    return op.options.offset and any(begin[p.index] < 0 and not isinstance(dims(x)[p.axis], int) for p in positions)


def _numbers(op: Operation, i: int) -> list[int] | None:
    """A bound as plain numbers, None where it is known only at run time."""
    if op.is_constant(i):
        return op.integers(i)
    known = contents(op.stored(i))
    fixed = [e for e in known or () if isinstance(e, int)]
    return fixed if known is not None and len(fixed) == len(known) else None


def _constant(
    op: Operation, x: ir.Value, positions: list[_Position], begin: list[int], end: list[int], steps: list[int]
) -> ir.Value:
    starts, ends = [], []
    for p in positions:
        low, high, step = begin[p.index], end[p.index], steps[p.index]
        if op.options.offset:
            extent = dims(x)[p.axis]
            low += extent if low < 0 and isinstance(extent, int) else 0
            high += low
        if p.shrink:
            high = LAST if low == -1 else low + 1
        else:
            low = (0 if step > 0 else LAST) if p.open_begin else low
            high = (LAST if step > 0 else FIRST) if p.open_end else high
        starts.append(low)
        ends.append(high)
    strides = [1 if p.shrink else steps[p.index] for p in positions]
    return cut(op, x, starts, ends, [p.axis for p in positions], strides)


def _computed(op: Operation, x: ir.Value, positions: list[_Position], steps: list[int] | None) -> ir.Value:
    """The same rules as nodes, on all positions at once."""
    many = len(positions)
    where = op.ints([p.index for p in positions], "positions")
    axes = [p.axis for p in positions]

    def bound(i: int) -> ir.Value:
        return op.emit("Gather", [op.cast(op.stored(i), _INT64), where], (many,), axis=0)

    if steps is None and any(p.open_begin or p.open_end for p in positions):
        raise Unsupported("computed strides with open ends, whose places depend on their signs")
    low, high = bound(1), bound(2)
    if op.options.offset:
        extents = op.emit("Shape", [x], (len(dims(x)),), _INT64)
        extents = op.emit("Gather", [extents, op.ints(axes)], (many,), axis=0)
        negative = two(op, "Less", low, op.number(0, low, "zero"), _BOOL)
        low = op.emit("Where", [negative, two(op, "Add", low, extents), low], (many,), _INT64)
        high = two(op, "Add", low, high)
    low, high = _open_ends(op, positions, steps, low, high)
    shrunk = [p.shrink for p in positions]
    if any(shrunk):
        last = two(op, "Equal", low, op.number(-1, low, "last"), _BOOL)
        after = two(op, "Add", low, op.number(1, low, "one"))
        after = op.emit("Where", [last, op.number(LAST, low, "end"), after], (many,), _INT64)
        high = _select(op, shrunk, after, high)
    stride = bound(3) if steps is None else op.ints([steps[p.index] for p in positions], "steps")
    stride = _select(op, shrunk, op.ints([1] * many, "ones"), stride)
    return op.emit("Slice", [x, low, high, op.ints(axes), stride], _result_dims(x, positions, steps))


def _open_ends(
    op: Operation, positions: list[_Position], steps: list[int] | None, low: ir.Value, high: ir.Value
) -> tuple[ir.Value, ir.Value]:
    forward = [steps is None or steps[p.index] > 0 for p in positions]
    begins = op.ints([0 if f else LAST for f in forward])
    low = _select(op, [p.open_begin and not p.shrink for p in positions], begins, low)
    ends = op.ints([LAST if f else FIRST for f in forward])
    return low, _select(op, [p.open_end for p in positions], ends, high)


def _select(op: Operation, mask: list[bool], yes: ir.Value, no: ir.Value) -> ir.Value:
    if not any(mask):
        return no
    flags = op.builder.array(op.hint("mask"), np.array(mask))
    return op.emit("Where", [flags, yes, no], (len(mask),), _INT64)


def _result_dims(x: ir.Value, positions: list[_Position], steps: list[int] | None) -> Dims:
    shape: list[Dim] = list(dims(x))
    for p in positions:
        whole = p.open_begin and p.open_end and steps is not None and abs(steps[p.index]) == 1
        shape[p.axis] = 1 if p.shrink else shape[p.axis] if whole else None
    return tuple(shape)
