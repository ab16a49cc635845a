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
