"""Prices of operators in LiteRT in an order of axes, in bytes that might be moved instead.

CONCATENATION and SPLIT copy runs with one call each. Where a run is an element or two, the calls take several times as
long as a TRANSPOSE of the same bytes: ShuffleNet v2 took 1.4 of its time with 32 Transposes when its channels were
interleaved by CONCATENATION along a last axis of one element.
"""

from __future__ import annotations

from collections.abc import Sequence

from relayout.layout import Extent, product
from relayout.rules import Operator, Placement, Signature

SHORT = 16
"""Bytes below which a run is moved like a single element."""
TIMES = 2
"""How many bytes of a Transpose a byte in short runs is worth."""
JOINING, PARTING = "Concat", "Split"


def price(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return what a node costs in an order beside the source's: its bytes, where it moves them in shorter runs."""
    if operator.name not in (JOINING, PARTING) or operator.node.domain:
        return 0
    joins = operator.name == JOINING
    letters = (signature.outputs if joins else signature.inputs)[0]
    if letters is None:
        return 0
    letter, width = letters[operator.int("axis", 0) % len(letters)], operator.width(0)
    stored = sum(_in_short_runs(dims, letter, width) for dims in (placement.inputs if joins else placement.outputs))
    shapes = operator.inputs if joins else operator.outputs
    source = sum(
        _in_short_runs(tuple(zip(letters, map(Extent.of, shape), strict=True)), letter, width)
        for shape in shapes
        if shape is not None and len(shape) == len(letters)
    )
    return TIMES * max(stored - source, 0) * placement.runs


def _in_short_runs(dims: Sequence[tuple[str, Extent]] | None, letter: str, width: int) -> int:
    """Return the bytes of a piece, if what is copied at a time is short; else 0."""
    places = [place for place, (name, _) in enumerate(dims or ()) if name == letter]
    if dims is None or not places:
        return 0
    run = product(extent for _, extent in dims[places[0] :]).number * width
    return product(extent for _, extent in dims).number * width if run < SHORT else 0
