"""Prices of operators on Ethos-U in an order of axes, in bytes that might be transposed instead.

Measured by Vela's estimates of single operators (`bench/measure_npu_prices.py`). Cycles for a byte:

    a Transpose that moves runs          0.375     of NHWC to NCHW, in two steps    0.75
    ReduceMax along the last axis        2.0       along another                    0.26 to 0.51
    Pad of the last axis                 1.5       of another                       0.7 to 0.78

A ReduceMean along the last axis is the CPU's, where the other two are larger than 1.
"""

from __future__ import annotations

from math import ceil

from relayout.graph.quantized_unit import unit_of
from relayout.layout import product
from relayout.rules import Operator, Placement, Signature
from relayout.targets.litert.prices import PRICES

PER_TRANSPOSE = 100
"""Bytes that are transposed in the cycles that the smallest Transpose takes."""
PER_SCATTERED = 1
"""A Transpose that takes the innermost axis along runs in two steps."""
MOST = {"ReduceMax": 4, "Pad": 2, "ReduceMean": 16}
"""Operator -> bytes for each byte of its operand, where the last axis is the one that it works along."""


def price(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return what a node costs in an order beside its best one."""
    unit = unit_of(operator.node) if operator.name in MOST else None
    dims, letters = placement.inputs[0], signature.inputs[0]
    if unit is None or unit.dtype is None or not dims or letters is None:
        return PRICES(operator, signature, placement)
    along = {letters[axis % len(letters)] for axis in _axes(operator, len(letters))}
    extents = [extent for _, extent in dims]
    if dims[-1][0] not in along or (operator.name != "Pad" and any(extent.number == 1 for extent in extents[-3:])):
        return 0
    return MOST[operator.name] * product(extents).number * ceil(unit.dtype.itemsize) * placement.runs


def _axes(operator: Operator, rank: int) -> tuple[int, ...]:
    """Return the axes that a node works along."""
    if operator.name != "Pad":
        return tuple(operator.integers(1) or operator.ints("axes") or range(rank))
    pads = operator.integers(1) or operator.ints("pads") or ()
    axes = operator.integers(3) if operator.has(3) else range(rank)
    count = len(pads) // 2
    return tuple(axis for axis, before, after in zip(axes or (), pads, pads[count:], strict=False) if before or after)
