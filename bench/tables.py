"""Tables as Markdown, and as CSV files where a page would be too long: for all scripts that write or read a page.

python bench/tables.py PAGE.md ...    # moves the long tables of pages that people write to CSV files
"""

from __future__ import annotations

import csv
import io
import re
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

LONG, WORDS = 15, 350
"""A page keeps a table of at most so many rows, and words."""
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
LINK = re.compile(r"^\[[^\]]*\]\((\S*tables/\S+\.csv)\)$", re.MULTILINE)
"""A line that stands for a table: a link to its file, and nothing else."""


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


def cells(line: str) -> list[str]:
    """Return the cells of a row of a Markdown table."""
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def files_of(page: Path, text: str, most: int = LONG) -> dict[Path, str]:
    """Return a page in which a link stands for each long table, and the tables as CSV: path -> content."""
    files: dict[Path, str] = {}

    def link(match: re.Match[str]) -> str:
        head, _, *rows = map(cells, match[0].splitlines())
        if len(rows) <= most and len(match[0].split()) <= WORDS:
            return match[0]
        title = next(iter(re.findall(r"^##+ (.*?)(?:: \d+)?$", text[: match.start()], re.MULTILINE)[-1:]), "")
        name = "-".join([page.stem, *re.findall(r"[a-z0-9]+", title.lower())])
        while (path := page.parent / "tables" / f"{name}.csv") in files:
            name += "-more"
        content = io.StringIO()
        csv.writer(content, lineterminator="\n").writerows([head, *rows])
        files[path] = content.getvalue()
        return f"[{title.replace('`', '') or f'Each {head[0]}'}: {len(rows)} rows](tables/{name}.csv)\n"

    return {page: TABLE.sub(link, text), **files}


def with_tables(text: str, folder: Path) -> str:
    """Return a page of this folder with each table that it links to behind the link."""

    def linked(match: re.Match[str]) -> str:
        with (folder / match[1]).open(encoding="utf-8", newline="") as file:
            head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in csv.reader(file))
        columns = [
            [bool(re.match(r"[`\[]|[^\W\d]", cell)) for cell in column if cell] for column in zip(*rows, strict=True)
        ]
        rule = ["---" if 2 * sum(words) >= len(words) else "---:" for words in columns]
        return "\n".join([match[0], "", *(f"| {' | '.join(row)} |" for row in [head, rule, *rows])])

    return LINK.sub(linked, text)


def write_files(files: dict[Path, str]) -> None:
    for path, content in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="\n")


def write_page(page: Path, text: str) -> None:
    """Write a page, and its long tables as CSV files beside it."""
    write_files(files_of(page, text))


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]):
        write_page(place, place.read_text(encoding="utf-8"))
