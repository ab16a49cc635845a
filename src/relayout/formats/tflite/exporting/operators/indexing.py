"""Operators that read or write elements at places which a tensor lists."""

from __future__ import annotations

from functools import reduce
from math import prod

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.builder import Operand
from relayout.formats.tflite.exporting.draft import NUMPY, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.kernel_types import tensor_dims, wider_type
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.older import is_older
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable, exporter
from relayout.graph.source_names import SOURCE

SCATTERED = frozenset(  # types that SCATTER_ND takes
    [TensorType.FLOAT32, TensorType.INT32, TensorType.INT64, TensorType.INT8, TensorType.UINT8, TensorType.BOOL]
)
VIEWS = frozenset(["Reshape", "Squeeze", "Unsqueeze"])
MOVING = frozenset(["Cast", "Expand", "Gather", "GatherElements"])
SLICE_UPDATE = "DYNAMIC_UPDATE_SLICE"
UPDATED = frozenset([TensorType.FLOAT32, TensorType.INT32, TensorType.INT64, TensorType.INT8, TensorType.BOOL])
"""Types that it takes."""
MOST_PAIRS = 1 << 22  # pairs of an update and an element up to which every update is held against every element
MOST_FOLLOWED = 8  # producers in a row that are asked whether they give negative numbers
PLACES = ("ArgMax", "ArgMin", "NonZero", "Shape", "Size")  # operators whose integers count from 0
BUILTINS = {"Gather": "GATHER", "GatherND": "GATHER_ND"}
"""Operator -> the builtin that it is, but for places that count from the end."""
REDUCTIONS = {"mul": ("MUL", "REDUCE_PROD"), "max": ("MAXIMUM", "REDUCE_MAX"), "min": ("MINIMUM", "REDUCE_MIN")}
"""ONNX's reduction -> the builtin for two elements, and for many."""


def counts_from_front(op: NodeExport) -> bool:
    """Return whether no place of a node counts from the end.

    It was the builtin of a `.tflite`, which refuses these, or what computes its places gives no negative number.
    """
    source = BUILTINS.get(op.op_type)
    was_builtin = source is not None and op.node.metadata_props.get(SOURCE, "").partition(" ")[0] == source
    return was_builtin or _is_never_negative(op.node.inputs[1])


def _is_never_negative(value: ir.Value | None, most: int = MOST_FOLLOWED) -> bool:
    """Return whether integers are known to be no negative numbers: by their producers, `most` of them in a row."""
    if value is None or value.is_graph_input():
        return False
    if value.const_value is not None:
        return bool(np.all(value.const_value.numpy() >= 0))
    node = value.producer()
    if node is None or node.domain or not most:
        return False
    if node.op_type in PLACES or (node.op_type == "TopK" and value.index() == 1):
        return True
    if node.op_type == "Max":
        return any(_is_never_negative(each, most - 1) for each in node.inputs)
    slots = {"Where": (1, 2), **dict.fromkeys((*MOVING, *VIEWS), (0,))}.get(node.op_type)
    return slots is not None and all(_is_never_negative(node.inputs[slot], most - 1) for slot in slots)


def from_front(op: NodeExport, places: DraftTensor, extent: Operand) -> DraftTensor:
    """Return places along an axis, none of which counts from the end."""
    places = op.cast(places, TensorType.INT32)
    if counts_from_front(op) or (places.array is not None and not (places.array < 0).any()):
        return places
    # Where an extent is 0 there are no places, and the kernel divides by it.
    most = op.maximum(extent, 1) if isinstance(extent, DraftTensor) else np.maximum(extent, 1)
    return op.each("FLOOR_MOD", places, most)


def _strides(dims: tuple[int, ...]) -> list[int]:
    return [prod(dims[axis + 1 :]) for axis in range(len(dims))]


def _flat_places(op: NodeExport, places: DraftTensor, axis: int, operand: DraftTensor) -> DraftTensor:
    """Return the place in the flat tensor of each element that GatherElements or ScatterElements names."""
    rank = len(operand.dims)
    extents = [op.extent(operand, each) for each in range(rank)]
    strides = [op.product(extents[each + 1 :]) for each in range(rank)]
    flat_places, others = op.mul(from_front(op, places, extents[axis]), strides[axis]), list[DraftTensor]()
    for each in range(rank):
        if each != axis and operand.dims[each] != 1:  # of one element only the first can be named
            dims = tuple(places.dims[each] if other == each else 1 for other in range(rank))
            along = op.reshape(op.arange(op.extent(places, each), places.dims[each]), dims)
            others.append(op.mul(along, strides[each]))
    return op.add(flat_places, reduce(op.add, others)) if others else flat_places


