"""What a model or a path says, on a terminal: never markup, never characters that command the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from relayout.errors import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: `1 Transpose`, `12,000 bytes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown(text: str, style: str = "", **options: Any) -> Text:
    """A text as it is, but for characters that cannot be printed; `options` are those of `rich.text.Text`."""
    from rich.text import Text

    return Text("\n".join(map(printable, text.split("\n"))), style, **options)


ONE_LINE = 100_000
"""Columns of a pipe."""


def tabled(*columns: str, rows: Iterable[Sequence[str | Text]] = (), title: str | None = None) -> Table:
    """A table without lines, from headings and cells. Where the terminal is narrow they wrap; nothing is left out."""
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(shown(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def console(err: bool = False) -> Console:
    """Standard output, or standard error. Rich leaves colours out in a pipe, and where NO_COLOR is set."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # for the entry point to answer; rich would exit with 1, which says that verification failed

    return Plain(stderr=err)


HTML_WIDTH = 100
"""Columns of what a notebook shows."""
HTML = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3;font-family:monospace">{code}</pre>'


def as_html(*parts: RenderableType) -> str:
    """Return what a terminal shows as HTML, for notebooks: with colours, in one block that scrolls."""
    from io import StringIO

    from rich.console import Console

    out = Console(record=True, file=StringIO(), width=HTML_WIDTH, force_terminal=False, force_jupyter=False)
    out.print(*parts, sep="\n")
    return out.export_html(inline_styles=True, code_format=HTML)


def print_rows(out: Console, *parts: RenderableType) -> None:
    """Print tables; in a pipe, where no width is set, each row in a line of its own, for programs that read lines."""
    if out.is_terminal or "COLUMNS" in os.environ:
        out.print(*parts, sep="\n")
        return
    out.width = ONE_LINE
    with out.capture() as printed:
        out.print(*parts, sep="\n")
    out.file.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())
