"""Operators that move elements and compute none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relayout.formats.tflite.container.enums import MirrorPadMode, TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.operators.window import bordered
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps

LARGEST_RANK = 6
"""Axes up to which XNNPACK and old runtimes take a TRANSPOSE."""


@exporter("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(op: NodeExport) -> None:
    """RESHAPE."""
    operand, dims = op.input(0), op.out_dims()
    unknown = [dim for dim in dims if not isinstance(dim, int)]
    computed = op.op_type == "Reshape" and op.constant(1) is None
    if len(unknown) > 1 and computed:
        shape = op.cast(op.input(1), TensorType.INT32)
        op.result("RESHAPE", [operand, shape])
        return
    if operand.dims == dims and operand.is_static:
        op.give(operand)
        return
    op.result("RESHAPE", [operand, op.graph.shape_tensor(op, dims, operand)])


@exporter("Transpose")
def transpose(op: NodeExport) -> None:
    """TRANSPOSE; RESHAPE where only axes of one element move."""
    rank = op.rank()
    perm = op.integers("perm", range(rank)[::-1])
    operand = op.input(0)
    moved = [axis for axis in perm if operand.dims[axis] != 1]
    if moved == sorted(moved) and len([d for d in operand.dims if not isinstance(d, int)]) <= 1:
        dims = tuple(operand.dims[axis] for axis in perm)
        op.result("RESHAPE", [operand, op.graph.shape_tensor(op, dims, operand)])
        return
    if rank > LARGEST_RANK:
        _transpose_merged(op, operand, perm)
        return
    op.result("TRANSPOSE", [operand, op.ints32(perm, "perm")])


def _transpose_merged(op: NodeExport, operand: DraftTensor, perm: Sequence[int]) -> None:
    """Write a Transpose of many axes as one in which axes that stay neighbours are one axis."""
    dims = known(operand.dims)
    runs: list[list[int]] = []
    for axis in perm:
        if dims[axis] == 1:
            continue
        if runs and runs[-1][-1] + 1 == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if len(runs) > LARGEST_RANK:
        raise Unwritable(f"a Transpose of {len(runs)} axes")
    order = sorted(range(len(runs)), key=lambda place: runs[place][0])
    merged = tuple(int(np.prod([dims[axis] for axis in runs[place]])) for place in order)
    inner = op.transposed(op.reshaped(operand, merged), [order.index(place) for place in range(len(runs))])
    op.give(op.reshaped(inner, tuple(dims[axis] for axis in perm)))


@exporter("Concat")
def concat(op: NodeExport) -> None:
    """CONCATENATION."""
    tensors = [tensor for tensor in op.inputs() if 0 not in tensor.dims] or op.inputs()[:1]
    axis = op.axis()
    if op.quantized:
        goal = op.output(0).quantization
        tensors = [
            tensor
            if goal is None or goal.equals(tensor.quantization)
            else op.emit("QUANTIZE", [tensor], tensor.dims, quantization=goal)
            for tensor in tensors
        ]
    if len(tensors) == 1:
        op.give(tensors[0])
        return
    op.result("CONCATENATION", tensors, axis=axis)


@exporter("Split")
def split(op: NodeExport) -> None:
    """SPLIT, or SPLIT_V where the parts differ."""
    axis, count = op.axis(), len(op.node.outputs)
    axis_tensor = op.const(np.array(axis, np.int32), what="axis")
    sizes = op.integers("split") or (op.constant(1).tolist() if op.constant(1) is not None else [])  # type: ignore[union-attr]
    if not sizes:
        if op.has(1):
            raise Unwritable("sizes of parts are computed")
        extent = op.dims()[axis]
        if not isinstance(extent, int):
            op.results("SPLIT", [axis_tensor, op.input(0)], num_splits=count)
            return
        part = -(-extent // count)
        sizes = [min(part, extent - part * place) for place in range(count)]
    if len(set(sizes)) == 1:
        op.results("SPLIT", [axis_tensor, op.input(0)], num_splits=count)
    else:
        op.results("SPLIT_V", [op.input(0), op.ints32(sizes, "sizes"), axis_tensor], num_splits=count)


@exporter("Slice")
def slice_(op: NodeExport) -> None:
    """STRIDED_SLICE; REVERSE_V2 before it for steps backwards over a whole axis."""
    operand, rank = op.input(0), op.rank()
    if op.version < 10 or op.node.attributes.get("starts") is not None:
        starts, ends = op.integers("starts"), op.integers("ends")
        axes = op.integers("axes", range(len(starts)))
        steps = [1] * len(starts)
    else:
        starts = op.required_constant(1, "where a slice begins").reshape(-1).tolist()
        ends = op.required_constant(2, "where a slice ends").reshape(-1).tolist()
        axes = op.required_constant(3, "the axes of a slice").tolist() if op.has(3) else list(range(len(starts)))
        steps = op.required_constant(4, "the steps of a slice").tolist() if op.has(4) else [1] * len(starts)
    begin, end, stride = [0] * rank, [0] * rank, [1] * rank
    begin_mask = end_mask = (1 << rank) - 1
    backwards = []
    for start, stop, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis %= rank
        extent = operand.dims[axis]
        if step < 0:
            start, stop, step = _reversed(start, stop, step, extent)
            backwards.append(axis)
        if isinstance(extent, int):
            start = min(max(start + extent if start < 0 else start, 0), extent)
            stop = min(max(stop + extent if stop < 0 else stop, start), extent)
        begin[axis], stride[axis] = start, step
        begin_mask &= ~(1 << axis)
        if isinstance(extent, int) or stop < (1 << 31) - 1:
            end[axis] = stop
            end_mask &= ~(1 << axis)
    if backwards:
        operand = op.emit("REVERSE_V2", [operand, op.ints32(backwards)], operand.dims)
    inputs = [operand, op.ints32(begin, "begin"), op.ints32(end, "end"), op.ints32(stride, "strides")]
    op.result("STRIDED_SLICE", inputs, begin_mask=begin_mask, end_mask=end_mask)


def _reversed(start: int, stop: int, step: int, extent: int | str) -> tuple[int, int, int]:
    """Return a slice backwards as one forwards of the reversed axis."""
    if isinstance(extent, int):
        first = min(max(start + extent if start < 0 else start, -1), extent - 1)
        last = max(stop + extent if -extent <= stop < 0 else stop, -1)
        return extent - 1 - first, extent - 1 - last, -step
    if start == -1 and stop < -(1 << 30):
        return 0, (1 << 31) - 1, -step
    raise Unwritable("steps backwards over an axis whose extent is known only at run time")


@exporter("Gather")
def gather(op: NodeExport) -> None:
    """GATHER; indices from behind are counted from the front."""
    axis = op.axis()
    indices = _from_front(op, op.input(1), op.dims()[axis])
    op.result("GATHER", [op.input(0), indices], axis=axis)


def _from_front(op: NodeExport, indices: DraftTensor, extent: int | str) -> DraftTensor:
    """Return indices of which none is negative."""
    if indices.array is not None:
        if not (indices.array < 0).any():
            return op.const(indices.array.astype(np.int32), what="indices")
        if isinstance(extent, int):
            return op.const((indices.array % extent).astype(np.int32), what="indices")
        raise Unwritable("indices from behind of an axis whose extent is known only at run time")
    if not isinstance(extent, int):
        return indices
    kind = np.int64 if indices.type == TensorType.INT64 else np.int32
    return op.emit("FLOOR_MOD", [indices, op.const(np.array(extent, kind))], indices.dims)


@exporter("Expand")
def expand(op: NodeExport) -> None:
    """BROADCAST_TO; RESHAPE where nothing is stretched."""
    operand, dims = op.input(0), op.out_dims()
    if op.constant(1) is None and not all(isinstance(dim, int) for dim in dims):
        shape = op.cast(op.input(1), TensorType.INT32)
        padded: Dims = (1,) * (len(dims) - len(operand.dims)) + operand.dims
        if (
            len(op.dims(1)) != 1
            or op.dims(1)[0] != len(dims)
            or not all(d == 1 or d == e for d, e in zip(padded, dims, strict=True))
        ):
            raise Unwritable("an operand that is stretched by extents that are computed")
        op.result("BROADCAST_TO", [operand, shape])
        return
    if [dim for dim in operand.dims if dim != 1] == [dim for dim in dims if dim != 1]:
        op.give(op.reshaped(operand, dims))
        return
    op.result("BROADCAST_TO", [operand, op.ints32(known(dims), "shape")])


@exporter("Tile")
def tile(op: NodeExport) -> None:
    """TILE."""
    repeats = op.constant(1)
    counts = op.cast(op.input(1), TensorType.INT32) if repeats is None else op.ints32(repeats.tolist(), "repeats")
    op.result("TILE", [op.input(0), counts])


@exporter("Pad")
def pad(op: NodeExport) -> None:
    """PAD, PADV2 or MIRROR_PAD; negative amounts are a SLICE, an edge is gathered."""
    rank, mode = op.rank(), op.text("mode", "constant")
    given = op.integers("pads") or op.required_constant(1, "the amount of padding").reshape(-1).tolist()
    axes = list(range(rank))
    if op.has(3):
        axes = [axis % rank for axis in op.required_constant(3, "the axes of padding").tolist()]
    pads = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        pads[axis] = (int(given[place]), int(given[len(axes) + place]))
    operand = op.input(0)
    if mode == "constant":
        value = op.number("value", 0.0)
        if op.has(2) and op.constant(2) is None:
            raise Unwritable("the value of padding is computed")
        if op.has(2):
            value = float(op.constant(2).reshape(-1)[0])  # type: ignore[union-attr]
        if not any(map(any, pads)):
            op.give(operand)
            return
        op.give(bordered(op, operand, pads, value))
        return
    if mode in ("reflect",) and all(side >= 0 for pair in pads for side in pair):
        op.result("MIRROR_PAD", [operand, op.const(np.array(pads, np.int32))], mode=MirrorPadMode.REFLECT)
        return
    result = operand
    for axis, (before, after) in enumerate(pads):
        if before or after:
            result = _bordered_by_gather(op, result, axis, (before, after), mode)
    op.give(result)


def _bordered_by_gather(
    op: NodeExport, tensor: DraftTensor, axis: int, pads: tuple[int, int], mode: str
) -> DraftTensor:
    extent = tensor.dims[axis]
    if not isinstance(extent, int):
        raise Unwritable("a border made of an axis whose extent is known only at run time")
    places = np.arange(-pads[0], extent + pads[1])
    if mode == "edge":
        places = places.clip(0, extent - 1)
    elif mode == "wrap":
        places %= extent
    else:
        period = max(2 * (extent - 1), 1)
        places = np.abs((places + extent - 1) % period - (extent - 1))
    dims: Dims = (*tensor.dims[:axis], len(places), *tensor.dims[axis + 1 :])
    return op.emit("GATHER", [tensor, op.ints32(places.tolist())], dims, axis=axis)


@exporter("DepthToSpace")
def depth_to_space(op: NodeExport) -> None:
    """DEPTH_TO_SPACE."""
    op.require_channels_last()
    if op.text("mode", "DCR") != "DCR":
        raise Unwritable("channels of one pixel lie together (CRD)")
    op.result("DEPTH_TO_SPACE", [op.input(0)], block_size=op.integer("blocksize"))


@exporter("SpaceToDepth")
def space_to_depth(op: NodeExport) -> None:
    """SPACE_TO_DEPTH; channels of one pixel that lie together (CRD) are transposed after it."""
    op.require_channels_last()
    block = op.integer("blocksize")
    if op.text("mode", "DCR") == "DCR":
        op.result("SPACE_TO_DEPTH", [op.input(0)], block_size=block)
        return
    steps, dims = Steps(op), known(op.out_dims())
    spread = op.emit("SPACE_TO_DEPTH", [op.input(0)], dims, block_size=block)
    split = steps.reshape(spread, (*dims[:-1], block**2, dims[-1] // block**2))
    steps.give(steps.reshape(steps.transpose(split, (0, 1, 2, 4, 3)), dims))


@exporter("Shape")
def shape(op: NodeExport) -> None:
    """SHAPE, and SLICE for a part of it."""
    operand = op.input(0)
    rank = op.rank()
    start, end = op.integer("start", 0), op.integer("end", rank)
    start, end = (min(max(each + rank if each < 0 else each, 0), rank) for each in (start, end))
    if (start, end) == (0, rank):
        op.result("SHAPE", [operand], out_type=TensorType.INT64)
        return
    whole = op.emit("SHAPE", [operand], (rank,), TensorType.INT64, out_type=TensorType.INT64)
    op.result("SLICE", [whole, op.ints32([start]), op.ints32([max(end - start, 0)])])


@exporter("Size")
def size(op: NodeExport) -> None:
    """REDUCE_PROD of SHAPE."""
    whole = op.emit("SHAPE", [op.input(0)], (op.rank(),), TensorType.INT64, out_type=TensorType.INT64)
    op.result("REDUCE_PROD", [whole, op.ints32([0])], keep_dims=False)


@exporter("ConstantOfShape")
def constant_of_shape(op: NodeExport) -> None:
    """FILL."""
    value = op.node.attributes.get("value")
    filled = np.zeros(1, np.float32) if value is None else value.as_tensor().numpy()
    op.result("FILL", [op.input(0), op.const(filled.reshape(()), what="value")])


@exporter("Constant")
def constant(op: NodeExport) -> None:
    """A tensor of the file."""
    tensor = op.node.outputs[0].const_value
    if tensor is None:
        attribute = op.node.attributes.get("value")
        if attribute is None:
            raise Unwritable("a constant that is no tensor")
        op.node.outputs[0].const_value = attribute.as_tensor()
    op.graph.tensors[op.node.outputs[0]] = op.graph._constant(op.node.outputs[0])


@exporter("Range")
def range_(op: NodeExport) -> None:
    """RANGE."""
    kind = op.output(0).type
    if kind not in (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64):
        raise Unwritable(f"elements of {kind.name}")
    op.result("RANGE", [op.reshaped(op.input(slot), ()) for slot in range(3)])


@exporter("TopK")
def top_k(op: NodeExport) -> None:
    """TOPK_V2 along the last axis; of the smallest elements it is that of the negated ones."""
    if op.axis(-1) != op.rank() - 1:
        raise Unwritable("the largest elements along another axis than the last")
    operand = op.input(0)
    k = op.constant(1)
    count = (
        op.cast(op.reshaped(op.input(1), ()), TensorType.INT32)
        if k is None
        else op.const(np.array(int(k.reshape(-1)[0]), np.int32))
    )
    largest = bool(op.integer("largest", 1))
    if not largest and operand.type != TensorType.FLOAT32:
        raise Unwritable(f"the smallest elements of {operand.type.name}")
    source = operand if largest else op.emit("NEG", [operand], operand.dims)
    dims = op.out_dims(0)
    draft = op.graph.draft
    values = draft.tensor(f"{op.name}/values", operand.type, dims, operand.quantization)
    places = draft.tensor(f"{op.name}/indices", TensorType.INT32, dims)
    draft.add("TOPK_V2", [source, count], [values, places])
    if largest:
        op.give(values, 0)
    else:
        op.result("NEG", [values], 0)
    if op.gives(1):
        op.result("CAST", [places], 1, in_data_type=TensorType.INT32, out_data_type=TensorType.INT64)


@exporter("Trilu")
def trilu(op: NodeExport) -> None:
    """SELECT_V2 with a mask; MUL for integers."""
    operand = op.input(0)
    rows, columns = known(operand.dims[-2:])
    k = 0
    if op.has(1):
        k = int(op.required_constant(1, "the diagonal").reshape(-1)[0])
    mask = (
        np.triu(np.ones((rows, columns), bool), k)
        if op.integer("upper", 1)
        else np.tril(np.ones((rows, columns), bool), k)
    )
    op.result("SELECT_V2", [op.const(mask), operand, op.real(0, operand)])


@exporter("OneHot")
def one_hot(op: NodeExport) -> None:
    """ONE_HOT; indices from behind are counted from the front."""
    depth = int(op.required_constant(1, "the depth").reshape(-1)[0])
    axis = op.integer("axis", -1)
    values = op.required_constant(2, "the values")
    kind = np.int64 if op.input(0).type == TensorType.INT64 else np.int32
    indices = op.cast(op.input(0), TensorType.INT64 if kind == np.int64 else TensorType.INT32)
    # Of [-depth, depth); what lies outside is nowhere.
    below = op.emit("LESS", [indices, op.const(np.array(0, kind))], indices.dims, TensorType.BOOL)
    raised = op.emit("ADD", [indices, op.const(np.array(depth, kind))], indices.dims)
    indices = op.emit("SELECT_V2", [below, raised, indices], indices.dims, indices.type)
    on, off = (op.const(values[place].reshape(())) for place in (1, 0))
    axis = axis + op.rank() + 1 if axis < 0 else axis
    last = axis == op.rank()
    op.result("ONE_HOT", [indices, op.const(np.array(depth, np.int32)), on, off], axis=-1 if last else axis)
