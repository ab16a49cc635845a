"""Extents of axes: an integer times symbols, so that a dynamic dimension divides like a number.

`batch × 7 × 7` is `Extent(49, ("batch",))`. Only products and exact quotients are needed: they are what a Reshape does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

Dim = int | str

LONGEST = 1 << 10
"""Characters of a product of symbols; a longer name is one symbol, whatever is in it."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A product of an integer and symbols (sorted by name)."""

    number: int
    symbols: tuple[str, ...] = ()

    @staticmethod
    def of(dim: Dim | Extent) -> Extent:
        """The extent of a dimension: an integer, a symbol's name, or a product of these as `str` writes it."""
        return dim if isinstance(dim, Extent) else _extent(dim)

    def __mul__(self, other: Extent) -> Extent:
        return Extent(self.number * other.number, tuple(sorted(self.symbols + other.symbols)))

    def divide(self, other: Extent) -> Extent | None:
        """The exact quotient `self / other`, or None where there is none."""
        if other.number == 0 or self.number % other.number:
            return None
        left = Counter(self.symbols)
        left.subtract(other.symbols)
        if any(count < 0 for count in left.values()):
            return None
        return Extent(self.number // other.number, tuple(sorted(left.elements())))

    @property
    def is_one(self) -> bool:
        """Whether this is 1: an axis that moves for free."""
        return self.number == 1 and not self.symbols

    @property
    def is_static(self) -> bool:
        """Whether no symbol is left."""
        return not self.symbols

    def value(self, symbols: Mapping[str, int], default: int = 1) -> int:
        """The number, with symbols replaced by `symbols[name]` or `default`."""
        result = self.number
        for symbol in self.symbols:
            result *= symbols.get(symbol, default)
        return result

    def fixed(self, symbols: Mapping[str, int]) -> Extent:
        """The extent with those symbols replaced that `symbols` has."""
        number = math.prod(symbols.get(symbol, 1) for symbol in self.symbols)
        return Extent(self.number * number, tuple([symbol for symbol in self.symbols if symbol not in symbols]))

    def __str__(self) -> str:
        parts = ([] if self.number == 1 and self.symbols else [str(self.number)]) + list(self.symbols)
        return "*".join(parts)


@lru_cache(65536)
def _extent(dim: Dim) -> Extent:
    """One object for each dimension: equal extents are mostly the same."""
    if not isinstance(dim, str):
        return Extent(dim)
    parts = dim.split("*") if len(dim) <= LONGEST else [dim]
    if len(parts) == 1 or not all(part.isidentifier() or part.isdecimal() for part in parts):
        return Extent(1, (dim,))
    number = math.prod(int(part) for part in parts if part.isdecimal())
    return Extent(number, tuple(sorted(part for part in parts if not part.isdecimal())))


ONE = Extent(1)


def product(extents: Iterable[Extent]) -> Extent:
    """The product of extents; 1 for none."""
    result = ONE
    for extent in extents:
        result = result * extent
    return result
