"""Extents of axes: an integer times symbols, so that a dynamic dimension divides like a number.

`batch × 7 × 7` is `Extent(49, ("batch",))`. Products and exact quotients are what a Reshape does; a quotient that may
have a rest is a symbol of its own, `(height//4)`, as exporters write it, and so is a sum: `64*(height - 3)`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

Dim = int | str

LONGEST = 1 << 10  # characters of a product of symbols; a longer name is one symbol, whatever is in it

_SUM = re.compile(r"(.+) ([+-]) ([0-9]+)")
_QUOTIENT = re.compile(r"\((.+)//([1-9][0-9]*)\)")


@dataclass(frozen=True, slots=True)
class Extent:
    """A product of an integer and symbols (sorted by name)."""

    number: int
    symbols: tuple[str, ...] = ()

    @staticmethod
    def of(dim: "Dim | Extent") -> "Extent":
        """Return the extent of a dimension: an integer, a symbol's name, or a product of these as `str` writes it."""
        return dim if isinstance(dim, Extent) else _extent(dim)

    def __mul__(self, other: "Extent") -> "Extent":
        return Extent(self.number * other.number, tuple(sorted(self.symbols + other.symbols)))

    def divide(self, other: "Extent") -> "Extent | None":
        """Return the exact quotient `self / other`, or None where there is none."""
        if other.number == 0 or self.number % other.number:
            return None
        remaining = Counter(self.symbols)
        remaining.subtract(other.symbols)
        if any(count < 0 for count in remaining.values()):
            return None
        return Extent(self.number // other.number, tuple(sorted(remaining.elements())))

    def floor(self, other: "Extent") -> "Extent | None":
        """The quotient `self / other` without its rest; None where that has no name, as symbols divide what is left."""
        exact = self.divide(other)
        if exact is not None:
            return exact
        common = Counter(self.symbols) & Counter(other.symbols)
        if other.number == 0 or sum(common.values()) < len(other.symbols):
            return None
        shared = math.gcd(self.number, other.number)
        dividend = Extent(self.number // shared, tuple(sorted((Counter(self.symbols) - common).elements())))
        divisor = other.number // shared
        if dividend.is_static:
            return Extent(dividend.number // divisor)
        if dividend.number == 1 and len(dividend.symbols) == 1 and (inner := quotient(dividend.symbols[0])):
            return inner[0].floor(Extent(inner[1] * divisor))
        text = str(dividend)
        return Extent(1, (f"({text}//{divisor})" if text.isidentifier() else f"(({text})//{divisor})",))

    def plus(self, by: int) -> "Extent":
        """So much more, or less: a sum is a symbol of its own, `height + 2`, and less than it again what it was."""
        if self.is_static or not by:
            return Extent(self.number + by, self.symbols) if self.is_static else self
        text = str(self)
        match = _SUM.fullmatch(text)
        if match:
            text, by = match[1], by + int(f"{match[2]}{match[3]}")
        return Extent(1, (f"{text} {'+' if by > 0 else '-'} {abs(by)}",)) if by else Extent.of(text)

    @property
    def names(self) -> frozenset[str]:
        """The symbols, those within quotients in their place."""
        parts = [(symbol, quotient(symbol)) for symbol in self.symbols]
        return frozenset(name for symbol, whole in parts for name in (whole[0].symbols if whole else (symbol,)))

    @property
    def is_one(self) -> bool:
        """True if this is 1: an axis that moves for free."""
        return self.number == 1 and not self.symbols

    @property
    def is_static(self) -> bool:
        """True if no symbol is left."""
        return not self.symbols

    def value(self, symbols: Mapping[str, int], default: int = 1) -> int:
        """Return the number, with symbols replaced by `symbols[name]` or `default`."""
        result = self.number
        for symbol in self.symbols:
            whole = None if symbol in symbols else quotient(symbol)
            if whole and not symbols.keys().isdisjoint(whole[0].symbols):
                result *= whole[0].value(symbols, default) // whole[1]
            else:
                result *= symbols.get(symbol, default)
        return result

    def fixed(self, symbols: Mapping[str, Dim]) -> "Extent":
        """Return the extent with those symbols replaced that `symbols` has, by numbers or other symbols."""
        result = Extent(self.number)
        for symbol in self.symbols:
            whole = quotient(symbol)
            if symbol in symbols:
                result = result * Extent.of(symbols[symbol])
            elif whole is None or symbols.keys().isdisjoint(whole[0].symbols):
                result = result * Extent(1, (symbol,))
            else:
                result = result * (whole[0].fixed(symbols).floor(Extent(whole[1])) or Extent(1, (symbol,)))
        return result

    def __str__(self) -> str:
        parts = ([] if self.number == 1 and self.symbols else [str(self.number)]) + list(self.symbols)
        return "*".join(parts if len(parts) == 1 else [part if _is_factor(part) else f"({part})" for part in parts])


@lru_cache(65536)
def _extent(dim: Dim) -> Extent:
    """Return one object for each dimension: equal extents are mostly the same."""
    if not isinstance(dim, str):
        return Extent(dim)
    factors = _factors(dim) if "*" in dim or dim.startswith("(") else []
    if not factors:
        return Extent(1, (dim,))
    number = math.prod(int(factor) for factor in factors if factor.isdecimal())
    return Extent(number, tuple(sorted(factor for factor in factors if not factor.isdecimal())))


def _factors(text: str) -> list[str]:
    """Return the factors of a product: numbers, names, quotients, texts in parentheses; nothing if it is no product."""
    if len(text) > LONGEST:
        return []
    pieces, factors = _pieces(text), list[str]()
    for piece in pieces:
        bare = piece  # without parentheses around parentheses
        while bare.startswith("((") and bare.endswith("))") and _closes_last(bare[1:-1]):
            bare = bare[1:-1]
        if _is_factor(bare):
            factors.append(bare)
        elif piece.startswith("(") and _closes_last(piece):
            inner = piece[1:-1]
            factors += (_factors(inner) if "*" in inner else []) or ([inner] if len(pieces) > 1 else [])
        else:
            return []
    return factors


def _pieces(text: str) -> list[str]:
    """Return the texts between the signs of multiplication outside parentheses; nothing if some are not closed."""
    pieces, depth, start = list[str](), 0, 0
    for place, character in enumerate(f"{text}*"):
        depth += (character == "(") - (character == ")")
        if character == "*" and depth == 0:
            pieces.append(text[start:place])
            start = place + 1
    return pieces if depth == 0 else []


def _is_factor(text: str) -> bool:
    """Tell whether a text is a number, a name or a quotient: in a product any other stands in parentheses."""
    return text.isidentifier() or text.isdecimal() or quotient(text) is not None


def _closes_last(text: str) -> bool:
    """Tell whether the first parenthesis is closed by the last character."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place == len(text) - 1
    return False


@lru_cache(4096)
def quotient(symbol: str) -> tuple[Extent, int] | None:
    """Return the dividend and the divisor of a symbol like `(height//4)`; None for any other."""
    match = _QUOTIENT.fullmatch(symbol) if _closes_last(symbol) else None
    if match is None:
        return None
    inner = match[1]
    if inner.startswith("(") and _closes_last(inner) and not _QUOTIENT.fullmatch(inner):
        inner = inner[1:-1]
    elif not _factors(inner):
        return None  # what is divided of a sum that stands in no parentheses is its last term
    whole = Extent.of(inner)
    return None if any(map(quotient, whole.symbols)) else (whole, int(match[2]))


ONE = Extent(1)


def product(extents: Iterable[Extent]) -> Extent:
    """Return the product of extents; 1 for none."""
    factors = tuple(extents)
    if len(factors) == 1:
        return factors[0]
    symbols = [symbol for extent in factors for symbol in extent.symbols]
    return Extent(math.prod([extent.number for extent in factors]), tuple(sorted(symbols)))


class Learned(NamedTuple):
    """The dynamic extents that Reshapes tell which are run every time."""

    divisors: Mapping[str, int] = {}  # symbol -> what divides it
    same: Mapping[str, Dim] = {}  # symbol -> another that is equal, or, of one that shape inference made up, a number

    def of(self, source: Iterable[Extent], target: Iterable[Extent]) -> "Learned":
        """Return this with what a Reshape from `source` to `target` adds: both have as many elements.

        Where floors multiply to what the whole does, none has a rest:

            [h, w, c] -> [(h//4), 4, (w//4), 4, c]: 4 divides h and w
        """
        left, right = product(source), product(target)
        common = Counter(left.symbols) & Counter(right.symbols)
        sides = [Extent(e.number, tuple((Counter(e.symbols) - common).elements())) for e in (left, right)]
        whole, floored = sorted(sides, key=lambda side: any(map(quotient, side.symbols)))
        if len(whole.symbols) == 1 and len(floored.symbols) == 1 and not any(map(quotient, floored.symbols)):
            name_that_stays, other = sorted(
                (*whole.symbols, *floored.symbols), key=lambda name: (name.startswith("unk__"), name)
            )
            return self._replace(same={**self.same, other: name_that_stays}) if whole.number == floored.number else self
        number, named = sorted(sides, key=lambda side: len(side.symbols))
        if number.is_static and len(named.symbols) == 1 and named.number and number.number % named.number == 0:
            (name,) = named.symbols
            number_of_name = number.number // named.number
            return self._replace(same={**self.same, name: number_of_name}) if name.startswith("unk__") else self
        parts = [quotient(symbol) or (Extent(1, (symbol,)), 1) for symbol in floored.symbols]
        by = math.prod(divisor for _, divisor in parts)
        if Extent(floored.number) * product(part for part, _ in parts) != whole * Extent(by):
            return self
        divisors = dict(self.divisors)
        for part, divisor in parts:
            if len(part.symbols) == 1 and divisor > 1:
                (name,) = part.symbols
                divisors[name] = math.lcm(divisors.get(name, 1), divisor // math.gcd(part.number, divisor))
        return self._replace(divisors=divisors)
