"""Operators that regroup dimensions and keep an opened part as they are, without a new shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from relayout.layout import Extent, product
from relayout.rules import Operator, normalized
from relayout.shapes.constants import Items
from relayout.shapes.parts import OpenedFactor, Parts
from relayout.shapes.regrouping import as_written, natural_squeeze, natural_unsqueeze


def _axes(operator: Operator) -> Sequence[int] | None:
    return operator.integers(1) if operator.has(1) else operator.ints("axes")


def squeeze(operator: Operator, parts: Parts) -> dict[int, OpenedFactor] | None:
    """Keep a part where it is, if its axis does not leave."""
    shape, axes = operator.shape(), _axes(operator)
    if shape is None:
        return None
    gone = [axis for axis, dim in enumerate(shape) if dim == 1] if axes is None else normalized(axes, len(shape))
    return natural_squeeze([axis for axis in range(len(shape)) if axis not in gone], parts)


def unsqueeze(operator: Operator, parts: Parts) -> dict[int, OpenedFactor] | None:
    """Keep a part in its axis, wherever others come."""
    shape, axes = operator.shape(), _axes(operator)
    if shape is None or axes is None:
        return None
    rank = len(shape) + len(axes)
    come = normalized(axes, rank)
    return natural_unsqueeze([axis for axis in range(rank) if axis not in come], parts)


def flatten(operator: Operator, parts: Parts) -> dict[int, OpenedFactor] | None:
    """Put a part into the first of two dimensions if it stands before the axis, else into the second."""
    shape = operator.shape()
    if shape is None:
        return None
    extents, axis = [Extent.of(dim) for dim in shape], operator.int("axis", 1)
    border = axis % len(shape) if axis < len(shape) and shape else len(shape)
    found: dict[int, OpenedFactor] = {}
    for place, part in parts.items():
        side = int(place >= border)
        start, stop = ((0, border), (border, len(shape)))[side]
        if side in found:
            return None
        outer = product(extents[start:place]) * part.outer
        inner = part.inner * product(extents[place + 1 : stop])
        found[side] = OpenedFactor(outer, part.length, part.before, inner)
    return found


def never(_operator: Operator, _parts: Parts) -> None:
    """Let a Gather of the one element that an axis has, and a Split into one part, always become a Reshape."""


def written_shape(operator: Operator, items: Items | None, dims: Sequence[Extent]) -> list[Extent] | None:
    """Return the extents that a Reshape gives as it is written; None where it fits no longer, or is not known."""
    return None if items is None else as_written(items, dims, copies=not operator.int("allowzero", 0))


NATURAL: Mapping[tuple[str, str], Callable[[Operator, Parts], dict[int, OpenedFactor] | None]] = {
    ("", "Flatten"): flatten,
    ("", "Gather"): never,
    ("", "Split"): never,
    ("", "Squeeze"): squeeze,
    ("", "Unsqueeze"): unsqueeze,
}
"""(domain, operator) -> where parts lie behind it; None if it would have to become a Reshape."""
