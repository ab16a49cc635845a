"""The report on a terminal."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from relayout.progress import LOG
from relayout.reports.integers import integers_in_words
from relayout.reports.layout_names import layout_names, size_name
from relayout.reports.report import Report, Transposed
from relayout.terminal import ShortNames, as_html, count_of, shown, tabled

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

MOST = 20
"""Kinds of remaining Transposes listed on a terminal; `-v` and `--json` list all."""

FEW = 6
"""With more remaining Transposes than this, they are first counted by what stands on both sides; and how many are named
that are like one that is listed."""

ADD_A_RULE = "A rule lets them: docs/how-to/custom-operator.md"
WIDTH = 88
"""Columns where there is no terminal to ask."""


def show(report: Report, console: Console | None = None, *, hint: bool = True) -> None:
    """Print a report, by default on standard output; `hint` says whether its last line is what to ask for next."""
    from rich.console import Console, Group

    last = [hinted(report)] if hint and report.hint else []
    (console or Console()).print(Group(*_parts(report), *last))


def hinted(report: Report) -> Text:
    """Return what to ask for to get a better result, so that it is seen."""
    return shown(report.hint, "bold")


def html(report: Report) -> str:
    """Return the same as HTML, for notebooks."""
    last = [hinted(report)] if report.hint else []
    return as_html(*_parts(report), *last)


def text(report: Report) -> str:
    """The same without colours, in lines of up to `WIDTH` columns."""
    from rich.console import Console

    written = StringIO()
    show(report, Console(file=written, width=WIDTH, color_system=None, force_terminal=False, force_jupyter=False))
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def _parts(report: Report) -> list[RenderableType]:
    quantized = [shown(line) for line in integers_in_words(report.interface)]
    parts: list[RenderableType] = [_interface(report), *quantized, _transposes(report)]
    short = short_names(report) if report.remaining or report.what_if else ShortNames(())
    parts += _remaining(report, short)
    parts += [shown(f"without {short(item.site)}: {item.bytes:,} bytes less") for item in report.what_if[:MOST]]
    for reason, count in report.barriers.items():
        parts.append(shown(f"barrier, {count_of(count, 'operator')}: {reason}, so layouts cannot pass. {ADD_A_RULE}"))
    if report.claims is not None:
        parts += [shown(line) for line in report.claims.lines(report.transposes - report.source_transposes)]
    parts += [shown(f"note: {note}") for note in report.notes]
    kinds = ", ".join(f"{name} {count}" for name, count in list(report.operators.items())[:8])
    more = f", … ({len(report.operators)} kinds)" if len(report.operators) > 8 else ""
    spent = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in report.seconds.items())
    total = sum(report.operators.values())
    if report.min_runtime:
        parts.append(shown(f"oldest runtime: TensorFlow Lite {report.min_runtime}"))
    parts.append(shown(f"{count_of(total, 'operator')}: {kinds}{more}\n{spent}", "dim"))
    return parts


def summary(report: Report) -> str:
    """Return what a conversion left, in a few words: `1 Transpose, 150 KB per inference, proved minimal`."""
    inside = f"{report.in_functions} in bodies of functions, " if report.in_functions else ""
    if not report.transposes:
        return f"no Transposes{f' but {inside}' if inside else ', '}{report.verdict}"
    counted = f"{count_of(report.transposes, 'Transpose')}, {size_name(report.bytes)} per inference, "
    return f"{counted}{f'and {inside}' if inside else ''}{report.verdict}"


def short_names(report: Report, whole: bool | None = None) -> ShortNames:
    """Return what shortens the names in a report: they stay distinct from all names of its model."""
    texts = [text for item in report.remaining for text in (item.tensor, item.reason)]
    return ShortNames([*texts, *(item.site for item in report.what_if), *report.drawing.names()], whole=whole)


def _interface(report: Report) -> Table:
    rows = [
        (end.kind, end.name, end.dtype, " × ".join(map(str, end.shape)), layout_names(end.layout))
        for end in report.interface
    ]
    return tabled("", "name", "type", "shape", "layout", rows=rows)


def _transposes(report: Report) -> Table:
    moved = [
        ("source, as read", f"{report.source_transposes:,}", f"{report.source_bytes:,}"),
        ("result", f"{report.transposes:,}", f"{report.bytes:,}"),
    ]
    is_better = report.bytes < report.source_bytes
    is_open = any(not isinstance(extent, int) for end in report.interface for extent in end.shape)
    table = tabled("", "Transposes", "bytes per inference" + (" (open extents as 1)" if is_open else ""), rows=moved)
    table.add_row(
        "lower bound",
        "",
        f"{report.lower_bound:,}  {report.verdict}",
        style="bold" if is_better and report.proved else "",
    )
    return table


def _kinds(report: Report) -> list[str]:
    """What stands on both sides of the remaining Transposes, by operator, heaviest first."""
    counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for left in report.remaining:
        pair = left.causes[0].kinds
        counts[pair] += 1
        sizes[pair] += left.bytes
    return [
        f"{above} and {below}: {count_of(counts[above, below], 'Transpose')}, {size_name(size)}"
        for (above, below), size in sizes.most_common(FEW)
    ]


def _remaining(report: Report, short: ShortNames) -> list[RenderableType]:
    from rich.padding import Padding

    ordered = sorted(report.remaining, key=lambda item: -item.bytes)
    lines: list[RenderableType] = [shown(f"between {each}") for each in _kinds(report)] if len(ordered) > FEW else []
    groups = _alike(ordered)
    if LOG.isEnabledFor(logging.INFO):
        groups = [[item] for item in ordered]
    elif len(groups) > MOST:
        left = sum(map(len, groups[MOST:]))
        lines.append(shown(f"the heaviest of them; {left:,} more Transposes are listed by -v and --json"))
        groups = groups[:MOST]
    for first, *others in groups:
        tensor = shown(short(first.tensor), "bold")
        lines.append(
            shown("remains: ").append_text(tensor).append(f"  {layout_names(first.layout)}, {size_name(first.bytes)}")
        )
        lines.append(Padding.indent(shown(short(first.reason), "dim"), 2))
        if others:
            named = ", ".join(short(item.tensor) for item in others[:FEW])
            more = f", and {len(others) - FEW:,} more (-v)" if len(others) > FEW else ""
            lines.append(Padding.indent(shown(f"Likewise {named}{more}."), 2))
    return lines


def _alike(ordered: Sequence[Transposed]) -> list[list[Transposed]]:
    """Transposes by what can be said of them but for names: layouts, bytes, and what stands on both sides."""
    groups: dict[tuple[object, ...], list[Transposed]] = {}
    for item in ordered:
        causes = tuple(cause._replace(above="", below="") for cause in item.causes)
        groups.setdefault((item.layout, item.bytes, causes), []).append(item)
    return list(groups.values())
