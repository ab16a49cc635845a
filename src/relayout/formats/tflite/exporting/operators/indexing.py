"""Operators that read or write elements at places which a tensor lists."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport, known
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Operand, Steps
from relayout.graph.source_names import SOURCE

SCATTERED = frozenset(
    [TensorType.FLOAT32, TensorType.INT32, TensorType.INT64, TensorType.INT8, TensorType.UINT8, TensorType.BOOL]
)
"""Types that SCATTER_ND takes."""
MOST_PAIRS = 1 << 22
"""Pairs of an update and an element up to which every update is held against every element."""
BUILTINS = {"Gather": "GATHER", "GatherND": "GATHER_ND"}
"""Operator -> the builtin that it is, but for places that count from the end."""
REDUCTIONS = {"mul": ("MUL", "REDUCE_PROD"), "max": ("MAXIMUM", "REDUCE_MAX"), "min": ("MINIMUM", "REDUCE_MIN")}
"""ONNX's reduction -> the builtin for two elements, and for many."""


def counts_from_front(op: NodeExport) -> bool:
    """Return whether no place of a node counts from the end: it was the builtin of a `.tflite`, which refuses these."""
    source = BUILTINS.get(op.op_type)
    return source is not None and op.node.metadata_props.get(SOURCE, "").partition(" ")[0] == source


def from_front(steps: Steps, places: DraftTensor, extent: Operand) -> DraftTensor:
    """Return places along an axis, none of which counts from the end."""
    places = steps.cast(places, TensorType.INT32)
    if places.array is not None and not (places.array < 0).any():
        return places
    if isinstance(extent, DraftTensor):
        extent = steps.maximum(extent, 1)  # where it is 0 there are no places, and the kernel divides by it
    return steps.each("FLOOR_MOD", places, extent)


def _strides(dims: tuple[int, ...]) -> list[int]:
    return [prod(dims[axis + 1 :]) for axis in range(len(dims))]


def _flat_places(steps: Steps, places: DraftTensor, axis: int, operand: DraftTensor) -> DraftTensor:
    """Return the place in the flat tensor of each element that GatherElements or ScatterElements names."""
    rank = len(operand.dims)
    extents = [steps.extent(operand, each) for each in range(rank)]
    strides = [steps.product(extents[each + 1 :]) for each in range(rank)]
    found = steps.mul(from_front(steps, places, extents[axis]), strides[axis])
    if all(isinstance(dim, int) for dim in (*places.dims, *operand.dims)):
        return steps.add(found, steps.ints(_base(known(places.dims), axis, _strides(known(operand.dims)))))
    for each in range(rank):
        if each == axis or operand.dims[each] == 1:  # of one element only the first can be named
            continue
        dims = tuple(places.dims[each] if other == each else 1 for other in range(rank))
        along = steps.reshape(steps.numbers(steps.extent(places, each), places.dims[each]), dims)
        found = steps.add(found, steps.mul(along, strides[each]))
    return found


def _base(extents: tuple[int, ...], axis: int, strides: list[int]) -> NDArray[np.int32]:
    """Return what the axes that are not looked up add to places, of one element along the one that is."""
    base = np.zeros([1 if each == axis else extent for each, extent in enumerate(extents)], np.int64)
    for each, extent in enumerate(base.shape):
        shape = [extent if other == each else 1 for other in range(len(extents))]
        base = base + np.arange(extent).reshape(shape) * strides[each]
    return base.astype(np.int32)


def _flat_coordinates(steps: Steps, places: DraftTensor, dims: tuple[int, ...]) -> DraftTensor:
    """Return the place in the flat front of a tensor that each row of coordinates names."""
    (count,) = known(places.dims[-1:])
    front = dims[:count]
    wrapped = from_front_each(steps, places, steps.op.input(0))
    scaled = steps.mul(wrapped, steps.ints(_strides(front)))
    return steps.reduce("SUM", scaled, [-1])


def from_front_each(steps: Steps, places: DraftTensor, operand: DraftTensor, begin: int = 0) -> DraftTensor:
    """Return coordinates in a tensor, none of which counts from the end.

    Args:
        steps: of the node.
        places: coordinates, along the last axis.
        operand: the tensor.
        begin: the first axis that they count.
    """
    places = steps.cast(places, TensorType.INT32)
    if places.array is not None and not (places.array < 0).any():
        return places
    (count,) = known(places.dims[-1:])
    dims = operand.dims[begin : begin + count]
    if all(isinstance(dim, int) for dim in dims):
        return steps.each("FLOOR_MOD", places, steps.ints(known(dims)))
    return steps.each("FLOOR_MOD", places, steps.part(steps.extents(operand), 0, begin, count))


@exporter("GatherElements")
def gather_elements(op: NodeExport) -> None:
    """GATHER of the flat tensor."""
    steps, axis, operand = Steps(op), op.axis(), op.input(0)
    flat = _flat_places(steps, op.input(1), axis, operand)
    whole = op.emit("RESHAPE", [operand, steps.ints([-1])], (f"?{op.name}",))
    steps.give(steps.gather(whole, flat, 0))


