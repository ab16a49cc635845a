"""The part of a dimension that is opened, and where it lies in the dimension."""

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from relayout.errors import RelayoutError
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


# Why a dimension cannot be opened.

HINT = "cut the graph before it with --outputs{} (docs/how-to/batch.md says more)"
"""The advice in an error, with names where some are known."""


class OpeningError(RelayoutError):
    """A dimension cannot be opened, since an operator binds it.

    Args:
        what: what the user asked for and cannot be: `axis 2 of 'x' cannot become 33`.
        node: the operator that binds it.
        reason: what it does with it, as a predicate: `normalizes along it`.
        ends: the source's names of the last values that can be opened, if they are known.
    """

    def __init__(self, what: str, node: ir.Node, reason: str, ends: Sequence[str] = ()) -> None:
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
