"""Values that are made of extents: a mask of a computed shape, a constant that is repeated for each row of a batch.

Where the shape holds an opened extent, the value has an opened axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from relayout.layout import ONE, Extent
from relayout.rules import Operator
from relayout.shapes.computed import Items
from relayout.shapes.parts import OpenedFactor


def part_of(extent: Extent | None, part: OpenedFactor) -> OpenedFactor | None:
    """Return the part that an extent holds of an opened dimension: it leads, since all its steps are alike."""
    rest = None if extent is None else extent.divide(part.length)
    return None if rest is None or not rest.is_static else OpenedFactor(ONE, part.length, part.before, rest)


def of_shape(_operator: Operator, items: Items) -> Sequence[Extent | None]:
    """Return the extents as they are listed."""
    return items


def of_repeats(operator: Operator, items: Items) -> Sequence[Extent | None]:
    """Return the extents of what is repeated so often."""
    shape = operator.shape() or ()
    return [None if item is None else Extent.of(dim) * item for dim, item in zip(shape, items, strict=False)]


MADE: Mapping[tuple[str, str], tuple[int, Callable[[Operator, Items], Sequence[Extent | None]]]] = {
    ("", "ConstantOfShape"): (0, of_shape),
    ("", "Expand"): (1, of_shape),
    ("", "Tile"): (1, of_repeats),
}
"""(domain, operator) -> the input that holds extents, and the extents of its result by these."""


def made_parts(operator: Operator, items: Items, part: OpenedFactor) -> dict[int, OpenedFactor] | None:
    """Return the opened axes of what an operator makes of extents; None where one is not known.

    Args:
        operator: the node.
        items: what its vector of extents holds in the result.
        part: the opened dimension.
    """
    output = operator.outputs[0]
    _, extents_of = MADE[operator.node.domain, operator.node.op_type]
    extents = extents_of(operator, items)
    if output is None or any(extent is None for extent in extents) or len(extents) > len(output):
        return None
    lead, found = len(output) - len(extents), dict[int, OpenedFactor]()
    for place, extent in enumerate(extents, lead):
        own = part_of(extent, part)
        if own is not None and own.source_extent == Extent.of(output[place]):
            found[place] = own
        elif extent is not None and not extent.is_static:
            return None
    return found