@exporter("GatherND")
@exporter("GatherND", domain="com.microsoft")
def gather_nd(op: NodeExport) -> None:
    """GATHER_ND; axes that run along become the first coordinate."""
    steps, shared = Steps(op), op.integer("batch_dims")
    operand, places = op.input(0), op.input(1)
    (count,) = known(places.dims[-1:])
    if not count:
        raise Unwritable("coordinates of no axis")
    if counts_from_front(op):
        places = steps.cast(places, TensorType.INT32)
    else:
        places = from_front_each(steps, places, operand, shared)
    if not shared:
        op.result("GATHER_ND", [operand, places])
        return
    batch = prod(known(operand.dims[:shared]))
    many = prod(known(places.dims[shared:-1]))
    rows = np.broadcast_to(np.arange(batch, dtype=np.int32)[:, None, None], (batch, many, 1))
    places = steps.concat([steps.ints(rows), steps.reshape(places, (batch, many, count))], -1)
    found = steps.gather_nd(steps.reshape(operand, (batch, *operand.dims[shared:])), places)
    steps.give(steps.reshape(found, op.out_dims()))


@exporter("ScatterElements", "Scatter")
def scatter_elements(op: NodeExport) -> None:
    """SCATTER_ND into the flat tensor; updates that are multiplied or compared are held against each element."""
    steps, axis = Steps(op), op.axis()
    places, updates = op.input(1), op.input(2)
    if not all(each.is_static for each in (op.input(0), places, updates)):
        _scatter_elements_open(steps, places, updates, axis)
        return
    dims, count = op.static(), prod(known(places.dims))
    if not count:
        op.give(op.input(0))
        return
    flat = steps.reshape(_flat_places(steps, places, axis, op.input(0)), (count, 1))
    target = steps.reshape(op.input(0), (prod(dims),))
    found = _scattered(steps, target, flat, steps.reshape(updates, (count,)), op.text("reduction", "none"))
    steps.give(steps.reshape(found, dims))


def _scatter_elements_open(steps: Steps, places: DraftTensor, updates: DraftTensor, axis: int) -> None:
    """Write a scatter into the flat tensor whose elements are counted only at run time."""
    op, target = steps.op, steps.op.input(0)
    count: int | str = prod(known(places.dims)) if places.is_static else f"?{op.name}.places"
    size = f"?{op.name}"
    flat = op.emit("RESHAPE", [_flat_places(steps, places, axis, target), steps.ints([-1, 1])], (count, 1))
    listed = op.emit("RESHAPE", [updates, steps.ints([-1])], (count,))
    whole = op.emit("RESHAPE", [target, steps.ints([-1])], (size,))
    found = _scattered_open(steps, whole, flat, listed, op.text("reduction", "none"))
    op.result("RESHAPE", [found, steps.extents(target)])


@exporter("ScatterND")
def scatter_nd(op: NodeExport) -> None:
    """SCATTER_ND of the updates and of a mask, and SELECT_V2 between these and the operand; ADD of what is added."""
    steps = Steps(op)
    places, updates, reduction = op.input(1), op.input(2), op.text("reduction", "none")
    if not all(each.is_static for each in (op.input(0), places, updates)):
        places = from_front_each(steps, places, op.input(0))
        steps.give(_scattered_open(steps, op.input(0), places, updates, reduction))
        return
    dims = op.static()
    (count,) = known(places.dims[-1:])
    rows = prod(known(places.dims[:-1]))
    if not rows:
        op.give(op.input(0))
        return
    if count == 0:
        raise Unwritable("coordinates of no axis")
    flat = steps.reshape(_flat_coordinates(steps, places, dims), (rows, 1))
    rest = prod(dims[count:])
    target = steps.reshape(op.input(0), (prod(dims[:count]), rest))
    found = _scattered(steps, target, flat, steps.reshape(updates, (rows, rest)), reduction)
    steps.give(steps.reshape(found, dims))


def _scattered_open(
    steps: Steps, target: DraftTensor, places: DraftTensor, updates: DraftTensor, reduction: str
) -> DraftTensor:
    """Return a tensor whose extents are known only at run time with updates at coordinates, counted from the front."""
    op = steps.op
    if reduction not in ("none", "add") or target.type not in SCATTERED:
        raise Unwritable("a scatter into a tensor whose extents are known only at run time")
    (count,) = known(places.dims[-1:])
    shape = steps.extents(target)
    placed = op.emit("SCATTER_ND", [places, updates, shape], target.dims, target.type)
    if reduction == "add":
        return steps.add(target, placed)
    rows = places.dims[:-1]
    if all(isinstance(dim, int) for dim in rows):
        ones = steps.ints(np.ones(known(rows)))
    else:
        ones = steps.add(steps.mul(steps.at(places, -1, 0), 0), 1)
    front = target.dims[:count]
    marks = op.emit("SCATTER_ND", [places, ones, steps.part(shape, 0, 0, count)], front, TensorType.INT32)
    rest = len(target.dims) - count
    if rest:
        marks_shape = steps.concat([steps.part(shape, 0, 0, count), steps.ints([1] * rest)], 0)
        marks = op.emit("RESHAPE", [marks, marks_shape], (*front, *[1] * rest))
    return steps.select(steps.compare("GREATER", marks, 0), placed, target)


