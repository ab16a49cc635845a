"""What a model or a path says, on a terminal: never markup, never characters that command the terminal."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from relayout.errors import printable
from relayout.progress import LOG

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


LONG = 48
"""Characters of a name; a longer one is shortened."""


class ShortNames:
    """Names of a model for people: shortened where that leaves them distinct, and whole with `-v`.

    1. Of several names that `;` joins, as TensorFlow names what it fuses, the first stands for all: `a/Relu;…`.
    2. A long name is cut in front: `…block_3/expand/Conv2D`.
    3. A name stays whole where another name has the same short form. Names of operators count only beside names of
       operators of the same type, since reports put the type before the name: `Conv a/Relu;…`.

    Args:
        texts: all texts with names that must stay distinct: names, `Conv NAME`, or sentences with these in them.
        most: characters of a short name, signs of omission aside.
        whole: leave all names as they are; by default where the library logs what it does, as with `-v`.
    """

    def __init__(self, texts: Iterable[str], most: int = LONG, whole: bool | None = None) -> None:
        self._most = most
        self._is_whole = LOG.isEnabledFor(logging.INFO) if whole is None else whole
        self._words: dict[tuple[str, str], set[str]] = {}
        for text in texts:
            for before, word in _with_word_before(text):
                self._words.setdefault((before, self._short(word)), set()).add(word)

    def __call__(self, text: str) -> str:
        """Return a text with its names shortened."""
        if self._is_whole:
            return text
        return " ".join(self._distinct(before, word) for before, word in _with_word_before(text))

    def _distinct(self, before: str, word: str) -> str:
        short = self._short(word)
        return word if len(self._words.get((before, short), ())) > 1 else short

    def _short(self, word: str) -> str:
        first, _, rest = word.partition(";") if "/" in word else (word, "", "")
        first = first if len(first) <= self._most else f"…{first[1 - self._most :]}"
        return f"{first};…" if rest else first


def _with_word_before(text: str) -> Iterator[tuple[str, str]]:
    """Each word of a text with the one before it."""
    return pairwise(("", *text.split(" ")))


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
