"""What a model or a path says, on a terminal: never markup, never characters that command the terminal."""

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from relayout.errors import printable
from relayout.progress import LOG

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: `1 Transpose`, `12,000 bytes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Line(NamedTuple):
    """A paragraph. On a terminal rich prints it; in a pipe it is a line of its own."""

    spans: tuple[tuple[str, str], ...]  # texts, each with its style
    indent: int = 0  # columns in front of it
    is_cut: bool = False  # whether a narrow terminal shows its beginning alone

    def __str__(self) -> str:
        """The text, as a pipe gets it."""
        whole = "".join([text for text, _ in self.spans])
        return "\n".join(f"{' ' * self.indent}{line}".rstrip() for line in whole.split("\n"))

    def __rich__(self) -> "RenderableType":
        """Return the paragraph as rich prints it."""
        from rich.padding import Padding
        from rich.text import Text

        cut: dict[str, Any] = {"overflow": "ellipsis", "no_wrap": True} if self.is_cut else {}
        text = Text.assemble(*self.spans, **cut)
        return Padding.indent(text, self.indent) if self.indent else text


def line(*texts: str | tuple[str, str], indent: int = 0, is_cut: bool = False) -> Line:
    """Return a paragraph of texts, some with a style; characters that cannot be printed are spelled out."""
    pairs = ((text, "") if isinstance(text, str) else text for text in texts)
    spans = tuple([("\n".join(map(printable, text.split("\n"))), style) for text, style in pairs])
    return Line(spans, indent, is_cut)


LONG = 48  # characters of a name; a longer one is shortened


class ShortNames:
    """Names of a model for people: shortened where that leaves them distinct, and whole with `-v`.

    1. Of several names that `;` joins, as TensorFlow names what it fuses, the first stands for all: `a/Relu;…`.
    2. A long name is cut in front: `…block_3/expand/Conv2D`.
    3. Where another name has the same short form, less is cut in front, or its own last part is added:
       `a/Relu;…/clip`. If that does not tell them apart, it stays whole. Names of operators count only beside names of
       operators of the same type, since reports put the type before the name: `Conv a/Relu;…`.

    Args:
        texts: all texts with names that must stay distinct: names, `Conv NAME`, or sentences with these in them.
        most: characters of a short name, signs of omission aside.
        whole: leave all names as they are; by default where the library logs what it does, as with `-v`.
    """

    def __init__(self, texts: Iterable[str], most: int = LONG, whole: bool | None = None) -> None:
        self._widths = (most, 2 * most, 4 * most)
        self._is_whole = LOG.isEnabledFor(logging.INFO) if whole is None else whole
        self._words: dict[tuple[str, str], set[str]] = {}
        for text in texts:
            for before, word in _with_word_before(text):
                for short in self._short_forms(word):
                    self._words.setdefault((before, short), set()).add(word)

    def __call__(self, text: str) -> str:
        """Return a text with its names shortened."""
        if self._is_whole:
            return text
        return " ".join(self._distinct(before, word) for before, word in _with_word_before(text))

    def _distinct(self, before: str, word: str) -> str:
        for short in self._short_forms(word):
            if len(self._words.get((before, short), ())) <= 1:
                return short
        short, end = self._short_forms(word)[0], f"/{word.rpartition('/')[2]}"
        others = self._words[before, short]
        return f"{short}{end}" if short.endswith("…") and sum(each.endswith(end) for each in others) == 1 else word

    def _short_forms(self, word: str) -> list[str]:
        first, _, rest = word.partition(";") if "/" in word else (word, "", "")
        heads = [first if len(first) <= most else f"…{first[1 - most :]}" for most in self._widths]
        return [f"{head};…" if rest else head for head in heads]


def _with_word_before(text: str) -> Iterator[tuple[str, str]]:
    """Return each word of a text with the one before it."""
    return pairwise(("", *text.split(" ")))


class Grid(NamedTuple):
    """A table without lines. Where a terminal is narrow its cells wrap; nothing is left out."""

    headings: tuple[str, ...]  # of its columns
    rows: list[list[Line]]  # the cells of each row
    title: str = ""  # what stands above it; "": nothing

    def __str__(self) -> str:
        """The table, as a pipe gets it: each row in a line of its own, for programs that read lines."""
        rows = [list(self.headings), *([" ".join(str(cell).split("\n")) for cell in row] for row in self.rows)]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join((self.title, *lines) if self.title else lines)

    def __rich__(self) -> "RenderableType":
        """Return the table as rich prints it."""
        from rich.table import Table

        table = Table(title=self.title or None, title_justify="left", box=None, pad_edge=False)
        for heading in self.headings:
            table.add_column(heading, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


def tabled(*headings: str, rows: Iterable[Sequence[str | Line]] = (), title: str = "") -> Grid:
    """Return a table from headings and cells."""
    cells = [[line(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    return Grid(headings, cells, title)


FOR_TERMINALS = ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which somebody wants what a terminal would show, though it goes elsewhere."""


def show(*parts: Line | Grid, err: bool = False) -> None:
    """Print to standard output, or to standard error: on a terminal by rich, which takes a while to load."""
    stream = sys.stderr if err else sys.stdout
    if stream is None:
        return
    if stream.isatty() or any(map(os.environ.get, FOR_TERMINALS)):
        console(err).print(*parts, sep="\n")
    else:
        stream.writelines(f"{part}\n" for part in parts)


def console(err: bool = False) -> "Console":
    """Standard output, or standard error. Rich leaves colours out in a pipe, and where NO_COLOR is set."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # for the entry point to answer; rich would exit with 1, which says that verification failed

    return Plain(stderr=err)


HTML_WIDTH = 100  # columns of what a notebook shows
HTML = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3;font-family:monospace">{code}</pre>'


def as_text(*parts: "RenderableType", width: int) -> str:
    """Return the same without colours, in lines of up to so many columns."""
    from rich.console import Console

    written = StringIO()
    plain = Console(file=written, width=width, color_system=None, force_terminal=False, force_jupyter=False)
    plain.print(*parts, sep="\n")
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def as_html(*parts: "RenderableType") -> str:
    """Return what a terminal shows as HTML, for notebooks: with colours, in one block that scrolls."""
    from rich.console import Console

    out = Console(record=True, file=StringIO(), width=HTML_WIDTH, force_terminal=False, force_jupyter=False)
    out.print(*parts, sep="\n")
    return out.export_html(inline_styles=True, code_format=HTML)
