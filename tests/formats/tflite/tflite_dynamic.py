"""Models whose extents are open, and the sizes at which they run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tflite_cases import rng
from tflite_writing import Net, Scale, options


def kernel(net: Net, *shape: int) -> int:
    return net.const(rng().normal(size=shape))


def conv(net: Net, x: int, i: int, o: int, stride: int, padding: int = 0, dilation: int = 1) -> int:
    """A convolution whose result is declared as a placeholder of open height and width."""
    y = net.tensor((1, 1, 1, o), signature=(-1, -1, -1, o))
    more = {"dilationHFactor": dilation, "dilationWFactor": dilation}
    table = options("Conv2DOptions", strideH=stride, strideW=stride, padding=padding, **more)
    net.op("CONV_2D", [x, kernel(net, o, 3, 3, i), kernel(net, o)], [y], table)
    return y


def dilated(stride: int = 1) -> Net:
    net = Net()
    net.graph.outputs.append(conv(net, image(net), 3, 4, stride, 0, 2))
    return net


def image(net: Net, channels: int = 3) -> int:
    return net.input((1, 1, 1, channels), signature=(-1, -1, -1, channels), name="image")


def shape_of(net: Net, x: int, rank: int) -> int:
    shape = net.tensor((rank,), "int32")
    net.op("SHAPE", [x], [shape], options("ShapeOptions", outType=2))
    return shape


def extent(net: Net, shape: int, axis: int) -> int:
    """`shape[axis]`, as Keras writes it."""
    y, bounds = net.tensor((), "int32"), [net.const([axis], "int32"), net.const([axis + 1], "int32")]
    table = options("StridedSliceOptions", shrinkAxisMask=1)
    net.op("STRIDED_SLICE", [shape, *bounds, net.const([1], "int32")], [y], table)
    return y


def pack(net: Net, *parts: int) -> int:
    y = net.tensor((len(parts),), "int32")
    net.op("PACK", parts, [y], options("PackOptions", valuesCount=len(parts), axis=0))
    return y


def flatten() -> Net:
    """Keras' Flatten of an open batch, then a dense layer."""
    net = Net()
    x = net.input((1, 4, 3, 2), signature=(-1, 4, 3, 2))
    batch = extent(net, shape_of(net, x, 4), 0)
    y = net.tensor((1, 24), signature=(-1, 24))
    net.op("RESHAPE", [x, pack(net, batch, net.const(24, "int32"))], [y], options("ReshapeOptions"))
    out = net.output((1, 5), signature=(-1, 5))
    return net.op("FULLY_CONNECTED", [y, kernel(net, 5, 24), -1], [out], options("FullyConnectedOptions"))


def heads() -> Net:
    """Batch and length both open: the batch stays in its place, the length is what is left."""
    net = Net()
    x = net.input((1, 1, 12), signature=(-1, -1, 12))
    shape = shape_of(net, x, 3)
    parts = [extent(net, shape, 0), extent(net, shape, 1), net.const(3, "int32"), net.const(4, "int32")]
    y = net.output((1, 1, 3, 4), signature=(-1, -1, 3, 4))
    return net.op("RESHAPE", [x, pack(net, *parts)], [y], options("ReshapeOptions"))


def left_over() -> Net:
    """Keras' Reshape((-1, 6)) of an open batch."""
    net = Net()
    x = net.input((1, 4, 3, 2), signature=(-1, 4, 3, 2))
    batch = extent(net, shape_of(net, x, 4), 0)
    target = pack(net, batch, net.const(-1, "int32"), net.const(6, "int32"))
    y = net.output((1, 4, 6), signature=(-1, 4, 6))
    return net.op("RESHAPE", [x, target], [y], options("ReshapeOptions"))


