"""What targets there are, and the table of each: for `relayout targets`, and as Markdown for its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relayout.targets import Target, target, targets

COLUMNS = ("operators", "layouts", "types", "ranks", "limits")
EVERYTHING = "every operator, in every layout"
MARK = "<!-- From here on: written by `relayout.reports.backends.markdown`. -->"
"""What precedes the tables on their page."""


def tables() -> dict[str, Any]:
    """All targets, each in a line: JSON types only."""
    return {"targets": [{"name": found.name, "line": found.line} for found in targets().values()]}


def table(name: str) -> dict[str, Any]:
    """One target with its rows: JSON types only.

    Raises:
        LayoutError: there is no target of that name.
    """
    found = target(name)
    return {"name": found.name, "line": found.line, "rows": [row.to_dict() for row in found.kernels]}


def words(row: Mapping[str, Any]) -> dict[str, str]:
    """A row for people."""
    when = f" ({row['when']})" if row["when"] else ""
    return {
        "operators": ", ".join(row["operators"]) + when,
        "layouts": ", ".join(row["layouts"]) or "any order of axes",
        "types": ", ".join(map(str.lower, row["types"])) or "any",
        "ranks": ", ".join(map(str, row["ranks"])) or "any",
        "limits": "; ".join(row["limits"]),
    }


def show(found: Mapping[str, Any]) -> None:
    """Print what `tables` or `table` gave."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if "targets" in found:
        _print(console, Table("name", "line", box=None, pad_edge=False), (row.values() for row in found["targets"]))
        return
    console.print(f"{found['name']}: {found['line']}", highlight=False)
    if not found["rows"]:
        console.print(EVERYTHING)
        return
    _print(console, Table(*COLUMNS, box=None, pad_edge=False), (words(row).values() for row in found["rows"]))


def _print(console: Any, table: Any, rows: Iterator[Any]) -> None:
    for row in rows:
        table.add_row(*row)
    console.print(table)


def markdown() -> str:
    """The tables of all targets, for their page."""
    return "\n".join(line for found in targets().values() for line in _section(found))


def _section(found: Target) -> Iterator[str]:
    yield from (f"## `{found.name}`", "", found.line + ".", "")
    if not found.kernels:
        yield from (EVERYTHING[0].upper() + EVERYTHING[1:] + ".", "")
        return
    yield from _table([words(row.to_dict()) for row in found.kernels])
    yield ""


def _table(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for row in rows:
        yield f"| {' | '.join(row[column] for column in COLUMNS)} |"
