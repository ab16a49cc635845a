"""One list of cases per family of operators."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from rules.cases import (
    attending,
    axes,
    elementwise,
    indexing,
    layers,
    making,
    matrices,
    normalizing,
    quantized,
    sources,
)
from rules.law import Case, two_factors

FAMILIES = (attending, axes, elementwise, indexing, layers, matrices, normalizing, quantized, sources)

RESHAPE_TAKES_A_SHAPE = 5


@cache
def cases() -> tuple[Case, ...]:
    """All cases, and each once more with its axes put together from pieces, where they can be."""
    making.restart()
    listed = [case for family in FAMILIES for case in family.cases()]
    return tuple(each for case in listed for each in ((case, replace(case, split=True)) if _divides(case) else (case,)))


def _divides(case: Case) -> bool:
    return (
        not case.dynamic
        and all(a.size for a in case.arrays.values())
        and case.opset >= RESHAPE_TAKES_A_SHAPE
        and any(
            len(two_factors(extent)) > 1
            for name, array in case.arrays.items()
            if name not in case.constants
            for extent in array.shape
        )
    )