def _scattered(
    steps: Steps, target: DraftTensor, places: DraftTensor, updates: DraftTensor, reduction: str
) -> DraftTensor:
    """Write rows into a tensor.

    Args:
        steps: of the node.
        target: `rows …`.
        places: `updates 1`, the row of each update.
        updates: `updates …`.
        reduction: ONNX's.
    """
    kind = target.type
    wide = kind if kind in SCATTERED else _wider(kind)
    if reduction in REDUCTIONS:
        return _reduced(steps, target, places, updates, reduction)
    target, updates = steps.cast(target, wide), steps.cast(updates, wide)
    dims = known(target.dims)
    if reduction == "add":
        return steps.cast(steps.add(target, steps.scatter_nd(places, updates, dims)), kind)
    ones = steps.ints(np.ones(known(places.dims[:1])))
    rows = steps.reshape(steps.scatter_nd(places, ones, dims[:1]), (dims[0], *[1] * (len(dims) - 1)))
    mask = steps.compare("GREATER", rows, 0)
    return steps.cast(steps.select(mask, steps.scatter_nd(places, updates, dims), target), kind)


def _reduced(
    steps: Steps, target: DraftTensor, places: DraftTensor, updates: DraftTensor, reduction: str
) -> DraftTensor:
    """Hold each update against each row: REDUCE over those that fit, and the row itself."""
    pair, many = REDUCTIONS[reduction]
    kind = target.type
    wide = kind if kind in (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64) else _wider(kind)
    target, updates = steps.cast(target, wide), steps.cast(updates, wide)
    dims = known(target.dims)
    (count,) = known(places.dims[:1])
    if count * prod(dims) > MOST_PAIRS:
        raise Unwritable("many updates that are not added")
    tail = (1,) * (len(dims) - 1)
    rows = steps.ints(np.arange(dims[0]).reshape(dims[0], *tail))
    fits = steps.compare("EQUAL", steps.reshape(places, (count, 1, *tail)), rows)
    neutral = {"mul": 1, "max": lowest(wide), "min": highest(wide)}[reduction]
    chosen = steps.select(fits, steps.reshape(updates, (count, 1, *dims[1:])), neutral)
    return steps.cast(steps.each(pair, target, steps.reduce(many, chosen, [0])), kind)


def lowest(kind: TensorType) -> float:
    """Return the lowest number of a type."""
    numpy_type = NUMPY[kind]
    return -np.inf if np.issubdtype(numpy_type, np.floating) else int(np.iinfo(numpy_type).min)


def highest(kind: TensorType) -> float:
    """Return the highest number of a type."""
    numpy_type = NUMPY[kind]
    return np.inf if np.issubdtype(numpy_type, np.floating) else int(np.iinfo(numpy_type).max)


def _wider(kind: TensorType) -> TensorType:
    """Return a type that kernels take and that holds every number of another one."""
    if kind == TensorType.FLOAT16:
        return TensorType.FLOAT32
    if kind in (TensorType.INT16, TensorType.UINT16, TensorType.INT8, TensorType.UINT8, TensorType.BOOL):
        return TensorType.INT32
    if kind == TensorType.UINT32:
        return TensorType.INT64
    raise Unwritable(f"elements of {kind.name}")


@exporter("TensorScatter")
def tensor_scatter(op: NodeExport) -> None:
    """SCATTER_ND of rows of a cache, each batch from its own place on."""
    steps, axis, dims = Steps(op), op.axis(-2), op.static()
    updates = op.input(1)
    extents = known(updates.dims)
    batch, count, rest = dims[0], extents[axis], prod(dims[axis + 1 :])
    between = prod(dims[1:axis])
    begins = steps.cast(op.input(2), TensorType.INT32) if op.has(2) else steps.ints(np.zeros(batch))
    along = steps.add(steps.reshape(begins, (batch, 1, 1)), steps.ints(np.arange(count)))
    if op.text("mode", "linear") == "circular":
        along = steps.each("FLOOR_MOD", along, dims[axis])
    rows = (np.arange(batch)[:, None, None] * between + np.arange(between)[None, :, None]) * dims[axis]
    flat = steps.reshape(steps.add(along, steps.ints(rows)), (batch * between * count, 1))
    target = steps.reshape(op.input(0), (batch * between * dims[axis], rest))
    found = _scattered(steps, target, flat, steps.reshape(updates, (batch * between * count, rest)), "none")
    steps.give(steps.reshape(found, dims))
