"""Small models of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from tflite_cases import I8, OUT8, U8, cases, rng
from tflite_writing import Net, Scale, options, packed, standing


def dense(
    shape: tuple[int, ...],
    kind: str = "float32",
    *,
    keep: bool = False,
    activation: int = 0,
    bias: str = "given",
    per_channel: bool = False,
) -> Net:
    net = Net()
    columns, units = 6, 4
    rows = int(np.prod(shape)) // columns
    out = (*shape[:-1], units) if keep else (rows, units)
    if kind == "float32":
        x, y, weights = net.input(shape), net.output(out), net.const(rng().normal(size=(units, columns)))
        offset = net.const(rng().normal(size=units))
    else:
        q, zero = (I8, 0) if kind == "int8" else (U8, 121)
        scales = [0.01, 0.02, 0.015, 0.03] if per_channel else [0.01]
        x, y = net.input(shape, kind, q=q), net.output(out, kind, q=OUT8 if kind == "int8" else Scale(0.1, 110))
        weights = net.const(rng().integers(-90, 90, (units, columns)) + zero, kind, q=Scale(scales, zero))
        offset = net.const(rng().integers(-900, 900, units), "int32", q=Scale([q.scale * s for s in scales]))
    operands = {"given": [x, weights, offset], "absent": [x, weights, -1], "none": [x, weights]}[bias]
    table = options("FullyConnectedOptions", keepNumDims=keep, fusedActivationFunction=activation)
    return net.op("FULLY_CONNECTED", operands, [y], table, version=5)


@cases("FULLY_CONNECTED")
def fully_connected() -> Iterator[Net]:
    yield standing(dense((3, 6)))
    yield standing(dense((2, 3, 6), keep=True))
    for per_channel in (False, True):
        yield standing(dense((3, 6), "int8", per_channel=per_channel))
    for kind in ("float32", "int8", "uint8"):
        yield dense((3, 6), kind)
        yield dense((2, 3, 6), kind, keep=True, activation=1)
        yield dense((2, 3, 4), kind)
        yield dense((5, 3, 2, 1), kind, activation=3)
    yield dense((3, 6), activation=2)
    for bias in ("absent", "none"):
        yield dense((3, 6), bias=bias)
        yield dense((2, 3, 6), bias=bias, keep=True)
    yield dense((3, 6), "int8", per_channel=True)


@cases("FULLY_CONNECTED", "DEQUANTIZE", "EMBEDDING_LOOKUP")
def two_bits() -> Iterator[Net]:
    """Four weights in a byte, the lowest bits first; their number is none of four's multiples."""

    def weights(net: Net, q: Scale, columns: int = 5) -> int:
        return net.tensor((3, columns), data=packed(rng().integers(-2, 2, 3 * columns), 2), type_name="INT2", q=q)

    each = Scale([0.05, 0.1, 0.07])
    net = Net()
    net.slack = 4 / 255 * 5 * 2 * 0.1  # the runtime rounds the data to 8 bits
    operands = [net.input((4, 5)), weights(net, each), -1]
    yield net.op("FULLY_CONNECTED", operands, [net.output((4, 3))], options("FullyConnectedOptions"), version=14)
    net = Net()
    operands = [net.input((4, 5), "int8", q=I8), weights(net, each), -1]
    table = options("FullyConnectedOptions")
    yield net.op("FULLY_CONNECTED", operands, [net.output((4, 3), "int8", q=Scale(0.02, 3))], table, version=14)
    net = Net()
    net.op("DEQUANTIZE", [weights(net, Scale(0.05))], [net.output((3, 5))], version=9)
    yield net.op("EXP", [net.input((2, 3))], [net.output((2, 3))])
    net = Net()
    operands = [net.input((4,), "int32", 0, 2), weights(net, Scale(0.05), 8)]  # whole bytes
    yield net.op("EMBEDDING_LOOKUP", operands, [net.output((4, 8))], version=5)


@cases("FULLY_CONNECTED")
def four_bits() -> Iterator[Net]:
    """Weights of four bits, two in a byte, the low half first; an odd number of them."""
    for kind in ("float32", "int8"):
        net, random = Net(), rng()
        units, columns = 3, 5
        weights = random.integers(-7, 8, (units, columns))
        scales = [0.1, 0.2, 0.3]
        if kind == "float32":
            x, y, offset = net.input((2, columns)), net.output((2, units)), net.const(random.normal(size=units))
            net.slack = float((4 / 255 * np.abs(weights).sum(1) * scales).max())
        else:
            x, y = net.input((2, columns), kind, q=I8), net.output((2, units), kind, q=OUT8)
            offset = net.const(random.integers(-9, 9, units), "int32", q=Scale([I8.scale * s for s in scales]))
        stored = net.tensor((units, columns), data=packed(weights, 4), type_name="INT4", q=Scale(scales))
        yield net.op("FULLY_CONNECTED", [x, stored, offset], [y], options("FullyConnectedOptions"), version=10)


BLOCK = 32


