"""What an operator costs LiteRT in an order of axes, in bytes that might be moved instead.

CONCATENATION and SPLIT copy runs with one call each. Where a run is an element or two, the calls take several times as
long as a TRANSPOSE of the same bytes: ShuffleNet v2 took 1.4 of its time with 32 Transposes when its channels were
interleaved by CONCATENATION along a last axis of one element.
"""

from __future__ import annotations

from relayout.layout import product
from relayout.rules import Operator, Placement, Signature

SHORT = 16
"""Bytes below which a run is moved like a single element."""
TIMES = 2
"""How many bytes of a Transpose a byte in short runs is worth."""
JOINING, PARTING = "Concat", "Split"


def price(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return what a node costs in an order beside its best one: its bytes, where it moves them in short runs."""
    if operator.name not in (JOINING, PARTING) or operator.node.domain:
        return 0
    joins = operator.name == JOINING
    pieces = placement.inputs if joins else placement.outputs
    letters = (signature.outputs if joins else signature.inputs)[0]
    axis = operator.int("axis", 0)
    if letters is None:
        return 0
    letter = letters[axis % len(letters)]
    width = operator.width(0)
    cost = 0
    for dims in pieces:
        if dims is None:
            continue
        places = [place for place, (name, _) in enumerate(dims) if name == letter]
        if not places:
            continue
        run = product(extent for _, extent in dims[places[0] :]).number * width
        if run < SHORT:
            cost += product(extent for _, extent in dims).number * width
    return TIMES * cost * placement.runs
