"""Operators that look for elements: the largest, those that are not zero, those that a mask selects."""

from __future__ import annotations

from math import prod

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

# Unique along an axis: what lies at each of its places is compared as a whole, with all others at once.
#
# equal[i j]    rows i and j have the same elements
# less[i j]     row j comes before row i: it is less where both differ first
# new[i]        no row before row i is its equal
# rank[i]       the number of new rows that come before row i

MOST = 1 << 24  # comparisons of elements up to which it is written
ELEMENTS = (0, 3)  # the axes of what lies at a place, `front i j back`: those before and behind the axis


def unique_rows(op: NodeExport, axis: int) -> None:
    """Write a Unique along an axis."""
    operand = op.input(0)
    dims = known(operand.dims)
    front, count, back = prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :])
    width = front * back
    if not count or not width or count * count * width > MOST:
        raise Unwritable(f"rows with more than {MOST} comparisons, or none")
    here, there = op.reshape(operand, (front, count, 1, back)), op.reshape(operand, (front, 1, count, back))
    equal = op.reduce("REDUCE_ALL", op.compare("EQUAL", here, there), ELEMENTS)
    places = np.arange(count)
    earliest = op.reduce("REDUCE_MIN", op.select(equal, op.ints(places), count), [1])
    new = op.compare("EQUAL", earliest, op.ints(places))
    if op.integer("sorted", 1):
        rank = _rank(op, here, there, new)
    else:
        before = op.select(new, op.ints(np.ones(count, int)), 0)
        total = op.emit("CUMSUM", [before, op.ints(np.array(0))], (count,), exclusive=True)
        rank = op.gather(total, earliest, 0)
    many: Dims = (f"?{op.name}",)
    last = op.select(new, rank, count)  # the others come behind
    kinds = [(TensorType.INT32, (count,))] * 2
    _, listed = op.outputs("TOPK_V2", [op.each("NEG", last), op.ints(np.array(count))], kinds)
    number = op.reduce("SUM", op.cast(new, TensorType.INT32), [0], keep=True)
    chosen = op.emit("SLICE", [listed, op.ints([0]), number], many)
    for slot, tensor in ((1, chosen), (2, rank)):
        if op.gives(slot):
            op.give(op.cast(tensor, TensorType.INT64), slot)
    if op.gives(3):
        counts = op.reduce("SUM", op.cast(equal, TensorType.INT32), [1])
        op.give(op.cast(op.gather(counts, chosen, 0), TensorType.INT64), 3)
    op.give(op.gather(operand, chosen, axis))


def _rank(op: NodeExport, here: DraftTensor, there: DraftTensor, new: DraftTensor) -> DraftTensor:
    """Return for each row how many different ones come before it, in order of their first elements that differ."""
    front, count, _, back = known(here.dims)
    places = op.ints(np.arange(front * back).reshape(front, 1, 1, back))
    differs = op.compare("NOT_EQUAL", here, there)
    first = op.reduce("REDUCE_MIN", op.select(differs, places, front * back), ELEMENTS, keep=True)
    decides = op.both(op.compare("LESS", there, here), op.compare("EQUAL", first, places))
    less = op.both(op.reduce("REDUCE_ANY", decides, ELEMENTS), op.reshape(new, (1, count)))
    return op.reduce("SUM", op.cast(less, TensorType.INT32), [1])


def to_last(axis: int, rank: int) -> list[int]:
    """Return the permutation that moves an axis to the end."""
    return [*(each for each in range(rank) if each != axis), axis]


def from_last(axis: int, rank: int) -> list[int]:
    """Return the permutation that moves the last axis to a place."""
    return [*range(axis), rank - 1, *range(axis, rank - 1)]


