"""Names of dynamic dimensions that are expressions of other names, as exporters write them: `((h-1)//2)+1`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from relayout.layout.extents import LONGEST, Dim

_TOKEN = re.compile(r"\s*(?:([0-9]+)|([A-Za-z_]\w*)|(\*\*|//|[-+*/%(),]))")
_NAME = re.compile(r"[A-Za-z_]\w*")
DEEPEST = 64  # parentheses, signs and powers of one expression: what has more is a name
MOST_POWER, LARGEST = 64, 1 << 63  # what a power may be, and what it may give

Binary = Callable[[Fraction, Fraction], Fraction]
SUMS: dict[str, Binary] = {"+": operator.add, "-": operator.sub}
PRODUCTS: dict[str, Binary] = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": lambda a, b: Fraction(a // b),
    "%": operator.mod,
}
FUNCTIONS: dict[str, Callable[..., Fraction]] = {  # functions in the names that exporters and shape inference write
    "Abs": abs,
    "CeilToInt": lambda a: Fraction(math.ceil(a)),
    "FloorDiv": PRODUCTS["//"],
    "FloorToInt": lambda a: Fraction(math.floor(a)),
    "IntTrueDiv": operator.truediv,
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "abs": abs,
    "ceil": lambda a: Fraction(math.ceil(a)),
    "ceiling": lambda a: Fraction(math.ceil(a)),
    "floor": lambda a: Fraction(math.floor(a)),
    "max": max,
    "min": min,
}


def names_in(text: str) -> frozenset[str]:
    """Return the names that an expression is made of; of a text that is no expression, none."""
    tokens = _tokens(text)
    if tokens is None or len(tokens) == 1:
        return frozenset()
    names = frozenset(name for name in tokens if _NAME.fullmatch(name) and name not in FUNCTIONS)
    # Some number for all names gives an expression a value.
    values = (_value(tokens, dict.fromkeys(names, Fraction(number))) for number in (1, 97))
    return names if any(value is not None for value in values) else frozenset()


def replace_names(text: str, extents: Mapping[str, Dim]) -> Dim:
    """Replace names within an expression by numbers or other names; a number where no name is left."""
    replaced = _NAME.sub(lambda name: str(extents.get(name[0], name[0])), text)
    tokens = _tokens(replaced)
    number = None if tokens is None else _value(tokens, {})
    return replaced if number is None or number.denominator != 1 or number < 0 else int(number)


def _tokens(text: str) -> list[str] | None:
    if len(text) > LONGEST:
        return None
    tokens, place, text = list[str](), 0, text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            return None
        tokens.append(match[match.lastindex or 0])
        place = match.end()
    signs = sum(token in ("(", "-", "+", "**") for token in tokens)
    return tokens if tokens and signs <= DEEPEST else None


def _value(tokens: Sequence[str], numbers: Mapping[str, Fraction]) -> Fraction | None:
    """Return what an expression amounts to; None where it is none, or has no value."""
    parsing = _Parsing(tokens, numbers)
    try:
        value = parsing.sum()
    except (LookupError, ValueError, TypeError, ArithmeticError):
        return None
    return value if parsing.place == len(tokens) else None


class _Parsing:
    """A parser that computes as it goes along (recursive descent)."""

    def __init__(self, tokens: Sequence[str], numbers: Mapping[str, Fraction]) -> None:
        self.tokens, self.numbers, self.place = tokens, numbers, 0

    def sum(self) -> Fraction:
        """Parse a sum, and return what it amounts to."""
        return self._row(SUMS, lambda: self._row(PRODUCTS, self._signed))

    def _row(self, operators: Mapping[str, Binary], part: Callable[[], Fraction]) -> Fraction:
        value = part()
        while self._next() in operators:
            value = operators[self._take()](value, part())
        return value

    def _signed(self) -> Fraction:
        if self._next() in SUMS:
            sign = self._take()
            return -self._signed() if sign == "-" else self._signed()
        return self._power()

    def _power(self) -> Fraction:
        base = self._atom()
        if self._next() != "**":
            return base
        self._take()
        power = self._signed()
        if power.denominator != 1 or not 0 <= power <= MOST_POWER:
            raise ValueError(f"a power of {power}")
        result = Fraction(base ** int(power))
        if abs(result) > LARGEST:
            raise ValueError(f"{base} to the power of {power}")
        return result

    def _atom(self) -> Fraction:
        token = self._take()
        if token.isdecimal():
            return Fraction(int(token))
        if token == "(":
            (value,) = self._inside()
            return value
        if token in FUNCTIONS and self._next() == "(":
            self._take()
            return Fraction(FUNCTIONS[token](*self._inside()))
        return self.numbers[token]

    def _inside(self) -> list[Fraction]:
        """Return what stands between parentheses, the first of which is taken."""
        values = [self.sum()]
        while (token := self._take()) == ",":
            values.append(self.sum())
        if token != ")":
            raise ValueError(f"'{token}' for ')'")
        return values

    def _next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def _take(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1]