def from_front_each(
    op: NodeExport,  # the node
    places: DraftTensor,  # coordinates, along the last axis
    operand: DraftTensor,  # the tensor
    begin: int = 0,  # the first axis that they count
) -> DraftTensor:
    """Return coordinates in a tensor, none of which counts from the end."""
    places = op.cast(places, TensorType.INT32)
    if counts_from_front(op) or (places.array is not None and not (places.array < 0).any()):
        return places
    (count,) = known(places.dims[-1:])
    dims = operand.dims[begin : begin + count]
    if all_known(dims):
        return op.each("FLOOR_MOD", places, op.ints(np.maximum(known(dims), 1)))
    return op.each("FLOOR_MOD", places, op.maximum(op.part(op.extents(operand), 0, begin, count), 1))


@exporter("GatherElements")
def gather_elements(op: NodeExport) -> None:
    """GATHER; of the flat tensor where it is not along the last axis."""
    axis, operand, places = op.axis(), op.input(0), op.input(1)
    if axis == len(operand.dims) - 1 and operand.dims[:axis] == places.dims[:axis]:
        places = from_front(op, places, op.extent(operand, axis))
        op.result("GATHER", [operand, places], axis=axis, batch_dims=axis)
        return
    flat = _flat_places(op, op.input(1), axis, operand)
    whole = op.reshape(operand, (op.elements(operand.dims, "elements"),))
    op.give(op.gather(whole, flat, 0))


@exporter("GatherND")
@exporter("GatherND", domain="com.microsoft")
def gather_nd(op: NodeExport) -> None:
    """GATHER_ND; GATHER of one coordinate where axes run along, which else become the first coordinate."""
    shared = op.integer("batch_dims")
    operand, places = op.input(0), op.input(1)
    (count,) = known(places.dims[-1:])
    if not count:
        raise Unwritable("coordinates of no axis")
    batches = zip(operand.dims[:shared], places.dims[:shared], strict=True)
    if any(isinstance(one, int) and isinstance(other, int) and one != other for one, other in batches):
        raise Unwritable("coordinates of another batch than the operand's")
    if counts_from_front(op):
        places = op.cast(places, TensorType.INT32)
    else:
        places = from_front_each(op, places, operand, shared)
    if not shared:
        op.result("GATHER_ND", [operand, places])
        return
    if count == 1:
        op.result("GATHER", [operand, op.reshape(places, places.dims[:-1])], axis=shared, batch_dims=shared)
        return
    batch = prod(known(operand.dims[:shared]))
    many = prod(known(places.dims[shared:-1]))
    rows = np.broadcast_to(np.arange(batch, dtype=np.int32)[:, None, None], (batch, many, 1))
    places = op.concat([op.ints(rows), op.reshape(places, (batch, many, count))], -1)
    slices = op.gather_nd(op.reshape(operand, (batch, *operand.dims[shared:])), places)
    op.give(op.reshape(slices, op.out_dims()))


@exporter("ScatterElements", "Scatter")
def scatter_elements(op: NodeExport) -> None:
    """SCATTER_ND into the flat tensor, DYNAMIC_UPDATE_SLICE of one row; MUL, MAXIMUM and MINIMUM with each element."""
    axis = op.axis()
    if (row := _only_row(op, axis)) is not None:
        _update_slice(op, row, axis)
        return
    target, places, updates = op.input(0), op.input(1), op.input(2)
    count = op.elements(places.dims, "places")
    if not count:
        op.give(target)
        return
    if all(each.is_static for each in (target, places, updates)) and (rows := _rows(op, axis)) is not None:
        _scatter_rows(op, rows, axis)
        return
    flat = op.reshape(_flat_places(op, places, axis, target), (count, 1))
    whole = op.reshape(target, (op.elements(target.dims, "elements"),))
    updated_target = _scattered(op, whole, flat, op.reshape(updates, (count,)), op.text("reduction", "none"))
    op.give(op.reshape(updated_target, target.dims, like=target))


def _only_row(op: NodeExport, axis: int) -> DraftTensor | None:
    """Return the place where a ScatterElements writes one whole row of open extents; None where it does not."""
    dims, places, updates = (op.dims(slot) for slot in range(3))
    row = tuple(1 if each == axis else dim for each, dim in enumerate(dims))
    is_named = not any(str(dim).startswith("?") for dim in dims)
    expand = _expand_before(op.value(1))
    before = None if expand is None else expand.inputs[0]
    is_one = before is not None and before.shape is not None and set(before.shape) <= {1}
    if all_known(dims) or not is_named or not (row == places == updates) or not is_one:
        return None
    if not isinstance(dims[axis], int) or not _has_slice_update(op) or before is None:
        return None
    return op.reshape(op.graph.tensor_of(before), (1,))


def _has_slice_update(op: NodeExport) -> bool:
    """Return whether a row of the operand may be written by DYNAMIC_UPDATE_SLICE."""
    is_known = not op.graph.runtime.oldest or not is_older(op.graph.runtime.oldest, SLICE_UPDATE, 1)
    return is_known and op.text("reduction", "none") == "none" and op.input(0).type in UPDATED


