"""Traits of builtins: what each one does with the numbers of its operands, said once for all who ask."""

from __future__ import annotations

from relayout.formats.tflite.container.model import Operator
from relayout.formats.tflite.same_operators import COMPARISONS as ORDERINGS

CONVERSIONS = frozenset({"DEQUANTIZE", "QUANTIZE"})
VIEWS = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE", "TRANSPOSE", *CONVERSIONS})
"""Builtins that give each number of their first operand once."""
MOVES = frozenset({"BROADCAST_TO", "GATHER", "SLICE", "STRIDED_SLICE", "TILE"})
"""Builtins that give some numbers of their first operand, each once or more often."""
EXTREMES = frozenset({"MAX_POOL_2D", "REDUCE_MAX", "REDUCE_MIN"})
"""Builtins that give the largest or smallest of some numbers of their first operand."""
JOINS = frozenset({"CONCATENATION", "PACK"})
LIMITS = frozenset({"MAXIMUM", "MINIMUM"})
CHOICES = frozenset({"SELECT", "SELECT_V2"})
COMPARISONS = frozenset({*ORDERINGS, "NOT_EQUAL"})
SUMS = frozenset({"ADD", "SUB"})
SQUARES = frozenset({"MUL", "SQUARE", "SQUARED_DIFFERENCE"})
"""Builtins that may square a number."""
REDUCED_SUMS = frozenset({"MEAN", "SUM"})
PRODUCTS = frozenset({"BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MUL"})
SIGN_PRESERVING = frozenset({"ADD", "AVERAGE_POOL_2D", "PAD", *REDUCED_SUMS})
"""Builtins whose results have no negative numbers where their operands have none, as those that select."""
NON_NEGATIVE = frozenset({"ABS", "LOGISTIC", "RELU", "SOFTMAX", "SQRT", *SQUARES} - {"MUL"})
"""Builtins whose results never have negative numbers."""


def selected_operands(operator: Operator) -> tuple[int, ...] | None:
    """Return the operands among whose numbers a builtin selects its results; None if it computes others."""
    if operator.name in JOINS | LIMITS:
        return operator.inputs
    if operator.name in CHOICES:
        return operator.inputs[1:]
    return operator.inputs[:1] if operator.name in VIEWS | MOVES | EXTREMES else None
