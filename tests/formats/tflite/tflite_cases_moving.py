"""Small models of operators that move, cut and join elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tflite_cases import I8, U8, cases
from tflite_writing import Net, Scale, options

KINDS = (("float32", None), ("int8", I8), ("uint8", U8), ("int32", None))


@cases("RESHAPE")
def reshapes() -> Iterator[Net]:
    for kind, q in KINDS:
        net = Net()
        x, to = net.input((2, 3, 4, 5), kind, q=q), net.const([4, -1, 3], "int32")
        yield net.op("RESHAPE", [x, to], [net.output((4, 10, 3), kind, q=q)], options("ReshapeOptions"))
    net = Net()
    yield net.op("RESHAPE", [net.input((2, 6))], [net.output((3, 4))], options("ReshapeOptions", newShape=[3, 4]))
    net = Net()
    yield net.op(
        "RESHAPE",
        [net.input((1, 1)), net.const(np.zeros(0), "int32")],
        [net.output(())],
        options("ReshapeOptions", newShape=[]),
    )
    net = Net()
    yield net.op("RESHAPE", [net.input((1, 1))], [net.output(())], options("ReshapeOptions", newShape=[0]))
    net = Net()  # a shape computed at run time
    x, like = net.input((2, 6)), net.input((3, 4))
    shape = net.tensor((2,), "int32")
    net.op("SHAPE", [like], [shape], options("ShapeOptions", outType=2))
    yield net.op("RESHAPE", [x, shape], [net.output((3, 4))], options("ReshapeOptions"))


@cases("SQUEEZE", "EXPAND_DIMS")
def ones() -> Iterator[Net]:
    for kind, q in KINDS:
        for axes, shape in (([], (3, 5)), ([2], (1, 3, 5)), ([0, -2], (3, 5))):
            net = Net()
            x, y = net.input((1, 3, 1, 5), kind, q=q), net.output(shape, kind, q=q)
            yield net.op("SQUEEZE", [x], [y], options("SqueezeOptions", squeezeDims=axes))
        for axis, shape in ((0, (1, 3, 5)), (1, (3, 1, 5)), (-1, (3, 5, 1))):
            net = Net()
            x, y = net.input((3, 5), kind, q=q), net.output(shape, kind, q=q)
            yield net.op("EXPAND_DIMS", [x, net.const(axis, "int32")], [y], options("ExpandDimsOptions"))


@cases("TRANSPOSE")
def transposes() -> Iterator[Net]:
    shape = (2, 3, 4, 5)
    for perm in ([0, 3, 1, 2], [3, 2, 1, 0], [1, 0, -1, 2]):
        for kind, q in KINDS:
            net = Net()
            y = net.output([shape[p] for p in perm], kind, q=q)
            yield net.op("TRANSPOSE", [net.input(shape, kind, q=q), net.const(perm, "int32")], [y])


@cases("BROADCAST_TO", "FILL", "TILE", "SHAPE", "RANK", "RANGE")
def shapes() -> Iterator[Net]:
    net = Net()
    yield net.op("BROADCAST_TO", [net.input((3, 1)), net.const([2, 3, 4], "int32")], [net.output((2, 3, 4))], version=2)
    net = Net()
    yield net.op("FILL", [net.const([2, 3], "int32"), net.input(())], [net.output((2, 3))])
    for kind, q in KINDS:
        net = Net()
        x = net.input((2, 3), kind, q=q)
        yield net.op("TILE", [x, net.const([2, 3], "int32")], [net.output((4, 9), kind, q=q)], version=2)
    net = Net()
    yield net.op("SHAPE", [net.input((2, 3, 5))], [net.output((3,), "int32")], options("ShapeOptions", outType=2))
    net = Net()
    yield net.op("SHAPE", [net.input((2, 3, 5))], [net.output((3,), "int64")], options("ShapeOptions", outType=4))
    net = Net()
    yield net.op("RANK", [net.input((2, 3, 5))], [net.output((), "int32")], options("RankOptions"))
    net = Net()
    start, limit, step = net.const(1, "int32"), net.const(12, "int32"), net.const(3, "int32")
    numbers = net.tensor((4,), "int32")
    net.op("RANGE", [start, limit, step], [numbers], options("RangeOptions"))
    yield net.op("ADD", [net.input((4,), "int32", -9, 9), numbers], [net.output((4,), "int32")], options("AddOptions"))


SLICES = (
    ([1, 0, 2], [2, 3, 5], [1, 1, 2], {}),
    ([0, 0, 0], [0, 2, 0], [1, 1, 1], {"beginMask": 1, "endMask": 5}),
    ([-1, 2, 4], [-9, -9, 0], [-1, -1, -2], {"endMask": 3, "beginMask": 1}),
    ([1], [2], [1], {"shrinkAxisMask": 1}),
    ([-1, 0], [0, 3], [1, 2], {"shrinkAxisMask": 1}),
    ([0, 1], [0, 3], [1, 1], {"ellipsisMask": 1}),
    ([1, 0, 1], [2, 0, 3], [1, 1, 1], {"ellipsisMask": 2, "shrinkAxisMask": 1}),
    ([0, 1, 0], [0, 2, 9], [1, 1, 1], {"newAxisMask": 1}),
    ([0, 0, 0], [1, 0, 2], [1, 1, 1], {"newAxisMask": 4, "ellipsisMask": 2, "shrinkAxisMask": 1}),
    ([0, 1, 3], [2, 2, 1], [1, 1, 1], {"offset": True}),
    ([-2, 0, -3], [2, 1, 3], [1, 1, 1], {"offset": True}),
    ([1, 5, 0], [9, 9, 9], [1, 1, 3], {}),
)


@cases("STRIDED_SLICE")
def strided_slices() -> Iterator[Net]:
    array = np.zeros((2, 3, 5))
    for begin, end, stride, masks in SLICES:
        picked = array[_index(begin, end, stride, masks)]
        for kind, q in (("float32", None), ("int8", I8)):
            net = Net()
            operands = [net.input((2, 3, 5), kind, q=q), *(net.const(v, "int32") for v in (begin, end, stride))]
            table = options("StridedSliceOptions", **masks)
            yield net.op("STRIDED_SLICE", operands, [net.output(picked.shape, kind, q=q)], table, version=8)


def _index(begin: list[int], end: list[int], stride: list[int], masks: dict[str, int]) -> tuple[object, ...]:
    """The same in numpy's own notation, for the shape."""
    index: list[object] = []
    for i, (b, e, s) in enumerate(zip(begin, end, stride, strict=True)):
        on = {name for name, mask in masks.items() if name != "offset" and mask >> i & 1}
        if "ellipsisMask" in on:
            index.append(...)
        elif "newAxisMask" in on:
            index.append(None)
        elif "shrinkAxisMask" in on:
            index.append(b)
        else:
            e = (b + e) or None if masks.get("offset") else e
            index.append(slice(None if "beginMask" in on else b, None if "endMask" in on else e, s))
    return tuple(index)


