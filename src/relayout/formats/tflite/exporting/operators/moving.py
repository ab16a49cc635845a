"""Operators that move elements and compute none: they lay out, join, cut, pad and split."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import MirrorPadMode, TensorType
from relayout.formats.tflite.exporting.builder import MOST_MULTIPLIED, MULTIPLIED
from relayout.formats.tflite.exporting.constants import constant_tensor
from relayout.formats.tflite.exporting.draft import NUMPY, Dims, DraftTensor, all_known, known
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
    if operand.dims == dims and operand.is_static:
        op.give(operand)
        return
    if is_open and op.op_type == "Reshape" and listed is None:
        shape = _filled(op, operand, len(dims))
    elif is_open and listed is not None and not op.integer("allowzero"):
        own = op.extents(operand)  # for which 0 stands
        parts = [op.ints([dim]) if dim else op.part(own, 0, axis, 1) for axis, dim in enumerate(listed.tolist())]
        shape = op.concat(parts, 0)
    else:
        shape = op.shape_tensor(_dims_of_operand(op, operand, dims) if is_open else dims, operand)
    op.result("RESHAPE", [operand, shape])


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
    own, rest = op.extents(operand), rank - len(operand.dims)
    own = op.concat([own, op.ints([0] * rest)], 0) if rest > 0 else op.part(own, 0, 0, rank)
    return op.select(op.compare("EQUAL", shape, 0), own, shape)


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
        op.draft.add_cast(joined, result)
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
        is_view = [dim for dim in operand.dims if dim != 1] == [dim for dim in dims if dim != 1]
        op.give(op.reshape(operand, dims) if is_view else op.stretch(operand, known(dims)))
        return
    count, rank = prod(op.static(1)), len(operand.dims)
    shape = op.reshape(op.cast(op.input(1), TensorType.INT32), (count,))
    is_multiplied = operand.quantization is None and operand.type in MULTIPLIED
    if not rank and is_multiplied:
        op.result("FILL", [shape, operand])
        return
    if is_multiplied and max(count, rank) <= MOST_MULTIPLIED:
        unknown = tuple(f"{op.name}.{axis}" for axis in range(count))
        ones = op.emit("FILL", [shape, op.tensor(1, operand.type)], unknown, operand.type)
        op.result("MUL", [operand, ones])
        return
    own = op.extents(operand)
    if count < rank:
        shape = op.concat([op.ints([1] * (rank - count)), shape], 0)
    if rank < count:
        own = op.concat([op.ints([1] * (count - rank)), own], 0)
    # ONNX lets a shape say 1 where the operand has more.
    op.result("BROADCAST_TO", [operand, op.select(op.compare("EQUAL", own, 1), shape, own)])


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


# Operators that cut, pad and split: their amounts may be computed.


MOST_PADDED = 5  # axes that PADV2 takes

END = (1 << 31) - 1  # the largest int32: an end that no axis reaches


@exporter("Split")
def split(op: NodeExport) -> None:
    """SPLIT, or SPLIT_V where the parts differ or their sizes are computed."""
    axis, count = op.axis(), len(op.node.outputs)
    axis_tensor = op.const(np.array(axis, np.int32), what="axis")
    constant_sizes, extent = op.constant(1), op.dims()[axis]
    sizes = op.integers("split") or ([] if constant_sizes is None else constant_sizes.tolist())
    listed: DraftTensor | None = None
    if not sizes and op.has(1):
        listed = op.cast(op.input(1), TensorType.INT32)
    elif not sizes and isinstance(extent, int):
        part = -(-extent // count)
        sizes = [max(min(part, extent - part * place), 0) for place in range(count)]
    elif not sizes and op.node.attributes.get("num_outputs") is not None:  # the last part may be smaller
        parts = op.each("FLOOR_DIV", op.add(whole := op.extent(op.input(0), axis), count - 1), count)
        listed = op.clamp(op.sub(whole, op.mul(parts, op.ints(np.arange(count)))), 0, parts)
    if len(set(sizes)) > 1:
        listed = op.ints(sizes, "sizes")
    if listed is None:
        op.results("SPLIT", [axis_tensor, op.input(0)], num_splits=count)
    else:
        op.results("SPLIT_V", [op.input(0), listed, axis_tensor], num_splits=count)


@exporter("Slice")
def slice_(op: NodeExport) -> None:
    """STRIDED_SLICE; REVERSE_V2 where whole axes are reversed."""
    if op.version < 10 or op.node.attributes.get("starts") is not None:
        starts, ends = op.integers("starts"), op.integers("ends")
        axes, strides = op.integers("axes", range(len(starts))), [1] * len(starts)
        _require_same_count(starts, ends, axes)
    elif any(op.has(slot) and op.constant(slot) is None for slot in range(1, 5)):
        _computed_slice(op)
        return
    else:
        starts, ends = (op.required_constant(slot, "a slice").reshape(-1).tolist() for slot in (1, 2))
        axes = op.required_constant(3, "the axes of a slice").tolist() if op.has(3) else list(range(len(starts)))
        strides = op.required_constant(4, "the steps of a slice").tolist() if op.has(4) else [1] * len(starts)
        _require_same_count(starts, ends, axes, strides)
        if any(not -op.rank() <= axis < op.rank() for axis in axes):
            raise Unwritable("an axis that its operand does not have")
        for start, stop, axis, step in zip(starts, ends, axes, strides, strict=True):
            is_whole = (start == -1 or start >= END) and stop < -END // 2
            if step < 0 and not is_whole and not isinstance(op.dims()[axis], int):  # backwards over an open axis
                _computed_slice(op)
                return
    _known_slice(op, _bounded(starts), _bounded(ends), axes, _bounded(strides))


def _require_same_count(*places: Sequence[int]) -> None:
    """Refuse a slice that has not one place for each axis."""
    if len(set(map(len, places))) > 1:
        raise Unwritable("a slice with more places than axes, or fewer")


def _bounded(places: Iterable[int]) -> list[int]:
    """Return places, and ends that stand for all, as int32."""
    return [max(min(place, END), -END) for place in places]


class _Cut(NamedTuple):
    """The part of an axis that is taken: from a place, up to another one, by steps; None: the axis' own end."""

    begin: int | None
    end: int | None
    step: int

    def is_whole(self, extent: int | str) -> bool:
        """Return whether every element of an axis is taken, in order."""
        return self.step == 1 and self.begin in (None, 0) and self.end in (None, extent)