def _update_slice(op: NodeExport, row: DraftTensor, axis: int) -> None:
    """Write one row along an axis."""
    (extent,) = known(op.dims(0)[axis : axis + 1])
    row = from_front(op, row, extent)
    begins = [op.ints([0] * axis), row, op.ints([0] * (op.rank() - axis - 1))]
    begin = op.concat([each for each in begins if each.dims != (0,)], 0)
    op.result(SLICE_UPDATE, [op.input(0), op.input(2), begin])


def _rows(op: NodeExport, axis: int) -> DraftTensor | None:
    """Return the places along the axis of a ScatterElements where whole rows are written; None where they are not."""
    dims, (places, updates) = known(op.dims(0)), (known(op.dims(slot)) for slot in (1, 2))
    others = [each for each in range(len(dims)) if each != axis]
    if places != updates or any(places[each] != dims[each] for each in others):
        return None
    array = op.constant(1)
    if array is not None:
        row = array[tuple(slice(None) if each == axis else slice(0, 1) for each in range(len(dims)))]
        return op.ints(row.reshape(-1)) if (array == row).all() else None
    source = _stretched(op.value(1))
    if source is None:
        return None
    (before, position), count = source, places[axis]
    is_along = count == 1 or position == sum(dim != 1 for dim in places[:axis])
    if prod(known(tensor_dims(before))) != count or not is_along:
        return None
    return op.reshape(op.graph.tensor_of(before), (count,))


def _stretched(value: ir.Value) -> tuple[ir.Value, int] | None:
    """Return what an Expand stretches along all axes but one, and how many longer axes come before that one.

    Reshapes behind it put axes of one element elsewhere.
    """
    extents = [dim for dim in known(tensor_dims(value)) if dim != 1]
    node = _expand_before(value)
    before = None if node is None else node.inputs[0]
    if node is None or before is None or before.shape is None:
        return None
    result, own = known(tensor_dims(node.outputs[0])), known(tensor_dims(before))
    if [dim for dim in result if dim != 1] != extents:
        return None
    places = [axis for axis, dim in enumerate((1,) * (len(result) - len(own)) + own) if dim != 1]
    if len(places) > 1:
        return None
    return before, sum(dim != 1 for dim in result[: places[0]]) if places else 0


def _expand_before(value: ir.Value) -> ir.Node | None:
    """Return the Expand that gives a value, behind Reshapes or not."""
    node = value.producer()
    while node is not None and node.op_type in VIEWS and not node.domain and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node if node is not None and (node.domain, node.op_type) == ("", "Expand") else None


def _scatter_rows(op: NodeExport, rows: DraftTensor, axis: int) -> None:
    """Write whole rows along an axis: DYNAMIC_UPDATE_SLICE of one, SCATTER_ND of several in each outer row."""
    target, updates, reduction, dims = op.input(0), op.input(2), op.text("reduction", "none"), known(op.dims(0))
    (count,) = known(rows.dims)
    if count == 1 and _has_slice_update(op):
        _update_slice(op, rows, axis)
        return
    rows = from_front(op, rows, dims[axis])
    outer, rest = prod(dims[:axis]), prod(dims[axis + 1 :])
    first = op.ints((np.arange(outer) * dims[axis]).reshape(outer, 1))
    places = rows if outer == 1 else op.add(op.reshape(rows, (1, count)), first)
    updated_target = _scattered(
        op,
        op.reshape(target, (outer * dims[axis], rest)),
        op.reshape(places, (outer * count, 1)),
        op.reshape(updates, (outer * count, rest)),
        reduction,
    )
    op.give(op.reshape(updated_target, dims))


@exporter("ScatterND")
def scatter_nd(op: NodeExport) -> None:
    """SCATTER_ND of the updates and of a mask, and SELECT_V2 between these and the operand; ADD of what is added."""
    target, places, updates = op.input(0), op.input(1), op.input(2)
    (count,), rows = known(places.dims[-1:]), op.elements(places.dims[:-1], "rows")
    if not rows:
        op.give(target)
        return
    if count == 0:
        raise Unwritable("coordinates of no axis")
    is_static = all(each.is_static for each in (target, places, updates))
    places, dims = from_front_each(op, places, target), target.dims
    if is_static:  # the axes that are counted are one
        front, rest = known(dims[:count]), prod(known(dims[count:]))
        scaled = op.mul(places, op.ints(_strides(front)))
        flat = op.reduce("SUM", scaled, [-1]) if scaled.array is None else op.ints(scaled.array.sum(-1))
        places = op.reshape(flat, (rows, 1))
        target, updates = op.reshape(target, (prod(front), rest)), op.reshape(updates, (rows, rest))
    updated_target = _scattered(op, target, places, updates, op.text("reduction", "none"))
    op.give(op.reshape(updated_target, dims))


