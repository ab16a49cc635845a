"""Operators that exchange space for batch, or spread elements out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.builder import Dim, dims
from relayout.formats.tflite.extents import divided, times
from relayout.formats.tflite.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.operators.elementwise import two
from relayout.formats.tflite.operators.slicing import cut, pad_value
from relayout.formats.tflite.registry import Unsupported, operator


def _blocks(op: Operation, x: ir.Value) -> tuple[list[int], list[int], list[int], list[int]]:
    """The extents of x but the first, the block, and what is added to or cut from each end of the blocked axes."""
    shape = [d for d in dims(x)[1:] if isinstance(d, int)]
    if len(shape) != len(dims(x)) - 1:
        raise Unsupported("unknown dimensions")
    block, ends = op.integers(1), op.integers(2)
    if len(block) > len(shape) or len(ends) != 2 * len(block) or min(block, default=1) < 1 or min(ends, default=0) < 0:
        raise ReadError(f"blocks {block} and margins {ends} do not fit {shape}", where=op.place)
    return shape, block, ends[::2], ends[1::2]


@operator("SPACE_TO_BATCH_ND")
def space_to_batch(op: Operation) -> None:
    """Pad, then `n (h b1) (w b2) c -> (b1 b2 n) h w c`."""
    (x,), finish = op.carried(0, types=BYTES_ONLY)
    shape, block, begins, ends = _blocks(op, x)
    batch, many, tail = dims(x)[0], len(block), len(shape) - len(block)
    padded = [d + b + e for d, b, e in zip(shape, begins + [0] * tail, ends + [0] * tail, strict=True)]
    if any(d % b for d, b in zip(padded, block, strict=False)):
        raise ReadError(f"{padded} is not divided by {block}", where=op.place)
    if any(begins + ends):
        amounts = [0, *begins, *[0] * tail, 0, *ends, *[0] * tail]
        x = op.emit("Pad", [x, op.ints(amounts, "pads"), pad_value(op, x)], (batch, *padded), mode="constant")
    split: list[Dim] = [batch]
    for extent, size in zip(padded, block, strict=False):
        split += [extent // size, size]
    x = op.reshape(x, [*split, *padded[many:]])
    perm = [*range(2, 2 * many + 1, 2), 0, *range(1, 2 * many, 2), *range(2 * many + 1, 2 * many + 1 + tail)]
    x = op.transpose(x, perm, op.hint("transposed"))
    rest = [extent // size for extent, size in zip(padded, block, strict=False)]
    finish(op.reshape(x, [times(batch, math.prod(block)), *rest, *padded[many:]]))


@operator("BATCH_TO_SPACE_ND")
def batch_to_space(op: Operation) -> None:
    """`(b1 b2 n) h w c -> n (h b1) (w b2) c`, then Slice."""
    (x,), finish = op.carried(0)
    shape, block, begins, ends = _blocks(op, x)
    batch, many, rank = dims(x)[0], len(block), len(shape) + 1
    if isinstance(batch, int) and batch % math.prod(block):
        raise ReadError(f"{batch} is not divided by {block}", where=op.place)
    n = divided(batch, math.prod(block))
    x = op.reshape(x, [*block, n, *shape])
    perm = [many]
    for i in range(many):
        perm += [many + 1 + i, i]
    x = op.transpose(x, [*perm, *range(2 * many + 1, rank + many)], op.hint("transposed"))
    grown = [extent * size for extent, size in zip(shape, block, strict=False)]
    x = op.reshape(x, [n, *grown, *shape[many:]])
    if any(begins + ends):
        lasts = [extent - end for extent, end in zip(grown, ends, strict=True)]
        x = cut(op, x, begins, lasts, range(1, many + 1))
    finish(x)


@operator("REVERSE_SEQUENCE", options="ReverseSequenceOptions")
def reverse_sequence(op: Operation) -> None:
    """ReverseSequence; where time and batch are not the first two axes, between two Transposes."""
    (x,), finish = op.carried(0)
    rank = len(dims(x))
    time, batch = op.axis(op.options.seq_dim, rank), op.axis(op.options.batch_dim, rank)
    if time == batch:
        raise ReadError(f"both the sequence and the batch are axis {time}", where=op.place)
    lengths, front = op.cast(op.stored(1), ir.DataType.INT64), {time, batch} != {0, 1}
    perm = [batch, time, *(axis for axis in range(rank) if axis not in (time, batch))]
    x = op.transpose(x, perm) if front else x
    time, batch = (1, 0) if front else (time, batch)
    y = op.emit("ReverseSequence", [x, lengths], dims(x), time_axis=time, batch_axis=batch)
    finish(op.transpose(y, [perm.index(axis) for axis in range(rank)]) if front else y)


@operator("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(op: Operation) -> None:
    """Where a padded mask is set, the padded update, else the operand. The start is moved so that the update fits."""
    (x, update), finish = op.carried(0, 1, types=BYTES_ONLY)
    finish(overwritten(op, x, update, op.cast(op.stored(2), ir.DataType.INT64)))


def overwritten(op: Operation, x: ir.Value, update: ir.Value, start: ir.Value) -> ir.Value:
    """A tensor with a part of it, from a computed start on, replaced."""
    whole, part = dims(x), dims(update)
    rank = len(whole)
    room = fitting(op, x, part)
    start = two(op, "Min", two(op, "Max", start, op.number(0, start, "zero")), room)
    after = two(op, "Sub", room, start)
    pads = op.emit("Concat", [start, after], (2 * rank,), axis=0)
    extents = op.emit("Shape", [update], (rank,), ir.DataType.INT64)
    ones = op.emit("ConstantOfShape", [extents], part, ir.DataType.BOOL, value=ir.tensor([True]))
    mask = op.emit("Pad", [ones, pads], whole, mode="constant")
    if update.dtype == ir.DataType.BOOL:  # ONNX Runtime has no Where of booleans
        kept = two(op, "And", x, op.emit("Not", [mask], whole))
        return two(op, "Or", kept, op.emit("Pad", [update, pads], whole, mode="constant"))
    moved = op.emit("Pad", [update, pads], whole, mode="constant")
    return op.emit("Where", [mask, moved, x], whole, x.dtype)


def fitting(op: Operation, x: ir.Value, part: Sequence[Dim]) -> ir.Value:
    """The last start, along each axis, from which a part fits into a tensor."""
    whole = dims(x)
    if len(whole) != len(part):
        raise ReadError(f"a part of rank {len(part)} of rank {len(whole)}", where=op.place)
    room = [a - b for a, b in zip(whole, part, strict=True) if isinstance(a, int) and isinstance(b, int)]
    if len(room) == len(whole):
        return op.ints(room, "room")
    if not all(isinstance(b, int) for b in part):
        raise Unsupported("unknown dimensions")
    extents = op.emit("Shape", [x], (len(whole),), ir.DataType.INT64)
    return two(op, "Sub", extents, op.ints([b for b in part if isinstance(b, int)], "part"))