def windows() -> Net:
    """Swin's windows back to images: the batch is how many windows there are, divided by 4; channels are left over."""
    net = Net()
    x = net.input((1, 4, 4, 3), signature=(-1, 4, 4, 3))
    cut, apart_ = net.tensor((4, 2, 2, 3), signature=(-1, 2, 2, 3)), net.tensor((4, 2, 2, 3), signature=(-1, 2, 2, 3))
    net.op("RESHAPE", [x, net.const([-1, 2, 2, 3], "int32")], [cut], options("ReshapeOptions"))
    net.op("ABS", [cut], [apart_], options("AbsOptions"))
    batch = net.tensor((), "int32")
    count = extent(net, shape_of(net, apart_, 4), 0)
    net.op("FLOOR_DIV", [count, net.const(4, "int32")], [batch], options("FloorDivOptions"))
    target = pack(net, batch, *(net.const(v, "int32") for v in (2, 2, 2, 2, -1)))
    y = net.output((1, 2, 2, 2, 2, 3), signature=(-1, 2, 2, 2, 2, -1))
    return net.op("RESHAPE", [apart_, target], [y], options("ReshapeOptions"))


def equation() -> Net:
    """An Einsum as the converter writes it: axes that it joins are extents multiplied by segment."""
    net = Net()
    x = net.input((1, 1, 4, 3), signature=(-1, -1, 4, 3))
    target, y = net.tensor((3,), "int32"), net.output((1, 4, 3), signature=(-1, 4, 3))
    operands = [shape_of(net, x, 4), net.const([0, 0, 1, 2], "int32"), net.const(3, "int32")]
    net.op("UNSORTED_SEGMENT_PROD", operands, [target])
    return net.op("RESHAPE", [x, target], [y], options("ReshapeOptions"))


def branches(padding: int) -> Net:
    """Two branches that shrink an image alike, added."""
    net = Net()
    x = image(net)
    a = conv(net, conv(net, x, 3, 4, 2, padding), 4, 4, 2, padding)
    b = conv(net, conv(net, x, 3, 5, 2, padding), 5, 4, 2, padding)
    y = net.output((1, 1, 1, 4), signature=(-1, -1, -1, 4))
    return net.op("ADD", [a, b], [y], options("AddOptions"))


def pyramid() -> Net:
    """Down by 2, up by 2 to a computed size, joined with the image."""
    net = Net()
    x = image(net, 4)
    small = conv(net, x, 4, 4, 2)
    shape = shape_of(net, small, 4)
    sizes = net.tensor((2,), "int32")
    bounds = [net.const(v, "int32") for v in ([1], [3], [1])]
    net.op("STRIDED_SLICE", [shape, *bounds], [sizes], options("StridedSliceOptions"))
    twice = net.tensor((2,), "int32")
    net.op("MUL", [sizes, net.const([2, 2], "int32")], [twice], options("MulOptions"))
    y = net.output((1, 1, 1, 4), signature=(-1, -1, -1, 4))
    return net.op("RESIZE_BILINEAR", [small, twice], [y], options("ResizeBilinearOptions", halfPixelCenters=True))


def upward(padding: int = 0) -> Net:
    """Keras' Conv2DTranspose of an open image: the target is computed from the operand's shape."""
    net = Net()
    x = image(net, 4)
    shape, parts = shape_of(net, x, 4), []
    for axis in (1, 2):
        twice = net.tensor((), "int32")
        net.op("MUL", [extent(net, shape, axis), net.const(2, "int32")], [twice], options("MulOptions"))
        if padding:
            more = net.tensor((), "int32")
            net.op("ADD", [twice, net.const(1, "int32")], [more], options("AddOptions"))
            twice = more
        parts.append(twice)
    target = pack(net, extent(net, shape, 0), *parts, net.const(5, "int32"))
    y = net.output((1, 1, 1, 5), signature=(-1, -1, -1, 5))
    table = options("TransposeConvOptions", strideH=2, strideW=2, padding=padding)
    return net.op("TRANSPOSE_CONV", [target, kernel(net, 5, 3, 3, 4), x], [y], table, version=2)


def pools(padding: int) -> Net:
    net = Net()
    table = options("Pool2DOptions", padding=padding, strideH=2, strideW=1, filterHeight=3, filterWidth=2)
    y = net.output((1, 1, 1, 3), signature=(-1, -1, -1, 3))
    return net.op("AVERAGE_POOL_2D", [image(net)], [y], table)


