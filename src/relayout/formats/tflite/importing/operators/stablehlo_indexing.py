"""StableHLO's gather and scatter: windows of a tensor at computed places, read or written.

Both become their ONNX namesakes over single elements along the indexed axes. A window that reaches over several
elements of an indexed axis has an index for each of them: the start plus a constant grid.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.reduction import top_elements
from relayout.formats.tflite.importing.operators.resize import bordered, interleave, reduce_windows
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import cut, squeeze, unsqueeze
from relayout.formats.tflite.importing.operators.stablehlo import distinct_axes, fixed, listed, ordered, per_axis
from relayout.formats.tflite.importing.registry import Unsupported, operator

# StableHLO operators whose arithmetic is a subgraph: reductions and sorts.

_REDUCERS = {  # operators that a reducing subgraph may consist of, without STABLEHLO_ in front
    "ADD": "Add",
    "AND": "And",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "MUL": "Mul",
    "MULTIPLY": "Mul",
    "OR": "Or",
}

_WHOLE = {"Add": "ReduceSum", "Max": "ReduceMax", "Min": "ReduceMin", "Mul": "ReduceProd"}


def reducer(op: Operation, index: int) -> str:
    """Return the ONNX operator that a subgraph of two numbers is; "" where it yields its second operand as it is."""
    subgraph = op.program.subgraph(index, op.place)
    if len(subgraph.inputs) != 2 or len(subgraph.outputs) != 1:
        raise Unsupported("a reduction of several tensors")
    if not subgraph.operators and subgraph.outputs[0] == subgraph.inputs[1]:
        return ""
    names = [o.name.removeprefix("STABLEHLO_") for o in subgraph.operators]
    if len(names) != 1 or names[0] not in _REDUCERS:
        raise Unsupported(f"a reduction by {' '.join(names[:4]) or 'nothing'}")
    (only,) = subgraph.operators
    if sorted(only.inputs) != sorted(subgraph.inputs) or only.outputs != subgraph.outputs:
        raise Unsupported("a reduction that is no operator of both its operands")
    return _REDUCERS[names[0]]


@operator("STABLEHLO_REDUCE", options="StablehloReduceOptions")
def reduce(op: Operation) -> None:
    """ReduceSum, ReduceMax and so on, then the start value."""
    if len(op.operator.inputs) != 2:
        raise Unsupported("a reduction of several tensors")
    op_type, x, start = reducer(op, op.options.body_subgraph_index), op.real(0), scalar(op, op.real(1))
    axes = distinct_axes(op.options.dimensions, len(dims(x)), op)
    if not op_type:
        raise Unsupported("a reduction by nothing")
    if op_type in ("And", "Or"):
        bits = op.cast(x, ir.DataType.UINT8)
        whole = "ReduceMin" if op_type == "And" else "ReduceMax"
        y = op.cast(op.emit(whole, [bits, op.ints(axes)], keepdims=0, noop_with_empty_axes=1), ir.DataType.BOOL)
    else:
        y = op.emit(_WHOLE[op_type], [x, op.ints(axes)], keepdims=0, noop_with_empty_axes=1)
    op.result(op.each(op_type, y, start))


@operator("STABLEHLO_REDUCE_WINDOW", options="StablehloReduceWindowOptions")
def reduce_window(op: Operation) -> None:
    """Slices of the operand, with the start value around and between its elements, combined."""
    if len(op.operator.inputs) != 2:
        raise Unsupported("a reduction of several tensors")
    options, x, start = op.options, op.real(0), scalar(op, op.real(1))
    rank, op_type = len(dims(x)), reducer(op, op.options.body_subgraph_index)

    flat = [int(v) for v in options.padding[: 2 * rank + 1]] or [0] * 2 * rank
    if len(flat) != 2 * rank or not op_type:
        raise op.damaged(f"paddings {flat[:9]} do not fit rank {rank}")
    if x.dtype == ir.DataType.BOOL:
        raise Unsupported("windows of booleans")
    for axis, step in enumerate(per_axis(op, "base_dilations", rank)):
        x = interleave(op, x, axis, step, start)
    x = bordered(op, x, flat[::2], flat[1::2], start)
    sizes = ("window_dimensions", "window_strides", "window_dilations")
    window, strides, dilations = (per_axis(op, name, rank) for name in sizes)
    op.result(reduce_windows(op, op_type, x, start, window, strides, dilations))


@operator("STABLEHLO_SORT", options="StablehloSortOptions")
def sort(op: Operation) -> None:
    """TopK of all elements, which leaves equal ones in order; further operands follow by GatherElements."""
    options, count = op.options, len(op.operator.inputs)
    is_descending = _is_descending(op, options.comparator_subgraph_index)
    keys = op.real(0)
    axis = op.axis(options.dimension, len(dims(keys)))
    extent = fixed(op, dims(keys)[axis : axis + 1])[0]
    names, k = ("sorted", "order"), op.ints([extent], "k")
    values, order = top_elements(op, keys, k, dims(keys), names, axis=axis, largest=int(is_descending), sorted=1)
    op.result(values)
    for i in range(1, count):
        op.result(op.emit("GatherElements", [op.real(i), order], axis=axis), i)


def _is_descending(op: Operation, index: int) -> bool:
    """Tell whether a comparator asks for the larger first: it compares its first two operands, and nothing else."""
    subgraph = op.program.subgraph(index, op.place)
    if len(subgraph.operators) != 1 or len(subgraph.inputs) != 2 * len(op.operator.inputs):
        raise Unsupported("a comparator of several operators")
    (only,) = subgraph.operators
    direct = only.inputs == subgraph.inputs[:2]
    if not direct and only.inputs != subgraph.inputs[1::-1]:
        raise Unsupported("a comparator of other operands")
    if only.name == "STABLEHLO_COMPARE" and options_of(only).comparison_direction in (3, 5):
        greater = options_of(only).comparison_direction == 3
    elif only.name in ("GREATER", "LESS"):
        greater = only.name == "GREATER"
    else:
        raise Unsupported(f"a comparator {only.name}")
    return bool(greater == direct)


MAX_GRID = 1 << 16  # elements of a window for which indices are written out

_INT64 = ir.DataType.INT64


class _Starts(NamedTuple):
    """The starts of windows: `value` has their coordinates last, one for each of `axes` of the operand."""

    value: ir.Value
    axes: list[int]

    def only(self, op: Operation, keep: Sequence[int]) -> "_Starts":
        """Without the coordinates of other axes."""
        if list(keep) == self.axes:
            return self
        picked = op.ints([self.axes.index(axis) for axis in keep], "kept")
        rows = dims(self.value)[:-1]
        return _Starts(op.emit("Gather", [self.value, picked], axis=len(rows)), list(keep))


def _starts(op: Operation, i: int, vector: int, axes: Sequence[int], rank: int) -> _Starts:
    indices = op.cast(op.stored(i), _INT64)
    many = len(dims(indices))
    if vector == many:
        raise Unsupported("indices without an axis for their coordinates")  # the interpreter crashes on them
    if vector != many - 1:
        vector = op.axis(vector, many)
        indices = op.transpose(indices, [*(a for a in range(many) if a != vector), vector])
    named = distinct_axes(axes, rank, op)
    if dims(indices)[-1] != len(named):
        raise op.damaged(f"{dims(indices)[-1]} coordinates for {len(named)} axes")
    return _Starts(indices, named)


def _gridded(op: Operation, starts: _Starts, window: Sequence[int]) -> ir.Value:
    """Indices `batch (window) coordinates`: every start plus every place in the window."""
    many, rows = len(window), len(dims(starts.value)) - 1
    if all(size == 1 for size in window):
        return unsqueeze(op, starts.value, range(rows, rows + many))
    if math.prod(window) * many > MAX_GRID:
        raise Unsupported(f"windows of {math.prod(window)} elements")
    grid = op.array("grid", np.moveaxis(np.indices(window, np.int64), 0, -1))
    return op.each("Add", unsqueeze(op, starts.value, range(rows, rows + many)), grid)


@operator("STABLEHLO_GATHER", options="StablehloGatherOptions")
def gather(op: Operation) -> None:
    """GatherND. A start is moved so that its window fits."""
    options, (x,), finish = op.options, *op.carried(0)
    rank = len(dims(x))
    extents, sizes = fixed(op, dims(x)), listed(options.slice_sizes, rank, "slice_sizes", op)
    if any(not 0 <= s <= e for s, e in zip(sizes, extents, strict=True)):
        raise op.damaged(f"slices of {sizes} from {extents}")
    starts = _starts(op, 1, options.index_vector_dim, options.start_index_map, rank)
    # Along an axis that is taken whole every start is moved to 0.
    starts = starts.only(op, [a for a in starts.axes if sizes[a] < extents[a]])
    others = [axis for axis in range(rank) if axis not in starts.axes]
    short = [axis for axis in others if sizes[axis] < extents[axis]]
    if short:
        x = cut(op, x, [0] * len(short), [sizes[axis] for axis in short], short)
    order = [*starts.axes, *others]
    y = _windows(op, x, starts, order, sizes, extents)
    rows = len(dims(starts.value)) - 1
    collapsed = distinct_axes(options.collapsed_slice_dims, rank, op)
    if any(sizes[a] != 1 for a in collapsed):
        raise op.damaged(f"axes {collapsed} of slices {sizes} are not 1")
    if collapsed:
        y = squeeze(op, y, [rows + order.index(a) for a in collapsed])
    kept_axes = [axis for axis in order if axis not in collapsed]
    offsets = distinct_axes(options.offset_dims, len(dims(y)), op)
    if len(offsets) != len(kept_axes):
        raise op.damaged(f"{len(offsets)} offsets for {len(kept_axes)} axes")
    finish(_arranged(op, y, rows, kept_axes, offsets))


def _arranged(op: Operation, y: ir.Value, rows: int, kept_axes: list[int], offsets: list[int]) -> ir.Value:
    """From `batch window` to the result's order: the window's axes, in the operand's order, at the offsets."""
    perm = [-1] * len(dims(y))
    for axis, place in zip(sorted(kept_axes), sorted(offsets), strict=True):
        perm[place] = rows + kept_axes.index(axis)
    batch_axes = iter(range(rows))
    return ordered(op, y, [next(batch_axes) if p < 0 else p for p in perm])


