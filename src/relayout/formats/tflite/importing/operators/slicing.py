"""Parts of tensors, borders around them, and tensors put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import MirrorPadMode, TensorType
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.extents import contents, shifted
from relayout.formats.tflite.importing.extents import divided as quotient
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.registry import ANY_OPSET, Unsupported, operator
from relayout.formats.tflite.importing.window import Border
from relayout.light_dataclass import dataclass

FIRST, LAST = -(2**63), 2**63 - 1  # ONNX clamps these to before the first and past the last element

SHORT, LONG = 2**30, 2**62
"""Of integers of 32 and of 64 bits: above all extents, and twice as much is still one of them."""

_INT32 = ir.DataType.INT32


def cut(
    op: Operation,
    x: ir.Value,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int],
    steps: Sequence[int] | None = None,
) -> ir.Value:
    """Return a Slice with constant bounds."""
    bounds = (starts, "starts"), (ends, "ends"), (axes, "axes"), (steps or [1] * len(starts), "steps")
    return op.emit("Slice", [x, *(op.ints(values, name) for values, name in bounds)])


def squeeze(op: Operation, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Return a Squeeze of axes counted from the front."""
    return op.emit("Squeeze", [x, op.ints(axes)])


def unsqueeze(op: Operation, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Return an Unsqueeze; the axes count in the result."""
    return op.emit("Unsqueeze", [x, op.ints(axes)])


@operator("SLICE", texts=ANY_OPSET)
def slice_(op: Operation) -> None:
    """Slice; a size of -1 reaches to the end."""
    (x,), finish = op.carried(0)
    rank = len(dims(x))
    if op.is_constant(1) and op.is_constant(2):
        begin, size = op.integers(1), op.integers(2)
        if not len(begin) == len(size) == rank:
            raise op.damaged(f"begin and size do not fit rank {rank}")
        ends = [LAST if s == -1 else b + s for b, s in zip(begin, size, strict=True)]
        finish(cut(op, x, begin, ends, range(rank)))
        return
    known = op.integers(2) if op.is_constant(2) else [-1] * rank
    finish(op.emit("Slice", [x, *_bounds(op, x)], op.out_dims([size if size >= 0 else None for size in known])))


def _bounds(op: Operation, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return where computed slices start and end, in few nodes: loops compute them again and again.

    A size of -1 without its upper bits is more than any extent, and any other size is what it is.
    """
    short = all(isinstance(d, int) and d < SHORT for d in dims(x)) and {op.stored(i).dtype for i in (1, 2)} == {_INT32}
    kind, most = (_INT32, SHORT - 1) if short else (ir.DataType.INT64, LONG - 1)

    def constant(i: int, name: str, negative: int) -> ir.Value:
        numbers = [negative if v < 0 else v for v in op.integers(i)]
        return op.array(name, np.array(numbers, kind.numpy()))

    first = constant(1, "starts", 0) if op.is_constant(1) else op.cast(op.stored(1), kind)
    if op.is_constant(2):
        size = constant(2, "sizes", most)
    else:
        size = op.cast(op.stored(2), kind)
        size = op.emit("BitwiseAnd", [size, op.number(most, size, "most")])
    at_front = op.is_constant(1) and not any(op.integers(1))
    return first, size if at_front else op.emit("Add", [first, size])


def _pads(op: Operation, rank: int) -> list[int]:
    """Operand 1 in ONNX's order: all begins, then all ends."""
    pairs = op.integers(1, 2 * rank)
    if len(pairs) != 2 * rank or min(pairs, default=0) < 0:
        raise op.damaged(f"paddings {pairs} do not fit rank {rank}")
    return pairs[::2] + pairs[1::2]


def _padded(op: Operation, x: ir.Value) -> tuple[ir.Value, tuple[Dim, ...]]:
    """Return the paddings as an operand, and the padded shape."""
    shape, rank = dims(x), len(dims(x))
    if op.is_constant(1):
        both = _pads(op, rank)
        grown = [shifted(d, b + e) for d, b, e in zip(shape, both[:rank], both[rank:], strict=True)]
        return op.ints(both, "pads"), op.out_dims(grown)
    pairs = op.cast(op.stored(1), ir.DataType.INT64)
    pairs = op.emit("Transpose", [pairs], (2, rank), perm=[1, 0])
    return op.emit("Reshape", [pairs, op.ints([-1], "shape")], (2 * rank,)), op.out_dims((None,) * rank)


def pad_value(op: Operation, x: ir.Value) -> ir.Value:
    """Return what the real number 0 is in the result's terms."""
    quantization = op.output().quantization
    zero = int(quantization.zero_point[0]) if quantization and x.dtype != ir.DataType.FLOAT else 0
    return op.number(zero, x, "zero")


def _remember(op: Operation, nodes: Sequence[ir.Node], zero: bool = True) -> None:
    """Note a border: if it is of the real number 0, windows that slide over it can have it instead of these nodes."""
    rank, quantization = len(dims(op.stored(0))), op.output().quantization
    op.tensors.borders[op.operator.outputs[0]] = None
    per_channel = quantization is not None and quantization.per_channel
    if not op.folds_borders or rank < 3 or not zero or not op.is_constant(1) or per_channel:
        return
    both = _pads(op, rank)
    if not op.alike(0) or not both[0] == both[rank - 1] == both[rank] == both[-1] == 0:
        return
    around = (*both[1 : rank - 1], *both[rank + 1 : -1])
    op.tensors.borders[op.operator.outputs[0]] = Border(op.input(0), around, _is_positive(op, op.stored(0)))
    op.builder.spare |= {id(node) for node in nodes}


_POSITIVE = ("Abs", "Exp", "Relu", "Sigmoid", "Softmax", "Sqrt")  # operators whose results are not below 0

_MOVING = ("Reshape", "Transpose")
"""Operators whose results are elements of operand 0, as those of a convolution are brought back to `n h w c`."""


def _is_positive(op: Operation, value: ir.Value) -> bool:
    """Tell whether it is known that nothing is below the real number 0."""
    quantization, node = op.tensors.quantization(op.input(0)), value.producer()
    if quantization is not None and op.input(0).type in BYTES_ONLY:
        return int(quantization.zero_point[0]) == (0 if op.input(0).type == TensorType.UINT8 else -128)
    while node is not None and node.op_type in _MOVING and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    if node is None or node.op_type != "Clip":
        return node is not None and node.op_type in _POSITIVE
    low = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    return low is not None and bool(low.numpy() >= 0)


@operator("PAD")
def pad(op: Operation) -> None:
    """Pad with the real number 0, which is the zero point where integers are padded."""
    before = len(op.builder.nodes)
    (x,), finish = op.carried(0, types=BYTES_ONLY)
    pads, shape = _padded(op, x)
    finish(op.emit("Pad", [x, pads, pad_value(op, x)], shape, mode="constant"))
    _remember(op, op.builder.nodes[before:])


@operator("PADV2")
def pad_v2(op: Operation) -> None:
    """Pad with operand 2; with the real number 0, as PAD."""
    before = len(op.builder.nodes)
    (x, value), finish = op.carried(0, 2, types=BYTES_ONLY)
    pads, shape = _padded(op, x)
    finish(op.emit("Pad", [x, pads, value], shape, mode="constant"))
    quantization = op.output().quantization
    zero = 0 if quantization is None else quantization.zero_point[0]
    known = op.is_constant(2) and op.alike(2) and bool(np.all(op.constant(2) == zero))
    _remember(op, op.builder.nodes[before:], known)


@operator("MIRROR_PAD", options="MirrorPadOptions")
def mirror_pad(op: Operation) -> None:
    """Pad, reflect; SYMMETRIC, which ONNX lacks, is a Concat with reversed Slices for each axis."""
    (x,), finish = op.carried(0, types=BYTES_ONLY)
    if op.options.mode == MirrorPadMode.REFLECT:
        pads, shape = _padded(op, x)
        finish(op.emit("Pad", [x, pads], shape, mode="reflect"))
        return
    rank = len(dims(x))
    both = _pads(op, rank)
    for axis, (begin, end) in enumerate(zip(both[:rank], both[rank:], strict=True)):
        parts = [cut(op, x, [begin - 1], [FIRST], [axis], [-1])] if begin else []
        parts += [x]
        parts += [cut(op, x, [LAST], [-end - 1], [axis], [-1])] if end else []
        if len(parts) > 1:
            x = joined(op, parts, axis)
    finish(x)


def bordered_to(op: Operation, x: ir.Value, axis: int, extent: int) -> ir.Value:
    """So many elements along an axis: the rest is cut off, or zeros come behind."""
    if dims(x)[axis] == extent:
        return x
    (have,) = op.fixed(dims(x)[axis : axis + 1], "unknown dimensions, to be cut or filled to known ones")
    if have > extent:
        return cut(op, x, [0], [extent], [axis])
    amounts = [0] * (2 * len(dims(x)))
    amounts[len(dims(x)) + axis] = extent - have
    return op.emit("Pad", [x, op.ints(amounts, "pads")], mode="constant")


def joined(op: Operation, parts: Sequence[ir.Value], axis: int) -> ir.Value:
    """Return a Concat."""
    return op.emit("Concat", parts, axis=axis)


@operator("CONCATENATION", options="ConcatenationOptions")
def concatenation(op: Operation) -> None:
    """Concat, on the integers where all operands are quantized as the result is."""
    bytes_ = op.output().type in BYTES_ONLY
    fused = op.options.fused_activation_function
    parts, finish = op.carried(*range(len(op.operator.inputs)), fused=fused, requantized=bytes_)
    finish(joined(op, parts, op.axis(op.options.axis, len(dims(parts[0])))))


@operator("PACK", options="PackOptions")
def pack(op: Operation) -> None:
    """Concat of Unsqueezes; the axis counts in the result."""
    parts, finish = op.carried(*range(len(op.operator.inputs)))
    axis = op.axis(op.options.axis, len(dims(parts[0])) + 1)
    finish(joined(op, [unsqueeze(op, part, [axis]) for part in parts], axis))


@operator("UNPACK", options="UnpackOptions")
def unpack(op: Operation) -> None:
    """Split, then Squeeze of each part."""
    count = len(op.operator.outputs)
    (x,), finish = op.carried(0, results=count)
    axis = op.axis(op.options.axis, len(dims(x)))
    for i, part in enumerate(divided(op, x, axis, [1] * count)):
        finish(squeeze(op, part, [axis]), i)


def divided(op: Operation, x: ir.Value, axis: int, sizes: Sequence[int]) -> Sequence[ir.Value]:
    """Return a Split into parts of these extents."""
    extent = dims(x)[axis]
    if isinstance(extent, int) and sum(sizes) != extent:
        raise op.damaged(f"parts of {list(sizes)[:9]} do not make {extent}")
    shapes = [(*dims(x)[:axis], size, *dims(x)[axis + 1 :]) for size in sizes]
    return op.emit_all("Split", [x, op.ints(sizes, "sizes")], shapes, axis=axis)


@operator("SPLIT", options="SplitOptions")
def split(op: Operation) -> None:
    """Split into equal parts. The axis is operand 0, the data operand 1."""
    count = len(op.operator.outputs)
    (x,), finish = op.carried(1, results=count)
    (axis,) = op.integers(0, 1)
    axis = op.axis(axis, len(dims(x)))
    extent = dims(x)[axis]
    if isinstance(extent, int):
        if extent % count:
            raise op.damaged(f"{extent} is not divided by {count}")
        parts = divided(op, x, axis, [extent // count] * count)
    else:
        shape = (*dims(x)[:axis], quotient(extent, count), *dims(x)[axis + 1 :])
        parts = op.emit_all("Split", [x], [shape] * count, axis=axis, num_outputs=count)
    for i, part in enumerate(parts):
        finish(part, i)


@operator("SPLIT_V", options="SplitVOptions")
def split_v(op: Operation) -> None:
    """Split into parts of given sizes; one of them may be -1."""
    count = len(op.operator.outputs)
    (x,), finish = op.carried(0, results=count)
    (axis,) = op.integers(2, 1)
    axis = op.axis(axis, len(dims(x)))
    if not op.is_constant(1) and contents(op.stored(1)) is None:
        # By sizes that the graph computes; one of them may be -1, which no Split takes: it is what is left.
        computed = op.cast(op.stored(1), ir.DataType.INT64)
        total = op.emit("ReduceSum", [op.emit("Max", [computed, op.ints([0], "none")])], keepdims=1)
        remainder = op.emit("Sub", [op.emit("Shape", [x], start=axis, end=axis + 1), total])
        whole = op.emit("Where", [op.emit("Less", [computed, op.ints([0], "none")]), remainder, computed])
        shapes = [tuple(None if place == axis else dim for place, dim in enumerate(dims(x)))] * count
        for i, part in enumerate(op.emit_all("Split", [x, whole], shapes, axis=axis)):
            finish(part, i)
        return
    sizes = op.integers(1, count)
    extent = dims(x)[axis]
    if sizes.count(-1) == 1 and not isinstance(extent, int):
        _hand_over_parts(op, x, axis, sizes, finish)
        return
    if sizes.count(-1) == 1 and isinstance(extent, int):
        sizes[sizes.index(-1)] = extent - sum(sizes) - 1
    if len(sizes) != count or min(sizes) < 0:
        raise op.damaged(f"{count} parts of sizes {sizes[:9]}")
    for i, part in enumerate(divided(op, x, axis, sizes)):
        finish(part, i)


def _hand_over_parts(
    op: Operation, x: ir.Value, axis: int, sizes: list[int], finish: Callable[[ir.Value, int], None]
) -> None:
    """Slices of an axis of unknown extent: from the front up to the part that takes the rest, then from the end."""
    place = sizes.index(-1)
    bounds = [0]
    for size in sizes[:place]:
        bounds.append(bounds[-1] + size)
    ends = [0]
    for size in reversed(sizes[place + 1 :]):
        ends.insert(0, ends[0] - size)
    starts, stops = [*bounds, *ends[:-1]], [*bounds[1:], *(end or LAST for end in ends)]
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        axes = [op.ints([v], name) for v, name in ((start, "start"), (stop, "end"), (axis, "axis"))]
        part = (*dims(x)[:axis], None if i == place else sizes[i], *dims(x)[axis + 1 :])
        finish(op.emit("Slice", [x, *axes], part), i)


@operator("REVERSE_V2")
def reverse(op: Operation) -> None:
    """Slice backwards."""
    (x,), finish = op.carried(0)
    axes = [op.axis(axis, len(dims(x))) for axis in op.integers(1)]
    many = len(axes)
    finish(cut(op, x, [LAST] * many, [FIRST] * many, axes, [-1] * many) if axes else x)


def extents_of(op: Operation, i: int) -> tuple[ir.Value, tuple[Dim, ...] | None]:
    """Operand i, which is a shape, as int64, and what is known of it: all, the number of dimensions, or nothing."""
    if op.is_constant(i):
        return op.ints(op.integers(i), "shape"), tuple(op.integers(i))
    value = op.stored(i)
    extents = contents(value)
    if extents is not None and all(isinstance(e, int) for e in extents):
        return op.ints([e for e in extents if isinstance(e, int)], "shape"), extents
    if extents is None and len(dims(value)) == 1 and isinstance(dims(value)[0], int):
        extents = (None,) * int(dims(value)[0] or 0)
    return op.cast(value, ir.DataType.INT64), extents


def result_extents(op: Operation, i: int) -> tuple[ir.Value, Dims]:
    """Operand i, which is the shape of the result, as int64; and the shape, as far as it is known."""
    extents, known = extents_of(op, i)
    return extents, op.out_dims(known if known is not None else (None,) * len(op.tensors.declared(op.output())))


# STRIDED_SLICE: one operator that cuts, indexes and inserts axes.

_INT64 = ir.DataType.INT64


@dataclass(frozen=True)
class _Position:
    """One position of the specification that speaks of an axis."""

    index: int
    axis: int
    open_begin: bool
    open_end: bool
    shrink: bool


def _positions(op: Operation, count: int, rank: int) -> tuple[list[_Position], list[int]]:
    """Return the positions that cut, and where new axes come in the result.

    Bit i of a mask speaks of position i of the specification, which is not axis i where an ellipsis or a new axis
    comes before it.
    """
    options = op.options

    def bit(mask: int, i: int) -> bool:
        return bool(mask >> i & 1)

    ellipses = [i for i in range(count) if bit(options.ellipsis_mask, i)]
    new = [i for i in range(count) if bit(options.new_axis_mask, i) and i not in ellipses]
    consumed = count - len(new) - len(ellipses)
    if len(ellipses) > 1 or consumed > rank:
        raise op.damaged(f"{count} positions do not fit rank {rank}")
    cuts: list[_Position] = []
    inserted: list[int] = []
    axis = place = 0
    for i in range(count):
        if i in ellipses:
            axis, place = axis + rank - consumed, place + rank - consumed
        elif i in new:
            inserted.append(place)
            place += 1
        else:
            shrink = bit(options.shrink_axis_mask, i)
            cuts.append(_Position(i, axis, bit(options.begin_mask, i), bit(options.end_mask, i), shrink))
            place, axis = place + (not shrink), axis + 1
    return cuts, inserted


@operator("STRIDED_SLICE", options="StridedSliceOptions", texts=ANY_OPSET)
def strided_slice(op: Operation) -> None:
    """Slice, then Squeeze of the axes that are indexed, then Unsqueeze of new ones."""
    (x,), finish = op.carried(0)
    rank = len(dims(x))
    bounds = [_numbers(op, i) for i in (1, 2, 3)]
    counts = {len(b) if b is not None else dims(op.stored(i))[0] for i, b in enumerate(bounds, 1)}
    count = counts.pop()
    if counts or not isinstance(count, int):
        raise op.damaged("begin, end and strides differ in length")
    positions, inserted = _positions(op, count, rank)
    begin, end, steps = bounds
    if steps is not None and 0 in steps:
        raise op.damaged("a stride is 0")
    if op.options.offset and (begin is None or end is None):
        raise Unsupported("computed bounds with an offset")  # the interpreter crashes on them
    if not positions:
        y = x
    elif begin is None or end is None or steps is None or _is_offset_below_0(op, x, positions, begin):
        y = _computed(op, x, positions, steps)
    else:
        y = _constant(op, x, positions, begin, end, steps)
    squeezed = [p.axis for p in positions if p.shrink]
    y = squeeze(op, y, squeezed) if squeezed else y
    finish(unsqueeze(op, y, inserted) if inserted else y)


def _is_offset_below_0(op: Operation, x: ir.Value, positions: list[_Position], begin: list[int]) -> bool:
    """Tell whether an end is counted from a begin that is counted from the end of an unknown extent."""
    return op.options.offset and any(begin[p.index] < 0 and not isinstance(dims(x)[p.axis], int) for p in positions)


def _numbers(op: Operation, i: int) -> list[int] | None:
    """Return a bound as plain numbers, None where it is known only at run time."""
    if op.is_constant(i):
        return op.integers(i)
    known = contents(op.stored(i))
    fixed = [e for e in known or () if isinstance(e, int)]
    return fixed if known is not None and len(fixed) == len(known) else None


def _constant(
    op: Operation, x: ir.Value, positions: list[_Position], begin: list[int], end: list[int], steps: list[int]
) -> ir.Value:
    starts, ends = [], []
    for p in positions:
        low, high, step = begin[p.index], end[p.index], steps[p.index]
        if op.options.offset:
            extent = dims(x)[p.axis]
            low += extent if low < 0 and isinstance(extent, int) else 0
            high += low
        if p.shrink:
            high = LAST if low == -1 else low + 1
        else:
            low = (0 if step > 0 else LAST) if p.open_begin else low
            high = (LAST if step > 0 else FIRST) if p.open_end else high
        starts.append(low)
        ends.append(high)
    strides = [1 if p.shrink else steps[p.index] for p in positions]
    return cut(op, x, starts, ends, [p.axis for p in positions], strides)


def _computed(op: Operation, x: ir.Value, positions: list[_Position], steps: list[int] | None) -> ir.Value:
    """Write the same rules as nodes, on all positions at once."""
    many = len(positions)
    where = op.ints([p.index for p in positions], "positions")
    axes = [p.axis for p in positions]

    def bound(i: int) -> ir.Value:
        return op.emit("Gather", [op.cast(op.stored(i), _INT64), where], axis=0)

    if steps is None and any(p.open_begin or p.open_end for p in positions):
        raise Unsupported("computed strides with open ends, whose places depend on their signs")
    low, high = bound(1), bound(2)
    if op.options.offset:
        extents = op.emit("Shape", [x])
        extents = op.emit("Gather", [extents, op.ints(axes)], axis=0)
        negative = op.each("Less", low, op.number(0, low, "zero"))
        low = op.emit("Where", [negative, op.each("Add", low, extents), low])
        high = op.each("Add", low, high)
    low, high = _open_ends(op, positions, steps, low, high)
    shrunk = [p.shrink for p in positions]
    if any(shrunk):
        last = op.each("Equal", low, op.number(-1, low, "last"))
        after = op.each("Add", low, op.number(1, low, "one"))
        after = op.emit("Where", [last, op.number(LAST, low, "end"), after])
        high = _select(op, shrunk, after, high)
    stride = bound(3) if steps is None else op.ints([steps[p.index] for p in positions], "steps")
    stride = _select(op, shrunk, op.ints([1] * many, "ones"), stride)
    return op.emit("Slice", [x, low, high, op.ints(axes), stride], _result_dims(x, positions, steps))


def _result_dims(x: ir.Value, positions: list[_Position], steps: list[int] | None) -> Dims:
    shape: list[Dim] = list(dims(x))
    for p in positions:
        whole = p.open_begin and p.open_end and steps is not None and abs(steps[p.index]) == 1
        shape[p.axis] = 1 if p.shrink else shape[p.axis] if whole else None
    return tuple(shape)


def _open_ends(
    op: Operation, positions: list[_Position], steps: list[int] | None, low: ir.Value, high: ir.Value
) -> tuple[ir.Value, ir.Value]:
    forward = [steps is None or steps[p.index] > 0 for p in positions]
    begins = op.ints([0 if f else LAST for f in forward])
    low = _select(op, [p.open_begin and not p.shrink for p in positions], begins, low)
    ends = op.ints([LAST if f else FIRST for f in forward])
    return low, _select(op, [p.open_end for p in positions], ends, high)


def _select(op: Operation, mask: list[bool], yes: ir.Value, no: ir.Value) -> ir.Value:
    if not any(mask):
        return no
    return op.emit("Where", [op.array("mask", np.array(mask)), yes, no])
