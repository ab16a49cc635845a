"""Arithmetic on dimensions, some of which have names instead of numbers.

A name made here is the expression itself, `ceil(height/2)`, in one normal form: so two branches of a network that
shrink the same extent in the same way end in the same name, and can be seen to fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from relayout.formats.tflite.importing.builder import Dim

MAX_EXPRESSION = 80  # characters of a name that is an expression; beyond that a dimension is just unknown

_CEILING = re.compile(r"ceil\((\w+|\([^()]+\))/(\d+)\)")
_MULTIPLE = re.compile(r"(\d+)\*(\w+(?:\([^()]*\))?|\(.+\))")
_SHIFTED = re.compile(r"(.+) ([+-]) (\d+)")


def _named(name: str) -> Dim:
    return name if len(name) <= MAX_EXPRESSION else None


def _closed(name: str) -> str:
    return name if re.fullmatch(r"\w+|\w+\([^()]*\)", name) else f"({name})"


def shifted(dim: Dim, by: int) -> Dim:
    """A dimension and so much more, or less."""
    if isinstance(dim, int):
        return dim + by
    if dim is None or not by:
        return dim
    if match := _SHIFTED.fullmatch(dim):
        dim, by = match[1], by + (int(match[3]) if match[2] == "+" else -int(match[3]))
    return _named(f"{dim} {'+' if by > 0 else '-'} {abs(by)}") if by else dim


def times(dim: Dim, factor: int) -> Dim:
    """A multiple of a dimension."""
    if isinstance(dim, int):
        return dim * factor
    if dim is None or factor == 1:
        return dim
    if factor < 1:
        return 0 if factor == 0 else None
    if match := _MULTIPLE.fullmatch(dim):
        return _named(f"{int(match[1]) * factor}*{match[2]}")
    return _named(f"{factor}*{_closed(dim)}")


def divided(dim: Dim, by: int) -> Dim:
    """A dimension that is known to be a multiple, divided."""
    if isinstance(dim, int):
        return dim // by
    if dim is None or by == 1:
        return dim
    match = _MULTIPLE.fullmatch(dim)
    if match and int(match[1]) % by == 0:
        return times(match[2][1:-1] if match[2].startswith("(") else match[2], int(match[1]) // by)
    return _named(f"{_closed(dim)}/{by}")


def shrunk(dim: Dim, by: int) -> Dim:
    """A dimension divided, rounded up: of `ceil(h/2)` one half is `ceil(h/4)`."""
    if isinstance(dim, int):
        return -(-dim // by)
    if dim is None or by == 1:
        return dim
    if match := _CEILING.fullmatch(dim):
        return _named(f"ceil({match[1]}/{int(match[2]) * by})")
    multiple = _MULTIPLE.fullmatch(dim)
    if multiple and int(multiple[1]) % by == 0:
        return divided(dim, by)
    return _named(f"ceil({_closed(dim)}/{by})")


def product(dims: Iterable[Dim]) -> Dim:
    """Return how many elements a shape has; names are multiplied in alphabetical order."""
    factor, names = 1, []
    for dim in dims:
        if isinstance(dim, int):
            factor *= dim
        elif dim is None:
            return None
        else:
            names.append(dim)
    if len(names) < 2:
        return times(names[0], factor) if names else factor
    return times(_named("*".join(sorted(map(_closed, names)))), factor)


def total(dims: Iterable[Dim]) -> Dim:
    """The sum of dimensions, if at most one of them has a name."""
    fixed, name = 0, None
    for dim in dims:
        if isinstance(dim, int):
            fixed += dim
        elif dim is None or name is not None:
            return None
        else:
            name = dim
    return fixed if name is None else shifted(name, fixed)
