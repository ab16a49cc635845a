"""Scales with which LiteRT's kernels of sums and products of integers compute: with others they overflow, or abort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.targets.litert.integer_scales import BYTES, Scale

COARSEST_BYTES, COARSEST_WORDS = 2.0**8, 2.0**14
"""Steps of the result below which a step of an operand of ADD and SUB lies: wider ones leave the 32 bits."""
LARGEST_BYTES, LARGEST_WORDS = 2.0**14, 1.0
"""Steps of the result below which the product of two steps lies."""
NEARLY = 1e-3
"""How far the kernel takes the logarithm of a scale for a whole number."""


def adds(node: ir.Node, operands: Sequence[Scale], result: Scale) -> bool:
    """Tell whether ADD or SUB takes two operands of one scale each."""
    scales = [float(each.scale[0]) for each in (*operands, result)]
    if result.dtype in BYTES:
        return max(scales[:2]) < scales[2] * COARSEST_BYTES
    return max(scales[:2]) < scales[2] * COARSEST_WORDS and _is_shifted_rightly(node, scales)


def multiplies(operands: Sequence[Scale], result: Scale) -> bool:
    """Tell whether MUL takes two operands of one scale each."""
    first, second, given = (float(each.scale[0]) for each in (*operands, result))
    return first * second < given * (LARGEST_BYTES if result.dtype in BYTES else LARGEST_WORDS)


def _is_shifted_rightly(node: ir.Node, scales: Sequence[float]) -> bool:
    """Tell whether words are added rightly: where all scales are powers of two, the kernel only shifts one operand.

    It then wants operands of one shape, and the scale of one of them to be the result's.
    """
    powers = np.log2(scales)
    if (abs(powers - powers.round()) >= NEARLY).any():
        return True
    first, second = (None if value is None else value.shape for value in node.inputs[:2])
    alike = first is not None and first == second and first.is_static()
    return alike and bool((powers == powers.round()).all()) and bool(max(powers[:2]) == powers[2])