@exporter("TopK")
def top_k(op: NodeExport) -> None:
    """TOPK_V2 along the last axis, between TRANSPOSEs along another; of the smallest ones, that of the negated."""
    rank, axis = op.rank(), op.axis(-1)
    operand, k = op.input(0), op.constant(1)
    if op.node.attributes.get("k") is not None:
        k = np.array(op.integer("k"))
    count = op.cast(op.reshape(op.input(1), ()), TensorType.INT32) if k is None else op.ints(k.reshape(()))
    kind, smallest = operand.type, not op.integer("largest", 1)
    if smallest and kind in (TensorType.UINT8, TensorType.UINT16):
        operand = op.cast(operand, TensorType.INT32)
    if smallest:
        operand = _negated(op, operand)
    moved = op.transpose(operand, to_last(axis, rank))
    dims = tuple(op.out_dims()[each] for each in to_last(axis, rank))
    kinds = [(moved.type, dims), (TensorType.INT32, dims)]
    values, places = op.outputs("TOPK_V2", [moved, count], kinds)
    values.quantization = operand.quantization
    values, places = (op.transpose(each, from_last(axis, rank)) for each in (values, places))
    if op.gives(1):
        op.draft.add_cast(places, op.output(1))
    if op.gives(0):
        op.give(op.cast(_negated(op, values), kind) if smallest else values)


def _negated(op: NodeExport, tensor: DraftTensor) -> DraftTensor:
    """Return numbers in the opposite order; `-1 - x` of integers, which never overflows."""
    if tensor.type == TensorType.FLOAT32:
        return op.each("NEG", tensor)
    return op.sub(-1, tensor)


@exporter("Hardmax")
def hardmax(op: NodeExport) -> None:
    """ARG_MAX and ONE_HOT; before version 13 over all axes from one on."""
    operand, old = op.input(0), op.version < 13
    axis = op.axis(1 if old else -1)
    if old:
        rows, columns = operand.dims[:axis], operand.dims[axis:]
        length = op.elements(columns if all_known(rows) else known(columns), "columns")
        operand, axis = op.reshape(operand, (op.elements(rows, "rows"), length)), 1
    depth, dims = op.tensor(op.extent(operand, axis), TensorType.INT32), operand.dims
    places = op.emit(
        "ARG_MAX",
        [operand, op.ints(np.array(axis))],
        (*dims[:axis], *dims[axis + 1 :]),
        TensorType.INT32,
        output_type=TensorType.INT32,
    )
    on, off = op.tensor(1, operand.type), op.tensor(0, operand.type)
    result = op.emit(
        "ONE_HOT", [places, depth, on, off], dims, operand.type, axis=-1 if axis == len(dims) - 1 else axis
    )
    op.give(op.reshape(result, op.input(0).dims, op.input(0)))


@exporter("NonZero")
def non_zero(op: NodeExport) -> None:
    """WHERE, and a Transpose that layouts pass through (`coordinates_first`)."""
    raise Unwritable("a scalar that is looked for" if not op.rank() else "a tensor of another graph that is looked for")


@exporter("Compress")
def compress(op: NodeExport) -> None:
    """WHERE of the mask, and GATHER."""
    operand, rank = op.input(0), op.rank()
    mask = op.constant(1)
    if op.node.attributes.get("axis") is None:
        operand, axis = op.reshape(operand, (op.elements(operand.dims, "all"),)), 0
    elif not rank:
        raise Unwritable("an axis that its operand does not have")
    else:
        axis = op.axis()
    if len(op.dims(1)) > 1:
        raise Unwritable("a mask of several axes")
    extent, mask_extent = operand.dims[axis], (op.dims(1) or (1,))[0]
    if mask is not None and isinstance(extent, int):
        op.give(op.gather(operand, op.ints(np.flatnonzero(mask.reshape(-1)[:extent])), axis))
        return
    chosen = op.reshape(op.input(1), (mask_extent,))
    if isinstance(extent, int) and isinstance(mask_extent, int):  # the rest chooses nothing
        chosen = op.part(chosen, 0, 0, min(extent, mask_extent))
    else:
        size = op.reshape(op.minimum(op.extent(operand, axis), op.extent(chosen, 0)), (1,))
        chosen = op.emit("SLICE", [chosen, op.ints([0]), size], (f"?{op.name}.mask",))
    coordinates = op.emit("WHERE", [chosen], (f"?{op.name}", 1), TensorType.INT64)
    places = op.emit("RESHAPE", [coordinates, op.ints([-1])], coordinates.dims[:1])
    op.give(op.gather(operand, op.cast(places, TensorType.INT32), axis))


