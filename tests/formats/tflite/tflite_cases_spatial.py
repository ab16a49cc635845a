"""Small models of convolutions, pools, resizes: every extent distinct, an option sweep each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from tflite_cases import I8, OUT8, U8, cases, rng
from tflite_writing import Net, Scale, options, standing

SAME, VALID = 0, 1


def places(extent: int, window: int, stride: int, dilation: int, padding: int) -> int:
    return -(-extent // stride) if padding == SAME else (extent - (window - 1) * dilation - 1) // stride + 1


def conv(
    kind: str = "float32",
    padding: int = SAME,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    activation: int = 0,
    *,
    depthwise: int = 0,
    groups: int = 1,
    bias: bool = True,
    per_channel: bool = False,
    stale_multiplier: int | None = None,
) -> Net:
    """One convolution of `2 7 9 4` with a window of 3 by 2."""
    net = Net()
    n, h, w, c, kh, kw = 2, 7, 9, 4, 3, 2
    o = c * depthwise or 6
    kernel_shape = (1, kh, kw, o) if depthwise else (o, kh, kw, c // groups)
    axis = 3 if depthwise else 0
    out_shape = (
        n,
        places(h, kh, strides[0], dilations[0], padding),
        places(w, kw, strides[1], dilations[1], padding),
        o,
    )
    if kind == "float32":
        x, y = net.input((n, h, w, c)), net.output(out_shape)
        kernel = net.const(rng().normal(size=kernel_shape))
        offset = net.const(rng().normal(size=o))
    else:
        q = I8 if kind == "int8" else U8 if kind == "uint8" else Scale(2**-14)
        scales = list(0.005 + 0.002 * np.arange(o)) if per_channel else [0.01]
        zero = 0 if kind != "uint8" else 125
        weights = rng().integers(-90, 90, kernel_shape) + zero
        x = net.input((n, h, w, c), kind, *((-30000, 30000) if kind == "int16" else ()), q=q)
        kernel = net.const(weights, "uint8" if kind == "uint8" else "int8", q=Scale(scales, zero, axis))
        bias_type = "int64" if kind == "int16" else "int32"
        offset = net.const(rng().integers(-900, 900, o), bias_type, q=Scale([q.scale * s for s in scales]))
        y = net.output(out_shape, kind, q={"int8": OUT8, "uint8": Scale(0.12, 100), "int16": Scale(2**-10)}[kind])
    more = {"depthMultiplier": depthwise if stale_multiplier is None else stale_multiplier} if depthwise else {}
    table = options(
        "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions",
        padding=padding,
        strideH=strides[0],
        strideW=strides[1],
        dilationHFactor=dilations[0],
        dilationWFactor=dilations[1],
        fusedActivationFunction=activation,
        **more,
    )
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    return net.op(name, [x, kernel, offset] if bias else [x, kernel], [y], table, version=5 if kind == "int16" else 3)


@cases("CONV_2D")
def convolutions() -> Iterator[Net]:
    for padding, strides, dilations in itertools.product((SAME, VALID), ((1, 1), (2, 1), (2, 3)), ((1, 1), (2, 3))):
        if strides == (1, 1) or dilations == (1, 1):
            yield conv("float32", padding, strides, dilations)
    for activation in (1, 2, 3):
        yield conv(activation=activation)
    yield conv(groups=2)
    yield standing(conv())
    yield standing(conv("int8", per_channel=True))
    yield standing(conv("int16", per_channel=True))
    for kind in ("int8", "uint8"):
        for padding, activation in ((SAME, 0), (VALID, 1), (SAME, 3)):
            yield conv(kind, padding, (2, 1), activation=activation)
    yield conv("int8", per_channel=True)
    yield conv("int8", VALID, (1, 2), per_channel=True, activation=1)
    yield conv("int16", per_channel=True)


@cases("DEPTHWISE_CONV_2D")
def depthwise_convolutions() -> Iterator[Net]:
    for padding, strides, multiplier in itertools.product((SAME, VALID), ((1, 1), (2, 2)), (1, 3)):
        yield conv("float32", padding, strides, depthwise=multiplier)
    yield conv(dilations=(2, 3), depthwise=1)
    yield conv(depthwise=2, activation=3)
    yield conv("float32", depthwise=2, stale_multiplier=0)
    for kind in ("int8", "uint8"):
        yield conv(kind, VALID, (2, 2), depthwise=1)
        yield conv(kind, SAME, activation=1, depthwise=3)
    yield conv("int8", per_channel=True, depthwise=2)


@cases("CONV_2D")
def hybrid() -> Iterator[Net]:
    """Weights of 8 bits beside float data: the runtime rounds the data to 8 bits too, the import does not."""
    net = Net()
    x = net.input((2, 7, 9, 4))
    scales = 0.05 + 0.01 * np.arange(6)
    weights = rng().integers(-90, 90, (6, 3, 2, 4))
    kernel = net.const(weights, "int8", q=Scale(list(scales)))
    net.slack = float((4 / 255 / 2 * np.abs(weights).sum((1, 2, 3)) * scales).max())
    table = options("Conv2DOptions", padding=VALID, strideH=1, strideW=1)
    yield net.op("CONV_2D", [x, kernel, net.const(np.zeros(6))], [net.output((2, 5, 8, 6))], table, version=2)


def transpose_conv(
    padding: int,
    stride: tuple[int, int],
    window: tuple[int, int],
    out: tuple[int, int],
    kind: str = "float32",
    bias: bool = True,
) -> Net:
    net = Net()
    h, w = places(out[0], window[0], stride[0], 1, padding), places(out[1], window[1], stride[1], 1, padding)
    n, c, o = 2, 4, 3
    shape = net.const([n, *out, o], "int32")
    kernel_shape = (o, *window, c)
    if kind == "float32":
        kernel, x, y = net.const(rng().normal(size=kernel_shape)), net.input((n, h, w, c)), net.output((n, *out, o))
        offset = net.const(rng().normal(size=o))
    else:
        scales = [0.004, 0.006, 0.01]
        kernel = net.const(rng().integers(-90, 90, kernel_shape), kind, q=Scale(scales))
        x, y = net.input((n, h, w, c), kind, q=I8), net.output((n, *out, o), kind, q=OUT8)
        offset = net.const(rng().integers(-900, 900, o), "int32", q=Scale([I8.scale * s for s in scales]))
    table = options(
        "TransposeConvOptions", padding=padding, strideH=stride[0], strideW=stride[1], fusedActivationFunction=int(bias)
    )
    inputs = [shape, kernel, x, offset] if bias else [shape, kernel, x]
    return net.op("TRANSPOSE_CONV", inputs, [y], table, version=4 if bias else 3)


@cases("TRANSPOSE_CONV")
def transpose_convolutions() -> Iterator[Net]:
    for padding, stride, window in itertools.product((SAME, VALID), ((1, 1), (2, 3)), ((3, 4), (1, 2), (5, 3))):
        yield transpose_conv(padding, stride, window, (11, 13), bias=False)
    yield transpose_conv(VALID, (3, 4), (1, 2), (12, 16))
    yield transpose_conv(SAME, (2, 2), (3, 3), (8, 10))
    yield transpose_conv(SAME, (2, 2), (3, 3), (8, 10), "int8")


@cases("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def pools() -> Iterator[Net]:
    for name, padding, strides in itertools.product(
        ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), (SAME, VALID), ((1, 1), (2, 3))
    ):
        for kind, q in (("float32", None), ("int8", I8), ("uint8", U8)):
            if kind != "float32" and name == "L2_POOL_2D":
                continue
            for activation in (0, 1):
                net = Net()
                x = net.input((2, 7, 9, 4), kind, q=q)
                shape = (2, places(7, 3, strides[0], 1, padding), places(9, 2, strides[1], 1, padding), 4)
                table = options("Pool2DOptions", padding=padding, strideH=strides[0], strideW=strides[1],
                                filterHeight=3, filterWidth=2, fusedActivationFunction=activation)  # fmt: skip
                version = 1 if kind == "float32" else 2
                yield net.op(name, [x], [net.output(shape, kind, q=q)], table, version=version)


@cases("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resizes() -> Iterator[Net]:
    modes = ((False, False), (True, False), (False, True))
    sizes = ((10, 7), (3, 4), (5, 13), (1, 1))
    for name, table in (
        ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
        ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
    ):
        for (align, half), size in itertools.product(modes, sizes):
            for kind, q in (("float32", None), ("int8", I8), ("uint8", U8)):
                if kind != "float32" and size != (10, 7):
                    continue
                net = Net()
                x, to = net.input((2, 5, 6, 3), kind, q=q), net.const(size, "int32")
                choice = options(table, alignCorners=align, halfPixelCenters=half)
                yield net.op(name, [x, to], [net.output((2, *size, 3), kind, q=q)], choice, version=3)


@cases("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def depth() -> Iterator[Net]:
    for kind, q in (("float32", None), ("int8", I8), ("uint8", U8)):
        net = Net()
        x, y = net.input((2, 3, 5, 12), kind, q=q), net.output((2, 6, 10, 3), kind, q=q)
        yield net.op("DEPTH_TO_SPACE", [x], [y], options("DepthToSpaceOptions", blockSize=2), version=2)
        net = Net()
        x, y = net.input((2, 6, 9, 2), kind, q=q), net.output((2, 2, 3, 18), kind, q=q)
        yield net.op("SPACE_TO_DEPTH", [x], [y], options("SpaceToDepthOptions", blockSize=3), version=2)


@cases("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def batches() -> Iterator[Net]:
    for kind, q in (("float32", None), ("int8", I8)):
        net = Net()
        inputs = [net.input((2, 5, 8, 3), kind, q=q), net.const([2, 3], "int32"), net.const([[1, 2], [0, 1]], "int32")]
        yield net.op("SPACE_TO_BATCH_ND", inputs, [net.output((12, 4, 3, 3), kind, q=q)], version=2)
        net = Net()
        inputs = [net.input((12, 4, 3, 5), kind, q=q), net.const([2, 3], "int32"), net.const([[1, 2], [0, 1]], "int32")]
        yield net.op("BATCH_TO_SPACE_ND", inputs, [net.output((2, 5, 8, 5), kind, q=q)], version=2)
    net = Net()
    inputs = [net.input((2, 5, 3)), net.const([3], "int32"), net.const([[1, 0]], "int32")]
    yield net.op("SPACE_TO_BATCH_ND", inputs, [net.output((6, 2, 3))], version=3)


@cases("DILATE")
def dilations() -> Iterator[Net]:
    net = Net()
    operands = [net.input((2, 3, 4)), net.const([1, 2, 3], "int32"), net.const(-1.5)]
    yield net.op("DILATE", operands, [net.output((2, 5, 10))], options("DilateOptions"))
