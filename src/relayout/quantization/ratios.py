"""Keep real the numbers of which a logarithm, a root or a quotient is taken, where small ones count beside large ones.

Power spectra span six decades, and integers of 8 bits two: a logarithm of the others is -inf. So they stay real, back
to the operator that makes them of numbers that may be negative: `Log(Add(filters · Square(x), e))` from the Square on.
"""

from __future__ import annotations

from collections.abc import Mapping

from relayout.formats.tflite.container.model import Model, Operator, Subgraph
from relayout.quantization.findings import numbers_of

LEAST_STEPS = 8  # steps that the least number must have
STEPS = {"int8": 255, "int16x8": 32767}
"""Kind of quantization -> steps of the integers."""
RATIO_FUNCTIONS = {"DIV": 1, "LOG": 0, "POW": 0, "RSQRT": 0, "SQRT": 0}
"""Function -> the operand of which it tells small numbers apart."""
PRODUCTS = ("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MUL")
SELECTIONS = (
    *("ABS", "MAXIMUM", "MAX_POOL_2D", "MINIMUM", "REDUCE_MAX", "RELU"),
    *("CONCATENATION", "EXPAND_DIMS", "GATHER", "PAD", "RESHAPE", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE"),
)
"""Operators that select among the numbers of their operands: integers lose nothing by them."""
SIGN_PRESERVING = (*SELECTIONS, "ADD", "AVERAGE_POOL_2D", "MEAN", "SUM")
"""Operators whose results have no negative numbers where their operands have none."""
NON_NEGATIVE = ("ABS", "LOGISTIC", "RELU", "SOFTMAX", "SQRT", "SQUARE", "SQUARED_DIFFERENCE")
"""Operators whose results never have negative numbers."""
REASON = "a logarithm, root or quotient tells smaller numbers apart than integers do"


def real_ratios(
    file: Model,  # a float file
    kind: str,  # of quantization
    ranges: Mapping[str, tuple[float, float]],  # tensor -> its least and greatest number in samples
    *,
    for_litert: bool,  # True if LiteRT's CPU kernels run it; on an NPU roots and quotients are integers
) -> dict[str, str]:
    """Return the results of operators that stay real so, and why."""
    graph, functions = file.subgraphs[0], RATIO_FUNCTIONS if for_litert else {"LOG": RATIO_FUNCTIONS["LOG"]}
    producers = {each: row for row in graph.operators for each in row.outputs}
    chosen: dict[str, str] = {}
    for row in graph.operators:
        if row.name not in functions or (row.name == "POW" and not _is_root(graph, row)):
            continue
        operand = row.inputs[functions[row.name]]
        low, high = ranges.get(graph.tensors[operand].name, (1.0, 1.0))
        if low * STEPS[kind] >= high * LEAST_STEPS:
            continue
        part = _non_negative_part(graph, operand, producers, ranges)
        rows = [row, *part] if part else []
        chosen |= {graph.tensors[each.outputs[0]].name: REASON for each in rows}
    return chosen


def _is_root(graph: Subgraph, row: Operator) -> bool:
    exponent = numbers_of(graph, row.inputs[1])
    return exponent is None or bool((exponent < 1).any())


def _non_negative_part(
    graph: Subgraph, tensor: int, producers: Mapping[int, Operator], ranges: Mapping[str, tuple[float, float]]
) -> list[Operator]:
    """Return the operators before a tensor, back to those that read numbers which may be negative."""
    waiting, rows = [tensor], dict[int, Operator]()
    while waiting:
        row = producers.get(waiting.pop())
        if row is None or row.outputs[0] in rows or not _is_non_negative(graph, row):
            continue
        rows[row.outputs[0]] = row
        if row.name in NON_NEGATIVE or _is_square(row):
            continue
        computed = [each for each in row.inputs if each >= 0 and graph.tensors[each].data is None]
        waiting += [each for each in computed if ranges.get(graph.tensors[each].name, (0.0, 0.0))[0] >= 0]
    for result in reversed([*rows]):  # the farthest first
        if rows[result].name in SELECTIONS and not rows.keys() & set(rows[result].inputs):
            del rows[result]
    return [*rows.values()]


def _is_non_negative(graph: Subgraph, row: Operator) -> bool:
    """Return whether an operator gives no negative numbers where its operands have none."""
    if row.name in (*SIGN_PRESERVING, *NON_NEGATIVE):
        return True
    factors = [numbers for each in row.inputs[:2] if (numbers := numbers_of(graph, each)) is not None]
    return row.name in PRODUCTS and all((each >= 0).all() for each in factors)


def _is_square(row: Operator) -> bool:
    return row.name == "MUL" and row.inputs[0] == row.inputs[1]
