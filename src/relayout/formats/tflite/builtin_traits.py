"""Traits of builtins: what each one does with the numbers of its operands, said once for all who ask."""

from __future__ import annotations

from relayout.formats.tflite import same_operators
from relayout.formats.tflite.container.model import Operator

CONVERSIONS = frozenset({"DEQUANTIZE", "QUANTIZE"})
VIEWS = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE", "TRANSPOSE", *CONVERSIONS})
"""Builtins that give all numbers of their first operand: they regroup or permute axes, or convert the type."""
MOVES = frozenset({"BATCH_TO_SPACE_ND", "BROADCAST_TO", "DEPTH_TO_SPACE", "GATHER", "GATHER_ND", "REVERSE_V2", "SLICE"})
MOVES |= {"SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "TILE", "UNPACK"}
"""Builtins that give numbers of one operand in other places: each once, several times or not at all."""
EXTREMES = frozenset({"MAX_POOL_2D", "REDUCE_MAX", "REDUCE_MIN"})
"""Builtins that give the largest or smallest of some numbers of their first operand."""
JOINS = frozenset({"CONCATENATION", "PACK"})
"""Builtins that put the numbers of all operands into one tensor."""
LIMITS = frozenset({"MAXIMUM", "MINIMUM"})
"""Builtins that give the larger or the smaller of two numbers."""
CHOICES = frozenset({"SELECT", "SELECT_V2"})
"""Builtins that choose between two operands by truth values, their first operand."""
COMPARISONS = frozenset({*same_operators.COMPARISONS, "NOT_EQUAL"})
SUMS = frozenset({"ADD", "SUB"})
"""Builtins that add two numbers, or subtract one from the other."""
SQUARES = frozenset({"MUL", "SQUARE", "SQUARED_DIFFERENCE"})
"""Builtins that may square a number."""
REDUCED_SUMS = frozenset({"MEAN", "SUM"})
PRODUCTS = frozenset({"BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MUL"})
"""Builtins that multiply numbers of two operands, and may add up the products."""
SIGN_PRESERVING = frozenset({"ADD", "AVERAGE_POOL_2D", "PAD", *REDUCED_SUMS})
"""Builtins that make no negative numbers of operands without any; selecting builtins make none, either."""
NON_NEGATIVE = frozenset({"ABS", "LOGISTIC", "RELU", "SOFTMAX", "SQRT", "SQUARE", "SQUARED_DIFFERENCE"})
"""Builtins whose results never have negative numbers."""


def selected_operands(operator: Operator) -> tuple[int, ...] | None:
    """Return the operands among whose numbers a builtin selects its results; None if it computes others."""
    if operator.name in JOINS | LIMITS:
        return operator.inputs
    if operator.name in CHOICES:
        return operator.inputs[1:]
    place = 1 if operator.name == "SPLIT" else 0  # a SPLIT reads its axis first
    return operator.inputs[place : place + 1] if operator.name in VIEWS | MOVES | EXTREMES else None
