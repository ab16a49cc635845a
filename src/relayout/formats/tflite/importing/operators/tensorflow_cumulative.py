"""Products and sums along an axis that are left to the Flex delegate, of all elements up to each."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import one, two
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.operators.windows import bordered
from relayout.formats.tflite.importing.registry import Unsupported, operator

Pair = Callable[[Operation, ir.Value, ir.Value], ir.Value]


def _running(op: Operation, start: float, combined: Pair) -> None:
    """Combine each element with the one before, then with what 2, 4, 8, ... before is combined: log n steps.

    Args:
        op: the operator.
        start: what changes nothing it is combined with.
        combined: of two.
    """
    x, given = op.stored(0), attributes(op)
    (number,) = op.integers(1, 1)
    axis = op.axis(number, len(dims(x)))
    extent = dims(x)[axis]
    if not isinstance(extent, int):
        raise Unsupported("unknown dimensions, along which the number of steps depends on them")
    back = given.number("reverse")
    none = op.number(start, x, "start")

    def moved(value: ir.Value, by: int) -> ir.Value:
        low, high = ([by if a == axis else 0 for a in range(len(dims(x)))] for _ in range(2))
        behind = [-amount for amount in high]
        return bordered(op, value, behind, low, none) if back else bordered(op, value, low, behind, none)

    if given.number("exclusive") and extent:
        x = moved(x, 1)
    step = 1
    while step < extent:
        x = combined(op, x, moved(x, step))
        step *= 2
    op.result(x)


@operator("CUSTOM FlexCumprod")
def cumprod(op: Operation) -> None:
    """Mul with the elements before, in log n steps."""
    _running(op, 1, lambda op, a, b: two(op, "Mul", a, b))


@operator("CUSTOM FlexCumulativeLogsumexp")
def cumulative_logsumexp(op: Operation) -> None:
    """Log of the sum of two Exp, the greater taken out before, in log n steps."""
    _running(op, -math.inf, _log_of_sum)


def _log_of_sum(op: Operation, a: ir.Value, b: ir.Value) -> ir.Value:
    """Taken out is a number, also where both are minus infinity, the logarithm of nothing."""
    least = op.number(float(np.finfo((a.dtype or ir.DataType.FLOAT).numpy()).min), a, "least")
    greater = op.emit("Max", [a, b, least], dims(a))
    first, second = (one(op, "Exp", two(op, "Sub", each, greater)) for each in (a, b))
    total = two(op, "Add", first, second)
    return two(op, "Add", one(op, "Log", total), greater)