def _known_slice(op: NodeExport, starts: list[int], ends: list[int], axes: list[int], strides: list[int]) -> None:
    operand, rank = op.input(0), op.rank()
    cuts = [_Cut(None, None, 1)] * rank
    for start, stop, axis, step in zip(starts, ends, axes, strides, strict=True):
        cut = _backwards if step < 0 else _forwards
        cuts[axis % rank] = cut(start, stop, step, operand.dims[axis % rank])
    backwards = [axis for axis, cut in enumerate(cuts) if cut == _Cut(None, None, -1)]
    others = [cut.is_whole(operand.dims[axis]) for axis, cut in enumerate(cuts) if axis not in backwards]
    if backwards and all(others) and backwards[-1] - backwards[0] == len(backwards) - 1:  # the kernel takes one run
        op.result("REVERSE_V2", [operand, op.ints(backwards)])
        return
    inputs = [
        operand,
        op.ints([cut.begin or 0 for cut in cuts], "begin"),
        op.ints([cut.end or 0 for cut in cuts], "end"),
        op.ints([cut.step for cut in cuts], "strides"),
    ]
    begin_mask, end_mask = (
        sum(1 << axis for axis, each in enumerate(places) if each is None)
        for places in ([cut.begin for cut in cuts], [cut.end for cut in cuts])
    )
    op.result("STRIDED_SLICE", inputs, begin_mask=begin_mask, end_mask=end_mask)


def _forwards(start: int, stop: int, step: int, extent: int | str) -> _Cut:
    if not isinstance(extent, int):
        return _Cut(start, stop if stop < END else None, step) if stop else _nothing(END)
    start = min(max(start + extent if start < 0 else start, 0), extent)
    stop = min(max(stop + extent if stop < 0 else stop, start), extent)
    return _Cut(start, stop, step) if start < stop else _nothing(extent)


def _backwards(start: int, stop: int, step: int, extent: int | str) -> _Cut:
    if not isinstance(extent, int):
        return _Cut(None, None, step)
    first = min(max(start + extent if start < 0 else start, 0), extent - 1)  # ONNX begins inside of the axis
    last = max(stop + extent if -extent <= stop < 0 else stop, -1)
    if first <= last:
        return _nothing(extent)
    return _Cut(None if first == extent - 1 else first, None if last == -1 else last, step)


def _nothing(extent: int) -> _Cut:
    """Take no element, of an open axis from a place behind it. A slice up to 0 may be taken for one of all elements."""
    return _Cut(extent, extent, 1)


