"""Operators that move elements and compute none."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.builder import MOST_MULTIPLIED, MULTIPLIED
from relayout.formats.tflite.exporting.constants import constant_tensor
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.file_order import LARGEST_RANK
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.indexing import counts_from_front, from_front
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.layout.perm import transposes_of_few_axes


@exporter("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(op: NodeExport) -> None:
    """RESHAPE."""
    operand, dims = op.input(0), op.out_dims()
    is_open = sum(not isinstance(dim, int) for dim in dims) > 1
    listed = op.constant(1) if op.op_type == "Reshape" else None
    if is_open and op.op_type == "Reshape" and listed is None:
        op.result("RESHAPE", [operand, _filled(op, operand, len(dims))])
        return
    if is_open and listed is not None and not op.integer("allowzero"):
        own = op.extents(operand)  # for which 0 stands
        parts = [op.ints([dim]) if dim else op.part(own, 0, axis, 1) for axis, dim in enumerate(listed.tolist())]
        op.result("RESHAPE", [operand, op.concat(parts, 0)])
        return
    if operand.dims == dims and operand.is_static:
        op.give(operand)
        return
    if is_open:
        dims = _dims_of_operand(op, operand, dims)
    op.result("RESHAPE", [operand, op.shape_tensor(dims, operand)])


def _dims_of_operand(op: NodeExport, operand: DraftTensor, dims: Dims) -> Dims:
    """Return the extents of a result by the names that the operand has for them, where only ones come or go."""
    rank, added = len(operand.dims), len(dims) - len(operand.dims)
    if op.op_type == "Unsqueeze":
        raw = op.integers("axes") or op.required_constant(1, "the list of axes").reshape(-1).tolist()
        ones = {int(axis) % (rank + added) for axis in raw}
        remaining = iter(operand.dims)
        return tuple(1 if axis in ones else next(remaining) for axis in range(rank + added))
    if op.op_type == "Squeeze" and (op.has(1) or op.integers("axes")):
        ones = set(op.axes())
        return tuple(dim for axis, dim in enumerate(operand.dims) if axis not in ones)
    return dims


def _filled(op: NodeExport, operand: DraftTensor, rank: int) -> DraftTensor:
    """Return a computed shape in which no 0 stands for the operand's own extent, as it does in ONNX."""
    shape = op.cast(op.input(1), TensorType.INT32)
    if op.integer("allowzero"):
        return shape
    own = op.emit("SHAPE", [operand], (len(operand.dims),), TensorType.INT32, out_type=TensorType.INT32)
    if len(operand.dims) > rank:
        own = op.emit("SLICE", [own, op.ints([0]), op.ints([rank])], (rank,))
    elif len(operand.dims) < rank:
        rest = op.ints([0] * (rank - len(operand.dims)))
        own = op.emit("CONCATENATION", [own, rest], (rank,), axis=0)
    stays = op.compare("EQUAL", shape, op.const(np.array(0, np.int32)))
    return op.select(stays, own, shape)


@exporter("Transpose")
def transpose(op: NodeExport) -> None:
    """TRANSPOSE; RESHAPE where only axes of one element move."""
    rank = op.rank()
    perm = op.integers("perm", range(rank)[::-1])
    operand = op.input(0)
    if len(perm) != rank:
        raise Unwritable(f"a perm of {len(perm)} axes, and {rank} axes")
    moved = [axis for axis in perm if operand.dims[axis] != 1]
    if moved == sorted(moved) and len([d for d in operand.dims if not isinstance(d, int)]) <= 1:
        dims = tuple(operand.dims[axis] for axis in perm)
        op.result("RESHAPE", [operand, op.shape_tensor(dims, operand)])
        return
    if rank <= LARGEST_RANK:
        op.result("TRANSPOSE", [operand, op.ints(perm, "perm")])
        return
    tensor = operand  # axes that stay neighbours become one axis, in one step or several
    for lying, order in transposes_of_few_axes(operand.dims, perm, LARGEST_RANK):
        tensor = op.transpose(op.reshape(tensor, lying, like=operand), order)
    op.give(op.reshape(tensor, tuple(operand.dims[axis] for axis in perm), like=operand))


@exporter("Concat")
def concat(op: NodeExport) -> None:
    """CONCATENATION."""
    tensors = [tensor for tensor in op.inputs() if 0 not in tensor.dims] or op.inputs()[:1]
    axis = op.axis()
    if op.quantized:
        goal = op.output(0).quantization
        scales = op.output(0).type == TensorType.UINT8 and len(tensors) > 1  # whose kernel takes operands of any scale
        tensors = [
            tensor
            if goal is None or goal.equals(tensor.quantization) or scales
            else op.emit("QUANTIZE", [tensor], tensor.dims, quantization=goal)
            for tensor in tensors
        ]
    if len(tensors) == 1:
        op.give(tensors[0])
        return
    meaning = next((tensor.quantization for tensor in tensors if tensor.quantization is not None), None)
    result = op.output(0)
    # The kernel takes integers of one scale alone; that of uint8 divides by the result's scale.
    stated = [*tensors, result] if result.type == TensorType.UINT8 else tensors
    if not op.quantized and meaning is not None and any(not meaning.equals(each.quantization) for each in stated):
        wide = [op.cast(tensor, TensorType.INT32) for tensor in tensors]
        joined = op.emit("CONCATENATION", wide, op.out_dims(), axis=axis)
        op.result("CAST", [joined], in_data_type=joined.type, out_data_type=result.type)
        return
    op.result("CONCATENATION", tensors, axis=axis)


