"""Where elements lie that a kernel works on together: how often it begins anew, and whether it gathers.

Seen by running ONNX Runtime 1.32 (`bench/measure_float_prices.py`), whose kernels are the ones that this is asked of.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

from relayout.layout import Extent
from relayout.rules import Placement

TOGETHER = frozenset(("", "K", "R", "KR", "KRK"))
"""Axes that are kept and reduced, in stored order, where a reduction adds up vectors or whole rows."""


def gathers(placement: Placement) -> bool:
    """Whether a reduction collects every element that it gives from places that lie apart.

    `R K` of one image it does (`1 h w c` over `h w`), and whatever goes to and fro more than `K R K`.
    """
    image, kept = placement.inputs[0] or (), placement.outputs[0] or ()
    parts = "".join(part for part, _ in groupby("K" if dim in kept else "R" for dim in image if not dim[1].is_one))
    first_is_one = bool(image) and image[0][1].is_one
    return parts not in TOGETHER and (parts != "RK" or first_is_one)


def runs(placement: Placement) -> int:
    """How often an operator begins anew as it goes over operands that are stretched; 0 where none is.

    A run ends where an operand that was one element is several, or the other way round: `h w g 4` beside `g 1` has one
    for each `h w g`, `h w c` beside `c` one for each `h w`, and `c h w` beside `c 1 1` one for each `c`.
    """
    out = placement.extents(output=True)
    operands = [[extent for _, extent in dims] for dims in placement.inputs if dims is not None]
    kinds = [
        (tuple(_is_one(shape, len(out) - axis) for shape in operands), extent.number)
        for axis, extent in enumerate(out)
        if not extent.is_one
    ]
    innermost = next((kind for kind, _ in reversed(kinds)), ())
    inside = next((place for place, (kind, _) in enumerate(reversed(kinds)) if kind != innermost), len(kinds))
    return prod(number for _, number in kinds[: len(kinds) - inside]) if inside < len(kinds) else 0


def _is_one(shape: Sequence[Extent], from_the_end: int) -> bool:
    """Whether an operand has one element along an axis, or lacks it."""
    return from_the_end > len(shape) or shape[-from_the_end].is_one
