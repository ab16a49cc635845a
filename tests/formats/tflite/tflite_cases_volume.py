"""Small models of convolutions over three dimensions, and of windows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tflite_cases import cases, rng
from tflite_cases_spatial import SAME, VALID, places
from tflite_writing import Net, options


def volume(padding: int, strides: tuple[int, ...], dilations: tuple[int, ...] = (1, 1, 1), activation: int = 0) -> Net:
    net, extents, window, c, o = Net(), (6, 7, 9), (3, 2, 4), 3, 5
    out = [places(e, k, s, d, padding) for e, k, s, d in zip(extents, window, strides, dilations, strict=True)]
    x, y = net.input((2, *extents, c)), net.output((2, *out, o))
    kernel, bias = net.const(rng().normal(size=(*window, c, o))), net.const(rng().normal(size=o))
    return net.op("CONV_3D", [x, kernel, bias], [y], conv_3d(padding, strides, dilations, activation))


def conv_3d(padding: int, strides: tuple[int, ...], dilations: tuple[int, ...], activation: int) -> object:
    return options(
        "Conv3DOptions", padding=padding, fusedActivationFunction=activation,
        strideD=strides[0], strideH=strides[1], strideW=strides[2],
        dilationDFactor=dilations[0], dilationHFactor=dilations[1], dilationWFactor=dilations[2],
    )  # fmt: skip


@cases("CONV_3D")
def volumes() -> Iterator[Net]:
    for padding, strides in itertools.product((SAME, VALID), ((1, 1, 1), (2, 1, 3))):
        yield volume(padding, strides)
    yield volume(SAME, (1, 1, 1), (2, 3, 1))
    yield volume(VALID, (1, 1, 1), (1, 2, 2), 1)
    yield volume(VALID, (1, 2, 1), activation=3)


def spread(padding: int, strides: tuple[int, ...], dilations: tuple[int, ...] = (1, 1, 1), bias: bool = True) -> Net:
    net, out, window, c, o = Net(), (7, 8, 11), (3, 2, 4), 3, 5
    small = [places(e, k, s, d, padding) for e, k, s, d in zip(out, window, strides, dilations, strict=True)]
    shape = net.const([2, *out, o], "int32")
    kernel, x = net.const(rng().normal(size=(*window, o, c))), net.input((2, *small, c))
    more = [net.const(rng().normal(size=o))] if bias else []
    table = conv_3d(padding, strides, dilations, int(bias))
    return net.op("CONV_3D_TRANSPOSE", [shape, kernel, x, *more], [net.output((2, *out, o))], table)


@cases("CONV_3D_TRANSPOSE")
def spreads() -> Iterator[Net]:
    for padding, strides in itertools.product((SAME, VALID), ((1, 1, 1), (2, 1, 3))):
        yield spread(padding, strides, bias=strides == (1, 1, 1))
    yield spread(SAME, (1, 1, 1), (2, 1, 2))


@cases("REDUCE_WINDOW")
def windows() -> Iterator[Net]:
    for function in (1, 2, 3, 4):
        for kind in ("float32", "int32"):
            for strides, dilations in (((1, 1, 1), (1, 1, 1)), ((1, 2, 3), (1, 2, 1))):
                net, window, extents = Net(), (1, 2, 3), (2, 5, 9)
                parts = zip(extents, window, strides, dilations, strict=True)
                out = [(e - (k - 1) * d - 1) // s + 1 for e, k, s, d in parts]
                x = net.input(extents, kind, -3, 3)
                start = net.const({1: 0, 2: 1, 3: 9, 4: -9}[function], kind)
                lists = [net.const(v, "int64") for v in (window, strides, dilations)]
                table = options("ReduceWindowOptions", reduceFunction=function)
                yield net.op("REDUCE_WINDOW", [x, start, *lists], [net.output(out, kind)], table)
    for function in (5, 6):
        net = Net()
        lists = [net.const(v, "int64") for v in ((2, 2), (1, 2), (1, 1))]
        operands = [net.input((4, 7), "bool"), net.const(function == 5, "bool"), *lists]
        table = options("ReduceWindowOptions", reduceFunction=function)
        yield net.op("REDUCE_WINDOW", operands, [net.output((3, 3), "bool")], table)