def _computed_slice(op: NodeExport) -> None:
    """Write a slice whose places are computed: STRIDED_SLICE counts from behind and cuts off as ONNX does.

    Going backwards, ONNX begins at the first element at least, and the kernel may begin before it.
    """
    rank = op.rank()
    (count,) = op.static(1)
    axes = op.constant(3) if op.has(3) else np.arange(rank)[:count]
    begins, ends = (_in_32_bits(op, op.input(slot)) for slot in (1, 2))
    strides = _in_32_bits(op, op.input(4)) if op.has(4) else op.ints(np.ones(count))
    if axes is None or axes.size != rank or list(axes % rank) != list(range(rank)):
        places = _in_32_bits(op, op.input(3)) if axes is None else op.ints(axes % rank)
        places = op.reshape(op.each("FLOOR_MOD", places, rank), (*places.dims, 1))
        marks = op.scatter_nd(places, op.each("ADD", op.mul(strides, 0), 1), [rank])
        chosen = op.compare("GREATER", marks, 0)
        begins = op.scatter_nd(places, begins, [rank])
        ends = op.select(chosen, op.scatter_nd(places, ends, [rank]), END)
        strides = op.select(chosen, op.scatter_nd(places, strides, [rank]), 1)
    known = op.constant(4)
    if op.has(4) and (known is None or (known < 0).any()):
        # The first place of each axis, counted from behind.
        is_static = op.input(0).is_static
        first = op.ints(-np.array(op.static())) if is_static else op.each("NEG", op.extents(op.input(0)))
        begins = op.maximum(begins, first)
    op.result("STRIDED_SLICE", [op.input(0), begins, ends, strides])


def _in_32_bits(op: NodeExport, tensor: DraftTensor) -> DraftTensor:
    """Return places, and ends that stand for all, as int32."""
    return op.cast(op.clamp(tensor, -END, END) if tensor.type == TensorType.INT64 else tensor, TensorType.INT32)


BETWEEN = 1e-4  # how far apart two numbers may be that are one integer, as a part of its scale


@exporter("Pad")
@exporter("Pad", domain="com.microsoft")
def pad(op: NodeExport) -> None:
    """PAD, PADV2 or MIRROR_PAD; negative amounts are a SLICE, an edge is gathered."""
    mode = op.text("mode", "constant")
    if not op.integers("pads") and not op.integers("paddings") and op.constant(1) is None:
        _computed_pad(op, mode)
        return
    rank = op.rank()
    flat_pads = op.integers("pads") or op.integers("paddings")
    flat_pads = flat_pads or op.required_constant(1, "the amount of padding").reshape(-1).tolist()
    axes = list(range(rank))
    if op.has(3):
        axes = [axis % rank for axis in op.required_constant(3, "the axes of padding").tolist()]
    pads = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        pads[axis] = (int(flat_pads[place]), int(flat_pads[len(axes) + place]))
    _known_pad(op, mode, pads)


def _known_pad(op: NodeExport, mode: str, pads: list[tuple[int, int]]) -> None:
    operand = op.input(0)
    # MIRROR_PAD wants no border that is longer than what it mirrors.
    reflects = mode == "reflect" and all(
        side >= 0 and (not isinstance(dim, int) or side < dim)
        for dim, pair in zip(operand.dims, pads, strict=True)
        for side in pair
    )
    if not any(map(any, pads)):
        op.give(operand)
    elif mode == "constant":
        _constant_pad(op, operand, pads)
    elif reflects:
        op.result("MIRROR_PAD", [operand, op.const(np.array(pads, np.int32))], mode=MirrorPadMode.REFLECT)
    else:
        # A border is made of what is left.
        result = op.cut(operand, [(max(-before, 0), max(-after, 0)) for before, after in pads])
        for axis, (before, after) in enumerate(pads):
            before, after = max(before, 0), max(after, 0)
            if before or after:
                result = _bordered_by_gather(op, result, axis, (before, after), mode)
        op.give(result)


def _constant_pad(op: NodeExport, operand: DraftTensor, pads: list[tuple[int, int]]) -> None:
    value = op.constant(2)
    if op.quantized:
        op.give(op.pad(operand, pads, _integer_border(op, operand)))
    elif op.has(2) and value is None:
        if any(side < 0 for pair in pads for side in pair):
            raise Unwritable("negative padding with a computed value")
        op.result("PADV2", [operand, op.const(np.array(pads, np.int32)), op.reshape(op.input(2), ())])
    else:
        if operand.type == op.output(0).type:  # the kernel wants all of them to mean the same
            operand.quantization = operand.quantization or op.graph.integers.meaning(op.node.outputs[0])
        op.give(op.pad(operand, pads, op.number("value") if value is None else value.reshape(-1)[0].item()))


