"""Operators that exchange space for batch or depth, resize, or spread elements out; borders; windows that slide."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.extents import contents, divided, shifted, times
from relayout.formats.tflite.importing.operation import BYTES_ONLY, MOVABLE, Operation
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import LAST, cut, pad_value
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST
from relayout.graph.domains import RESIZE

Part = tuple[Dim, "Callable[[], ir.Value]"]
"""A dimension of a shape to come, and what computes it where it is known only at run time: a vector of one."""


def _regrouped(op: Operation, x: ir.Value, parts: Sequence[Part]) -> ir.Value:
    """Return a Reshape, to a computed shape where several extents are known only at run time."""
    shape = tuple(dim for dim, _ in parts)
    if sum(not isinstance(dim, int) for dim in shape) < 2:
        return op.reshape(x, shape)
    vectors = [op.ints([dim], "extent") if isinstance(dim, int) else computed() for dim, computed in parts]
    return op.emit("Reshape", [x, op.emit("Concat", vectors, axis=0)], shape, allowzero=1)


class _Extents:
    """The extents of a value as parts of shapes: as they are, divided, multiplied."""

    def __init__(self, op: Operation, x: ir.Value) -> None:
        self.op, self.dims = op, dims(x)
        self._shape = cache(lambda: op.emit("Shape", [x]))

    def _vector(self, axis: int) -> ir.Value:
        return self.op.emit("Gather", [self._shape(), self.op.ints([axis], "axis")], (1,), axis=0)

    def same(self, axis: int) -> Part:
        return self.dims[axis], partial(self._vector, axis)

    def over(self, axis: int, by: int) -> Part:
        return divided(self.dims[axis], by), lambda: self.op.each("Div", self._vector(axis), self.op.ints([by], "by"))

    def times(self, axis: int, by: int) -> Part:
        return times(self.dims[axis], by), lambda: self.op.each("Mul", self._vector(axis), self.op.ints([by], "by"))


def _fixed(extent: int) -> Part:
    return extent, lambda: _never()


def _never() -> ir.Value:
    raise ValueError("a known extent is not computed")


def _blocks(op: Operation, x: ir.Value) -> tuple[list[int], list[int] | None, list[int] | None]:
    """Return the block, and what is added to or cut from each end of the blocked axes, None if it is computed."""
    rank = len(dims(x)) - 1
    if not op.is_constant(1):
        raise Unsupported("a block size that is computed, which decides how many axes there are in between")
    block, ends = op.integers(1), op.integers(2) if op.is_constant(2) else None
    if len(block) > rank or min(block, default=1) < 1:
        raise op.damaged(f"blocks {block} do not fit rank {rank + 1}")
    if ends is None:
        return block, None, None
    if len(ends) != 2 * len(block) or min(ends, default=0) < 0:
        raise op.damaged(f"blocks {block} and margins {ends} do not fit")
    return block, ends[::2], ends[1::2]


def _margins(op: Operation, many: int) -> tuple[ir.Value, ir.Value]:
    """Operand 2 as two vectors: before and behind each blocked axis."""
    pairs = op.cast(op.stored(2), ir.DataType.INT64)
    before, behind = (op.emit("Gather", [pairs, op.number(k, op.ints([k]), "side")], (many,), axis=1) for k in (0, 1))
    return before, behind


def _padded(op: Operation, x: ir.Value, begins: list[int] | None, ends: list[int] | None, many: int) -> ir.Value:
    rank = len(dims(x))
    tail = rank - 1 - many
    if begins is None or ends is None:
        none, rest = op.ints([0], "none"), [op.ints([0] * tail, "rest")] if tail else []
        before, behind = _margins(op, many)
        amounts = op.emit("Concat", [none, before, *rest, none, behind, *rest], (2 * rank,), axis=0)
        grown: list[Dim] = [dims(x)[0], *[None] * many, *dims(x)[1 + many :]]
    else:
        if not any(begins + ends):
            return x
        amounts = op.ints([0, *begins, *[0] * tail, 0, *ends, *[0] * tail], "pads")
        inner = [shifted(d, b + e) for d, b, e in zip(dims(x)[1:], begins, ends, strict=False)]
        grown = [dims(x)[0], *inner, *dims(x)[1 + many :]]
    return op.emit("Pad", [x, amounts, pad_value(op, x)], tuple(grown), mode="constant")


@operator("SPACE_TO_BATCH_ND")
def space_to_batch(op: Operation) -> None:
    """Pad, then `n (h b1) (w b2) c -> (b1 b2 n) h w c`."""
    (x,), finish = op.carried(0, types=BYTES_ONLY)
    block, begins, ends = _blocks(op, x)
    many, rank = len(block), len(dims(x))
    x = _padded(op, x, begins, ends, many)
    if any(isinstance(d, int) and d % b for d, b in zip(dims(x)[1:], block, strict=False)):
        raise op.damaged(f"{list(dims(x))} is not divided by {block}")
    extents = _Extents(op, x)
    tail = [extents.same(axis) for axis in range(1 + many, rank)]
    split = [extents.same(0)]
    for axis, size in enumerate(block, 1):
        split += [extents.over(axis, size), _fixed(size)]
    x = _regrouped(op, x, [*split, *tail])
    perm = [*range(2, 2 * many + 1, 2), 0, *range(1, 2 * many, 2), *range(2 * many + 1, rank + many)]
    x = op.transpose(x, perm, op.hint("transposed"))
    rest = [extents.over(axis, size) for axis, size in enumerate(block, 1)]
    finish(_regrouped(op, x, [extents.times(0, math.prod(block)), *rest, *tail]))


@operator("BATCH_TO_SPACE_ND")
def batch_to_space(op: Operation) -> None:
    """`(b1 b2 n) h w c -> n (h b1) (w b2) c`, then Slice."""
    (x,), finish = op.carried(0)
    block, begins, ends = _blocks(op, x)
    batch, many, rank = dims(x)[0], len(block), len(dims(x))
    if isinstance(batch, int) and batch % math.prod(block):
        raise op.damaged(f"{batch} is not divided by {block}")
    extents = _Extents(op, x)
    n, tail = extents.over(0, math.prod(block)), [extents.same(axis) for axis in range(1 + many, rank)]
    x = _regrouped(op, x, [*map(_fixed, block), n, *(extents.same(axis) for axis in range(1, 1 + many)), *tail])
    perm = [many]
    for i in range(many):
        perm += [many + 1 + i, i]
    x = op.transpose(x, [*perm, *range(2 * many + 1, rank + many)], op.hint("transposed"))
    x = _regrouped(op, x, [n, *(extents.times(axis, size) for axis, size in enumerate(block, 1)), *tail])
    finish(_cropped(op, x, begins, ends, many))


def _cropped(op: Operation, x: ir.Value, begins: list[int] | None, ends: list[int] | None, many: int) -> ir.Value:
    axes = range(1, many + 1)
    if begins is not None and ends is not None:
        lasts = [d - e if isinstance(d, int) else -e or LAST for d, e in zip(dims(x)[1:], ends, strict=False)]
        return cut(op, x, begins, lasts, axes) if any(begins + ends) else x
    before, behind = _margins(op, many)
    shape = op.emit("Shape", [x], start=1, end=1 + many)
    open_: list[Dim] = [dims(x)[0], *[None] * many, *dims(x)[1 + many :]]
    return op.emit("Slice", [x, before, op.each("Sub", shape, behind), op.ints(axes)], op.out_dims(open_))


@operator("REVERSE_SEQUENCE", options="ReverseSequenceOptions")
def reverse_sequence(op: Operation) -> None:
    """ReverseSequence; where time and batch are not the first two axes, between two Transposes."""
    (x,), finish = op.carried(0)
    rank = len(dims(x))
    time, batch = op.axis(op.options.seq_dim, rank), op.axis(op.options.batch_dim, rank)
    if time == batch:
        raise op.damaged(f"both the sequence and the batch are axis {time}")
    lengths, front = op.cast(op.stored(1), ir.DataType.INT64), {time, batch} != {0, 1}
    perm = [batch, time, *(axis for axis in range(rank) if axis not in (time, batch))]
    x = op.transpose(x, perm) if front else x
    time, batch = (1, 0) if front else (time, batch)
    y = op.emit("ReverseSequence", [x, lengths], time_axis=time, batch_axis=batch)
    finish(op.transpose(y, [perm.index(axis) for axis in range(rank)]) if front else y)


@operator("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(op: Operation) -> None:
    """A Where of the padded update and the operand by a padded mask. The start is moved so that the update fits."""
    (x, update), finish = op.carried(0, 1, types=BYTES_ONLY)
    finish(overwritten(op, x, update, op.cast(op.stored(2), ir.DataType.INT64)))


def overwritten(op: Operation, x: ir.Value, update: ir.Value, start: ir.Value) -> ir.Value:
    """Return a tensor with a part of it, from a computed start on, replaced."""
    whole, part = dims(x), dims(update)
    room = fitting(op, x, part, update)
    start = op.each("Min", op.each("Max", start, op.number(0, start, "zero")), room)
    pads = op.emit("Concat", [start, op.each("Sub", room, start)], axis=0)
    extents = op.emit("Shape", [update])
    ones = op.emit("ConstantOfShape", [extents], dtype=ir.DataType.BOOL, value=ir.tensor([True]))
    mask = op.emit("Pad", [ones, pads], whole, mode="constant")
    if update.dtype == ir.DataType.BOOL:  # ONNX Runtime has no Where of booleans
        unchanged = op.each("And", x, op.emit("Not", [mask]))
        return op.each("Or", unchanged, op.emit("Pad", [update, pads], whole, mode="constant"))
    return op.emit("Where", [mask, op.emit("Pad", [update, pads], whole, mode="constant"), x])


def fitting(op: Operation, x: ir.Value, part: Sequence[Dim], update: ir.Value | None = None) -> ir.Value:
    """Return the last start, along each axis, from which a part fits into a tensor."""
    whole = dims(x)
    if len(whole) != len(part):
        raise op.damaged(f"a part of rank {len(part)} of rank {len(whole)}")
    room = [a - b for a, b in zip(whole, part, strict=True) if isinstance(a, int) and isinstance(b, int)]
    if len(room) == len(whole):
        return op.ints(room, "room")
    extents = op.emit("Shape", [x])
    fixed = [b for b in part if isinstance(b, int)]
    if len(fixed) == len(part):
        return op.each("Sub", extents, op.ints(fixed, "part"))
    if update is None:
        raise Unsupported("a part of unknown size")
    return op.each("Sub", extents, op.emit("Shape", [update]))


REDUCERS = ("", "Add", "Mul", "Min", "Max", "And", "Or")  # what the numbers of `ReduceWindowFunction` stand for

_OF_BOOLEANS = {"Add": "Or", "Mul": "And", "Min": "And", "Max": "Or", "And": "And", "Or": "Or"}


def interleave(op: Operation, x: ir.Value, axis: int, step: int, value: ir.Value) -> ir.Value:
    """Every element along an axis `step` places from the next, a value between them: Pad behind each, then Slice."""
    shape = list(dims(x))
    if step == 1 or shape[axis] == 0:
        return x
    (extent,) = op.fixed(shape[axis : axis + 1], "unknown dimensions, between whose elements others come")
    split_shape: list[Dim] = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    amounts = [0] * len(split_shape)
    amounts[axis + 1] = step - 1
    x = op.reshape(x, split_shape)
    split_shape[axis + 1] = step
    x = op.emit("Pad", [x, op.ints([0] * len(split_shape) + amounts, "pads"), value], mode="constant")
    shape[axis] = extent * step
    return cut(op, op.reshape(x, shape), [0], [(extent - 1) * step + 1], [axis])


def bordered(op: Operation, x: ir.Value, lows: Sequence[int], highs: Sequence[int], value: ir.Value) -> ir.Value:
    """Return a border of a value; where an amount is negative, as much is cut off."""
    if any(low < 0 or high < 0 for low, high in zip(lows, highs, strict=True)):
        starts, ends = [max(-low, 0) for low in lows], [min(high, 0) or LAST for high in highs]
        x = cut(op, x, starts, ends, range(len(lows)))
    begins, ends = [max(low, 0) for low in lows], [max(high, 0) for high in highs]
    if not any(begins + ends):
        return x
    return op.emit("Pad", [x, op.ints(begins + ends, "pads"), value], mode="constant")


def reduce_windows(
    op: Operation,
    op_type: str,
    x: ir.Value,
    start: ir.Value,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> ir.Value:
    """Combine the elements of each window, one axis after the other, with a start value.

    Along an axis, windows of 2 n elements are two of n elements side by side: a window of k takes log k combinations.
    """
    rank = len(dims(x))
    if not len(window) == len(strides) == len(dilations) == rank or min([*window, *strides, *dilations], default=1) < 1:
        raise op.damaged(f"a window of {list(window)[:9]} does not fit rank {rank}")
    for axis, (size, stride, dilation) in enumerate(zip(window, strides, dilations, strict=True)):
        unknown = "unknown dimensions, of whose windows ONNX has to know how many there are"
        (extent,) = op.fixed(dims(x)[axis : axis + 1], unknown)
        count = extent - (size - 1) * dilation
        if count < 1:
            raise Unsupported("a window larger than its axis")
        covered, length, total = x, 1, None  # `covered` combines `length` elements from each place on
        done = 0
        while True:
            if size & length:
                part = _from(op, covered, axis, done * dilation, count)
                total = part if total is None else op.each(op_type, total, part)
                done += length
            if length * 2 > size:
                break
            places = dims(covered)[axis]
            remaining_places = (places if isinstance(places, int) else 0) - length * dilation
            first, second = (
                _from(op, covered, axis, 0, remaining_places),
                _from(op, covered, axis, length * dilation, remaining_places),
            )
            covered, length = op.each(op_type, first, second), length * 2
        x = total if total is not None else x
        if stride > 1:
            x = cut(op, x, [0], [LAST], [axis], [stride])
    return op.each(op_type, x, start)


def _from(op: Operation, x: ir.Value, axis: int, first: int, count: int) -> ir.Value:
    return x if (first, count) == (0, dims(x)[axis]) else cut(op, x, [first], [first + count], [axis])


@operator("REDUCE_WINDOW", options="ReduceWindowOptions")
def reduce_window(op: Operation) -> None:
    """Slices of the operand, combined; then combined with the start value. Scales do not count."""
    number = op.options.reduce_function
    if not 0 < number < len(REDUCERS):
        raise Unsupported(f"reduce function {number}")
    window, strides, dilations = (op.integers(i) for i in (2, 3, 4))
    x, start, op_type = op.whole(0), scalar(op, op.whole(1)), REDUCERS[number]
    if x.dtype == ir.DataType.BOOL:
        op_type = _OF_BOOLEANS[op_type]
    op.result_whole(reduce_windows(op, op_type, x, start, window, strides, dilations))


@operator("DILATE", options="DilateOptions")
def dilate(op: Operation) -> None:
    """Pad behind every element, for each axis, and Slice what follows the last one."""
    x, value, steps = op.raw(0), op.raw(2), op.integers(1)
    if len(steps) != len(dims(x)) or min(steps, default=1) < 1:
        raise op.damaged(f"dilations {steps} do not fit rank {len(dims(x))}")
    for axis, step in enumerate(steps):
        x = interleave(op, x, axis, step, value)
    op.result_whole(x)


# Resizes over `n h w c`, and the exchange of space for depth.


def resized(op: Operation, x: ir.Value, **attributes: Any) -> ir.Value:
    """Resize `n c h w` to the height and width in operand 1."""
    options = op.options
    coordinates = (
        "align_corners" if options.align_corners else "half_pixel" if options.half_pixel_centers else "asymmetric"
    )
    n, c, *spatial = dims(x)
    height, width = size_of(op)
    last = op.out_dims((n, height, width, c))
    scales, sizes = _target(op, x, (n, c), spatial, (height, width))
    return op.emit(
        RESIZE,
        [x, None, scales, sizes],
        (n, c, last[1], last[2]),
        coordinate_transformation_mode=coordinates,
        **attributes,
    )


def _target(
    op: Operation, x: ir.Value, outer: tuple[Dim, Dim], spatial: list[Dim], output_dims: tuple[Dim, Dim]
) -> tuple[ir.Value | None, ir.Value | None]:
    """Scales or sizes of all four axes: constants if possible, sizes rather than scales, which have to be rounded.

    The attribute `axes` would be shorter, but ONNX Runtime's transpose optimizer takes no notice of it.
    """
    known = [d for d in (*outer, *output_dims) if isinstance(d, int)]
    if len(known) == 4:
        return None, op.ints(known, "sizes")
    factors = [
        k for a, b in zip(spatial, output_dims, strict=True) for k in range(1, 17) if a is not None and times(a, k) == b
    ]
    if len(factors) == 2:
        return op.array("scales", np.array([1, 1, *factors], np.float32)), None
    pairs = [(a, b) for a, b in zip(spatial, output_dims, strict=True) if isinstance(a, int) and isinstance(b, int)]
    scales = np.array([1, 1, *(b / a if a else 0 for a, b in pairs)], np.float32)
    # Runtimes floor extent times scale, in single or double precision; where that is another size, scales are no use.
    if len(pairs) == 2 and all(
        int(np.float32(a) * s) == int(a * float(s)) == b for (a, b), s in zip(pairs, scales[2:], strict=True)
    ):
        return op.array("scales", scales), None
    front = op.emit("Shape", [x], start=0, end=2)
    back = op.ints(op.integers(1), "sizes") if op.is_constant(1) else op.cast(op.stored(1), ir.DataType.INT64)
    return None, op.emit("Concat", [front, back], axis=0)


def size_of(op: Operation) -> tuple[Dim, Dim]:
    """Return the height and width in operand 1, as far as they are known."""
    if not op.is_constant(1):
        known = contents(op.stored(1))
        return (known[0], known[1]) if known is not None and len(known) == 2 else (None, None)
    size = op.integers(1)
    if len(size) != 2 or min(size) <= 0:
        raise op.damaged(f"{size} is no height and width")
    return size[0], size[1]


@operator("RESIZE_BILINEAR", options="ResizeBilinearOptions")
def resize_bilinear(op: Operation) -> None:
    """Resize, linear; of 16 bits, and of integers without a scale, Gathers and integer weights."""
    op.require_rank(0, 4)
    tensor = op.input(0)
    if tensor.type in MOVABLE and (tensor.quantization is None or tensor.type == TensorType.INT16):
        # A float graph has real numbers, and those of another scale are the same integers.
        if op.tensors.dequantize:
            (x,), finish = op.carried(0, perm=TO_FIRST)
            finish(resized(op, x, mode="linear"))
        else:
            op.result_stored(_interpolated(op, op.stored(0)))
        return
    op.result_alike(resized(op, op.real(0, TO_FIRST), mode="linear"), TO_LAST)


_BITS = 10  # the kernel's coordinates are in 1024ths


def _interpolated(op: Operation, x: ir.Value) -> ir.Value:
    """Bilinear in integers: along each axis the two neighbours, weighted in 1024ths; halves away from zero."""
    unknown = "integers without a float kernel, resized from or to unknown dimensions"
    extents, sizes = op.fixed(dims(x)[1:3], unknown), op.fixed(size_of(op), unknown)
    narrow, x = x.dtype, op.cast(x, ir.DataType.INT64)
    for axis, (extent, size) in enumerate(zip(extents, sizes, strict=True), 1):
        low, high, above = _neighbours(extent, size, op)
        x = weighted(op, x, axis, [(low, (1 << _BITS) - above), (high, above)])
    # Not a Sign: that of ONNX Runtime looks at 32 bits.
    below = op.each("Less", x, op.number(0, x, "zero"))
    halves = [op.number(sign << 2 * _BITS - 1, x, "half") for sign in (-1, 1)]
    half = op.emit("Where", [below, *halves])
    y = op.each("Div", op.each("Add", x, half), op.number(1 << 2 * _BITS, x, "whole"))
    return op.cast(y, narrow or ir.DataType.INT16)


def weighted(
    op: Operation,
    x: ir.Value,
    axis: int,
    # of each neighbour, its place and its weight for each place of the result along the axis
    neighbours: Iterable[tuple[npt.NDArray[np.int64], npt.NDArray[Any]]],
) -> ir.Value:
    """Return the sum of neighbours along an axis, times their weights."""
    behind = (1,) * (len(dims(x)) - axis - 1)
    parts = []
    for places, weights in neighbours:
        part = op.emit("Gather", [x, op.ints(places.tolist(), "places")], axis=axis)
        parts.append(op.each("Mul", part, op.array("weights", weights.reshape(-1, *behind))))
    return reduce(partial(op.each, "Add"), parts)


def _neighbours(
    extent: int, size: int, op: Operation
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each place of the result: the place before, the place after, and the latter's weight."""
    one, options = 1 << _BITS, op.options
    if options.align_corners and size > 1:
        scale = (one * (extent - 1) + (size - 1) // 2) // (size - 1)
    else:
        scale = (one * extent + size // 2) // size
    at = np.arange(size, dtype=np.int64) * scale
    if options.half_pixel_centers:
        at += scale // 2 - one // 2
    low = np.maximum(np.trunc(at / one).astype(np.int64), 0)
    high = np.minimum(np.trunc((at + one - 1) / one).astype(np.int64), extent - 1)
    return low, high, at - low * one


@operator("RESIZE_NEAREST_NEIGHBOR", options="ResizeNearestNeighborOptions")
def resize_nearest_neighbor(op: Operation) -> None:
    """Resize, nearest: halves are rounded up, except that plain scaling rounds everything down."""
    op.require_rank(0, 4)
    plain = not op.options.align_corners and not op.options.half_pixel_centers
    (x,), finish = op.carried(0, types=BYTES_ONLY, perm=TO_FIRST)
    finish(resized(op, x, mode="nearest", nearest_mode="floor" if plain else "round_prefer_ceil"))


def scaled(dim: Dim, factor: int, down: bool, op: Operation) -> Dim:
    """Return an extent times a factor, or over it."""
    if factor <= 0 or (down and isinstance(dim, int) and dim % factor):
        raise op.damaged(f"{dim} is not divided by {factor}")
    return divided(dim, factor) if down else times(dim, factor)


_REGROUPED = (TensorType.INT32, TensorType.INT64)  # types that ONNX Runtime's kernels for space and depth do not take


@operator("DEPTH_TO_SPACE", options="DepthToSpaceOptions")
def depth_to_space(op: Operation) -> None:
    """DepthToSpace, `n h w (b1 b2 c) -> n (h b1) (w b2) c`."""
    _between_depth_and_space(op, "DepthToSpace", to_space=True, mode="DCR")


@operator("SPACE_TO_DEPTH", options="SpaceToDepthOptions")
def space_to_depth(op: Operation) -> None:
    """SpaceToDepth, `n (h b1) (w b2) c -> n h w (b1 b2 c)`."""
    _between_depth_and_space(op, "SpaceToDepth", to_space=False)


def _between_depth_and_space(op: Operation, name: str, *, to_space: bool, **attributes: Any) -> None:
    """Emit the operator of this name; for types that it does not take, the Transpose that it is."""
    op.require_rank(0, 4)
    block = op.options.block_size
    n, h, w, c = dims(op.stored(0))
    height, width = (scaled(extent, block, not to_space, op) for extent in (h, w))
    depth = scaled(c, block * block, to_space, op)
    last = op.out_dims((n, height, width, depth))
    if op.input(0).type in _REGROUPED:
        (x,), finish = op.carried(0)
        x = op.reshape(x, (n, h, w, block, block, depth) if to_space else (n, height, block, width, block, c))
        x = op.transpose(x, (0, 1, 3, 2, 4, 5), op.hint("transposed"))
        finish(op.reshape(x, (n, height, width, depth)))
        return
    (x,), finish = op.carried(0, types=BYTES_ONLY, perm=TO_FIRST)
    finish(op.emit(name, [x], (last[0], last[3], last[1], last[2]), blocksize=block, **attributes))