def in_blocks(kind: str, units: int = 6, columns: int = 2 * BLOCK) -> tuple[Any, Any]:
    """Integers of `INT4` and the like, and a scale for each 32 of a row in half precision; those of a row lie apart."""
    random, most = rng(), 1 << int(kind.removeprefix("INT")) - 1
    scales = 2.0 ** -random.integers(4, 10, (units, columns // BLOCK)) / most
    return random.integers(-most + 1, most, (units, columns)), scales.astype(np.float16)


def weights_in_blocks(net: Net, kind: str, integers: Any, scales: Any) -> int:
    data, held = packed(integers, int(kind.removeprefix("INT"))), net.const(scales, "float16")
    return net.tensor(integers.shape, data=data, type_name=kind, blocks=(held, BLOCK))


def product_in_blocks(kind: str = "INT4", shape: tuple[int, ...] = (3, 2 * BLOCK), keep: bool = True) -> Net:
    """Rows times weights with a scale for each block, as LiteRT's quantizer writes them, and a bias."""
    net, (integers, scales) = Net(), in_blocks(kind)
    units, columns = integers.shape
    net.slack = float(np.abs(integers * np.repeat(scales, BLOCK, 1)).sum(1).max()) * 4 / 255  # rows are rounded
    operands = [net.input(shape), weights_in_blocks(net, kind, integers, scales), net.const(np.arange(units) / 8)]
    result = net.output((*shape[:-1], units) if keep else (int(np.prod(shape)) // columns, units))
    table = options("FullyConnectedOptions", keepNumDims=keep)
    return net.op("FULLY_CONNECTED", operands, [result], table, version=13)


@cases("FULLY_CONNECTED", "EMBEDDING_LOOKUP")
def by_blocks() -> Iterator[Net]:
    """A scale for every 32 columns of a row."""
    yield product_in_blocks(keep=False)
    yield product_in_blocks(shape=(2, 3, 2 * BLOCK))
    yield product_in_blocks(shape=(2, 3, 2 * BLOCK), keep=False)
    net = Net()
    table = weights_in_blocks(net, "INT4", *in_blocks("INT4"))
    yield net.op("EMBEDDING_LOOKUP", [net.input((4,), "int32", 0, 5), table], [net.output((4, 2 * BLOCK))], version=5)


@cases("FULLY_CONNECTED", "DENSIFY")
def sparse() -> Iterator[Net]:
    """Half of the weights left out: rows dense, columns compressed; once in blocks of one row and two columns."""
    for blocks in (False, True):
        for densify in (False, True):
            net, random = Net(), rng()
            weights = random.normal(size=(4, 6)).astype(np.float32)
            keep = random.integers(0, 2, (4, 3 if blocks else 6)).astype(bool)
            keep[2] = False
            weights *= np.repeat(keep, 2, 1) if blocks else keep
            rows, columns = np.nonzero(keep)
            values = weights.reshape(4, 3, 2)[keep] if blocks else weights[keep]
            stored = net.const(values)
            tensor = net.graph.tensors[stored]
            tensor.shape, tensor.sparsity = [4, 6], sparsity([*np.searchsorted(rows, range(5))], [*columns], blocks)
            if densify:
                net.op("DENSIFY", [stored], [full := net.tensor((4, 6))], options("DensifyOptions"))
            x, y, table = net.input((2, 6)), net.output((2, 4)), options("FullyConnectedOptions")
            if densify or not blocks:
                yield net.op("FULLY_CONNECTED", [x, full if densify else stored, -1], [y], table, version=8)


def sparsity(segments: list[int], indices: list[int], blocks: bool) -> Any:
    table = schema.SparsityParametersT()
    table.traversalOrder, table.blockMap = [0, 1, 2] if blocks else [0, 1], [1] if blocks else []
    row, column, block = (schema.DimensionMetadataT() for _ in range(3))
    row.format, row.denseSize, block.format, block.denseSize = 0, 4, 0, 2
    column.format = 1
    column.arraySegmentsType = column.arrayIndicesType = schema.SparseIndexVector.Int32Vector
    column.arraySegments, column.arrayIndices = schema.Int32VectorT(), schema.Int32VectorT()
    column.arraySegments.values, column.arrayIndices.values = segments, indices
    table.dimMetadata = [row, column, block] if blocks else [row, column]
    return table


@cases("BATCH_MATMUL")
def batch_matmul() -> Iterator[Net]:
    for adj_x in (False, True):
        for adj_y in (False, True):
            net = Net()
            a, b = net.input((2, 5, 3) if adj_x else (2, 3, 5)), net.input((2, 4, 5) if adj_y else (2, 5, 4))
            yield net.op(
                "BATCH_MATMUL", [a, b], [net.output((2, 3, 4))], options("BatchMatMulOptions", adjX=adj_x, adjY=adj_y)
            )
    net = Net()
    a, b = net.input((2, 3, 5), "int8", q=I8), net.input((2, 5, 4), "int8", q=Scale(0.03, 2))
    yield net.op(
        "BATCH_MATMUL", [a, b], [net.output((2, 3, 4), "int8", q=OUT8)], options("BatchMatMulOptions"), version=3
    )
