"""Arithmetic on dimensions, some of which have names instead of numbers.

A name made here is the expression itself, `ceil(height/2)`, in one normal form: so two branches of a network that
shrink the same extent in the same way end in the same name, and can be seen to fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from relayout.formats.tflite.importing.builder import Dim

MAX_EXPRESSION = 80
"""Characters of a name that is an expression; beyond that a dimension is just unknown."""

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
    found = _SHIFTED.fullmatch(dim)
    if found:
        dim, by = found[1], by + (int(found[3]) if found[2] == "+" else -int(found[3]))
    return _named(f"{dim} {'+' if by > 0 else '-'} {abs(by)}") if by else dim


def times(dim: Dim, factor: int) -> Dim:
    """A multiple of a dimension."""
    if isinstance(dim, int):
        return dim * factor
    if dim is None or factor == 1:
        return dim
    if factor < 1:
        return 0 if factor == 0 else None
    found = _MULTIPLE.fullmatch(dim)
    if found:
        return _named(f"{int(found[1]) * factor}*{found[2]}")
    return _named(f"{factor}*{_closed(dim)}")


def divided(dim: Dim, by: int) -> Dim:
    """A dimension that is known to be a multiple, divided."""
    if isinstance(dim, int):
        return dim // by
    if dim is None or by == 1:
        return dim
    found = _MULTIPLE.fullmatch(dim)
    if found and int(found[1]) % by == 0:
        return times(found[2][1:-1] if found[2].startswith("(") else found[2], int(found[1]) // by)
    return _named(f"{_closed(dim)}/{by}")


def shrunk(dim: Dim, by: int) -> Dim:
    """A dimension divided, rounded up: of `ceil(h/2)` one half is `ceil(h/4)`."""
    if isinstance(dim, int):
        return -(-dim // by)
    if dim is None or by == 1:
        return dim
    found = _CEILING.fullmatch(dim)
    if found:
        return _named(f"ceil({found[1]}/{int(found[2]) * by})")
    multiple = _MULTIPLE.fullmatch(dim)
    if multiple and int(multiple[1]) % by == 0:
        return divided(dim, by)
    return _named(f"ceil({_closed(dim)}/{by})")


def product(dims: Iterable[Dim]) -> Dim:
    """How many elements a shape has; names are multiplied in alphabetical order."""
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
