"""Scales with which LiteRT's kernels of sums and products of integers compute: with others they overflow, or abort."""

from __future__ import annotations

from collections.abc import Sequence

from relayout.targets.litert.integer_scales import BYTES, Scale

COARSEST_BYTES, COARSEST_WORDS = 2.0**8, 2.0**14
"""Steps of the result below which a step of an operand of ADD and SUB lies: wider ones leave the 32 bits."""
WIDEST_BYTES, WIDEST_WORDS = 2.0**108, 2.0**113
"""The step of a result of ADD and SUB lies below: the kernel shifts it by 20 or 15 bits, as a float."""
LARGEST_BYTES, LARGEST_WORDS = 2.0**14, 1.0
"""Steps of the result below which the product of two steps lies."""


def adds(operands: Sequence[Scale], result: Scale) -> bool:
    """Tell whether ADD or SUB takes two operands of one scale each."""
    is_bytes, step = result.dtype in BYTES, float(result.scale[0])
    coarsest, widest = (COARSEST_BYTES, WIDEST_BYTES) if is_bytes else (COARSEST_WORDS, WIDEST_WORDS)
    return step < widest and max(float(each.scale[0]) for each in operands) < step * coarsest


def multiplies(operands: Sequence[Scale], result: Scale) -> bool:
    """Tell whether MUL takes two operands of one scale each."""
    first, second, given = (float(each.scale[0]) for each in (*operands, result))
    return first * second < given * (LARGEST_BYTES if result.dtype in BYTES else LARGEST_WORDS)