def _integer_border(op: NodeExport, operand: DraftTensor) -> int | None:
    """Return the integer that a border of a quantized tensor holds; None: what means zero."""
    value, scale = op.constant(2), operand.quantization
    real = np.float32(op.number("value") if value is None else value.reshape(-1)[0])
    if op.has(2) and value is None:
        integers = op.input(2)
        if integers.array is None or integers.quantization is None or integers.quantization.per_channel:
            raise Unwritable("integers with a border that is computed")
        step, zero, _ = integers.quantization
        real = np.float32((int(integers.array.reshape(-1)[0]) - int(zero[0])) * step[0])
    if not real:
        return None
    if scale is None or scale.per_channel:
        raise Unwritable("a border of integers without a scale")
    number = int(np.rint(real / scale.scale[0])) + int(scale.zero_point[0])
    limits, exact = np.iinfo(NUMPY[operand.type]), (number - int(scale.zero_point[0])) * scale.scale[0]
    if not limits.min <= number <= limits.max or abs(exact - real) > BETWEEN * scale.scale[0]:
        raise Unwritable("integers with a border between two integers")
    return number


def _computed_pad(op: NodeExport, mode: str) -> None:
    rank = op.rank()
    amounts = op.cast(op.input(1), TensorType.INT32)
    if op.has(3):
        (count,) = op.static(3)
        axes = op.cast(op.input(3), TensorType.INT32)
        places = op.reshape(op.each("FLOOR_MOD", axes, rank), (count, 1))
        halves = [op.part(amounts, 0, begin, count) for begin in (0, count)]
        pairs = op.stack([op.scatter_nd(places, half, [rank]) for half in halves], 1)
    else:
        pairs = op.stack([op.part(amounts, 0, begin, rank) for begin in (0, rank)], 1)
    if mode not in ("constant", "reflect"):
        raise Unwritable(f"the amount of padding by {mode} is computed")
    if rank > MOST_PADDED:
        raise Unwritable(f"the amount of padding of {rank} axes is computed")
    operand = _cut(op, op.input(0), pairs)
    pairs = op.maximum(pairs, 0)
    if mode == "reflect":
        op.result("MIRROR_PAD", [operand, pairs], mode=MirrorPadMode.REFLECT)
    elif op.quantized:
        if _integer_border(op, operand) is not None:
            raise Unwritable("integers with a border of another number than zero, which is computed")
        op.result("PAD", [operand, pairs])
    else:
        value = op.reshape(op.input(2), ()) if op.has(2) else op.tensor(0, operand.type)
        op.result("PADV2", [operand, pairs, value])


def _cut(op: NodeExport, operand: DraftTensor, pairs: DraftTensor) -> DraftTensor:
    """Return a tensor without what negative padding takes away."""
    rank = len(operand.dims)
    cuts = op.maximum(op.each("NEG", pairs), 0)
    begins, ends = (op.at(cuts, 1, side) for side in (0, 1))
    extents = op.emit("SHAPE", [operand], (rank,), TensorType.INT32, out_type=TensorType.INT32)
    inputs = [operand, begins, op.sub(extents, ends), op.ints(np.ones(rank))]
    return op.emit("STRIDED_SLICE", inputs, tuple(f"?{op.name}.{axis}" for axis in range(rank)))


def _bordered_by_gather(
    op: NodeExport, tensor: DraftTensor, axis: int, pads: tuple[int, int], mode: str
) -> DraftTensor:
    dim = tensor.dims[axis]
    extent = op.extent(tensor, axis)
    count = dim + sum(pads) if isinstance(dim, int) else op.add(extent, sum(pads))
    name = count if isinstance(count, int) else op.out_dims()[axis]
    places = op.sub(op.arange(count, name), pads[0])
    last = extent - 1 if isinstance(extent, int) else op.sub(extent, 1)
    if mode == "edge":
        places = op.minimum(op.maximum(places, 0), last)
    elif mode == "wrap":
        places = op.each("FLOOR_MOD", places, extent)
    else:
        period = op.maximum(op.mul(op.tensor(last, TensorType.INT32), 2), 1)
        places = op.sub(op.each("FLOOR_MOD", op.add(places, last), period), last)
        places = op.maximum(places, op.mul(places, -1))
    return op.gather(tensor, places, axis)
