"""Random models over the option space of one operator: any rank, extents of 0 and 1, any axes, any scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tflite_cases_recurrent import lstm
from tflite_writing import Net, Scale, options

Random = np.random.Generator
FAMILIES: dict[str, Callable[[Random], Net]] = {}


def family(function: Callable[[Random], Net]) -> Callable[[Random], Net]:
    FAMILIES[function.__name__] = function
    return function


def model(name: str, seed: int, *, opened: bool = False) -> Net:
    """The model of one seed; with `opened` the file states no extent of an input or output."""
    net = FAMILIES[name](np.random.default_rng([seed, *name.encode()]))
    for index in (*net.graph.inputs, *net.graph.outputs) if opened else ():
        tensor = net.graph.tensors[index]
        tensor.shapeSignature = [-1] * len(tensor.shape)
    return net


def one_of(random: Random, *choices: Any) -> Any:
    return choices[int(random.integers(len(choices)))]


def extents(random: Random, low: int, high: int, *, empty: bool = True) -> tuple[int, ...]:
    """A shape whose rank is between two numbers; now and then an extent is 0 or 1."""
    least = 0 if empty and random.random() < 0.15 else 1
    return tuple(int(v) for v in random.integers(least, 5, int(random.integers(low, high + 1))))


def scale(random: Random, kind: str, extent: int = 0, axis: int = 0) -> Scale:
    size = 10.0 ** random.uniform(-2.5, -1) / (256 if kind == "int16" else 1)
    zero = {"int8": int(random.integers(-99, 99)), "uint8": int(random.integers(20, 230))}.get(kind, 0)
    if extent:
        return Scale(list(size * random.uniform(0.5, 2, extent)), 0, axis)
    return Scale(size, zero)


@family
def elementwise(random: Random) -> Net:
    net, shape = Net(), extents(random, 0, 8)
    name = one_of(
        random, "ABS", "NEG", "EXP", "FLOOR", "SIN", "RELU", "RELU6", "TANH", "LOGISTIC", "SQUARE", "ELU", "SIGN"
    )
    return net.op(name, [net.input(shape)], [net.output(shape)])


@family
def broadcasts(random: Random) -> Net:
    """Two shapes that broadcast, of ranks up to 6."""
    full = extents(random, 0, 6)
    shapes = []
    for _ in range(2):
        cut = int(random.integers(0, len(full) + 1)) if random.random() < 0.5 else 0
        shapes.append(tuple(1 if random.random() < 0.3 else d for d in full[cut:]))
    net, kind = Net(), one_of(random, "float32", "float32", "int32", "int8", "uint8", "int16")
    out = np.broadcast_shapes(*shapes)
    names = ["ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "LESS", "EQUAL"]
    name = one_of(random, *names)
    quantized = kind in ("int8", "uint8", "int16")
    if name == "SQUARED_DIFFERENCE" and kind not in ("float32", "int32", "int8"):
        name = "ADD"
    table, version = None, 2
    if name in ("ADD", "SUB", "MUL"):
        fused = one_of(random, 0, 0, 1, 2, 3) if kind != "int32" else 0
        more = {"potScaleInt16": False} if name != "MUL" else {}
        table = options(f"{name.capitalize()}Options", fusedActivationFunction=fused, **more)
        version = {"ADD": 4, "SUB": 5, "MUL": 4}[name] if kind == "int16" else 2
    qs = [scale(random, kind) if quantized else None for _ in range(3)]
    if name in ("MAXIMUM", "MINIMUM"):
        qs = [qs[0]] * 3
    limits = (-32768, 32767) if kind == "int16" else (-9, 9)
    limits = (-2, 2) if kind in ("int8", "uint8") else limits
    operands = [net.input(s, kind, *limits, q=q) for s, q in zip(shapes, qs, strict=False)]
    y = net.output(out, "bool") if name in ("LESS", "EQUAL") else net.output(out, kind, q=qs[2])
    return net.op(name, operands, [y], table, version=version)


@family
def reductions(random: Random) -> Net:
    net, shape = Net(), extents(random, 1, 6)
    name = one_of(random, "SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
    kind = (
        one_of(random, "float32", "int32", "int8") if name in ("REDUCE_MAX", "REDUCE_MIN", "SUM", "MEAN") else "float32"
    )
    count = int(random.integers(0, len(shape) + 1))
    axes = [int(a) - (len(shape) if random.random() < 0.4 else 0) for a in random.permutation(len(shape))[:count]]
    keep = bool(random.random() < 0.5)
    gone = {a % len(shape) for a in axes}
    out = [1 if i in gone else d for i, d in enumerate(shape) if keep or i not in gone]
    q = scale(random, kind) if kind == "int8" else None
    after = q if name.startswith("REDUCE") or random.random() < 0.5 else scale(random, kind) if q else None
    operands = [net.input(shape, kind, q=q), net.const(np.array(axes, np.int32), "int32")]
    return net.op(name, operands, [net.output(out, kind, q=after)], options("ReducerOptions", keepDims=keep), version=2)


@family
def rearranged(random: Random) -> Net:
    """Operators that move elements, over ranks up to 6 and integers with scales, also along an axis."""
    net, shape = Net(), extents(random, 1, 6)
    kind = one_of(random, "float32", "int8", "uint8", "int16", "int32")
    name = one_of(
        random, "TRANSPOSE", "RESHAPE", "TILE", "REVERSE_V2", "EXPAND_DIMS", "PACK", "UNPACK", "SPLIT", "GATHER"
    )
    axis, rank = int(random.integers(len(shape))), len(shape)
    quantized = kind in ("int8", "uint8", "int16")
    q = scale(random, kind) if quantized else None
    x = net.input(shape, kind, q=q)

    def ints(values: Any) -> int:
        return net.const(np.array(values, np.int32), "int32")

    def y(*dims: int) -> int:
        return net.output(dims, kind, q=q)

    if name == "TRANSPOSE":
        perm = [int(p) for p in random.permutation(rank)]
        return net.op(name, [x, ints(perm)], [y(*(shape[p] for p in perm))], version=2 if quantized else 1)
    if name == "RESHAPE":
        flat = int(np.prod(shape[axis:]))
        return net.op(name, [x, ints([*shape[:axis], flat])], [y(*shape[:axis], flat)], options("ReshapeOptions"))
    if name == "TILE":
        times = [int(v) for v in random.integers(1, 3, rank)]
        return net.op(name, [x, ints(times)], [y(*(d * t for d, t in zip(shape, times, strict=True)))], version=2)
    if name == "REVERSE_V2":
        return net.op(name, [x, ints([axis])], [y(*shape)], version=3)
    if name == "EXPAND_DIMS":
        place = int(random.integers(-rank - 1, rank + 1))
        full = np.expand_dims(np.empty(shape), place).shape
        return net.op(name, [x, ints(place)], [y(*full)], options("ExpandDimsOptions"))
    if name == "PACK":
        place = int(random.integers(-rank - 1, rank + 1))
        full = np.stack([np.empty(shape)] * 2, place).shape
        return net.op(name, [x, x], [y(*full)], options("PackOptions", axis=place, valuesCount=2), version=2)
    if name == "UNPACK" and shape[axis]:
        rest = shape[:axis] + shape[axis + 1 :]
        table = options("UnpackOptions", axis=axis - rank, num=shape[axis])
        return net.op(name, [x], [y(*rest) for _ in range(shape[axis])], table, version=2)
    if name == "SPLIT" and shape[axis]:
        table = options("SplitOptions", numSplits=shape[axis])
        part = (*shape[:axis], 1, *shape[axis + 1 :])
        return net.op(name, [ints(axis), x], [y(*part) for _ in range(shape[axis])], table, version=2)
    if not shape[axis]:
        return net.op("REVERSE_V2", [x, ints([axis])], [y(*shape)], version=3)
    picked = random.integers(0, shape[axis], extents(random, 0, 2))
    table = options("GatherOptions", axis=axis - rank if random.random() < 0.5 else axis)
    full = (*shape[:axis], *picked.shape, *shape[axis + 1 :])
    return net.op("GATHER", [x, ints(picked)], [y(*full)], table, version=2)


def _places(extent: int, window: int, stride: int, dilation: int, padding: int) -> int:
    return -(-extent // stride) if padding == 0 else (extent - (window - 1) * dilation - 1) // stride + 1


@family
def windows(random: Random) -> Net:
    """Convolutions and pools: padding, strides, dilations, groups, activations, scales, open height and width."""
    net, kind = Net(), one_of(random, "float32", "float32", "int8", "int8", "uint8", "int16")
    name = one_of(
        random, "CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"
    )
    n, h, w, c = (int(v) for v in random.integers([1, 6, 7, 1], [4, 12, 13, 5]))
    kh, kw, padding = int(random.integers(1, 4)), int(random.integers(1, 4)), int(random.integers(2))
    strides = [int(v) for v in random.integers(1, 4, 2)] if random.random() < 0.6 else [1, 1]
    dilated = name.endswith("CONV_2D") and random.random() < 0.4
    dilations = [int(v) for v in random.integers(1, 3, 2)] if dilated else [1, 1]
    fused = one_of(random, 0, 0, 1, 3)
    q = scale(random, kind) if kind != "float32" else None
    open_ = random.random() < 0.3
    signature = {"signature": (-1, -1, -1, c)} if open_ else {}
    x = net.input((n, h, w, c), kind, *((-32768, 32767) if kind == "int16" else (-2, 2)), q=q, **signature)
    if random.random() < 0.4:
        around = random.integers(0, 3, (2, 2))
        h, w = h + int(around[0].sum()), w + int(around[1].sum())
        inner, x = x, net.tensor((n, h, w, c), kind, q=q, **signature)
        net.op("PAD", [inner, net.const([[0, 0], *around, [0, 0]], "int32")], [x], options("PadOptions"), version=2)
    sizes = [_places(*five, padding) for five in zip((h, w), (kh, kw), strides, dilations, strict=True)]
    kw_ = {"padding": padding, "strideH": strides[0], "strideW": strides[1], "fusedActivationFunction": fused}

    def result(depth: int, after: Scale | None) -> int:
        return net.output((n, *sizes, depth), kind, q=after, **({"signature": (-1, -1, -1, depth)} if open_ else {}))

    if name.endswith("POOL_2D"):
        table = options("Pool2DOptions", filterHeight=kh, filterWidth=kw, **kw_)
        return net.op(name, [x], [result(c, q)], table, version=3 if kind == "int16" else 2)
    depthwise = name.startswith("DEPTHWISE")
    multiplier = int(random.integers(1, 4))
    units = c * multiplier if depthwise else int(random.integers(1, 6))
    shape, axis = ((1, kh, kw, units), 3) if depthwise else ((units, kh, kw, c), 0)
    if q is None:
        operands = [x, net.const(random.normal(size=shape)), net.const(random.normal(size=units))]
        after = None
    else:
        per_channel = kind != "uint8" and random.random() < 0.6
        scales = 10.0 ** random.uniform(-2.5, -1.5) * (random.uniform(0.5, 2, units) if per_channel else np.ones(1))
        zero = int(random.integers(100, 150)) if kind == "uint8" else 0
        values = random.integers(-100, 100, shape) + zero
        kernel = net.const(values, "uint8" if kind == "uint8" else "int8", q=Scale(list(scales), zero, axis))
        wide = "int64" if kind == "int16" else "int32"
        bias = net.const(random.integers(-900, 900, units), wide, q=Scale(list(np.float32(q.scale) * scales)))
        operands, after = (
            [x, kernel, bias],
            Scale(scale(random, kind).scale, 0 if kind == "int16" else scale(random, kind).zero),
        )
    kw_ |= {"dilationHFactor": dilations[0], "dilationWFactor": dilations[1]}
    table = options("DepthwiseConv2DOptions" if depthwise else "Conv2DOptions", **kw_)
    if depthwise:
        table.depthMultiplier = multiplier
    return net.op(name, operands, [result(units, after)], table, version=5 if kind == "int16" else 3)


@family
def dense_layers(random: Random) -> Net:
    """Fully connected layers of any rank, in real numbers, integers, and weights of 8 or 4 bits beside real numbers."""
    net, kind = Net(), one_of(random, "float32", "int8", "int16", "hybrid", "hybrid4")
    columns, units = (int(v) for v in random.integers(1, 9, 2))
    lead = extents(random, 1, 4, empty=False)
    real = kind not in ("int8", "int16")
    q = None if real else scale(random, kind)
    x = net.input(
        (*lead, columns), "float32" if real else kind, *((-32768, 32767) if kind == "int16" else (-2, 2)), q=q
    )
    keep, rows = bool(random.random() < 0.5), int(np.prod(lead))
    per_channel = random.random() < 0.5
    scales = 0.02 * (random.uniform(0.5, 2, units) if per_channel else np.ones(1))
    if kind == "float32":
        weights, offset = net.const(random.normal(size=(units, columns))), net.const(random.normal(size=units))
    else:
        top = 7 if kind == "hybrid4" else 100
        values = random.integers(-top, top + 1, (units, columns))
        if kind == "hybrid4":
            flat = np.append(values.reshape(-1), np.zeros(values.size % 2, np.int64))
            packed = ((flat[::2] & 15) | (flat[1::2] & 15) << 4).astype(np.uint8)
            weights = net.tensor((units, columns), data=packed, type_name="INT4", q=Scale(list(scales)))
        else:
            weights = net.const(values, "int8", q=Scale(list(scales)))
        if real:
            net.slack = float(4 / 255 * (np.abs(values).sum(1) * scales).max())
            offset = net.const(random.normal(size=units))
        else:
            bias = Scale(list(np.float32(q.scale) * scales)) if q else None
            offset = net.const(random.integers(-900, 900, units), "int64" if kind == "int16" else "int32", q=bias)
    fused = one_of(random, 0, 1, 2, 3)
    table = options("FullyConnectedOptions", keepNumDims=keep, fusedActivationFunction=fused)
    shape = (*lead, units) if keep else (rows, units)
    y = net.output(shape, "float32" if real else kind, q=None if real else scale(random, kind))
    operands = [x, weights, one_of(random, offset, offset, -1)]
    return net.op("FULLY_CONNECTED", operands, [y], table, version=11)


@family
def products(random: Random) -> Net:
    net, kind = Net(), one_of(random, "float32", "int8", "int16")
    m, k, n = (int(v) for v in random.integers(1, 6, 3))
    batch = extents(random, 0, 3, empty=False)
    one, other = (tuple(1 if random.random() < 0.3 else d for d in batch) for _ in range(2))
    adj_x, adj_y = bool(random.random() < 0.4), bool(random.random() < 0.4)
    qs = [scale(random, kind) if kind != "float32" else None for _ in range(2)]
    a = net.input((*one, *((k, m) if adj_x else (m, k))), kind, q=qs[0])
    b = net.input((*other, *((n, k) if adj_y else (k, n))), kind, q=qs[1])
    size = (
        None if qs[0] is None else Scale(float(np.float32(qs[0].scale)) * float(qs[1].scale) * 300 if qs[1] else 1.0, 0)
    )
    y = net.output((*np.broadcast_shapes(one, other), m, n), kind, q=size)
    return net.op("BATCH_MATMUL", [a, b], [y], options("BatchMatMulOptions", adjX=adj_x, adjY=adj_y), version=3)


@family
def tables(random: Random) -> Net:
    """Embeddings: the rows of a table, also of 8 or 4 bits with a scale for each row."""
    net, rows, columns = Net(), int(random.integers(2, 9)), int(random.integers(1, 5)) * 2
    index = net.input((int(random.integers(1, 6)),), "int32", 0, rows - 1)
    kind = one_of(random, "float32", "int8", "int8~", "int4")
    n = rows if random.random() < 0.5 else 0
    q = scale(random, "int16", n) if n else Scale(0.03)
    values = random.integers(-7, 8, (rows, columns))
    if kind == "float32":
        table = net.const(values)
    elif kind == "int4":
        flat = values.reshape(-1)
        packed = ((flat[::2] & 15) | (flat[1::2] & 15) << 4).astype(np.uint8)
        table = net.tensor(values.shape, data=packed, type_name="INT4", q=q)
    else:
        table = net.const(values, "int8", q=q if kind == "int8" else Scale(0.03))
    shape = (net.graph.tensors[index].shape[0], columns)
    y = net.output(shape, "int8", q=Scale(0.03)) if kind == "int8~" else net.output(shape)
    return net.op("EMBEDDING_LOOKUP", [index, table], [y], version=4)


@family
def gates(random: Random) -> Net:
    """LSTMs over their options."""

    def maybe(chance: float = 0.5) -> bool:
        return bool(random.random() < chance)

    projection = int(random.integers(2, 6)) if maybe() else 0
    return lstm(
        one_step=maybe(0.3),
        time_major=maybe(),
        cifg=maybe(),
        peephole=maybe(),
        clip=0.4 if maybe() else 0,
        projection=projection,
        projection_bias=bool(projection) and maybe(),
        projection_clip=0.3 if projection and maybe() else 0,
        normalized=maybe(0.3),
        activation=one_of(random, 4, 4, 1, 3),
        hybrid=maybe(0.4),
    )


@family
def edges(random: Random) -> Net:
    """Borders and cuts of ranks up to 5, in every type."""
    net, shape = Net(), extents(random, 1, 5)
    kind = one_of(random, "float32", "int8", "uint8", "int16", "int32", "int64")
    q = scale(random, kind) if kind in ("int8", "uint8", "int16") else None
    after = q if kind == "int8" or random.random() < 0.5 or q is None else scale(random, kind)
    name, rank = one_of(random, "PAD", "MIRROR_PAD", "SLICE", "CONCATENATION"), len(shape)
    x = net.input(shape, kind, q=q)
    if name == "SLICE":
        begin = [int(random.integers(0, d + 1)) for d in shape]
        size = [one_of(random, -1, int(random.integers(0, d - b + 1))) for d, b in zip(shape, begin, strict=True)]
        out = [d - b if s < 0 else s for d, b, s in zip(shape, begin, size, strict=True)]
        operands = [x, net.const(begin, "int32"), net.const(size, "int32")]
        return net.op(name, operands, [net.output(out, kind, q=after)], version=4)
    if name == "CONCATENATION":
        axis = int(random.integers(rank))
        other = [int(random.integers(0, 4)) if i == axis else d for i, d in enumerate(shape)]
        out = [d + o if i == axis else d for i, (d, o) in enumerate(zip(shape, other, strict=True))]
        table = options("ConcatenationOptions", axis=axis - rank if random.random() < 0.5 else axis)
        operands = [x, net.input(other, kind, q=q)]
        return net.op(name, operands, [net.output(out, kind, q=q)], table, version=2 if kind == "int8" else 1)
    mirrored, mode = name == "MIRROR_PAD", int(random.integers(2))
    amounts = np.array([[random.integers(0, max(d + mode if mirrored else 3, 1), 2)] for d in shape]).reshape(rank, 2)
    if mirrored and 0 in shape:
        amounts[:] = 0
    out = [int(d + a.sum()) for d, a in zip(shape, amounts, strict=True)]
    operands, table = [x, net.const(amounts, "int32")], options("MirrorPadOptions", mode=mode) if mirrored else None
    return net.op(name, operands, [net.output(out, kind, q=q)], table, version=2)


@family
def choices(random: Random) -> Net:
    """Selections of operands that broadcast, with parameters of their own."""
    net, full = Net(), extents(random, 0, 5)
    kind = one_of(random, "float32", "int8", "uint8", "int16", "int32", "int64", "bool")
    quantized = kind in ("int8", "uint8", "int16")
    shapes = [
        tuple(1 if random.random() < 0.3 else d for d in full[int(random.integers(len(full) + 1)) :]) for _ in range(3)
    ]
    qs = [scale(random, kind) if quantized else None for _ in range(3)]
    operands = [net.input(shapes[0], "bool"), *(net.input(s, kind, q=q) for s, q in zip(shapes[1:], qs, strict=False))]
    return net.op("SELECT_V2", operands, [net.output(np.broadcast_shapes(*shapes), kind, q=qs[2])])


@family
def upsampled(random: Random) -> Net:
    """Transposed convolutions: padding, strides, sizes, scales, bias, activation."""
    net, kind = Net(), one_of(random, "float32", "int8", "int16", "uint8")
    padding, strides = int(random.integers(2)), [int(v) for v in random.integers(1, 4, 2)]
    kh, kw, c, o, n = (int(v) for v in random.integers(1, 5, 5))
    places = [int(v) for v in random.integers(2, 6, 2)]
    wanted = []
    for place, k, s in zip(places, (kh, kw), strides, strict=True):
        least = (place - 1) * s + 1 if padding == 0 else (place - 1) * s + k
        wanted.append(least + int(random.integers(0, s)))
    q = scale(random, kind) if kind != "float32" else None
    x = net.input((n, *places, c), kind, *((-32768, 32767) if kind == "int16" else (-2, 2)), q=q)
    if q is None:
        kernel, bias, after = net.const(random.normal(size=(o, kh, kw, c))), net.const(random.normal(size=o)), None
    else:
        scales = 10.0 ** random.uniform(-2.5, -1.5) * (random.uniform(0.5, 2, o) if kind != "uint8" else np.ones(1))
        zero = 120 if kind == "uint8" else 0
        values = random.integers(-100, 100, (o, kh, kw, c)) + zero
        kernel = net.const(values, "uint8" if zero else "int8", q=Scale(list(scales), zero))
        wide = "int64" if kind == "int16" else "int32"
        bias = net.const(random.integers(-900, 900, o), wide, q=Scale(list(np.float32(q.scale) * scales)))
        after = scale(random, kind)
    operands = [net.const([n, *wanted, o], "int32"), kernel, x, *([bias] if random.random() < 0.7 else [])]
    fused = one_of(random, 0, 1, 3)
    table = options(
        "TransposeConvOptions", padding=padding, strideH=strides[0], strideW=strides[1], fusedActivationFunction=fused
    )
    return net.op("TRANSPOSE_CONV", operands, [net.output((n, *wanted, o), kind, q=after)], table, version=4)


@family
def rescaled(random: Random) -> Net:
    """QUANTIZE and DEQUANTIZE of any rank, with one scale or one along any axis."""
    net, shape = Net(), extents(random, 1, 5)
    kind = one_of(random, "int8", "uint8", "int16")
    axis = int(random.integers(len(shape)))
    per_axis = kind == "int8" and shape[axis] > 1 and random.random() < 0.6
    q = scale(random, kind, shape[axis] if per_axis else 0, axis)
    if random.random() < 0.5:
        return net.op("QUANTIZE", [net.input(shape)], [net.output(shape, kind, q=q)], version=3)
    x = net.input(shape, kind, *((-32768, 32767) if kind == "int16" else (-2, 2)), q=q)
    return net.op("DEQUANTIZE", [x], [net.output(shape)], version=5)