def _windows(
    op: Operation, x: ir.Value, starts: _Starts, order: list[int], sizes: list[int], extents: list[int]
) -> ir.Value:
    """The windows `batch (axes in order)`; where none starts at an index, the whole operand for each of the batch."""
    batch, indexed = dims(starts.value)[:-1], starts.axes
    if not indexed:
        return op.emit("Expand", [x, op.ints([*fixed(op, batch), *sizes], "shape")])
    low = op.each("Max", starts.value, op.number(0, starts.value, "zero"))
    room = op.ints([extents[a] - sizes[a] for a in indexed], "room")
    fits = _Starts(op.each("Min", low, room), indexed)
    indices = _gridded(op, fits, [sizes[a] for a in indexed])
    return op.emit("GatherND", [ordered(op, x, order), indices])


@operator("STABLEHLO_SCATTER", options="StablehloScatterOptions")
def scatter(op: Operation) -> None:
    """ScatterND into a tensor with one more row, which takes what falls outside and is cut off again."""
    options = op.options
    if len(op.operator.inputs) != 3:
        raise Unsupported("a scatter of several tensors")
    op_type = reducer(op, options.update_computation_subgraph_index)
    reductions = {"": "none", "Add": "add", "Mul": "mul", "Max": "max", "Min": "min"}
    if op_type not in reductions:
        raise Unsupported(f"a scatter by {op_type}")
    x, updates = op.real(0), op.real(2)
    rank = len(dims(x))
    extents = fixed(op, dims(x))
    inserted = distinct_axes(options.inserted_window_dims, rank, op)
    window_axes = distinct_axes(options.update_window_dims, len(dims(updates)), op)
    windowed = [axis for axis in range(rank) if axis not in inserted]
    if len(window_axes) != len(windowed):
        raise op.damaged(f"{len(window_axes)} window axes for {len(windowed)}")
    sources = dict(zip(windowed, sorted(window_axes), strict=True))
    sizes = [1] * rank
    for axis, place in sources.items():
        sizes[axis] = fixed(op, dims(updates)[place : place + 1])[0]
    starts = _starts(op, 1, options.index_vector_dim, options.scatter_dims_to_operand_dims, rank)
    partial = [axis for axis in range(rank) if axis not in starts.axes and sizes[axis] < extents[axis]]
    if partial:
        starts = _append_zeros(op, starts, partial)
    indexed = starts.axes
    order = [*indexed, *(axis for axis in range(rank) if axis not in indexed)]
    indices = _gridded(op, starts, [sizes[a] for a in indexed])
    updates = _arrange_updates(op, updates, sources, order)

    x, ends = ordered(op, x, order), [extents[a] for a in indexed]
    is_positive = op.each("GreaterOrEqual", indices, op.number(0, indices, "zero"))
    inside = op.each("And", is_positive, op.each("Less", indices, op.ints(ends, "extents")))
    worst = op.emit("ReduceMin", [op.cast(inside, ir.DataType.UINT8), op.ints([-1])], keepdims=1)
    spare = op.ints([ends[0], *[0] * (len(ends) - 1)], "spare")
    indices = op.emit("Where", [op.cast(worst, ir.DataType.BOOL), indices, spare])
    x = op.emit("Pad", [x, op.ints([*[0] * rank, 1, *[0] * (rank - 1)], "pads")], mode="constant")
    y = op.emit("ScatterND", [x, indices, updates], reduction=reductions[op_type])
    y = cut(op, y, [0], [ends[0]], [0])
    op.result(ordered(op, y, [order.index(axis) for axis in range(rank)]))


def _append_zeros(op: Operation, starts: _Starts, axes: list[int]) -> _Starts:
    """Return the starts with a 0 along more axes."""
    rows = dims(starts.value)[:-1]
    zeros = op.array("zeros", np.zeros((*[1] * len(rows), len(axes)), np.int64))
    shape = op.emit("Concat", [op.emit("Shape", [starts.value], start=0, end=len(rows)),
                               op.ints([len(axes)], "partial")], axis=0)  # fmt: skip
    zeros = op.emit("Expand", [zeros, shape])
    return _Starts(op.emit("Concat", [starts.value, zeros], axis=len(rows)), [*starts.axes, *axes])


def _arrange_updates(op: Operation, updates: ir.Value, sources: Mapping[int, int], order: list[int]) -> ir.Value:
    """Updates as `batch (axes in order)`, of which `sources` names the axes that they have; the others become 1."""
    batch = [a for a in range(len(dims(updates))) if a not in sources.values()]
    updates = op.transpose(updates, [*batch, *(sources[a] for a in order if a in sources)])
    missing = [len(batch) + i for i, a in enumerate(order) if a not in sources]
    return unsqueeze(op, updates, missing) if missing else updates
