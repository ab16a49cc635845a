"""The extents of values: as numbers where they are known, and what the graph tells of the dynamic ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import onnx_ir as ir

from relayout.layout import ONE, Dim, Extent, Learned, product, quotient
from relayout.layout.stored_as import CLAIMED
from relayout.rules import WRAPPING


class ValueExtents:
    """The extents of the values of one graph.

    A dynamic extent that some Reshape divides by a number is that many times its quotient, everywhere.

    Args:
        known: what is known of dynamic extents.

    Attributes:
        learned: the same, with what was found.
        symbolic: some extents are not numbers.
        declared: what the inputs call their open extents.
        named: an extent as the product that it is -> the name that the source has for it.
    """

    def __init__(self, known: Learned) -> None:
        self.known = self.learned = known
        self.symbolic = False
        self.declared: set[str] = set()
        self.named: dict[Extent, str] = {}
        self._unknown = 0
        self._static: dict[ir.Value, tuple[int, ...]] = {}
        self._unnamed: dict[tuple[ir.Value, int], str] = {}
        self._aliases: dict[str, Dim] = dict(known.same)
        self._claimed: dict[str, int] = {}

    def of(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """The extents of a value; None where its rank is not known."""
        found = self._static.get(value)
        if found is not None:
            return found
        if value.const_value is not None:
            self._static[value] = tuple(value.const_value.shape.numpy())
            return self._static[value]
        if value.shape is None or type(value.type) in WRAPPING:
            return None  # what a sequence is said to have is its elements' shape
        given = value.shape.dims
        if is_static(given):
            self._static[value] = given
            return given
        dims: list[Dim] = []
        for axis, dim in enumerate(given):
            if isinstance(dim, int):
                dims.append(dim)
                continue
            self.symbolic = True
            name = str(dim.value) if dim.value is not None else self._unnamed.setdefault((value, axis), self.symbol())
            known = self._known_as(name)
            if (claimed := value.meta.get(CLAIMED)) is not None and isinstance(claimed[axis], int):
                self._claimed.setdefault(name, claimed[axis])
            dims.append(self._in_quotients(known) if self.known.divisors and isinstance(known, str) else known)
        return tuple(dims)

    def _known_as(self, name: str) -> Dim:
        """Return a dynamic extent as it is known; of a product each factor."""
        if name in self._aliases:
            return self._aliases[name]
        whole = Extent.of(name) if self._aliases else None
        if whole is None or self._aliases.keys().isdisjoint({*whole.symbols, *whole.names}):
            return name
        found = whole.fixed(self._aliases)
        if found.is_static:
            return found.number
        self.named.setdefault(found, name)
        return str(found) if Extent.of(str(found)) == found else name

    def _in_quotients(self, dim: str) -> Dim:
        """A dynamic extent, with the quotients of the divided ones in it."""
        whole = Extent.of(dim)
        found = Extent(whole.number)
        for symbol in whole.symbols:
            inner = quotient(symbol)
            extent, by = inner if inner else (Extent(1, (symbol,)), 1)
            parts = [self._quotient(name) for name in extent.symbols]
            divided = (Extent(extent.number) * product(parts)).floor(Extent(by))
            found = found * (divided or Extent(1, (symbol,)))
        if found == whole:
            return dim
        self.named.setdefault(found, dim)
        return str(found)

    def _quotient(self, name: str) -> Extent:
        """A divided extent as a number times its quotient; any other as it is."""
        by = Extent(self.known.divisors.get(name, 1))
        return by * (Extent(1, (name,)).floor(by) or ONE)

    def symbol(self) -> str:
        """A name for a dimension that has none."""
        self._unknown += 1
        return f"?{self._unknown}"

    def claims(self) -> dict[str, int]:
        """Return the extents that a file states and nobody names: they count as a price only."""
        return {name: extent for name, extent in self._claimed.items() if name not in self.declared}

    def learn(self, source: Sequence[Extent], target: Sequence[Extent]) -> None:
        """Note what a Reshape tells of extents; it is run every time."""
        if self.symbolic:
            self.learned = self.learned.of(source, target)

    def solved(self, source: Sequence[Extent], target: Sequence[Dim], *, always: bool) -> list[Extent]:
        """The extents behind a Reshape, with the one that inference could not name found from the number of elements.

        Args:
            source: the extents before it.
            target: those behind it, as they are stated.
            always: whether it is run in every inference, so that what it tells holds everywhere.
        """
        known = {symbol for extent in source for symbol in extent.symbols}
        extents = [Extent.of(dim) for dim in target]
        unknown = [axis for axis, extent in enumerate(extents) if set(extent.symbols) - known]
        if len(unknown) != 1:
            return extents
        (axis,) = unknown
        rest = product(extent for position, extent in enumerate(extents) if position != axis)
        found = product(source).divide(rest) if rest.number else None
        if found is None:
            return extents
        if always and not self.declared.isdisjoint(extents[axis].symbols):
            self.learn(source, extents)
        unnamed, extents[axis] = extents[axis], found
        if unnamed.number > 1 or len(unnamed.symbols) > 1:
            return extents  # a product: found is more than its symbol stands for
        (name,) = unnamed.symbols
        single = found.number == len(found.symbols) == 1
        if found.is_static:
            self._aliases[name] = found.number
        elif Extent.of(str(found)) == found and (single or name not in self.declared):
            self._aliases[name] = str(found)
        return extents


def is_static(dims: tuple[int | ir.SymbolicDim, ...]) -> TypeGuard[tuple[int, ...]]:
    """Tell whether all extents are numbers."""
    return set(map(type, dims)) <= {int}
