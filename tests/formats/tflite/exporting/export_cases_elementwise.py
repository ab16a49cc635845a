"""Operators on each element by itself: types and attributes."""

from __future__ import annotations

from collections.abc import Iterator

from rules.cases.making import f
from rules.law import Case


def cases() -> Iterator[Case]:
    yield Case("Relu", {"x": f(2, 3, 4)})