def apart(operator: str, window: tuple[int, int], strides: tuple[int, int], quantized: bool = False) -> Net:
    """A SAME pool over an open image; where a stride is longer than its window, elements lie between windows."""
    net, open_ = Net(), (-1, -1, -1, 3)
    kind = {"dtype": "int8", "q": Scale(0.05, 3)} if quantized else {}
    table = options(
        "Pool2DOptions", strideH=strides[0], strideW=strides[1], filterHeight=window[0], filterWidth=window[1]
    )
    x = net.input((1, 1, 1, 3), signature=open_, low=-4, high=2, **kind)
    return net.op(operator, [x], [net.output((1, 1, 1, 3), signature=open_, **kind)], table)


def sparse_conv(window: tuple[int, int], strides: tuple[int, int]) -> Net:
    """The same of a convolution."""
    net = Net()
    table = options("Conv2DOptions", strideH=strides[0], strideW=strides[1])
    y = net.output((1, 1, 1, 4), signature=(-1, -1, -1, 4))
    return net.op("CONV_2D", [image(net), kernel(net, 4, *window, 3), kernel(net, 4)], [y], table)


def depthwise_int8() -> Net:
    net, q = Net(), Scale(0.05, 3)
    x = net.input((1, 1, 1, 3), "int8", q=q, signature=(-1, -1, -1, 3))
    weights = net.const(rng().integers(-90, 90, (1, 3, 3, 3)), "int8", q=Scale([0.01, 0.02, 0.015], 0, 3))
    y = net.output((1, 1, 1, 3), "int8", q=Scale(0.2, -4), signature=(-1, -1, -1, 3))
    table = options("DepthwiseConv2DOptions", strideH=2, strideW=2, depthMultiplier=1)
    bias = net.const([1, 2, 3], "int32", q=Scale([0.0005, 0.001, 0.00075]))
    return net.op("DEPTHWISE_CONV_2D", [x, weights, bias], [y], table, version=3)


def blocks() -> Net:
    """A dilated convolution as old converters write it, with an open batch."""
    net = Net()
    x = net.input((1, 6, 8, 3), signature=(-1, 6, 8, 3))
    block, none = net.const([2, 2], "int32"), net.const([[0, 0], [0, 0]], "int32")
    a, b = net.tensor((4, 3, 4, 3), signature=(-1, 3, 4, 3)), net.tensor((4, 1, 2, 2), signature=(-1, 1, 2, 2))
    net.op("SPACE_TO_BATCH_ND", [x, block, none], [a])
    table = options("Conv2DOptions", strideH=1, strideW=1, padding=1)
    net.op("CONV_2D", [a, kernel(net, 2, 3, 3, 3), kernel(net, 2)], [b], table)
    return net.op("BATCH_TO_SPACE_ND", [b, block, none], [net.output((1, 2, 4, 2), signature=(-1, 2, 4, 2))])


def open_blocks(computed: bool = False) -> Net:
    """The same over an image of any size that the blocks divide; the margins as constants, or computed."""
    net = Net()
    x = image(net)
    block = net.const([2, 3], "int32")
    margins = [net.const(v, "int32") for v in ([[1, 1], [0, 3]], [[2, 0], [1, 2]])]
    if computed:
        zeros = net.const(np.zeros((2, 2)), "int32")
        for i, margin in enumerate(margins):
            margins[i] = net.tensor((2, 2), "int32")
            net.op("ADD", [margin, zeros], [margins[i]], options("AddOptions"))
    a, y = net.tensor((6, 1, 1, 3), signature=(-1, -1, -1, 3)), net.output((1, 1, 1, 3), signature=(-1, -1, -1, 3))
    net.op("SPACE_TO_BATCH_ND", [x, block, margins[0]], [a])
    return net.op("BATCH_TO_SPACE_ND", [a, block, margins[1]], [y])


def parts(place: int) -> Net:
    """An open axis in three, one of which takes what the others leave."""
    net = Net()
    x, sizes = net.input((1, 1, 3), signature=(-1, -1, 3)), [2, 1, 3]
    sizes[place] = -1
    ys = [net.output((1, 1, 3), signature=(-1, -1, 3)) for _ in sizes]
    operands = [x, net.const(sizes, "int32"), net.const(1, "int32")]
    return net.op("SPLIT_V", operands, ys, options("SplitVOptions", numSplits=3))


