"""The part of a dimension that is opened, and where it lies in the dimension."""

from collections.abc import Mapping
from typing import NamedTuple

from relayout.layout import ONE, Extent


class OpenedFactor(NamedTuple):
    """The opened factor of one dimension, which is `outer * length * inner` from major to minor.

    A batch of 1 that a Reshape joined with 12 heads is `OpenedFactor(ONE, batch, ONE, Extent(12))`: the dimension is
    `batch*12` where it was 12.

    Args:
        outer: how many runs of it the dimension holds.
        length: its extent in the result.
        before: its extent in the source.
        inner: how many elements each of its steps spans.
    """

    outer: Extent
    length: Extent
    before: Extent
    inner: Extent

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


Parts = Mapping[int, OpenedFactor]
"""Axis of a value -> its opened part."""


def whole_dimension(length: Extent, before: Extent) -> OpenedFactor:
    """Return the part of a dimension that holds nothing else."""
    return OpenedFactor(ONE, length, before, ONE)


def dims_of(shape: tuple[Extent, ...], parts: Parts) -> tuple[Extent, ...]:
    """Return the extents of a value in the result, by those in the source and its opened parts."""
    return tuple(parts[axis].extent if axis in parts else extent for axis, extent in enumerate(shape))