def _holds_zeros(value: ir.Value) -> bool:
    """Return whether a value is known to hold nothing but zeros."""
    node = value.producer()
    if node is not None and (node.domain, node.op_type) == ("", "ConstantOfShape"):
        number = node.attributes.get_tensor("value", None)
        return number is None or not number.numpy().any()
    return value.const_value is not None and not value.is_graph_input() and not value.const_value.numpy().any()


def _scattered(
    op: NodeExport,  # the node
    target: DraftTensor,  # the tensor; of known extents `rows …`
    places: DraftTensor,  # coordinates along the last axis, counted from the front
    updates: DraftTensor,  # what is written there
    reduction: str,  # ONNX's
) -> DraftTensor:
    """Return a tensor with updates at coordinates."""
    if reduction in REDUCTIONS:
        if not (target.is_static and places.is_static):
            raise OpenExtentError("a scatter into a tensor whose extents are known only at run time")
        return _reduced(op, target, places, updates, reduction)
    kind, wide = target.type, wider_type(target.type, SCATTERED)
    target, updates, shape = op.cast(target, wide), op.cast(updates, wide), op.extents(target)
    if reduction == "add":
        placed = op.emit("SCATTER_ND", [places, updates, shape], target.dims, wide)
        return op.cast(placed if _holds_zeros(op.value(0)) else op.add(target, placed), kind)
    (count,), rows = known(places.dims[-1:]), places.dims[:-1]
    front, rest = target.dims[:count], (1,) * (len(target.dims) - count)
    ones = op.ints(np.ones(known(rows))) if all_known(rows) else op.add(op.mul(op.at(places, -1, 0), 0), 1)
    marks = op.emit("SCATTER_ND", [places, ones, op.part(shape, 0, 0, count)], front, TensorType.INT32)
    is_written = op.compare("GREATER", op.reshape(marks, (*front, *rest), like=target), 0)
    placed = op.emit("SCATTER_ND", [places, updates, shape], target.dims, wide)
    return op.cast(op.select(is_written, placed, target), kind)


def _reduced(
    op: NodeExport, target: DraftTensor, places: DraftTensor, updates: DraftTensor, reduction: str
) -> DraftTensor:
    """Hold each update against each row: REDUCE over those that fit, and the row itself."""
    pair, many = REDUCTIONS[reduction]
    kind = target.type
    wide = wider_type(kind, (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64))
    target, updates = op.cast(target, wide), op.cast(updates, wide)
    dims = known(target.dims)
    (count,) = known(places.dims[:1])
    if count * prod(dims) > MOST_PAIRS:
        raise Unwritable("many updates that are not added")
    tail = (1,) * (len(dims) - 1)
    rows = op.ints(np.arange(dims[0]).reshape(dims[0], *tail))
    fits = op.compare("EQUAL", op.reshape(places, (count, 1, *tail)), rows)
    lowest, highest = limits_of(wide)
    neutral = {"mul": 1, "max": lowest, "min": highest}[reduction]
    chosen = op.select(fits, op.reshape(updates, (count, 1, *dims[1:])), neutral)
    return op.cast(op.each(pair, target, op.reduce(many, chosen, [0])), kind)


def limits_of(kind: TensorType) -> tuple[float, float]:
    """Return the lowest and the highest number of a type."""
    if np.issubdtype(NUMPY[kind], np.floating):
        return -np.inf, np.inf
    limits = np.iinfo(NUMPY[kind])
    return int(limits.min), int(limits.max)


@exporter("TensorScatter")
def tensor_scatter(op: NodeExport) -> None:
    """SCATTER_ND of rows of a cache, each batch from its own place on."""
    axis, dims = op.axis(-2), op.static()
    updates = op.input(1)
    extents = known(updates.dims)
    batch, count, rest = dims[0], extents[axis], prod(dims[axis + 1 :])
    between = prod(dims[1:axis])
    begins = op.cast(op.input(2), TensorType.INT32) if op.has(2) else op.ints(np.zeros(batch))
    along = op.add(op.reshape(begins, (batch, 1, 1)), op.ints(np.arange(count)))
    if op.text("mode", "linear") == "circular":
        along = op.each("FLOOR_MOD", along, dims[axis])
    rows = (np.arange(batch)[:, None, None] * between + np.arange(between)[None, :, None]) * dims[axis]
    flat = op.reshape(op.add(along, op.ints(rows)), (batch * between * count, 1))
    target = op.reshape(op.input(0), (batch * between * dims[axis], rest))
    updated_target = _scattered(op, target, flat, op.reshape(updates, (batch * between * count, rest)), "none")
    op.give(op.reshape(updated_target, dims))
