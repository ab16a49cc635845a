"""Small models of StableHLO operators with a subgraph, and of those that index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_writing import Net, options


def body(net: Net, name: str, kind: str, count: int = 2, table: Any = None, result: str = "") -> int:
    """A subgraph of scalars with one operator of the first two, or, without one, that yields the second."""
    with net.subgraph() as index:
        given = [net.input((), kind) for _ in range(count)]
        if name:
            net.op(name, given[:2], [net.output((), result or kind)], table)
        else:
            net.graph.outputs.append(given[1])
    return index


@cases("STABLEHLO_REDUCE")
def whole_axes() -> Iterator[Net]:
    for name, kind, function, start in (
        ("STABLEHLO_ADD", "float32", np.sum, 0.5),
        ("STABLEHLO_MAXIMUM", "float32", np.max, 0.2),
        ("MINIMUM", "int32", np.min, 1),
        ("MUL", "int32", np.prod, 3),
        ("STABLEHLO_OR", "bool", np.any, False),
        ("LOGICAL_AND", "bool", np.all, True),
    ):
        for axes, shape in (([1], (2, 4)), ([0, 2], (3,))):
            net = Net()
            x, first, y = net.input((2, 3, 4), kind), net.const(start, kind), net.output(shape, kind)
            table = options("StablehloReduceOptions", dimensions=axes, bodySubgraphIndex=body(net, name, kind))

            def expected(x: Any, f: Any = function, a: Any = tuple(axes), s: Any = start) -> Any:
                y = f(x, a)
                both = np.stack([y, np.full_like(y, s)])
                return f(both, 0)

            net.expected = expected
            yield net.op("STABLEHLO_REDUCE", [x, first], [y], table)


@cases("STABLEHLO_REDUCE_WINDOW")
def sliding() -> Iterator[Net]:
    for name, start in (("ADD", 0), ("MAXIMUM", -9), ("MINIMUM", 9), ("MULTIPLY", 1)):
        for kind in ("float32", "int32"):
            for window, strides, dilations, base, padding in (
                ((2, 3), (1, 2), (1, 1), (1, 1), (0, 0, 0, 0)),
                ((1, 5), (1, 1), (1, 1), (1, 1), (0, 0, 2, 1)),
                ((3, 2), (2, 1), (1, 2), (2, 1), (1, 0, 0, 2)),
            ):
                net = Net()
                out = []
                for axis, extent in enumerate((4, 7)):
                    grown = (extent - 1) * base[axis] + 1 + padding[2 * axis] + padding[2 * axis + 1]
                    out.append((grown - (window[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1)
                x, first, y = net.input((4, 7), kind), net.const(start, kind), net.output(out, kind)
                table = options(
                    "StablehloReduceWindowOptions", windowDimensions=window, windowStrides=strides,
                    baseDilations=base, windowDilations=dilations, padding=padding,
                    bodySubgraphIndex=body(net, f"STABLEHLO_{name}", kind),
                )  # fmt: skip
                yield net.op("STABLEHLO_REDUCE_WINDOW", [x, first], [y], table)


@cases("STABLEHLO_SORT")
def sorts() -> Iterator[Net]:
    for direction in (3, 5):
        for axis in (0, 1):
            net = Net()
            operands = [net.input((3, 7), "int32", -2, 2), net.input((3, 7))]
            results = [net.output((3, 7), "int32"), net.output((3, 7))]
            table = options("StablehloCompareOptions", comparisonDirection=direction)
            index = body(net, "STABLEHLO_COMPARE", "int32", 4, table, "bool")

            def expected(k: Any, v: Any, s: int = direction, axis: int = axis) -> Any:
                order = np.argsort(-k if s == 3 else k, axis, kind="stable")
                return np.take_along_axis(k, order, axis), np.take_along_axis(v, order, axis)

            net.expected = expected
            table = options("StablehloSortOptions", dimension=axis, isStable=True, comparatorSubgraphIndex=index)
            yield net.op("STABLEHLO_SORT", operands, results, table)


@cases("STABLEHLO_COMPOSITE")
def composites() -> Iterator[Net]:
    net = Net()
    x, y = net.input((2, 3)), net.output((2, 3))
    with net.subgraph() as index:
        a, b, c = net.input((2, 3)), net.tensor((2, 3)), net.output((2, 3))
        net.op("EXP", [a], [b]).op("ADD", [a, b], [c], options("AddOptions"))
    table = options(
        "StableHLOCompositeOptions", name="odml.some", compositeAttributes=[0], decompositionSubgraphIndex=index
    )
    yield net.op("STABLEHLO_COMPOSITE", [x], [y], table)


@cases("STABLEHLO_GATHER")
def gathers_of_windows() -> Iterator[Net]:
    for operand, sizes, collapsed, axes, vector, offsets, indices, out in (
        ((5, 4), (1, 4), [0], [0], 1, [1], (3, 1), (3, 4)),
        ((5, 4, 3), (2, 1, 3), [1], [0, 1], 2, [2, 3], (6, 2, 2), (6, 2, 2, 3)),
        ((5, 4, 3), (1, 2, 3), [0], [1, 0], 0, [1, 2], (2, 3), (3, 2, 3)),
        ((5, 4), (3, 4), [], [0], 1, [0, 2], (6, 1), (3, 6, 4)),
        ((5, 4), (2, 3), [], [1, 0], 1, [1, 2], (6, 2), (6, 2, 3)),
    ):
        net = Net()
        table = options(
            "StablehloGatherOptions", offsetDims=offsets, collapsedSliceDims=collapsed, startIndexMap=axes,
            indexVectorDim=vector, sliceSizes=sizes,
        )  # fmt: skip
        operands = [net.input(operand), net.input(indices, "int32", 0, 3)]
        yield net.op("STABLEHLO_GATHER", operands, [net.output(out)], table)


@cases("STABLEHLO_SCATTER")
def scatters_of_windows() -> Iterator[Net]:
    for name in ("STABLEHLO_ADD", "STABLEHLO_MAXIMUM", "STABLEHLO_MULTIPLY", "STABLEHLO_MINIMUM", ""):
        for operand, inserted, axes, vector, windows, indices, updates in (
            ((5, 4), [0], [0], 1, [1], (3, 1), (3, 4)),
            ((5, 4), [0, 1], [0, 1], 1, [], (3, 2), (3,)),
            ((5, 4, 3), [1], [0, 1], 1, [0, 2], (3, 2), (2, 3, 3)),
            ((5, 4), [], [0], 1, [1, 2], (2, 1), (2, 2, 3)),
        ):
            net = Net()
            table = options(
                "StablehloScatterOptions", updateWindowDims=windows, insertedWindowDims=inserted,
                scatterDimsToOperandDims=axes, indexVectorDim=vector,
                updateComputationSubgraphIndex=body(net, name, "float32"),
            )  # fmt: skip
            rows = np.array([[4, 1], [0, 9], [2, 3]])[: indices[0], : indices[1]]
            if not name and operand == (5, 4) and not inserted:
                rows = rows[:, ::-1]
            operands = [net.input(operand), net.const(rows, "int32"), net.input(updates)]
            yield net.op("STABLEHLO_SCATTER", operands, [net.output(operand)], table)