def replaced() -> Net:
    """The whole of an open tensor, overwritten: the only start from which it fits is the first."""
    net = Net()
    x, update = net.input((1, 5), signature=(-1, 5)), net.tensor((1, 5), signature=(-1, 5))
    net.op("EXP", [x], [update])
    operands = [x, update, net.const([2, 1], "int32")]
    return net.op("DYNAMIC_UPDATE_SLICE", operands, [net.output((1, 5), signature=(-1, 5))])


def diagonal() -> Net:
    net = Net()
    return net.op("MATRIX_DIAG", [net.input((2, 1), signature=(2, -1))], [net.output((2, 1, 1), signature=(2, -1, -1))])


def upward_to(padding: int) -> Net:
    """A transposed convolution to a size that is handed in by a shape of its own: more than there is, or less."""
    net = Net()
    x = image(net, 4)
    target = net.input((1, 1, 1, 5), signature=(-1, -1, -1, 5), name="like")
    shape = shape_of(net, target, 4)
    y = net.output((1, 1, 1, 5), signature=(-1, -1, -1, 5))
    table = options("TransposeConvOptions", strideH=2, strideW=3, padding=padding, fusedActivationFunction=1)
    return net.op("TRANSPOSE_CONV", [shape, kernel(net, 5, 3, 4, 4), x, kernel(net, 5)], [y], table, version=4)


def tokens() -> Net:
    """A dense layer over batch and length, both open."""
    net = Net()
    x = net.input((1, 1, 6), signature=(-1, -1, 6))
    y = net.output((1, 1, 4), signature=(-1, -1, 4))
    table = options("FullyConnectedOptions", keepNumDims=True, fusedActivationFunction=1)
    return net.op("FULLY_CONNECTED", [x, kernel(net, 4, 6), kernel(net, 4)], [y], table, version=2)


def tokens_int16() -> Net:
    """A dense layer of 16-bit numbers, batch and length both open."""
    net, random = Net(), rng()
    x = net.input((1, 1, 64), "int16", -32000, 32000, signature=(-1, -1, 64), q=Scale(3e-5))
    y = net.output((1, 1, 4), "int16", signature=(-1, -1, 4), q=Scale(1e-3))
    scales = [0.02, 0.01, 0.03, 0.015]
    weights = net.const(random.integers(-127, 128, (4, 64)), "int8", q=Scale(scales))
    bias = net.const(random.integers(-9000, 9000, 4), "int64", q=Scale([3e-5 * scale for scale in scales]))
    table = options("FullyConnectedOptions", keepNumDims=True)
    return net.op("FULLY_CONNECTED", [x, weights, bias], [y], table, version=7)


def from_the_end() -> Net:
    net = Net()
    x = net.input((1, 1, 5), signature=(1, -1, 5))
    bounds = [net.const(v, "int32") for v in ([0, -3, 1], [1, 2, 2], [1, 1, 1])]
    y = net.output((1, 2, 2), signature=(1, -1, 2))
    return net.op("STRIDED_SLICE", [x, *bounds], [y], options("StridedSliceOptions", offset=True), version=8)


def filled() -> Net:
    """FILL and RANGE by computed counts."""
    net = Net()
    x = net.input((1, 3), signature=(-1, 3))
    rows = extent(net, shape_of(net, x, 2), 0)
    numbers, ones = net.tensor((1,), "int32", signature=(-1,)), net.tensor((1, 3), signature=(-1, 3))
    net.op("RANGE", [net.const(0, "int32"), rows, net.const(1, "int32")], [numbers], options("RangeOptions"))
    net.op("FILL", [pack(net, rows, net.const(3, "int32")), net.const(2.0)], [ones])
    net.op("ADD", [x, ones], [net.output((1, 3), signature=(-1, 3))], options("AddOptions"))
    net.graph.outputs.append(numbers)
    return net


def halves() -> Net:
    """The image split in two along its width, joined the other way round."""
    net = Net()
    x = image(net)
    parts = [net.tensor((1, 1, 1, 3), signature=(-1, -1, -1, 3)) for _ in range(2)]
    net.op("SPLIT", [net.const(2, "int32"), x], parts, options("SplitOptions", numSplits=2))
    y = net.output((1, 1, 1, 3), signature=(-1, -1, -1, 3))
    return net.op("CONCATENATION", parts[::-1], [y], options("ConcatenationOptions", axis=2))


