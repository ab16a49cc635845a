"""A verification report for the terminal: outputs; where they fail, the worst interior values and where they part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from relayout.terminal import Grid, Line, ShortNames, count_of, line
from relayout.verification.compare import Difference, Kind, Verdict
from relayout.verification.report import Row, VerifyReport

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 88
"""Columns where there is no terminal to ask."""

NAME_WIDTH = 26
"""Columns of a name in a table; a longer one takes several lines."""

SENTENCE_WIDTH = 60
"""Characters of a name in a sentence."""

STEPWISE = (
    f"{Verdict.STEPWISE}: farther off as a whole, but its operator agrees on the source's own values, and so does each"
    " before it"
)
"""The line under the table that explains the verdict."""

WORST = 8
"""How many interior values are listed."""


def render(report: VerifyReport) -> list[Line | Grid]:
    """The paragraphs and tables of a report."""
    parts: list[Line | Grid] = [line((report.verdict, "bold green" if report.ok else "bold red"))]
    if report.loss is not None:
        return [*parts, *report.loss.render(), *_foot(report)]
    if report.disagreement:
        parts.insert(0, line((report.disagreement, "yellow")))
    short = ShortNames((row.name for row in report.rows), NAME_WIDTH - 2)
    parts.append(_table("outputs", report.outputs, short))
    worst = sorted((row for row in report.interiors if row.difference is None or row.excess), key=_badness)[:WORST]
    if worst and not report.ok:
        parts.append(
            _table(f"inner values, the worst first: {len(worst)} of {len(report.interiors)} compared", worst, short)
        )
    if any(row.verdict is Verdict.STEPWISE for row in (*report.outputs, *(() if report.ok else worst))):
        parts.append(line((STEPWISE, "dim")))
    if report.first is not None and not report.ok:
        parts.append(line((_where(report.first, report), "yellow")))
    counts = ", ".join(_counted(report))
    absent = f"of the source {'is' if report.unmatched == 1 else 'are'} not in the result (fused, folded or renamed)"
    unmatched = (
        f"; {count_of(report.unmatched, 'inner value')} {absent}" if report.interiors and report.unmatched else ""
    )
    parts.append(line((f"values compared: {counts}{unmatched}", "dim")))
    return [*parts, *_foot(report)]


def _foot(report: VerifyReport) -> list[Line | Grid]:
    """What was fed, by what it was run, and the notes."""
    fed = ", ".join(f"{i.name} {i.dtype}{list(i.shape)} {i.how}" for i in report.inputs) or "nothing"
    runtimes = ", ".join(f"{name} {version}" for name, version in report.runtimes)
    runs = count_of(report.runs, "run")
    ran = line((f"fed: {fed}; seed {report.seed}, {runs}; {runtimes}", "dim"))
    return [ran, *(line((f"note: {note}", "dim")) for note in report.notes)]


def _counted(report: VerifyReport) -> Iterator[str]:
    """How many values have which verdict. If outputs agree, inner values that do not are told by their distance."""
    for verdict, count in report.counts.items():
        if verdict != Verdict.DIFFERS.value or not report.ok:
            yield f"{count} {_for_several(verdict) if count > 1 else verdict}"
            continue
        apart = [row for row in report.interiors if row.verdict is Verdict.DIFFERS]
        reals = [row.difference.max_rel for row in apart if row.difference is not None and row.kind is Kind.REAL]
        others = count - len(reals)
        if reals:
            yield f"{len(reals)} within {max(reals):.1e} of their largest value"
        if others:
            yield f"{others} more than a step apart inside"


def _for_several(verdict: str) -> str:
    """Return the words of a verdict on several values: `2 differ`, `2 shapes differ`."""
    noun, verb, _ = verdict.partition("differs")
    return f"{noun.strip()}{'s ' if noun else ''}differ" if verb else verdict


def text(report: VerifyReport) -> str:
    """The same without colours, in lines of up to `WIDTH` columns."""
    from rich.console import Console

    written = StringIO()
    plain = Console(file=written, width=WIDTH, color_system=None, force_terminal=False, force_jupyter=False)
    plain.print(*render(report), sep="\n")
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


HEADINGS = ("value", "made by", "type", "off by", "spread", "verdict")
NUMBERS = frozenset(("off by", "spread"))
"""Headings of columns that are never wrapped."""


class _Values(Grid):
    """A table of values; on a terminal names have several lines and numbers stand on the right."""

    def __rich__(self) -> RenderableType:
        from rich.box import SIMPLE
        from rich.table import Table

        table = Table(title=self.title, title_justify="left", title_style="bold", box=SIMPLE, pad_edge=False)
        table.add_column(self.headings[0], max_width=NAME_WIDTH, overflow="fold")
        for heading in self.headings[1:]:
            is_number = heading in NUMBERS
            on_right = is_number or heading == self.headings[-1]
            table.add_column(heading, justify="right" if on_right else "left", no_wrap=is_number, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


def _table(title: str, rows: Sequence[Row], short: ShortNames) -> Grid:
    cells = [
        [
            line(short(row.name)),
            line(row.operator),
            line(f"{row.dtype}{list(row.shape)}"),
            line(_number(row.difference, row.kind)),
            line(_number(row.spread, row.kind)),
            line((row.verdict.word, "green" if row.ok else "red")),
        ]
        for row in rows
    ]
    return _Values(HEADINGS, cells, title)


def _number(difference: Difference | None, kind: Kind) -> str:
    """The number that counts: relative error, LSB, or share of elements."""
    if difference is None:
        return ""
    if difference.share == 0:
        return "0"
    number = difference.of(kind)
    return {Kind.REAL: f"{number:.1e}", Kind.STEPS: f"{number:.0f} LSB", Kind.EXACT: f"{100 * number:.3g} %"}[kind]


def _badness(row: Row) -> tuple[int, float]:
    return -row.verdict.rank, -row.excess


def _where(row: Row, report: VerifyReport) -> str:
    made = f"{row.operator} {row.node}".strip() or "an input"
    other = f"{row.other_operator} {row.other_node}".strip() or "nothing"
    before = sum(each.order < row.order for each in report.rows)
    agreed = "the value compared before it agrees" if before == 1 else f"the {before:,} values compared before it agree"
    agreed = f"; {agreed}" if before else "; no value before it was compared"
    name = ShortNames((each.name for each in report.rows), SENTENCE_WIDTH)(row.name)
    others = [text for each in report.rows for text in (each.other, f"{each.other_operator} {each.other_node}")]
    short = ShortNames(others, SENTENCE_WIDTH)
    return f"first divergence: '{name}', made by {made}, against '{short(row.other)}', made by {short(other)}{agreed}"
