"""Small models of number formats: 16 and 4 bits, halves, scales that differ, integers without a scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tflite_cases import I8, OUT8, U8, cases, rng
from tflite_cases_spatial import SAME, VALID, conv
from tflite_writing import Net, Scale, options

I16, OUT16 = Scale(2**-13), Scale(2**-11)
PARAMETERS = {"int8": I8, "uint8": U8, "int16": I16}
OTHERS = {"int8": OUT8, "uint8": Scale(0.11, 100), "int16": OUT16}


@cases("CONV_2D", "DEPTHWISE_CONV_2D")
def sixteen_bits() -> Iterator[Net]:
    yield conv("int16", VALID, (2, 1), activation=1)
    yield conv("int16", SAME, activation=3, per_channel=True)
    yield conv("int16", SAME, per_channel=True, depthwise=2)
    yield conv("int16", VALID, (2, 2), depthwise=1, bias=False)


@cases("FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL")
def sixteen_bit_products() -> Iterator[Net]:
    scales = [0.004, 0.006, 0.01]
    for activation in (0, 1):
        net = Net()
        x = net.input((4, 5), "int16", -30000, 30000, q=I16)
        weights = net.const(rng().integers(-90, 90, (3, 5)), "int8", q=Scale([0.01]))
        bias = net.const(rng().integers(-9000, 9000, 3), "int64", q=Scale([I16.scale * 0.01]))
        table = options("FullyConnectedOptions", fusedActivationFunction=activation)
        yield net.op("FULLY_CONNECTED", [x, weights, bias], [net.output((4, 3), "int16", q=OUT16)], table, version=11)
    net = Net()
    shape, x = net.const([1, 8, 10, 3], "int32"), net.input((1, 4, 5, 4), "int16", -30000, 30000, q=I16)
    kernel = net.const(rng().integers(-90, 90, (3, 3, 3, 4)), "int8", q=Scale(scales))
    bias = net.const(rng().integers(-9000, 9000, 3), "int64", q=Scale([I16.scale * s for s in scales]))
    table = options("TransposeConvOptions", padding=SAME, strideH=2, strideW=2)
    y = net.output((1, 8, 10, 3), "int16", q=OUT16)
    yield net.op("TRANSPOSE_CONV", [shape, kernel, x, bias], [y], table, version=4)
    net = Net()
    a, b = (net.input(s, "int16", -30000, 30000, q=I16) for s in ((2, 3, 5), (2, 5, 4)))
    y = net.output((2, 3, 4), "int16", q=Scale(2**-10))
    yield net.op("BATCH_MATMUL", [a, b], [y], options("BatchMatMulOptions"), version=3)


@cases("ADD", "SUB", "MUL")
def sixteen_bit_arithmetic() -> Iterator[Net]:
    for name, table in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")):
        more = {} if name == "MUL" else {"potScaleInt16": False}
        net = Net()
        operands = [net.input((3, 4), "int16", -30000, 30000, q=q) for q in (I16, Scale(0.0002))]
        y = net.output((3, 4), "int16", q=OUT16)
        yield net.op(name, operands, [y], options(table, **more), version=5)


@cases("CONV_2D", "DEPTHWISE_CONV_2D")
def four_bit_kernels() -> Iterator[Net]:
    for depthwise in (False, True):
        net, o = Net(), 4 if depthwise else 5
        shape, axis = ((1, 3, 2, 4), 3) if depthwise else ((o, 3, 2, 4), 0)
        weights = rng().integers(-7, 8, shape).reshape(-1)
        packed = ((weights[::2] & 15) | (weights[1::2] & 15) << 4).astype(np.uint8)
        scales = [0.05, 0.1, 0.07, 0.2, 0.15][:o]
        x, y = net.input((1, 7, 9, 4), "int8", q=I8), net.output((1, 5, 8, o), "int8", q=OUT8)
        kernel = net.tensor(shape, data=packed, type_name="INT4", q=Scale(scales, 0, axis))
        bias = net.const(rng().integers(-90, 90, o), "int32", q=Scale([I8.scale * s for s in scales]))
        name, kind = ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
        more = {"depthMultiplier": 1} if depthwise else {}
        table = options(kind, padding=VALID, strideH=1, strideW=1, **more)
        yield net.op(name, [x, kernel, bias], [y], table, version=7)


@cases("CONV_2D", "FULLY_CONNECTED", "DEQUANTIZE")
def half_weights() -> Iterator[Net]:
    """What converters write for float16: constants of half precision, each dequantized."""
    for name, shape, extents, out in (
        ("CONV_2D", (5, 3, 2, 4), (2, 7, 9, 4), (2, 5, 8, 5)),
        ("FULLY_CONNECTED", (5, 6), (3, 6), (3, 5)),
    ):
        net = Net()
        halves = [net.const(rng().normal(size=s), "float16") for s in (shape, (5,))]
        wide = [net.tensor(s) for s in (shape, (5,))]
        for half, full in zip(halves, wide, strict=True):
            net.op("DEQUANTIZE", [half], [full], version=3)
        conv_ = name == "CONV_2D"
        table = (
            options("Conv2DOptions", padding=VALID, strideH=1, strideW=1) if conv_ else options("FullyConnectedOptions")
        )
        yield net.op(name, [net.input(extents), *wide], [net.output(out)], table, version=3)


@cases("CONV_2D", "DEPTHWISE_CONV_2D", "PRELU", "DEQUANTIZE")
def half_kernels_with_extents_of_one() -> Iterator[Net]:
    """Kernels that ONNX has in the same order with an extent of 1 elsewhere, and a slope of each channel."""
    net = Net()
    shapes = {"CONV_2D": (5, 1, 1, 4), "DEPTHWISE_CONV_2D": (1, 3, 2, 5), "PRELU": (1, 1, 5)}
    wide = {name: net.tensor(shape) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        net.op("DEQUANTIZE", [net.const(rng().normal(size=shape), "float16")], [wide[name]], version=3)
    bias, x = net.const(np.zeros(5), "float32"), net.input((2, 7, 9, 4))
    between = [net.tensor((2, 7, 9, 5)), net.tensor((2, 5, 8, 5))]
    step = {"padding": VALID, "strideH": 1, "strideW": 1}
    net.op("CONV_2D", [x, wide["CONV_2D"], bias], between[:1], options("Conv2DOptions", **step), version=3)
    table = options("DepthwiseConv2DOptions", depthMultiplier=1, **step)
    net.op("DEPTHWISE_CONV_2D", [between[0], wide["DEPTHWISE_CONV_2D"], bias], between[1:], table, version=3)
    yield net.op("PRELU", [between[1], wide["PRELU"]], [net.output((2, 5, 8, 5))])


@cases("ADD", "MUL", "EXP", "LOGISTIC", "RESHAPE", "MEAN", "AVERAGE_POOL_2D", "LEAKY_RELU")
def half_data() -> Iterator[Net]:
    for name, table, many in (
        ("ADD", options("AddOptions", fusedActivationFunction=1), 2),
        ("MUL", options("MulOptions"), 2),
        ("EXP", None, 1),
        ("LOGISTIC", None, 1),
        ("LEAKY_RELU", options("LeakyReluOptions", alpha=0.1), 1),
        ("AVERAGE_POOL_2D", options("Pool2DOptions", strideH=1, strideW=1, filterHeight=1, filterWidth=1), 1),
    ):
        net, shape = Net(), (2, 3, 4, 5)
        net.slack = 0.004 if name != "EXP" else 0.02  # a unit in the last place of half precision
        operands = [net.input(shape, "float16") for _ in range(many)]
        yield net.op(name, operands, [net.output(shape, "float16")], table, version=2)
    net = Net()
    operands = [net.input((2, 3, 4), "float16"), net.const([1], "int32")]
    net.slack = 0.004
    yield net.op("MEAN", operands, [net.output((2, 4), "float16")], options("ReducerOptions"), version=2)
    net = Net()
    operands = [net.input((2, 3, 4), "float16"), net.const([4, 6], "int32")]
    yield net.op("RESHAPE", operands, [net.output((4, 6), "float16")], options("ReshapeOptions"))


@cases("FULLY_CONNECTED", "DEPTHWISE_CONV_2D")
def hybrids() -> Iterator[Net]:
    """Weights of 8 bits beside float data: the runtime rounds the data to 8 bits too, the import does not."""
    net = Net()
    weights = rng().integers(-90, 90, (5, 6))
    net.slack = float(4 / 255 * np.abs(weights).sum(1).max() * 0.05)
    operands = [net.input((3, 6)), net.const(weights, "int8", q=Scale(0.05)), net.const(rng().normal(size=5))]
    yield net.op("FULLY_CONNECTED", operands, [net.output((3, 5))], options("FullyConnectedOptions"), version=3)
    net = Net()
    scales, weights = 0.05 + 0.01 * np.arange(4), rng().integers(-90, 90, (1, 3, 2, 4))
    net.slack = float((4 / 255 * np.abs(weights).sum((0, 1, 2)) * scales).max())
    kernel = net.const(weights, "int8", q=Scale(list(scales), 0, 3))
    table = options("DepthwiseConv2DOptions", padding=VALID, strideH=1, strideW=1, depthMultiplier=1)
    operands = [net.input((2, 7, 9, 4)), kernel, net.const(np.zeros(4))]
    yield net.op("DEPTHWISE_CONV_2D", operands, [net.output((2, 5, 8, 4))], table, version=6)


@cases("QUANTIZE")
def requantizations() -> Iterator[Net]:
    for a, b in (
        *(("int8", b) for b in ("int8", "uint8", "int16")),
        *(("uint8", b) for b in ("int8", "uint8", "int16")),
        *(("int16", b) for b in ("int8", "int16", "int32")),
        *(("float32", b) for b in ("int8", "uint8", "int16")),
        *(("int32", b) for b in ("int8", "int16")),
    ):
        net = Net()
        q = {**PARAMETERS, "int32": Scale(0.001)}.get(a)
        limits = (-3000, 3000) if a == "int32" else (-30000, 30000) if a == "int16" else (-2, 2)
        x = net.input((3, 50), a, *limits, q=q)
        y = net.output((3, 50), b, q={**OTHERS, "int32": Scale(0.0003)}[b])
        yield net.op("QUANTIZE", [x], [y], version=3)
    net = Net()
    net.meant = False  # a float does not hold as many steps
    x = net.input((3, 50), "int16", -30000, 30000, q=Scale(0.00049431))
    yield net.op("QUANTIZE", [x], [net.output((3, 50), "int32", q=Scale(1.4901161e-07))], version=3)


@cases("QUANTIZE", "DEQUANTIZE")
def scales_along_an_axis() -> Iterator[Net]:
    for axis in (0, 1, 3):
        q = Scale(list(0.02 + 0.01 * np.arange((2, 3, 4, 5)[axis])), 0, axis)
        net = Net()
        yield net.op("QUANTIZE", [net.input((2, 3, 4, 5))], [net.output((2, 3, 4, 5), "int8", q=q)], version=2)
        net = Net()
        x = net.input((2, 3, 4, 5), "int8", q=q)
        yield net.op("DEQUANTIZE", [x], [net.output((2, 3, 4, 5))], version=5)


@cases("RESHAPE", "TILE", "GATHER", "STRIDED_SLICE", "REVERSE_V2", "SPLIT", "SQUEEZE", "SELECT_V2", "EMBEDDING_LOOKUP")
def copies() -> Iterator[Net]:
    """Moved integers stay what they are, although the result says that they mean something else."""

    def moved(kind: str, name: str, operands: Any, shape: tuple[int, ...], table: Any = None) -> Net:
        net = Net()
        x, y = net.input((2, 3, 4), kind, q=PARAMETERS[kind]), net.output(shape, kind, q=OTHERS[kind])
        return net.op(name, operands(net, x), [y], table, version=1 if name in ("EMBEDDING_LOOKUP", "RESHAPE") else 2)

    ints = "int32"
    for kind in ("int8", "uint8", "int16"):
        yield moved(kind, "RESHAPE", lambda n, x: [x, n.const([4, 6], ints)], (4, 6), options("ReshapeOptions"))
        yield moved(kind, "TILE", lambda n, x: [x, n.const([1, 2, 1], ints)], (2, 6, 4))
        table = options("GatherOptions", axis=1)
        yield moved(kind, "GATHER", lambda n, x: [x, n.const([1, 0], ints)], (2, 2, 4), table)
        yield moved(kind, "REVERSE_V2", lambda n, x: [x, n.const([1], ints)], (2, 3, 4))
        yield moved(kind, "SPLIT", lambda n, x: [n.const(0, ints), x], (2, 3, 4), options("SplitOptions", numSplits=1))
        if kind != "int16":
            flags = [True, False, True, True]
            yield moved(kind, "SELECT_V2", lambda n, x, f=flags: [n.const(f, "bool"), x, x], (2, 3, 4))
        yield moved(kind, "EMBEDDING_LOOKUP", lambda n, x: [n.const([1, 0], ints), x], (2, 3, 4))
        bounds = ([0, 1, 1], [2, 3, 4], [1, 1, 2])
        table = options("StridedSliceOptions")
        yield moved(kind, "STRIDED_SLICE", lambda n, x, b=bounds: [x, *(n.const(v, ints) for v in b)], (2, 2, 2), table)


@cases("FLOOR_DIV", "MAXIMUM", "MINIMUM", "EQUAL", "LESS", "ADD", "MUL", "PAD", "MIRROR_PAD", "SELECT_V2", "WHERE")
def plain_integers() -> Iterator[Net]:
    """Integers without a scale are numbers."""
    shape = (2, 3, 4)
    for name, kind, table in (
        *((name, kind, None) for name in ("MAXIMUM", "MINIMUM") for kind in ("int8", "uint8", "int16", "int64")),
        *(("FLOOR_DIV", kind, None) for kind in ("int8", "int16", "int32")),
        *((name, "int16", None) for name in ("EQUAL", "LESS")),
        ("ADD", "int16", options("AddOptions")),
        ("MUL", "int16", options("MulOptions")),
        ("ADD", "int64", options("AddOptions", fusedActivationFunction=1)),
        ("MUL", "uint32", options("MulOptions", fusedActivationFunction=1)),
        ("MUL", "uint32", options("MulOptions", fusedActivationFunction=3)),
    ):
        net = Net()
        low = 0 if kind[0] == "u" else -9
        second = (1, 7) if name == "FLOOR_DIV" else (low, 9)
        operands = [net.input(shape, kind, low, 9), net.input((4,), kind, *second)]
        result = "bool" if name in ("EQUAL", "LESS") else kind
        yield net.op(name, operands, [net.output(shape, result)], table, version=3)
    amounts = [[1, 0], [0, 1], [1, 1]]
    for name, more in (("PAD", None), ("MIRROR_PAD", options("MirrorPadOptions", mode=0))):
        net = Net()
        operands = [net.input(shape, "int16", -9, 9), net.const(amounts, "int32")]
        yield net.op(name, operands, [net.output((3, 4, 6), "int16")], more, version=2)
    net = Net()
    condition, x = net.const([True, False, True, True], "bool"), net.input(shape, "int16", -9, 9)
    yield net.op("SELECT_V2", [condition, x, x], [net.output(shape, "int16")])
    net = Net()
    yield net.op("WHERE", [net.input((3, 4), "uint32", 0, 2)], [net.output((12, 2), "int64")])


@cases("DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "RESIZE_NEAREST_NEIGHBOR", "ARG_MAX", "MATRIX_DIAG")
def other_types() -> Iterator[Net]:
    """Types that ONNX Runtime's kernels do not take."""
    for kind in ("int32", "int64"):
        net = Net()
        table = options("DepthToSpaceOptions", blockSize=2)
        yield net.op(
            "DEPTH_TO_SPACE", [net.input((2, 3, 5, 12), kind, -9, 9)], [net.output((2, 6, 10, 3), kind)], table
        )
        net = Net()
        table = options("SpaceToDepthOptions", blockSize=3)
        yield net.op("SPACE_TO_DEPTH", [net.input((2, 6, 9, 2), kind, -9, 9)], [net.output((2, 2, 3, 18), kind)], table)
    for kind in ("bool", "int16", "uint32"):
        net = Net()
        table = options("ResizeNearestNeighborOptions")
        operands = [net.input((2, 3, 4, 5), kind, 0, 9), net.const([5, 7], "int32")]
        yield net.op("RESIZE_NEAREST_NEIGHBOR", operands, [net.output((2, 5, 7, 5), kind)], table, version=4)
    net = Net()
    operands = [net.input((2, 3, 4), "bool"), net.const(1, "int32")]
    yield net.op("ARG_MAX", operands, [net.output((2, 4), "int32")], options("ArgMaxOptions", outputType=2))
    net = Net()
    yield net.op("MATRIX_DIAG", [net.input((3, 4), "int16", -9, 9)], [net.output((3, 4, 4), "int16")])
