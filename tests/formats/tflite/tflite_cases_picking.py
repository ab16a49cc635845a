"""Small models of operators that pick, count and reduce."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tflite_cases import I8, OUT8, U8, cases, rng
from tflite_writing import Net, Scale, options


@cases("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")
def reductions() -> Iterator[Net]:
    shape = (2, 3, 4, 5)
    for name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"):
        logical = name in ("REDUCE_ANY", "REDUCE_ALL")
        for axes, keep in (([1, 2], True), ([-1], False), ([0, 2], False), ([3, 1], True)):
            kinds = [("bool", None, None)] if logical else [("float32", None, None)]
            if name in ("REDUCE_MAX", "REDUCE_MIN"):
                kinds += [("int8", I8, I8), ("int32", None, None)]
            if name in ("MEAN", "SUM"):
                kinds += [("int8", I8, OUT8), ("uint8", U8, Scale(0.2, 100))]
            for kind, q, out in kinds:
                gone = {axis % 4 for axis in axes}
                left = [1 if a in gone else d for a, d in enumerate(shape) if keep or a not in gone]
                net = Net()
                x, y = (
                    net.input(shape, kind, -9 if kind == "int32" else -2, 9 if kind == "int32" else 2, q=q),
                    net.output(left, kind, q=out),
                )
                yield net.op(
                    name,
                    [x, net.const(axes, "int32")],
                    [y],
                    options("ReducerOptions", keepDims=keep),
                    version=1 if logical else 2,
                )


@cases("ARG_MAX", "ARG_MIN")
def extremes() -> Iterator[Net]:
    for name, table in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")):
        for axis, shape in ((1, (2, 4)), (-1, (2, 3))):
            for kind, q in (("float32", None), ("int8", I8), ("uint8", U8), ("int32", None)):
                for number, dtype in ((2, "int32"), (4, "int64")):
                    net = Net()
                    x = net.input((2, 3, 4), kind, q=q)  # few integers: ties are decided too
                    yield net.op(
                        name,
                        [x, net.const(axis, "int32")],
                        [net.output(shape, dtype)],
                        options(table, outputType=number),
                        version=2,
                    )


@cases("CUMSUM", "TOPK_V2", "WHERE")
def orders() -> Iterator[Net]:
    for exclusive in (False, True):
        for reverse in (False, True):
            net = Net()
            table = options("CumsumOptions", exclusive=exclusive, reverse=reverse)
            yield net.op("CUMSUM", [net.input((2, 3, 4)), net.const(-2, "int32")], [net.output((2, 3, 4))], table)
    for kind, q in (("float32", None), ("int8", I8), ("int32", None)):
        net = Net()
        outputs = [net.output((3, 2), kind, q=q), net.output((3, 2), "int32")]
        yield net.op("TOPK_V2", [net.input((3, 7), kind, q=q), net.const(2, "int32")], outputs, version=2)
    for kind in ("bool", "float32", "int32"):
        net = Net()
        yield net.op("WHERE", [net.input((3, 4), kind)], [net.output((12, 2), "int64", signature=(-1, 2))])


@cases("GATHER", "GATHER_ND", "EMBEDDING_LOOKUP", "SCATTER_ND")
def gathers() -> Iterator[Net]:
    for kind, q in (("float32", None), ("int8", I8), ("int32", None)):
        for axis, batch, indices, shape in (
            (0, 0, [2, 0], (2, 4, 5)),
            (1, 0, [[3, 0], [1, 1]], (3, 2, 2, 5)),
            (-1, 0, [4], (3, 4, 1)),
            (1, 1, [[3, 0], [1, 1], [2, 0]], (3, 2, 5)),
            (2, 1, [[3, 0], [1, 1], [2, 0]], (3, 4, 2)),
            (2, 0, [[3, 0], [1, 4]], (3, 4, 2, 2)),
        ):
            net = Net()
            table = options("GatherOptions", axis=axis, batchDims=batch)
            operands = [net.input((3, 4, 5), kind, q=q), net.const(indices, "int32")]
            yield net.op("GATHER", operands, [net.output(shape, kind, q=q)], table, version=5)
        net = Net()
        operands = [net.input((3, 4, 5), kind, q=q), net.const([[2, 1], [0, 3]], "int32")]
        yield net.op("GATHER_ND", operands, [net.output((2, 5), kind, q=q)], version=2)
    net = Net()
    yield net.op(
        "EMBEDDING_LOOKUP", [net.input((4,), "int32", 0, 5), net.const(rng().normal(size=(6, 3)))], [net.output((4, 3))]
    )
    net = Net()
    indices, shape = net.const([[1], [3], [1]], "int32"), net.const([5, 2], "int32")
    yield net.op("SCATTER_ND", [indices, net.input((3, 2)), shape], [net.output((5, 2))])


@cases("SELECT", "SELECT_V2")
def selections() -> Iterator[Net]:
    for kind, q in (("float32", None), ("int8", I8), ("int32", None), ("bool", None)):
        for name, condition in (("SELECT", (3, 4)), ("SELECT", (3,)), ("SELECT_V2", (3, 1)), ("SELECT_V2", (3, 4))):
            net = Net()
            operands = [net.input(condition, "bool"), net.input((3, 4), kind, q=q), net.input((3, 4), kind, q=q)]
            yield net.op(name, operands, [net.output((3, 4), kind, q=q)])


@cases("ONE_HOT")
def one_hot() -> Iterator[Net]:
    for axis, shape in ((-1, (2, 3, 5)), (0, (5, 2, 3)), (1, (2, 5, 3))):
        net = Net()
        operands = [net.input((2, 3), "int32", -2, 6), net.const(5, "int32"), net.const(1.5), net.const(-0.5)]
        yield net.op("ONE_HOT", operands, [net.output(shape)], options("OneHotOptions", axis=axis))


@cases("MATRIX_DIAG", "MATRIX_SET_DIAG")
def diagonals() -> Iterator[Net]:
    net = Net()
    yield net.op("MATRIX_DIAG", [net.input((2, 3))], [net.output((2, 3, 3))])
    for rows, columns in ((3, 5), (5, 3), (4, 4)):
        net = Net()
        operands = [net.input((2, rows, columns)), net.input((2, min(rows, columns)))]
        yield net.op("MATRIX_SET_DIAG", operands, [net.output((2, rows, columns))])


@cases("UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_SUM")
def segments() -> Iterator[Net]:
    for name in ("MAX", "MIN", "PROD", "SUM"):
        for kind in ("float32", "int32"):
            net = Net()
            operands = [net.input((4, 3), kind, -5, 5), net.const([2, 0, 2, -1], "int32"), net.const(4, "int32")]
            yield net.op(f"UNSORTED_SEGMENT_{name}", operands, [net.output((4, 3), kind)])


@cases("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def suppressions() -> Iterator[Net]:
    corners = rng().uniform(0, 1, (12, 2))
    boxes = np.concatenate([corners, corners + rng(1).uniform(0.2, 0.5, (12, 2))], 1)
    for most in (3, 15):
        for version in (4, 5):
            net = Net()
            operands = [
                net.const(boxes),
                net.input((12,), low=0, high=1),
                net.const(most, "int32"),
                net.const(0.4),
                net.const(0.3),
            ]
            outputs = [net.output((most,), "int32")]
            if version == 5:
                operands.append(net.const(0.0))
                outputs.append(net.output((most,)))
            outputs.append(net.output((), "int32"))
            table = options(f"NonMaxSuppressionV{version}Options")
            yield net.op(f"NON_MAX_SUPPRESSION_V{version}", operands, outputs, table)


@cases("NON_MAX_SUPPRESSION_V5")
def soft_suppressions() -> Iterator[Net]:
    corners = rng().uniform(0, 1, (12, 2))
    boxes = np.concatenate([corners, corners + rng(1).uniform(0.2, 0.5, (12, 2))], 1)
    boxes[::3] = boxes[::3][:, [2, 3, 0, 1]]  # corners may come in either order
    for most, limit, least, sigma in (
        (3, 1.0, 0.0, 0.5),
        (12, 1.0, 0.3, 0.1),
        (12, 0.4, 0.1, 0.5),
        (20, 0.2, 0.0, 2.0),
    ):
        net = Net()
        scores, limits = net.input((12,), low=0, high=1), [net.const(v) for v in (limit, least, sigma)]
        operands = [net.const(boxes), scores, net.const(most, "int32"), *limits]
        outputs = [net.output((most,), "int32"), net.output((most,)), net.output((), "int32")]
        yield net.op("NON_MAX_SUPPRESSION_V5", operands, outputs, options("NonMaxSuppressionV5Options"))
