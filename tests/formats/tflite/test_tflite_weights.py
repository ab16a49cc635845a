"""Weights that are no constants of their own subgraph: handed into a branch, fed, or computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_running import agree
from tflite_writing import Net, Scale, options

from products import EXACT_CPU

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "CONV_2D": ((1, 6, 8, 3), (16, 3, 3, 3), (1, 3, 4, 16)),
    "DEPTHWISE_CONV_2D": ((1, 6, 8, 16), (1, 3, 3, 16), (1, 6, 8, 16)),
    "FULLY_CONNECTED": ((3, 12), (7, 12), (3, 7)),
    "TRANSPOSE_CONV": ((1, 6, 8, 16), (16, 3, 3, 16), (1, 12, 16, 16)),
}
"""Data, weights, result."""

PARAMETERS = {"int8": (Scale(0.04, 3), 0), "uint8": (Scale(0.04, 120), 128), "int16": (Scale(0.001), 0)}
"""Of the data, and the weights' zero point."""


def product(net: Net, name: str, x: int, kernel: int, bias: int, y: int) -> None:
    step = 2 if name in ("CONV_2D", "TRANSPOSE_CONV") else 1
    more: dict[str, Any] = {} if name == "FULLY_CONNECTED" else {"strideH": step, "strideW": step}
    kind = {"CONV_2D": "Conv2D", "DEPTHWISE_CONV_2D": "DepthwiseConv2D", "FULLY_CONNECTED": "FullyConnected"}
    table = options(f"{kind.get(name, 'TransposeConv')}Options", **more)
    operands = [x, kernel, bias]
    if name == "TRANSPOSE_CONV":
        operands = [net.const(SHAPES[name][2], "int32"), kernel, x, bias]
    net.op(name, operands, [y], table, version=5)


@EXACT_CPU
@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("name", SHAPES)
def test_weights_handed_into_a_branch(name: str, kind: str) -> None:
    """The branch's own tensors have no elements; those outside are constants nevertheless."""
    (data, weights, result), (q, zero) = SHAPES[name], PARAMETERS[kind]
    rng, net = np.random.default_rng(5), Net()
    narrow, wide = "uint8" if kind == "uint8" else "int8", "int64" if kind == "int16" else "int32"
    kernel_q, out, bias_q = Scale(0.01, zero), Scale(0.01 if kind == "int16" else 0.5, 0), Scale(q.scale * 0.01)
    units = weights[3] if name.startswith("DEPTHWISE") else weights[0]
    condition, x = net.input((), "bool"), net.input(data, kind, -900, 900, q=q)
    kernel = net.const(rng.integers(-100, 100, weights) + zero, narrow, q=kernel_q)
    bias = net.const(rng.integers(-500, 500, units), wide, q=bias_q)
    branches = []
    for _ in range(2):
        with net.subgraph() as index:
            inputs = [
                net.input(data, kind, q=q),
                net.input(weights, narrow, q=kernel_q),
                net.input((units,), wide, q=bias_q),
            ]
            product(net, name, *inputs, net.output(result, kind, q=out))
        branches.append(index)
    table = options("IfOptions", thenSubgraphIndex=branches[0], elseSubgraphIndex=branches[1])
    net.op("IF", [condition, x, kernel, bias], [net.output(result, kind, q=out)], table)
    agree(net.bytes(), net.ranges)


@EXACT_CPU
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", ["CONV_2D", "FULLY_CONNECTED"])
def test_weights_that_are_fed_or_computed(name: str, computed: bool, kind: str) -> None:
    (data, weights, result), (q, zero) = SHAPES[name], PARAMETERS[kind]
    net = Net()
    kernel_q = Scale(0.02, zero)
    x, kernel = net.input(data, kind, q=q), net.input(weights, kind, q=kernel_q)
    if computed:
        square = net.tensor(weights, kind, q=kernel_q)
        kernel = (
            net.op("ADD", [kernel, kernel], [square], options("AddOptions"), version=2).graph.operators[-1].outputs[0]
        )
    bias = net.const(np.arange(weights[0]), "int32", q=Scale(q.scale * kernel_q.scale))
    product(net, name, x, kernel, bias, net.output(result, kind, q=Scale(0.5, q.zero)))
    agree(net.bytes())
