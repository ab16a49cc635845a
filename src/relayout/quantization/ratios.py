"""Keep real the numbers of which a logarithm, a root or a quotient is taken, where small ones count beside large ones.

Power spectra span six decades, and integers of 8 bits two: a logarithm of the others is -inf. So they stay real, back
to the operator that makes them of numbers that may be negative: `Log(Add(filters · Square(x), e))` from the Square on.
"""

from __future__ import annotations

from collections.abc import Mapping

from relayout.formats.tflite.builtin_traits import NON_NEGATIVE, PRODUCTS, SIGN_PRESERVING, selected_operands
from relayout.formats.tflite.container.model import Model, Operator, Subgraph
from relayout.quantization.findings import STEPS, numbers_of, operators_before

LEAST_STEPS = 8  # steps that the least number must have
RATIO_FUNCTIONS = {"DIV": 1, "LOG": 0, "POW": 0, "RSQRT": 0, "SQRT": 0}
"""Function -> the operand of which it tells small numbers apart."""
EXACT_ON_INTEGERS = ("ABS", "PAD", "RELU")  # beside operators that select, those by which integers lose nothing
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
    chosen: dict[str, str] = {}
    for row in graph.operators:
        if row.name not in functions or (row.name == "POW" and not _is_root(graph, row)):
            continue
        operand = row.inputs[functions[row.name]]
        low, high = ranges.get(graph.tensors[operand].name, (1.0, 1.0))
        if low * STEPS[kind] >= high * LEAST_STEPS:
            continue
        part = _non_negative_part(graph, operand, ranges)
        rows = [row, *part] if part else []
        chosen |= {graph.tensors[each].name: REASON for row in rows for each in row.outputs}
    return chosen


def _is_root(graph: Subgraph, row: Operator) -> bool:
    exponent = numbers_of(graph, row.inputs[1])
    return exponent is None or bool((exponent < 1).any())


def _non_negative_part(graph: Subgraph, tensor: int, ranges: Mapping[str, tuple[float, float]]) -> list[Operator]:
    """Return the operators before a tensor, back to those that read numbers which may be negative."""

    def operands(row: Operator) -> list[int] | None:
        if row.name in NON_NEGATIVE or (row.name == "MUL" and row.inputs[0] == row.inputs[1]):
            return []
        if not _is_sign_preserving(graph, row):
            return None
        computed = [each for each in row.inputs if each >= 0 and graph.tensors[each].data is None]
        return [each for each in computed if ranges.get(graph.tensors[each].name, (0.0, 0.0))[0] >= 0]

    rows, results = list[Operator](), set[int]()
    for row in reversed(operators_before(graph, [tensor], operands)):
        is_exact = row.name in EXACT_ON_INTEGERS or selected_operands(row) is not None
        if not is_exact or not results.isdisjoint(row.inputs):
            rows.append(row)
            results.update(row.outputs)
    return rows


def _is_sign_preserving(graph: Subgraph, row: Operator) -> bool:
    """Return whether an operator gives no negative numbers where its operands have none."""
    if row.name in SIGN_PRESERVING or selected_operands(row) is not None:
        return True
    factors = [numbers for each in row.inputs[:2] if (numbers := numbers_of(graph, each)) is not None]
    return row.name in PRODUCTS and all((each >= 0).all() for each in factors)
