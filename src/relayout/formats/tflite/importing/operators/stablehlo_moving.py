"""StableHLO operators that move, cut and join elements."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.operators.blocks import fitting, overwritten
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.gathering import counted
from relayout.formats.tflite.importing.operators.shape import regrouped, scalar
from relayout.formats.tflite.importing.operators.slicing import cut, joined
from relayout.formats.tflite.importing.operators.windows import bordered, interleave
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.layout import perm as perms

_INT64 = ir.DataType.INT64


def listed(values: Sequence[int], count: int, what: str, op: Operation) -> list[int]:
    """A list of options as Python integers; it has one for each dimension."""
    if len(values) != count:
        raise ReadError(f"{what} has {len(values)} numbers for {count} dimensions", where=op.place)
    return [int(v) for v in values]


def per_axis(op: Operation, option: str, count: int) -> list[int]:
    """An option with a number for each of some axes; ones where the file leaves it out."""
    given = getattr(op.options, option)
    return listed(given, count, option, op) if len(given) else [1] * count


def distinct_axes(values: Sequence[int], rank: int, op: Operation) -> list[int]:
    """Distinct axes, counted from the front."""
    axes = [op.axis(int(a), rank) for a in values[: rank + 1]]
    if len(set(axes)) != len(axes):
        raise ReadError(f"axes {axes} are not distinct", where=op.place)
    return axes


def fixed(op: Operation, shape: Sequence[Dim]) -> list[int]:
    """A shape all of whose extents are known."""
    known = [d for d in shape if isinstance(d, int)]
    if len(known) != len(shape):
        raise Unsupported("unknown dimensions, where StableHLO has none")
    return known


@operator("STABLEHLO_RESHAPE")
def reshape(op: Operation) -> None:
    """Reshape to the shape of the result."""
    (x,), finish = op.carried(0)
    target = [d if isinstance(d, int) else -1 for d in op.tensors.claimed(op.output())]
    finish(op.reshape(x, regrouped(dims(x), target, op)))


@operator("STABLEHLO_TRANSPOSE", options="StablehloTransposeOptions")
def transpose(op: Operation) -> None:
    """Transpose."""
    (x,), finish = op.carried(0)
    perm = distinct_axes(listed(op.options.permutation, len(dims(x)), "permutation", op), len(dims(x)), op)
    finish(op.emit("Transpose", [x], perms.permute(perm, dims(x)), perm=perm))


@operator("STABLEHLO_CONCATENATE", options="StablehloConcatenateOptions")
def concatenate(op: Operation) -> None:
    """Concat."""
    parts, finish = op.carried(*range(len(op.operator.inputs)))
    finish(joined(op, parts, op.axis(op.options.dimension, len(dims(parts[0])))))


@operator("STABLEHLO_SLICE", options="StablehloSliceOptions")
def slice_(op: Operation) -> None:
    """Slice."""
    (x,), finish = op.carried(0)
    rank, options = len(dims(x)), op.options
    starts, limits, strides = (
        listed(getattr(options, name), rank, name, op) for name in ("start_indices", "limit_indices", "strides")
    )
    if min([*starts, *limits], default=0) < 0 or min(strides, default=1) < 1:
        raise ReadError(f"a slice from {starts[:9]} to {limits[:9]} by {strides[:9]}", where=op.place)
    finish(cut(op, x, starts, limits, range(rank), strides))


def _start(op: Operation, first: int) -> ir.Value:
    """The scalars that say where a part begins, as one vector."""
    parts = [op.cast(scalar(op, op.stored(i)), _INT64) for i in range(first, len(op.operator.inputs))]
    return op.emit("Concat", [op.reshape(p, (1,)) for p in parts], (len(parts),), axis=0)


@operator("STABLEHLO_DYNAMIC_SLICE", options="StablehloDynamicSliceOptions")
def dynamic_slice(op: Operation) -> None:
    """Slice from computed places, which are moved so that the part fits."""
    (x,), finish = op.carried(0)
    rank = len(dims(x))
    sizes = listed(op.options.slice_sizes, rank, "slice_sizes", op)
    start = two(op, "Max", _start(op, 1), op.ints([0] * rank, "zeros"))
    start = two(op, "Min", start, fitting(op, x, sizes))
    finish(op.emit("Slice", [x, start, two(op, "Add", start, op.ints(sizes, "sizes"))], tuple(sizes)))


@operator("STABLEHLO_DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(op: Operation) -> None:
    """Where a padded mask is set, the padded update, else the operand."""
    (x, update), finish = op.carried(0, 1, types=BYTES_ONLY)
    finish(overwritten(op, x, update, _start(op, 2)))


@operator("STABLEHLO_PAD", options="StablehloPadOptions")
def pad(op: Operation) -> None:
    """Pad; between the elements too, or, where an amount is negative, a Slice."""
    (x, value), finish = op.carried(0, 1, types=BYTES_ONLY)
    rank, options, value = len(dims(x)), op.options, scalar(op, value)
    lows, highs, between = (
        listed(getattr(options, name), rank, name, op)
        for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    for axis, step in enumerate(between):
        x = interleave(op, x, axis, step + 1, value)
    finish(bordered(op, x, lows, highs, value))


@operator("STABLEHLO_IOTA", options="StablehloIotaOptions")
def iota(op: Operation) -> None:
    """Range along one axis, expanded to the others."""
    shape = fixed(op, op.tensors.claimed(op.output()))
    axis = op.axis(op.options.iota_dimension, len(shape))
    like = op.ints([0], "start")
    numbers = counted(op, op.number(shape[axis], like, "count"), shape[axis])
    column = op.reshape(numbers, [shape[axis], *[1] * (len(shape) - axis - 1)])
    y = op.emit("Expand", [column, op.ints(shape, "shape")], tuple(shape))
    op.result_stored(op.cast(y, op.tensors.plain_dtype(op.output())))


@operator("STABLEHLO_BROADCAST_IN_DIM", options="StablehloBroadcastInDimOptions")
def broadcast_in_dim(op: Operation) -> None:
    """Reshape that puts each axis in its place among ones, then Expand."""
    (x,), finish = op.carried(0)
    shape = fixed(op, op.tensors.claimed(op.output()))
    places = listed(op.options.broadcast_dimensions, len(dims(x)), "broadcast_dimensions", op)
    places = distinct_axes(places, len(shape), op)
    order = sorted(range(len(places)), key=places.__getitem__)
    if order != list(range(len(places))):
        x = op.transpose(x, order)
    apart: list[Dim] = [1] * len(shape)
    for i, place in enumerate(sorted(places)):
        apart[place] = dims(x)[i]
    finish(op.emit("Expand", [op.reshape(x, apart), op.ints(shape, "shape")], tuple(shape)))