IMAGES = ((2, 9, 12), (3, 14, 7))
MODELS: dict[str, tuple[Callable[[], Net], list[tuple[int, ...]]]] = {
    "flatten": (flatten, [(2, 4, 3, 2), (5, 4, 3, 2)]),
    "heads": (heads, [(2, 5, 12), (3, 7, 12)]),
    "left over": (left_over, [(2, 4, 3, 2), (5, 4, 3, 2)]),
    "windows": (windows, [(2, 4, 4, 3), (5, 4, 4, 3)]),
    "equation": (equation, [(2, 5, 4, 3), (3, 1, 4, 3)]),
    "branches, same": (lambda: branches(0), [(*i, 3) for i in IMAGES]),
    "branches, valid": (lambda: branches(1), [(*i, 3) for i in IMAGES]),
    "dilated": (dilated, [(*i, 3) for i in IMAGES]),
    "halves": (halves, [(1, 3, 8, 3), (2, 4, 6, 3)]),
    "pyramid": (pyramid, [(*i, 4) for i in IMAGES]),
    "upward, same": (upward, [(*i, 4) for i in IMAGES]),
    "upward, valid": (lambda: upward(1), [(*i, 4) for i in IMAGES]),
    "pools, same": (lambda: pools(0), [(*i, 3) for i in IMAGES]),
    "pools, valid": (lambda: pools(1), [(*i, 3) for i in IMAGES]),
    "depthwise, int8": (depthwise_int8, [(*i, 3) for i in IMAGES]),
    "blocks": (blocks, [(2, 6, 8, 3), (3, 6, 8, 3)]),
    "open blocks": (open_blocks, [(2, 4, 9, 3), (1, 8, 6, 3)]),
    "open blocks, computed margins": (lambda: open_blocks(True), [(2, 4, 9, 3), (1, 8, 6, 3)]),
    "dilated, strides": (lambda: dilated(2), [(*i, 3) for i in IMAGES]),
    "parts, the first": (lambda: parts(0), [(2, 7, 3), (1, 9, 3)]),
    "parts, the second": (lambda: parts(1), [(2, 7, 3), (1, 9, 3)]),
    "parts, the last": (lambda: parts(2), [(2, 7, 3), (1, 9, 3)]),
    "replaced": (replaced, [(3, 5), (4, 5)]),
    "diagonal": (diagonal, [(2, 3), (2, 6)]),
    "tokens": (tokens, [(2, 5, 6), (3, 4, 6)]),
    "tokens int16": (tokens_int16, [(2, 5, 64), (3, 4, 64)]),
    "from the end": (from_the_end, [(1, 4, 5), (1, 9, 5)]),
    "filled": (filled, [(2, 3), (7, 3)]),
}


def data_dependent() -> Net:
    """WHERE declares an extent that is only what the converter happened to see, and so does all that follows."""
    net = Net()
    x, where = net.input((4, 3)), net.output((3, 2), "int64")
    picked, y = net.tensor((3,)), net.output((3, 2))
    net.op("GREATER", [x, net.const(0.5)], [flags := net.tensor((4, 3), "bool")])
    net.op("WHERE", [flags], [where])
    net.op("GATHER_ND", [x, where], [picked])
    rows = extent(net, shape_of(net, picked, 1), 0)
    net.op("FILL", [pack(net, rows, net.const(2, "int32")), net.const(1.0)], [y])
    return net


def counted_boxes() -> Net:
    """Boxes that are kept, cut to their number: it is a placeholder, although every operand has known extents."""
    net = Net()
    boxes, scores = net.input((9, 4), low=0, high=1), net.input((9,), low=0, high=1)
    limits = [net.const(5, "int32"), net.const(0.3), net.const(0.4)]
    kept, count = net.tensor((5,), "int32"), net.tensor((), "int32")
    net.op("NON_MAX_SUPPRESSION_V4", [boxes, scores, *limits], [kept, count])
    bounds = [net.const([0], "int32"), pack(net, count), net.const([1], "int32")]
    return net.op("STRIDED_SLICE", [kept, *bounds], [net.output((5,), "int32")], options("StridedSliceOptions"))
