"""Keep real the numbers of which a logarithm, a root or a quotient is taken, where small ones count beside large ones.

Power spectra span six decades, and integers of 8 bits two: a logarithm of the others is -inf. So they stay real, back
to the operator that makes them of numbers that may be negative: `Log(Add(filters · Square(x), e))` from the Square on.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph

FEWEST = 8  # steps that the least number must have
STEPS = {"int8": 255, "int16x8": 32767}
"""Kind of quantization -> steps of the integers."""
STEEP = {"DIV": 1, "LOG": 0, "POW": 0, "RSQRT": 0, "SQRT": 0}
"""Function -> the operand of which it tells small numbers apart."""
PRODUCTS = ("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MUL")
CHOOSING = (
    *("ABS", "MAXIMUM", "MAX_POOL_2D", "MINIMUM", "REDUCE_MAX", "RELU"),
    *("CONCATENATION", "EXPAND_DIMS", "GATHER", "PAD", "RESHAPE", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE"),
)
"""Operators that give numbers which they read: of integers they make what they make of real numbers."""
KEEPING = (*CHOOSING, "ADD", "AVERAGE_POOL_2D", "MEAN", "SUM")
"""Operators that give no negative numbers of none."""
MAKING = ("ABS", "LOGISTIC", "RELU", "SOFTMAX", "SQRT", "SQUARE", "SQUARED_DIFFERENCE")
"""Operators that give no negative numbers of any."""
REASON = "a logarithm, root or quotient tells smaller numbers apart than integers do"


def real_ratios(
    file: Model,  # a float file
    kind: str,  # of quantization
    ranges: Mapping[str, tuple[float, float]],  # tensor -> its least and greatest number in samples
    *,
    for_litert: bool,  # True if LiteRT's CPU kernels run it; on an NPU roots and quotients are integers
) -> dict[str, str]:
    """Return the results of operators that stay real so, and why."""
    graph, steep = file.subgraphs[0], STEEP if for_litert else {"LOG": STEEP["LOG"]}
    producers = {each: row for row in graph.operators for each in row.outputs}
    chosen: dict[str, str] = {}
    for row in graph.operators:
        if row.name not in steep or (row.name == "POW" and not _is_steep_power(graph, row)):
            continue
        operand = row.inputs[steep[row.name]]
        low, high = ranges.get(graph.tensors[operand].name, (1.0, 1.0))
        if low * STEPS[kind] >= high * FEWEST:
            continue
        before = _before(graph, operand, producers, ranges)
        rows = [row, *before] if before else []
        chosen |= {graph.tensors[each.outputs[0]].name: REASON for each in rows}
    return chosen


def _is_steep_power(graph: Subgraph, row: Operator) -> bool:
    exponent = _numbers(graph, row.inputs[1])
    return exponent is None or bool((exponent < 1).any())


def _before(
    graph: Subgraph, tensor: int, producers: Mapping[int, Operator], ranges: Mapping[str, tuple[float, float]]
) -> list[Operator]:
    """Return the operators that make a tensor of numbers that may be negative."""
    waiting, rows = [tensor], dict[int, Operator]()
    while waiting:
        row = producers.get(waiting.pop())
        if row is None or row.outputs[0] in rows or not _is_positive(graph, row):
            continue
        rows[row.outputs[0]] = row
        if row.name in MAKING or _is_square(row):
            continue
        computed = [each for each in row.inputs if each >= 0 and graph.tensors[each].data is None]
        waiting += [each for each in computed if ranges.get(graph.tensors[each].name, (0.0, 0.0))[0] >= 0]
    for result in reversed([*rows]):  # the farthest first
        if rows[result].name in CHOOSING and not rows.keys() & set(rows[result].inputs):
            del rows[result]
    return [*rows.values()]


def _is_positive(graph: Subgraph, row: Operator) -> bool:
    """Return whether an operator gives no negative numbers, of none or of any."""
    if row.name in (*KEEPING, *MAKING):
        return True
    factors = [numbers for each in row.inputs[:2] if (numbers := _numbers(graph, each)) is not None]
    return row.name in PRODUCTS and all((each >= 0).all() for each in factors)


def _is_square(row: Operator) -> bool:
    return row.name == "MUL" and row.inputs[0] == row.inputs[1]


def _numbers(graph: Subgraph, tensor: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None:
    own = graph.tensors[tensor]
    return own.content.view(np.float32) if own.data is not None and own.type == TensorType.FLOAT32 else None
