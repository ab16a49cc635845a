"""Small models of StableHLO operators. Where the interpreter has no kernel, numpy says what is meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_writing import Net, options

POSITIVE = (0.1, 3.0)


def net_of(
    name: str,
    inputs: Sequence[tuple[Sequence[int], str]],
    output: tuple[Sequence[int], str],
    table: Any = None,
    expected: Callable[..., Any] | None = None,
    low: float = -2,
    high: float = 2,
) -> Net:
    net = Net()
    operands = [net.input(shape, kind, low, high) for shape, kind in inputs]
    net.expected = expected
    return net.op(f"STABLEHLO_{name}", operands, [net.output(*output)], table)


@cases(*(f"STABLEHLO_{n}" for n in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM", "AND", "SHIFT_LEFT")))
def known_to_the_interpreter() -> Iterator[Net]:
    shape = (2, 3, 4)
    for name in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"):
        for kind in ("float32", "int32"):
            yield net_of(name, [(shape, kind)] * 2, (shape, kind), low=-9, high=9)
    yield net_of("AND", [(shape, "bool")] * 2, (shape, "bool"))
    table = options("StablehloShiftLeftOptions")
    yield net_of("SHIFT_LEFT", [(shape, "int32")] * 2, (shape, "int32"), table, low=0, high=9)


UNARY: dict[str, Callable[..., Any]] = {
    "ABS": np.abs,
    "CBRT": np.cbrt,
    "COSINE": np.cos,
    "EXPONENTIAL": np.exp,
    "FLOOR": np.floor,
    "LOG": np.log,
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)),
    "NEGATE": np.negative,
    "RSQRT": lambda x: 1 / np.sqrt(x),
    "TANH": np.tanh,
}


@cases(*(f"STABLEHLO_{n}" for n in UNARY))
def of_one() -> Iterator[Net]:
    for name, expected in UNARY.items():
        limits = POSITIVE if name in ("LOG", "RSQRT") else (-2, 2)
        yield net_of(name, [((2, 3, 4), "float32")], ((2, 3, 4), "float32"), None, expected, *limits)


BINARY: dict[str, Callable[..., Any]] = {
    "DIVIDE": np.divide,
    "POWER": np.power,
    "REMAINDER": np.fmod,
    "SUBTRACT": np.subtract,
}
DIRECTIONS = (np.equal, np.not_equal, np.greater_equal, np.greater, np.less_equal, np.less)


@cases(*(f"STABLEHLO_{n}" for n in (*BINARY, "OR", "COMPARE", "CONVERT", "CLAMP", "SELECT")))
def of_several() -> Iterator[Net]:
    f, i, b = ((2, 3, 4), "float32"), ((2, 3, 4), "int32"), ((2, 3, 4), "bool")
    for name, expected in BINARY.items():
        yield net_of(name, [f, f], f, None, expected, *(POSITIVE if name in ("POWER", "DIVIDE") else (-2, 2)))
    yield net_of("REMAINDER", [i, i], i, None, np.fmod, 1, 9)
    yield net_of("OR", [b, b], b, None, np.logical_or)
    for number, expected in enumerate(DIRECTIONS):
        table = options("StablehloCompareOptions", comparisonDirection=number)
        yield net_of("COMPARE", [i, i], b, table, expected)
    yield net_of("CONVERT", [f], i, None, np.trunc, -9, 9)
    yield net_of("CONVERT", [b], f, None, lambda x: x)
    yield net_of(
        "CLAMP", [((), "float32"), f, ((), "float32")], f, None, lambda a, x, c: np.minimum(np.maximum(x, a), c)
    )
    yield net_of("SELECT", [b, f, f], f, None, np.where)
    yield net_of("SELECT", [((), "bool"), b, b], b, None, np.where)


@cases(*(f"STABLEHLO_{n}" for n in ("RESHAPE", "TRANSPOSE", "CONCATENATE", "SLICE", "IOTA", "BROADCAST_IN_DIM")))
def moved() -> Iterator[Net]:
    f = "float32"
    yield net_of("RESHAPE", [((2, 3, 4), f)], ((4, 6), f), None, lambda x: x.reshape(4, 6))
    table = options("StablehloTransposeOptions", permutation=[2, 0, 1])
    yield net_of("TRANSPOSE", [((2, 3, 4), f)], ((4, 2, 3), f), table, lambda x: x.transpose(2, 0, 1))
    table = options("StablehloConcatenateOptions", dimension=1)
    yield net_of("CONCATENATE", [((2, 3), f), ((2, 4), f)], ((2, 7), f), table, lambda *parts: np.concatenate(parts, 1))
    table = options("StablehloSliceOptions", startIndices=[1, 0], limitIndices=[4, 5], strides=[1, 2])
    yield net_of("SLICE", [((4, 5), f)], ((3, 3), f), table, lambda x: x[1:4, 0:5:2])
    for axis in (0, 1):
        net = Net()
        x, numbers, y = net.input((3, 4), "int32"), net.tensor((3, 4), "int32"), net.output((3, 4), "int32")
        net.expected = lambda x, axis=axis: x + np.indices((3, 4))[axis]
        net.op("STABLEHLO_IOTA", [], [numbers], options("StablehloIotaOptions", iotaDimension=axis))
        yield net.op("STABLEHLO_ADD", [x, numbers], [y])
    for places, shape, order in (([0, 2], (3, 1), (0, 1)), ([2, 1], (4, 5), (1, 0)), ([], (), ())):
        table = options("StablehloBroadcastInDimOptions", broadcastDimensions=places)

        def expected(x: Any, places: Any = places, order: Any = order) -> Any:
            apart = [1, 1, 1]
            for p, e in zip(places, x.shape, strict=True):
                apart[p] = e
            return np.broadcast_to(x.transpose(order).reshape(apart), (3, 5, 4))

        yield net_of("BROADCAST_IN_DIM", [(shape, f)], ((3, 5, 4), f), table, expected)


@cases("STABLEHLO_DYNAMIC_SLICE", "STABLEHLO_DYNAMIC_UPDATE_SLICE")
def placed() -> Iterator[Net]:
    f, s = "float32", ((), "int32")

    def start(x: Any, sizes: Any, at: Any) -> Any:
        return tuple(slice(b := max(0, min(int(a), e - n)), b + n) for a, e, n in zip(at, x.shape, sizes, strict=True))

    def updated(x: Any, update: Any, *at: Any) -> Any:
        x = x.copy()
        x[start(x, update.shape, at)] = update
        return x

    table = options("StablehloDynamicSliceOptions", sliceSizes=[2, 3])
    for limits in ((-2, 1), (0, 3), (2, 9)):
        yield net_of(
            "DYNAMIC_SLICE", [((4, 6), f), s, s], ((2, 3), f), table, lambda x, *at: x[start(x, (2, 3), at)], *limits
        )
        yield net_of("DYNAMIC_UPDATE_SLICE", [((4, 6), f), ((2, 3), f), s, s], ((4, 6), f), None, updated, *limits)


@cases("STABLEHLO_PAD")
def borders() -> Iterator[Net]:
    for low, high, between in (([1, 0], [2, 3], [0, 0]), ([0, 2], [1, 0], [2, 1]), ([-1, 1], [0, -2], [0, 1])):
        shape = [e + (e - 1) * i + a + b for e, a, b, i in zip((3, 4), low, high, between, strict=True)]
        for kind in ("float32", "int32"):
            net = Net()
            table = options("StablehloPadOptions", edgePaddingLow=low, edgePaddingHigh=high, interiorPadding=between)
            operands = [net.input((3, 4), kind), net.const(7, kind)]
            yield net.op("STABLEHLO_PAD", operands, [net.output(shape, kind)], table)


@cases("STABLEHLO_DOT_GENERAL", "STABLEHLO_CONVOLUTION")
def products() -> Iterator[Net]:
    f = "float32"
    for batch, shared, equation, a, b, y in (
        (([], []), ([1], [0]), "mk,kn->mn", (3, 4), (4, 5), (3, 5)),
        (([0], [1]), ([2], [0]), "bmk,kbn->bmn", (2, 3, 4), (4, 2, 5), (2, 3, 5)),
        (([], []), ([0, 2], [1, 0]), "kml,lk->m", (3, 4, 5), (5, 3), (4,)),
        (([0], [0]), ([3], [1]), "bmnk,bkpq->bmnpq", (2, 3, 4, 5), (2, 5, 3, 2), (2, 3, 4, 3, 2)),
    ):
        table = options(
            "StablehloDotGeneralOptions", lhsBatchingDimensions=batch[0], rhsBatchingDimensions=batch[1],
            lhsContractingDimensions=shared[0], rhsContractingDimensions=shared[1],
        )  # fmt: skip
        yield net_of("DOT_GENERAL", [(a, f), (b, f)], (y, f), table, lambda p, q, e=equation: np.einsum(e, p, q))
    for strides, padding, gaps, dilations, back, groups in (
        ((1, 1), (0, 0, 0, 0), (1, 1), (1, 1), (False, False), 1),
        ((2, 1), (1, 2, 0, 1), (1, 1), (1, 2), (False, True), 2),
        ((1, 1), (2, 1, -1, 0), (2, 3), (1, 1), (True, True), 1),
    ):
        table = options(
            "StablehloConvolutionOptions", windowStrides=strides, padding=padding, lhsDilation=gaps,
            rhsDilation=dilations, windowReversal=back, inputBatchDimension=0, inputFeatureDimension=3,
            inputSpatialDimensions=[1, 2], kernelInputFeatureDimension=2, kernelOutputFeatureDimension=3,
            kernelSpatialDimensions=[0, 1], outputBatchDimension=0, outputFeatureDimension=3,
            outputSpatialDimensions=[1, 2], featureGroupCount=groups, batchGroupCount=1,
        )  # fmt: skip

        def expected(x: Any, k: Any, more: Any = (strides, padding, gaps, dilations, back, groups)) -> Any:
            return convolved(x, k, *more)

        shape = expected(np.zeros((2, 5, 6, 4)), np.zeros((3, 2, 4 // groups, 6))).shape
        yield net_of("CONVOLUTION", [((2, 5, 6, 4), f), ((3, 2, 4 // groups, 6), f)], (shape, f), table, expected)


def convolved(x: Any, k: Any, strides: Any, padding: Any, gaps: Any, dilations: Any, back: Any, groups: int) -> Any:
    """A convolution of `n h w c` with `h w i o`, by its definition."""
    n, h, w, c = x.shape
    wide = np.zeros((n, (h - 1) * gaps[0] + 1, (w - 1) * gaps[1] + 1, c))
    wide[:, :: gaps[0], :: gaps[1]] = x
    low, high = np.maximum(padding[::2], 0), np.maximum(padding[1::2], 0)
    wide = np.pad(wide, ((0, 0), (low[0], high[0]), (low[1], high[1]), (0, 0)))
    cut = [
        slice(max(-a, 0), e - max(-b, 0)) for a, b, e in zip(padding[::2], padding[1::2], wide.shape[1:3], strict=True)
    ]
    wide = wide[:, cut[0], cut[1]]
    k = k[:: -1 if back[0] else 1, :: -1 if back[1] else 1]
    out = [
        (e - (m - 1) * d - 1) // s + 1 for e, m, d, s in zip(wide.shape[1:3], k.shape, dilations, strides, strict=False)
    ]
    y = np.zeros((n, *out, k.shape[3]))
    for o in range(k.shape[3]):
        g = o // (k.shape[3] // groups)
        channels = slice(g * k.shape[2], (g + 1) * k.shape[2])
        for i, j in np.ndindex(*out):
            a, b = i * strides[0], j * strides[1]
            part = wide[:, a : a + (k.shape[0] - 1) * dilations[0] + 1 : dilations[0], :, channels]
            part = part[:, :, b : b + (k.shape[1] - 1) * dilations[1] + 1 : dilations[1]]
            y[:, i, j, o] = (part * k[..., o]).sum((1, 2, 3))
    return y
