"""The report on a terminal."""

from __future__ import annotations

import logging
from collections import Counter

from relayout.errors import printable
from relayout.progress import LOG
from relayout.reports.layouts import end_layout, layout_names, size_name
from relayout.reports.reasons import remedy, why
from relayout.reports.report import Report, Transposed, integers_in_words
from relayout.terminal import Grid, Line, ShortNames, as_html, as_text, count_of, line, tabled

MOST = 20  # kinds of remaining Transposes listed on a terminal; `-v` and `--json` list all

FEW = 6
"""With more remaining Transposes than this, they are first counted by what stands on both sides; and how many are named
that are like one that is listed."""

TERMS = 3  # with more terms than this in open extents, bytes are given with these as 1

ADD_A_RULE = "A rule removes the barrier: docs/how-to/custom-operator.md"
WIDTH = 88  # columns where there is no terminal to ask


def paragraphs(report: Report, *, hint: bool = True) -> list[Line | Grid]:
    """Describe a conversion for people; `hint`: end with what to ask for next."""
    return [*_parts(report), *([hinted(report)] if hint and report.hint else [])]


def hinted(report: Report) -> Line:
    """Return what to ask for to get a better result, so that it is seen."""
    return line((report.hint, "bold"))


def html(report: Report) -> str:
    """Return the same as HTML, for notebooks."""
    return as_html(*paragraphs(report))


def text(report: Report) -> str:
    """Return the description without colours, in lines of up to `WIDTH` columns."""
    return as_text(*paragraphs(report), width=WIDTH)


def _parts(report: Report) -> list[Line | Grid]:
    quantized = map(line, integers_in_words(report.interface))
    rows = [
        (end.kind, end.name, end.dtype, " × ".join(map(str, end.shape)), end_layout(end.layout, end.shape))
        for end in report.interface
    ]
    interface = tabled("", "name", "type", "shape", "layout", rows=rows)
    parts: list[Line | Grid] = [interface, *quantized, *_transposes(report)]
    short = short_names(report) if report.remaining or report.what_if else ShortNames(())
    parts += _remaining(report, short)
    parts += [
        line(f"without the demand of {short(item.site)}: {item.bytes:,} bytes less") for item in report.what_if[:MOST]
    ]
    for reason, count in report.barriers.items():
        parts.append(line(f"barrier, {count_of(count, 'operator')}: {reason}, so layouts cannot pass. {ADD_A_RULE}"))
    if report.claims is not None:
        parts += list(map(line, report.claims.lines(report.transposes - report.source_transposes)))
    parts += [line(f"note: {note}") for note in report.notes]
    if report.quantization is not None:
        parts += list(map(line, report.quantization.lines()))
    kinds = ", ".join(f"{printable(name)} {count}" for name, count in list(report.operators.items())[:8])
    more = f", … ({len(report.operators)} kinds)" if len(report.operators) > 8 else ""
    spent = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in report.seconds.items())
    total = sum(report.operators.values())
    if report.min_runtime:
        parts.append(line(f"oldest runtime: TensorFlow Lite {report.min_runtime}"))
    parts.append(line((f"{count_of(total, 'operator')}: {kinds}{more}\n{spent}", "dim")))
    return parts


def summary(report: Report) -> str:
    """Return what a conversion left, in a few words: `1 Transpose, 150 KB per inference, proved minimal`."""
    formula = _formula(report)
    counted = f"{count_of(report.transposes, 'Transpose')}, {formula or size_name(report.bytes)} per inference"
    said = f"{counted if report.transposes else 'no Transposes'}, {report.verdict}"
    more = f"{report.in_functions} more" if report.transposes else f"{report.in_functions}"
    return f"{said} ({more} in functions, for which a backend has kernels)" if report.in_functions else said


