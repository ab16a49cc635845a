"""Operators that exchange space for batch, or spread elements out."""

from __future__ import annotations

import math

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.builder import Dim, dims
from relayout.formats.tflite.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.operators.elementwise import two
from relayout.formats.tflite.operators.slicing import cut, pad_value
from relayout.formats.tflite.registry import Unsupported, operator


def _blocks(op: Operation, x: ir.Value) -> tuple[list[int], list[int], list[int], list[int]]:
    """The extents of x, the block, and what is added to or cut from each end of the blocked axes."""
    shape = [d for d in dims(x) if isinstance(d, int)]
    if len(shape) != len(dims(x)):
        raise Unsupported("unknown dimensions")
    block, ends = op.integers(1), op.integers(2)
    if len(block) >= len(shape) or len(ends) != 2 * len(block) or min(block, default=1) < 1 or min(ends, default=0) < 0:
        raise ReadError(f"blocks {block} and margins {ends} do not fit {shape}", where=op.place)
    return shape, block, ends[::2], ends[1::2]


@operator("SPACE_TO_BATCH_ND")
def space_to_batch(op: Operation) -> None:
    """Pad, then `n (h b1) (w b2) c -> (b1 b2 n) h w c`."""
    (x,), finish = op.carried(0, types=BYTES_ONLY)
    shape, block, begins, ends = _blocks(op, x)
    many, tail = len(block), len(shape) - len(block) - 1
    padded = [d + b + e for d, b, e in zip(shape[1:], begins + [0] * tail, ends + [0] * tail, strict=True)]
    if any(d % b for d, b in zip(padded, block, strict=False)):
        raise ReadError(f"{padded} is not divided by {block}", where=op.place)
    if any(begins + ends):
        amounts = [0, *begins, *[0] * tail, 0, *ends, *[0] * tail]
        x = op.emit("Pad", [x, op.ints(amounts, "pads"), pad_value(op, x)], (shape[0], *padded), mode="constant")
    split = [shape[0]]
    for extent, size in zip(padded, block, strict=False):
        split += [extent // size, size]
    x = op.reshape(x, [*split, *padded[many:]])
    perm = [*range(2, 2 * many + 1, 2), 0, *range(1, 2 * many, 2), *range(2 * many + 1, 2 * many + 1 + tail)]
    x = op.transpose(x, perm, op.hint("transposed"))
    rest = [extent // size for extent, size in zip(padded, block, strict=False)]
    finish(op.reshape(x, [shape[0] * math.prod(block), *rest, *padded[many:]]))


@operator("BATCH_TO_SPACE_ND")
def batch_to_space(op: Operation) -> None:
    """`(b1 b2 n) h w c -> n (h b1) (w b2) c`, then Slice."""
    (x,), finish = op.carried(0)
    shape, block, begins, ends = _blocks(op, x)
    many, rank = len(block), len(shape)
    if shape[0] % math.prod(block):
        raise ReadError(f"{shape[0]} is not divided by {block}", where=op.place)
    n = shape[0] // math.prod(block)
    x = op.reshape(x, [*block, n, *shape[1:]])
    perm = [many]
    for i in range(many):
        perm += [many + 1 + i, i]
    x = op.transpose(x, [*perm, *range(2 * many + 1, rank + many)], op.hint("transposed"))
    grown = [extent * size for extent, size in zip(shape[1:], block, strict=False)]
    x = op.reshape(x, [n, *grown, *shape[1 + many :]])
    if any(begins + ends):
        lasts = [extent - end for extent, end in zip(grown, ends, strict=True)]
        x = cut(op, x, begins, lasts, range(1, many + 1))
    finish(x)


@operator("DILATE", options="DilateOptions")
def dilate(op: Operation) -> None:
    """Pad behind every element, for each axis, and Slice what follows the last one."""
    x, shape, steps = op.real(0), list(dims(op.stored(0))), op.integers(1)
    if len(steps) != len(shape) or min(steps, default=1) < 1:
        raise ReadError(f"dilations {steps} do not fit {shape}", where=op.place)
    for axis, step in enumerate(steps):
        extent = shape[axis]
        if step == 1 or extent == 0:
            continue
        if not isinstance(extent, int):
            raise Unsupported("unknown dimensions")
        apart: list[Dim] = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
        amounts = [0] * len(apart)
        amounts[axis + 1] = step - 1
        x = op.reshape(x, apart)
        apart[axis + 1] = step
        x = op.emit("Pad", [x, op.ints([0] * len(apart) + amounts, "pads"), op.real(2)], tuple(apart), mode="constant")
        shape[axis] = extent * step
        x = cut(op, op.reshape(x, shape), [0], [(extent - 1) * step + 1], [axis])
        shape[axis] = (extent - 1) * step + 1
    op.result(x)


@operator("REVERSE_SEQUENCE", options="ReverseSequenceOptions")
def reverse_sequence(op: Operation) -> None:
    """ReverseSequence, which wants time and batch to be the first two axes."""
    time, batch = op.options.seq_dim, op.options.batch_dim
    if {time, batch} != {0, 1}:
        raise Unsupported("sequence and batch that are not the first two axes")
    (x,), finish = op.carried(0)
    lengths = op.cast(op.stored(1), ir.DataType.INT64)
    finish(op.emit("ReverseSequence", [x, lengths], dims(x), time_axis=time, batch_axis=batch))


@operator("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(op: Operation) -> None:
    """Where a padded mask is set, the padded update, else the operand. The start is moved so that the update fits."""
    (x, update), finish = op.carried(0, 1, types=BYTES_ONLY)
    whole, part = dims(x), dims(update)
    room = [a - b for a, b in zip(whole, part, strict=True) if isinstance(a, int) and isinstance(b, int)]
    if len(room) != len(whole):
        raise Unsupported("unknown dimensions")
    rank = len(whole)
    start = op.cast(op.stored(2), ir.DataType.INT64)
    start = two(op, "Min", two(op, "Max", start, op.number(0, start, "zero")), op.ints(room, "room"))
    after = two(op, "Sub", op.ints(room, "room"), start)
    pads = op.emit("Concat", [start, after], (2 * rank,), axis=0)
    extents = op.emit("Shape", [update], (rank,), ir.DataType.INT64)
    ones = op.emit("ConstantOfShape", [extents], part, ir.DataType.BOOL, value=ir.tensor([True]))
    mask = op.emit("Pad", [ones, pads], whole, mode="constant")
    moved = op.emit("Pad", [update, pads], whole, mode="constant")
    finish(op.emit("Where", [mask, moved, x], whole, x.dtype))