@cases("SLICE")
def slices() -> Iterator[Net]:
    for kind, q in KINDS:
        net = Net()
        operands = [net.input((2, 3, 5), kind, q=q), net.const([1, 0, 2], "int32"), net.const([1, -1, 2], "int32")]
        yield net.op("SLICE", operands, [net.output((1, 3, 2), kind, q=q)])
    net = Net()
    begin = net.input((2,), "int32", 0, 1)
    yield net.op("SLICE", [net.input((4, 5)), begin, net.const([2, 4], "int32")], [net.output((2, 4))])


@cases("PAD", "PADV2", "MIRROR_PAD")
def pads() -> Iterator[Net]:
    amounts = [[0, 0], [1, 2], [2, 0], [0, 1]]
    shape, grown = (2, 3, 4, 5), (2, 6, 6, 6)
    for kind, q in KINDS:
        net = Net()
        y = net.output(grown, kind, q=q)
        yield net.op("PAD", [net.input(shape, kind, q=q), net.const(amounts, "int32")], [y], version=2)
        net = Net()
        y = net.output(grown, kind, q=q)
        operands = [net.input(shape, kind, q=q), net.const(amounts, "int32"), net.const([7], kind, q=q)]
        yield net.op("PADV2", operands, [y], version=2)
        for mode in (0, 1):
            net = Net()
            operands = [net.input(shape, kind, q=q), net.const(amounts, "int32")]
            y = net.output(grown, kind, q=q)
            yield net.op("MIRROR_PAD", operands, [y], options("MirrorPadOptions", mode=mode), version=2)


