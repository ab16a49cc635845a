"""Scales with which LiteRT's kernels of sums and products of integers compute: with others they overflow, or abort."""

from __future__ import annotations

from collections.abc import Sequence

from relayout.targets.litert.integer_scales import BYTES, Scale

COARSEST_BYTES, COARSEST_WORDS = 2.0**8, 2.0**14
"""Steps of the result below which a step of an operand of ADD and SUB lies: wider ones leave the 32 bits."""
LARGEST_BYTES, LARGEST_WORDS = 2.0**14, 1.0
"""Steps of the result below which the product of two steps lies."""


def adds(operands: Sequence[Scale], result: Scale) -> bool:
    """Tell whether ADD or SUB takes two operands of one scale each."""
    coarsest = COARSEST_BYTES if result.dtype in BYTES else COARSEST_WORDS
    return max(float(each.scale[0]) for each in operands) < float(result.scale[0]) * coarsest


def multiplies(operands: Sequence[Scale], result: Scale) -> bool:
    """Tell whether MUL takes two operands of one scale each."""
    first, second, given = (float(each.scale[0]) for each in (*operands, result))
    return first * second < given * (LARGEST_BYTES if result.dtype in BYTES else LARGEST_WORDS)
