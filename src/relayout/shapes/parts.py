"""The part of a dimension that is opened, and where it lies in the dimension."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from itertools import product as combinations
from typing import NamedTuple

import onnx_ir as ir

from relayout.errors import RelayoutError
from relayout.layout import ONE, Extent, product


class OpenedFactor(NamedTuple):
    """The opened factor of one dimension, which is `outer * length * inner` from major to minor.

    A batch of 1 that a Reshape joined with 12 heads is `OpenedFactor(ONE, batch, ONE, Extent(12))`: the dimension is
    `batch*12` where it was 12.
    """

    outer: Extent  # how many runs of it the dimension holds
    length: Extent  # its extent in the result
    before: Extent  # its extent in the source
    inner: Extent  # how many elements each of its steps spans

    @property
    def extent(self) -> Extent:
        """The extent of the dimension in the result."""
        return self.outer * self.length * self.inner

    @property
    def source_extent(self) -> Extent:
        """The extent of the dimension in the source."""
        return self.outer * self.before * self.inner

    @property
    def is_whole(self) -> bool:
        """True if the dimension holds nothing else."""
        return self.outer.is_one and self.inner.is_one


Parts = Mapping[int, OpenedFactor]  # axis of a value -> its opened part


def whole_dimension(length: Extent, before: Extent) -> OpenedFactor:
    """Return the part of a dimension that holds nothing else."""
    return OpenedFactor(ONE, length, before, ONE)


def dims_of(shape: tuple[Extent, ...], parts: Parts) -> tuple[Extent, ...]:
    """Return the extents of a value in the result, by those in the source and its opened parts."""
    return tuple(parts[axis].extent if axis in parts else extent for axis, extent in enumerate(shape))


# Why a dimension cannot be opened.

HINT = "cut the graph before it with --outputs{} (docs/how-to/batch.md says more)"
"""The advice in an error, with names where some are known."""


class OpeningError(RelayoutError):
    """A dimension cannot be opened, since an operator binds it."""

    def __init__(
        self,
        what: str,  # what the user asked for and cannot be: `axis 2 of 'x' cannot become 33`
        node: ir.Node,  # the operator that binds it
        reason: str,  # what it does with it, as a predicate: `normalizes along it`
        ends: Sequence[str] = (),  # the source's names of the last values that can be opened, if they are known
    ) -> None:
        self.what, self.node, self.reason = what, node, reason
        name = node.name or next((value.name for value in node.outputs if value.name), "") or ""
        self.operator = f"{node.op_type} '{name}'"
        names = f" {shlex.quote(','.join(ends))}" if ends else ""
        super().__init__(f"{what}: {self.operator} {reason}; {HINT.format(names)}")

    def with_ends(self, ends: Sequence[str]) -> "OpeningError":
        """Return the same error with the names of the values that the graph may be cut at."""
        return OpeningError(self.what, self.node, self.reason, ends)


class MoreInputsError(Exception):
    """Other inputs, of the model or of a body, hold the same axis: they are opened, too, and following begins anew."""

    def __init__(self, seeds: Mapping[ir.Value, Parts]) -> None:
        self.seeds = seeds


# Where an opened part goes when a Reshape, or an operator like it, groups dimensions anew.
#
# The elements keep their order. So as many of them lie before one step of the part, and inside of it, as did before:
#
#     [batch, 128, 768] -> [128, 768]: the part goes into the first dimension, `batch*128`
#
# Where the batch is 1 several dimensions may take it: of `[1, 1001]`, `[batch, 1001]` and `[1, batch*1001]`. Then a
# dimension that held just the batch comes first, and whoever follows the axis tries the others if that leads nowhere.

MOST_WAYS = 16  # ways to regroup that are tried at one node


def ways(
    source: Sequence[Extent],  # extents of the operand in the source
    parts: Parts,  # its opened parts
    target: Sequence[Extent],  # extents of the result in the source
) -> list[dict[int, OpenedFactor]]:
    """List where opened parts may lie in the regrouped value, the likeliest first; nothing if they mix with others."""
    each = [list(_places(source, axis, part, target)) for axis, part in sorted(parts.items())]
    places = (dict(chosen) for chosen in islice(combinations(*each), MOST_WAYS))
    distinct = [way for way in places if len(way) == len(each) and list(way) == sorted(way)]
    return sorted(distinct, key=lambda way: sum(_oddness(part, parts) for part in way.values()))


def _places(
    source: Sequence[Extent], axis: int, part: OpenedFactor, target: Sequence[Extent]
) -> Iterator[tuple[int, OpenedFactor]]:
    before = product(source[:axis]) * part.outer
    inside = part.inner * product(source[axis + 1 :])
    for place, extent in enumerate(target):
        outer = before.divide(product(target[:place]))
        inner = inside.divide(product(target[place + 1 :]))
        if outer is not None and inner is not None and outer * part.before * inner == extent:
            yield place, OpenedFactor(outer, part.length, part.before, inner)


def _oddness(part: OpenedFactor, source: Parts) -> int:
    """Return 0 for a dimension of its own, 1 for one composed as in the source, 2 where it leads, else 3."""
    if part.is_whole:
        return 0
    if part in source.values():
        return 1
    return 2 if part.outer.is_one else 3


def as_written(
    items: Sequence[Extent | None],  # the shape; -1 is what is left, 0 copies. None is not known.
    dims: Sequence[Extent],  # the extents of the operand in the result
    *,
    copies: bool,  # whether 0 copies
) -> list[Extent] | None:
    """Return the extents that a Reshape gives as its shape is written; None where it is none for this operand."""
    inferred, copied = Extent(-1), Extent(0)
    if any(item is None for item in items):
        return None
    known = [item for item in items if item is not None]
    extents = [dims[i] if item == copied and copies and i < len(dims) else item for i, item in enumerate(known)]
    whole, others = product(dims), product(item for item in extents if item != inferred)
    if extents.count(inferred) == 1:
        rest = whole.divide(others)
        return None if rest is None else [rest if item == inferred else item for item in extents]
    return extents if others == whole else None


def moving_ways(source: Sequence[Extent], parts: Parts, target: Sequence[Extent]) -> list[dict[int, OpenedFactor]]:
    """List where a batch of 1 may lie in the regrouped value if the Reshape was a Transpose, too.

    Converters write a Reshape for a Transpose that moves an axis of 1 element: `[1, 12, 5] -> [12, 1, 5]`. No other
    axis may be open.
    """
    if len(parts) != 1:
        return []
    ((axis, part),) = parts.items()
    rest = [extent for place, extent in enumerate(source) if place != axis]
    if not (part.is_whole and part.before.is_one) or not all(extent.is_static for extent in (*rest, *target)):
        return []
    return [{place: part} for place, extent in enumerate(target) if extent.is_one]


def likeliest(
    possible_ways: Sequence[Parts],  # the ways
    target: Sequence[Extent],  # the extents of the result in the source
    # the extents that the shape gives in the result; None where it gives none, or is not known
    written: Sequence[Extent] | None,
    *,
    computed: bool,  # whether the graph computes the shape from an opened extent: then it means what it gives
) -> list[Parts]:
    """Order the ways to regroup by what a Reshape's shape says."""
    agreeing = [way for way in possible_ways if list(dims_of(tuple(target), way)) == written]
    if computed and agreeing:
        return agreeing
    alone = [way for way in possible_ways if all(part.is_whole for part in way.values())]
    first = [way for way in alone if way in agreeing]
    ordered = [*first, *alone, *agreeing, *possible_ways]
    return [way for place, way in enumerate(ordered) if way not in ordered[:place]]