@cases("CONCATENATION", "PACK")
def joins() -> Iterator[Net]:
    for kind, q in KINDS:
        for axis in (1, -1):
            net = Net()
            shapes = ((2, 3, 5), (2, 4, 5)) if axis == 1 else ((2, 3, 5), (2, 3, 4))
            parts = [net.input(shape, kind, q=q) for shape in shapes]
            y = net.output((2, 7, 5) if axis == 1 else (2, 3, 9), kind, q=q)
            yield net.op("CONCATENATION", parts, [y], options("ConcatenationOptions", axis=axis), version=2)
        for axis, shape in ((0, (3, 2, 5)), (1, (2, 3, 5)), (-1, (2, 5, 3))):
            net = Net()
            parts = [net.input((2, 5), kind, q=q) for _ in range(3)]
            table = options("PackOptions", valuesCount=3, axis=axis)
            yield net.op("PACK", parts, [net.output(shape, kind, q=q)], table, version=2)
    net = Net()  # parts that mean different things by one integer
    parts = [net.input((2, 3), "uint8", q=U8), net.input((2, 4), "uint8", q=Scale(0.03, 50))]
    y = net.output((2, 7), "uint8", q=Scale(0.06, 110))
    yield net.op("CONCATENATION", parts, [y], options("ConcatenationOptions", axis=1))


@cases("SPLIT", "SPLIT_V", "UNPACK")
def splits() -> Iterator[Net]:
    for kind, q in (("float32", None), ("int8", I8)):
        net = Net()
        x, axis = net.input((2, 6, 5), kind, q=q), net.const(1, "int32")
        parts = [net.output((2, 2, 5), kind, q=q) for _ in range(3)]
        yield net.op("SPLIT", [axis, x], parts, options("SplitOptions", numSplits=3), version=2)
        net = Net()
        x, sizes, axis = net.input((2, 6, 5), kind, q=q), net.const([1, -1, 2], "int32"), net.const(-2, "int32")
        parts = [net.output((2, e, 5), kind, q=q) for e in (1, 3, 2)]
        yield net.op("SPLIT_V", [x, sizes, axis], parts, options("SplitVOptions", numSplits=3), version=2)
        for axis_, shape in ((1, (2, 5)), (-1, (2, 3))):
            net = Net()
            x = net.input((2, 3, 5), kind, q=q)
            count = 15 // shape[1]
            parts = [net.output(shape, kind, q=q) for _ in range(count)]
            yield net.op("UNPACK", [x], parts, options("UnpackOptions", num=count, axis=axis_), version=2)


@cases("REVERSE_V2", "REVERSE_SEQUENCE")
def reversals() -> Iterator[Net]:
    for axis in (0, 2):
        net = Net()
        yield net.op("REVERSE_V2", [net.input((2, 3, 5)), net.const([axis], "int32")], [net.output((2, 3, 5))])
    for seq, batch, lengths in ((1, 0, [2, 1, 4]), (0, 1, [3, 1, 2, 2]), (2, 0, [5, 1, 3]), (0, 2, [3, 1, 2, 2, 1])):
        net = Net()
        table = options("ReverseSequenceOptions", seqDim=seq, batchDim=batch)
        yield net.op(
            "REVERSE_SEQUENCE", [net.input((3, 4, 5)), net.const(lengths, "int32")], [net.output((3, 4, 5))], table
        )


@cases("DYNAMIC_UPDATE_SLICE")
def updates() -> Iterator[Net]:
    net = Net()
    operands = [net.input((4, 6)), net.input((2, 3)), net.input((2,), "int32", -2, 5)]
    yield net.op("DYNAMIC_UPDATE_SLICE", operands, [net.output((4, 6))])