def _formula(report: Report) -> str:
    """Return the bytes of a result in open extents, `12 × b × h × w bytes`; "" if none are open, or the sum is long."""
    sizes = Counter[tuple[str, ...]]()
    for item in report.remaining:
        size, *extents = item.factors
        sizes[tuple(printable(str(extent)) for extent in extents)] += int(size)
    if report.at or not any(sizes) or len(sizes) > TERMS:
        return ""
    return " + ".join(" × ".join((f"{size:,}", *extents)) for extents, size in sorted(sizes.items())) + " bytes"


def short_names(report: Report, whole: bool | None = None) -> ShortNames:
    """Return what shortens the names in a report: they stay distinct from all names of its model."""
    texts = [text for item in report.remaining for text in (item.tensor, item.reason)]
    return ShortNames([*texts, *(item.site for item in report.what_if), *report.drawing.names()], whole=whole)


def _transposes(report: Report) -> list[Line | Grid]:
    moved = [
        ("source, as read", f"{report.source_transposes:,}", f"{report.source_bytes:,}"),
        ("result", f"{report.transposes:,}", f"{report.bytes:,}"),
    ]
    style = "bold" if report.bytes < report.source_bytes and report.proved else ""
    is_open = any(not isinstance(extent, int) for end in report.interface for extent in end.shape)
    bound = [line((cell, style)) for cell in ("lower bound", "", f"{report.lower_bound:,}  {report.verdict}")]
    at = ", ".join(f"{name}={extent:,}" for name, extent in report.at.items())
    counted = f"at {at}" if at else "open extents as 1"
    heading = "bytes per inference" + (f" ({counted})" if is_open else "")
    table = tabled("", "Transposes", heading, rows=[*moved, bound])
    return [table, line(f"bytes of the result: {formula}")] if (formula := _formula(report)) else [table]


def _kinds(report: Report) -> list[str]:
    """Return the operators on both sides of the remaining Transposes, as pairs of types, heaviest first."""
    counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in report.remaining:
        pair = row.causes[0].kinds
        counts[pair] += 1
        sizes[pair] += row.bytes
    return [
        f"{above} and {below}: {count_of(counts[above, below], 'Transpose')}, {size_name(size)}"
        for (above, below), size in sizes.most_common(FEW)
    ]


def _remaining(report: Report, short: ShortNames) -> list[Line | Grid]:
    ordered = sorted(report.remaining, key=lambda item: -item.bytes)
    lines: list[Line | Grid] = [line(f"between {each}") for each in _kinds(report)] if len(ordered) > FEW else []
    # Those of which the same can be said but for names: layouts, bytes, and what stands on both sides.
    alike: dict[tuple[object, ...], list[Transposed]] = {}
    for item in ordered:
        causes = tuple(cause._replace(above="", below="") for cause in item.causes)
        alike.setdefault((item.layout, item.bytes, causes), []).append(item)
    groups = list(alike.values())
    if LOG.isEnabledFor(logging.INFO):
        groups = [[item] for item in ordered]
    elif len(groups) > MOST:
        hidden_count = sum(map(len, groups[MOST:]))
        lines.append(line(f"the heaviest of them; {hidden_count:,} more Transposes are listed by -v and --json"))
        groups = groups[:MOST]
    advised: set[str] = set()  # what removes a Transpose is said once
    for first, *others in groups:
        named = layout_names(first.layout)
        size, *extents = (first.bytes,) if report.at else first.factors
        moved = f"  {named}, {' × '.join((size_name(int(size)), *map(printable, map(str, extents))))}"
        lines.append(line("remains: ", (short(first.tensor), "bold"), moved))
        if named == first.layout:  # letters, which a stranger does not know
            legend = ", ".join(f"{name} = {extent}" for name, extent in first.axes)
            lines.append(line((f"axes: {legend}", "dim"), indent=2))
        advice = remedy(first.causes)
        said = why(first.causes) if advice in advised else first.reason
        advised.add(advice)
        lines.append(line((short(said), "dim"), indent=2))
        if others:
            named = ", ".join(short(item.tensor) for item in others[:FEW])
            more = f", and {len(others) - FEW:,} more (-v)" if len(others) > FEW else ""
            lines.append(line(f"Likewise {named}{more}.", indent=2))
    return lines
