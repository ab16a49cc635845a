"""Where elements lie that a kernel works on together: how often it begins anew, and whether it gathers.

Seen by running ONNX Runtime 1.32 (`bench/measure_float_prices.py`), whose kernels are the ones that this is asked of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import prod
from typing import TypeVar

from relayout.layout import Extent, product
from relayout.rules import Placement

TOGETHER = frozenset(("", "K", "R", "KR", "KRK"))
"""Axes that are kept and reduced, in stored order, where a reduction adds up vectors or whole rows."""
VECTOR = 8
"""Elements that a reduction adds up at once."""
LONGEST = 16
"""Elements of a short run: as many channels as a group has that is normalized by itself."""

Kind = TypeVar("Kind")


def gathers(placement: Placement) -> bool:
    """Whether a reduction collects every element that it gives from places that lie apart.

    `R K` of one image it does (`1 h w c` over `h w`), whatever goes to and fro more than `K R K`, and what ends in a
    few elements.
    """
    image, kept = placement.inputs[0] or (), placement.outputs[0] or ()
    parts = _parts(("K" if dim in kept else "R", dim[1]) for dim in image)
    order = "".join(part for part, _ in parts)
    if len(parts) > 1 and _is_under(parts[-1][1], VECTOR):
        return True
    return order not in TOGETHER and (order != "RK" or image[0][1].is_one)


def short_runs(placement: Placement) -> int:
    """How often an operator begins anew as it goes over an operand that is one element for a few of another's.

    `h w g 4` beside `g 1` has a run of 4 for each `h w g`. Rows are no such runs: ONNX Runtime makes one operator of
    those that normalize a row (`n c` beside `n 1`), and of a product with its scale and bias (`n c` beside `c`).
    """
    out = placement.extents(output=True)
    operands = [[extent for _, extent in dims] for dims in placement.inputs if dims is not None]
    parts = _parts(
        (tuple(_is_one(shape, len(out) - axis) for shape in operands), extent) for axis, extent in enumerate(out)
    )
    if len(parts) < 2 or not any(parts[-1][0]) or not _is_under(parts[-1][1], LONGEST + 1):
        return 0
    return prod(extent.number for _, extent in parts[:-1])


def _parts(dims: Iterable[tuple[Kind, Extent]]) -> list[tuple[Kind, Extent]]:
    """Dimensions in a row of one kind as one; axes of one element are of no kind."""
    several = ((kind, extent) for kind, extent in dims if not extent.is_one)
    return [(kind, product(extent for _, extent in held)) for kind, held in groupby(several, lambda dim: dim[0])]


def _is_under(extent: Extent, bound: int) -> bool:
    """Whether an extent is known to be less."""
    return extent.is_static and extent.number < bound


def _is_one(shape: Sequence[Extent], from_the_end: int) -> bool:
    """Whether an operand has one element along an axis, or lacks it."""
    return from_the_end > len(shape) or shape[-from_the_end].is_one
