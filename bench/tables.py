"""Tables as Markdown, for all scripts of this folder."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


def table(head: list[str], lines: Iterable[list[str]], left: int = 1) -> str:
    """`left` columns of words, then numbers."""
    rule = ["---" if place < left else "---:" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *lines])


def merged(lines: Iterable[list[str]]) -> list[list[str]]:
    """Merge rows that say the same of several models, in the order of the first."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in lines:
        names.setdefault(tuple(cells), []).append(name)
    return [[", ".join(models), *cells] for cells, models in names.items()]


def median(values: Iterable[float], form: str) -> str:
    known = list(values)
    return format(statistics.median(known), form) if known else "–"