@exporter("Gather")
def gather(op: NodeExport) -> None:
    """GATHER; indices from behind are counted from the front."""
    axis = op.axis()
    indices = op.input(1)
    if not counts_from_front(op) if indices.array is None else (indices.array < 0).any():
        indices = from_front(op, indices, op.extent(op.input(0), axis))
    op.result("GATHER", [op.input(0), op.cast(indices, TensorType.INT32)], axis=axis)


@exporter("Expand")
def expand(op: NodeExport) -> None:
    """MUL by ones, FILL of a scalar, RESHAPE where nothing is stretched; BROADCAST_TO of types that MUL lacks."""
    operand, dims = op.input(0), op.out_dims()
    if len(dims) < len(operand.dims):
        raise Unwritable("its result is said to have fewer axes than its operand")
    if all_known(dims) and operand.is_static:
        if [dim for dim in operand.dims if dim != 1] == [dim for dim in dims if dim != 1]:
            op.give(op.reshape(operand, dims))
        else:
            op.give(op.stretch(operand, known(dims)))
        return
    count, rank = prod(op.static(1)), len(operand.dims)
    wanted = op.reshape(op.cast(op.input(1), TensorType.INT32), (count,))
    if not rank and operand.quantization is None and operand.type in MULTIPLIED:
        op.result("FILL", [wanted, operand])
        return
    if operand.quantization is None and operand.type in MULTIPLIED and max(count, rank) <= MOST_MULTIPLIED:
        unknown = tuple(f"{op.name}.{axis}" for axis in range(count))
        ones = op.emit("FILL", [wanted, op.real(np.ones(()))], unknown, operand.type)
        op.result("MUL", [operand, ones])
        return
    own = op.extents(operand)
    if count < rank:
        wanted = op.concat([op.ints([1] * (rank - count)), wanted], 0)
    if rank < count:
        own = op.concat([op.ints([1] * (count - rank)), own], 0)
    # ONNX lets a shape say 1 where the operand has more.
    op.result("BROADCAST_TO", [operand, op.select(op.compare("EQUAL", own, 1), wanted, own)])


@exporter("Tile")
def tile(op: NodeExport) -> None:
    """TILE."""
    repeats = op.constant(1)
    counts = op.cast(op.input(1), TensorType.INT32) if repeats is None else op.ints(repeats.tolist(), "repeats")
    op.result("TILE", [op.input(0), counts])


@exporter("DepthToSpace")
def depth_to_space(op: NodeExport) -> None:
    """DEPTH_TO_SPACE."""
    if op.text("mode", "DCR") != "DCR":
        raise Unwritable("channels of one pixel that lie together, of an open number")
    op.require_channels_last()
    op.result("DEPTH_TO_SPACE", [op.input(0)], block_size=op.integer("blocksize"))


@exporter("SpaceToDepth")
def space_to_depth(op: NodeExport) -> None:
    """SPACE_TO_DEPTH; channels of one pixel that lie together (CRD) are transposed after it."""
    op.require_channels_last()
    block = op.integer("blocksize")
    if op.text("mode", "DCR") == "DCR":
        op.result("SPACE_TO_DEPTH", [op.input(0)], block_size=block)
        return
    dims = known(op.out_dims())
    spread = op.emit("SPACE_TO_DEPTH", [op.input(0)], dims, block_size=block)
    split = op.reshape(spread, (*dims[:-1], block**2, dims[-1] // block**2))
    op.give(op.reshape(op.transpose(split, (0, 1, 2, 4, 3)), dims))


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
    op.result("SLICE", [whole, op.ints([start]), op.ints([max(end - start, 0)])])


@exporter("Size")
def size(op: NodeExport) -> None:
    """REDUCE_PROD of SHAPE."""
    whole = op.emit("SHAPE", [op.input(0)], (op.rank(),), TensorType.INT64, out_type=TensorType.INT64)
    op.result("REDUCE_PROD", [whole, op.ints([0])], keep_dims=False)


@exporter("ConstantOfShape")
def constant_of_shape(op: NodeExport) -> None:
    """FILL."""
    value = op.node.attributes.get("value")
    filled = np.zeros(1, np.float32) if value is None else value.as_tensor().numpy()
    dims = op.input(0)
    if len(dims.dims) != 1:  # the standard says a vector, and runtimes take any tensor
        dims = op.reshape(dims, (prod(known(dims.dims)),))
    op.result("FILL", [dims, op.const(filled.reshape(()), what="value")])


@exporter("Constant")
def constant(op: NodeExport) -> None:
    """A tensor of the file."""
    tensor = op.node.outputs[0].const_value
    if tensor is None:
        tensor = ir.convenience.get_const_tensor(op.node.outputs[0])
        if tensor is None:
            raise Unwritable("a constant that is no tensor")
        op.node.outputs[0].const_value = tensor
    op.graph.tensors[op.node.outputs[0]] = constant_tensor(op.draft, op.node.outputs[0])


@exporter("Range")
def range_(op: NodeExport) -> None:
    """RANGE."""
    kind = op.output(0).type
    if kind not in (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64):
        raise Unwritable(f"elements of {kind.name}")
    start, limit, step = (op.reshape(op.input(slot), ()) for slot in range(3))
    counts = start.array is not None and step.array is not None and not start.array.any() and step.array > 0
    if not counts:  # as lengths are counted, which are not below 0: LiteRT refuses an end before the start
        rises = op.compare("GREATER", step, 0) if step.array is None else bool(step.array > 0)
        if isinstance(rises, bool):
            limit = op.maximum(start, limit) if rises else op.minimum(start, limit)
        else:
            limit = op.select(rises, op.maximum(start, limit), op.minimum(start, limit))
    op.result("RANGE", [start, limit, step])