@exporter("ReverseSequence")
def reverse_sequence(op: NodeExport) -> None:
    """REVERSE_SEQUENCE."""
    batch, time = op.integer("batch_axis", 1), op.integer("time_axis", 0)
    op.result("REVERSE_SEQUENCE", [op.input(0), op.input(1)], seq_dim=time, batch_dim=batch)


@exporter("Trilu")
@exporter("Trilu", domain="com.microsoft")
def trilu(op: NodeExport) -> None:
    """SELECT_V2 with a mask."""
    operand = op.input(0)
    rows, columns = (op.arange(op.extent(operand, axis), operand.dims[axis]) for axis in (-2, -1))
    offsets = op.sub(columns, op.reshape(rows, (*rows.dims, 1)))
    k = op.cast(op.reshape(op.input(1), ()), TensorType.INT32) if op.has(1) else op.ints(np.array(0))
    name = "GREATER_EQUAL" if op.integer("upper", 1) else "LESS_EQUAL"
    if k.array is not None and offsets.array is not None:
        mask = op.const(offsets.array >= k.array if name == "GREATER_EQUAL" else offsets.array <= k.array)
    else:
        mask = op.compare(name, offsets, k)
    op.give(op.select(mask, operand, 0))


@exporter("OneHot")
def one_hot(op: NodeExport) -> None:
    """ONE_HOT; indices from behind are counted from the front."""
    rank = op.rank()
    indices = op.input(0)
    if indices.type == TensorType.FLOAT32:
        indices = op.cast(indices, TensorType.INT64)
    depth = op.cast(op.reshape(op.input(1), ()), TensorType.INT32)
    # Of [-depth, depth); what lies outside is nowhere.
    depth_alike = op.cast(depth, indices.type)
    below = op.compare("LESS", indices, 0)
    indices = op.select(below, op.add(indices, depth_alike), indices)
    values = op.constant(2)
    if values is None:
        on, off = (op.at(op.input(2), 0, place) for place in (1, 0))
    else:
        on, off = (op.const(values[place].reshape(())) for place in (1, 0))
    axis = op.integer("axis", -1)
    axis = axis + rank + 1 if axis < 0 else axis
    op.result("ONE_HOT", [indices, depth, on, off], axis=-1 if axis == rank else axis)


@exporter("Unique")
def unique(op: NodeExport) -> None:
    """UNIQUE, after TOPK_V2 where elements are sorted; places and counts by holding each against each."""
    operand = op.input(0)
    if op.node.attributes.get("axis") is not None and op.rank() != 1:
        unique_rows(op, op.axis())
        return
    (length,) = count = (prod(known(operand.dims)),)
    flat = op.reshape(operand, count)
    if flat.type not in (TensorType.FLOAT32, TensorType.INT64):
        flat = op.cast(flat, TensorType.INT32)
    listed = flat
    if op.integer("sorted", 1):
        kinds = [(flat.type, count), (TensorType.INT32, count)]
        listed = _negated(op, op.outputs("TOPK_V2", [_negated(op, flat), op.ints(np.array(length))], kinds)[0])
    many: Dims = (f"?{op.name}",)
    values, numbers = op.outputs("UNIQUE", [listed], [(flat.type, many), (TensorType.INT32, count)])
    same = op.compare("EQUAL", op.emit("RESHAPE", [values, op.ints([-1, 1])], (*many, 1)), flat)
    if op.gives(1):
        firsts = op.select(same, op.ints(np.arange(length)), length)
        op.give(op.cast(op.reduce("REDUCE_MIN", firsts, [1]), TensorType.INT64), 1)
    if op.gives(2):
        if op.integer("sorted", 1):
            column = op.emit("RESHAPE", [values, op.ints([-1, 1])], (*many, 1))
            numbers = op.reduce("SUM", op.cast(op.compare("LESS", column, flat), TensorType.INT32), [0])
        op.give(op.cast(numbers, TensorType.INT64), 2)
    if op.gives(3):
        op.give(op.cast(op.reduce("SUM", op.cast(same, TensorType.INT32), [1]), TensorType.INT64), 3)
    op.give(op.cast(values, operand.type))
