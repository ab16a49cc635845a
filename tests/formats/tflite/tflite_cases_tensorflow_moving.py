"""Small models of what the converter leaves to the Flex delegate along an axis, by index, or of matrices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_cases_tensorflow import left
from tflite_writing import Net


def running(x: Any, function: Any, axis: int, exclusive: bool, reverse: bool, start: float) -> Any:
    """`function` of all elements up to each, or of all before it."""
    x = np.flip(x, axis) if reverse else x
    y = function.accumulate(x.astype(np.float64), axis)
    if exclusive:
        first = np.full_like(np.take(y, [0], axis), start)
        y = np.concatenate([first, np.delete(y, -1, axis)], axis)
    return np.flip(y, axis) if reverse else y


@cases("CUSTOM FlexCumprod", "CUSTOM FlexCumulativeLogsumexp", "CUSTOM FlexCumsum")
def flex_running() -> Iterator[Net]:
    for name, function, start, kind in (
        ("Cumprod", np.multiply, 1, "float32"),
        ("CumulativeLogsumexp", np.logaddexp, -np.inf, "float32"),
        ("Cumsum", np.add, 0, "float64"),
    ):
        for exclusive, reverse in itertools.product((False, True), repeat=2):
            net, axis = Net(), -1 if exclusive else 1
            operands = [net.input((2, 6, 7), kind), net.const(axis, "int32")]
            left(net, name, operands, net.output((2, 6, 7), kind), exclusive=exclusive, reverse=reverse)
            how = (function, axis, exclusive, reverse, start)
            net.expected = lambda x, how=how: running(x, *how)
            yield net


@cases(*(f"CUSTOM FlexTensorScatter{name}" for name in ("Add", "Max", "Min", "Sub", "Update")))
def flex_scatters() -> Iterator[Net]:
    for name, function in {"Add": np.add, "Max": np.maximum, "Min": np.minimum, "Sub": np.subtract}.items():
        for kind in ("float32", "int32"):
            net = Net()
            operands = [net.input((6, 4), kind), net.const([[1], [3], [1]], "int32"), net.input((3, 4), kind)]
            left(net, f"TensorScatter{name}", operands, net.output((6, 4), kind))
            net.expected = lambda x, u, function=function: scattered(x, np.array([1, 3, 1]), u, function)
            yield net
    net = Net()
    operands = [net.input((6, 4)), net.input((3, 2), "int32", 0, 3), net.input((3,))]
    left(net, "TensorScatterUpdate", operands, net.output((6, 4)))
    net.expected = lambda x, i, u: scattered(x, (i[:, 0], i[:, 1]), u, lambda _, b: b)
    yield net


def scattered(x: Any, places: Any, rows: Any, function: Any) -> Any:
    y, *index = x.copy(), *(places if isinstance(places, tuple) else (places,))
    for row, *at in zip(rows, *index, strict=True):
        y[tuple(at)] = function(y[tuple(at)], row)
    return y


@cases("CUSTOM FlexMatrixDiagPartV3", "CUSTOM FlexMatrixDeterminant")
def flex_matrices() -> Iterator[Net]:
    for rows, columns, k in ((4, 6, 0), (6, 4, -2), (4, 6, 3), (5, 5, [-1, 2]), (6, 4, [-3, 0]), (4, 6, [1, 3])):
        for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT") if isinstance(k, list) else ("",):
            net = Net()
            operands = [net.input((2, rows, columns)), net.const(k, "int32"), net.const(7)]
            out = diagonals(np.zeros((2, rows, columns)), k, align).shape
            left(net, "MatrixDiagPartV3", operands, net.output(out), align=align)
            net.expected = lambda x, how=(k, align): diagonals(x, *how)
            yield net
    net = Net()
    left(net, "MatrixDeterminant", [net.input((2, 3, 3))], net.output((2,)))
    net.expected = np.linalg.det
    yield net


def diagonals(x: Any, k: Any, align: str) -> Any:
    """Of several the uppermost comes first; those above and below the main one are aligned either way."""
    if not isinstance(k, list):
        return np.diagonal(x, k, 1, 2)
    found = [np.diagonal(x, d, 1, 2) for d in range(k[1], k[0] - 1, -1)]
    length, sides = max(d.shape[1] for d in found), align.split("_")
    y = np.full((len(x), len(found), length), 7, x.dtype)
    for i, (d, diagonal) in enumerate(zip(range(k[1], k[0] - 1, -1), found, strict=True)):
        front = (d >= 0 and sides[0] == "LEFT") or (d <= 0 and sides[1] == "LEFT")
        many = diagonal.shape[1]
        y[:, i, slice(0, many) if front else slice(length - many, length)] = diagonal
    return y


SEGMENTS = {"Max": np.max, "Min": np.min, "Mean": np.mean, "Prod": np.prod, "Sum": np.sum}


@cases(*(f"CUSTOM FlexSegment{name}" for name in SEGMENTS))
def flex_segments() -> Iterator[Net]:
    for name, function in SEGMENTS.items():
        net, ids = Net(), [0, 0, 2, 2, 2, 5]
        operands = [net.input((6, 3), "float64"), net.const(ids, "int32")]
        left(net, f"Segment{name}", operands, net.output((6, 3), "float64"))
        net.expected = lambda x, function=function, ids=ids, empty=name == "Prod": segments(x, ids, function, empty)
        yield net
        net = Net()
        operands = [net.input((3, 2)), net.input((3,), "int32", 2, 2)]
        left(net, f"Segment{name}", operands, net.output((3, 2), signature=(-1, 2)))
        net.expected = lambda x, ids, function=function, empty=name == "Prod": segments(x, ids, function, empty)
        yield net


def segments(x: Any, ids: Any, function: Any, empty: float, count: int = 0) -> Any:
    y = np.full((count or max(ids) + 1, x.shape[1]), empty, x.dtype)
    for i in {i for i in ids if i >= 0}:
        y[i] = function(x[np.asarray(ids) == i], axis=0)
    return y


@cases(*(f"CUSTOM FlexUnsortedSegment{name}" for name in ("Max", "Min", "Prod", "Sum")))
def flex_unsorted_segments() -> Iterator[Net]:
    limits = np.finfo(np.float64)
    for name, empty in {"Max": limits.min, "Min": limits.max, "Prod": 1, "Sum": 0}.items():
        net, ids = Net(), [0, 3, 2, 2, -1, 0]
        operands = [net.input((6, 3), "float64"), net.const(ids, "int32"), net.const(5, "int32")]
        left(net, f"UnsortedSegment{name}", operands, net.output((5, 3), "float64"))
        how = (ids, SEGMENTS[name], empty, 5)
        net.expected = lambda x, how=how: segments(x, *how)
        yield net


@cases("CUSTOM FlexDenseBincount")
def flex_counts() -> Iterator[Net]:
    for shape, kind, binary, weighted in (
        ((7,), "int32", False, False),
        ((7,), "int64", True, False),
        ((7,), "int32", False, True),
        ((3, 7), "int32", False, False),
        ((3, 7), "int32", True, False),
        ((3, 7), "int32", False, True),
    ):
        net = Net()
        x, size = net.input(shape, kind, 0, 6), net.const(5, kind)
        weights = net.input(shape) if weighted else net.const(np.zeros(0))
        left(net, "DenseBincount", [x, size, weights], net.output((*shape[:-1], 5)), binary_output=binary)
        net.expected = lambda x, w=None, binary=binary: binned(x, w, binary)
        yield net


def binned(x: Any, weights: Any, binary: bool) -> Any:
    if x.ndim == 2:
        return np.stack([binned(row, None if weights is None else weights[i], binary) for i, row in enumerate(x)])
    counts = np.bincount(x, weights, 7)[:5]
    return counts > 0 if binary else counts


@cases("CUSTOM FlexDynamicPartition")
def flex_partitions() -> Iterator[Net]:
    net, parts = Net(), np.array([0, 2, 2, 0, 1], np.int32)
    results = [net.output((count, 3)) for count in (2, 1, 2)]
    left(net, "DynamicPartition", [net.input((5, 3)), net.const(parts, "int32")], results, num_partitions=3)
    net.expected = lambda x: tuple(x[parts == k] for k in range(3))
    yield net
    net = Net()
    results = [net.output((3, 4), signature=(-1, 4)) for _ in range(2)]
    left(net, "DynamicPartition", [net.input((3, 2, 4)), net.input((3, 2), "int32", 0, 1)], results, num_partitions=2)
    net.expected = lambda x, parts: tuple(x[parts == k] for k in range(2))
    yield net


@cases("CUSTOM FlexCTCGreedyDecoder")
def flex_decoders() -> Iterator[Net]:
    for merge, blank in ((True, -1), (False, 0)):
        net = Net()
        results = [net.output((1, 2), "int64", signature=(-1, 2)), net.output((1,), "int64", signature=(-1,))]
        results += [net.output((2,), "int64"), net.output((3, 1))]
        operands = [net.input((12, 3, 4)), net.input((3,), "int32", 5, 12)]
        left(net, "CTCGreedyDecoder", operands, results, merge_repeated=merge, blank_index=blank)
        net.expected = lambda x, lengths, merge=merge, blank=blank: decoded(x, lengths, merge, blank % 4)
        yield net


def decoded(x: Any, lengths: Any, merge: bool, blank: int) -> Any:
    """Places and classes of what is said, the extents of all, and by how much it is less likely than possible."""
    places, classes, longest = [], [], 0
    for b, length in enumerate(lengths):
        best, row = x[:length, b].argmax(1), 0
        for t, k in enumerate(best):
            if k != blank and not (merge and t and best[t - 1] == k):
                places.append((b, row))
                classes.append(k)
                row += 1
        longest = max(longest, row)
    sums = [[-x[:length, b].max(1).sum()] for b, length in enumerate(lengths)]
    return np.array(places), np.array(classes), np.array([len(lengths), longest]), np.array(sums)
