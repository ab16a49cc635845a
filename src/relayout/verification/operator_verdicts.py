"""Verdicts on values by what each operator makes of the source's own values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from relayout.verification.compare import SPREADS, Verdict
from relayout.verification.report import Row
from relayout.verification.side import RunnableModel
from relayout.verification.stepwise import JudgedValue

WITH_BODIES = {"CALL", "IF", "If", "Loop", "Scan", "WHILE"}
BEYOND = (Verdict.SPREAD, Verdict.DIFFERS)
"""Verdicts on a value as a whole that its operator may say more about."""


def judged_by_operator(
    rows: Sequence[Row],
    steps: Mapping[str, JudgedValue],
    drawn: frozenset[str],
    result: RunnableModel,
    *,
    dequantized: bool,
    far: Collection[str],
) -> list[Row]:
    """Return rows judged once more by what each operator makes of the source's own values.

    1. An operator that is wrong by itself is a fault, and so is an output beyond the tolerance behind it.
    2. An output that is far off as a whole stays so, whatever its operators do: these excuse what is beyond the
       tolerance of real numbers, and no far matter. LiteRT adds up one element after another, say.
    3. Of a float model of integers operators decide alone: what is saturated in the source is not there, and what is
       close in the end need not be right. So it is behind what is drawn at random, which is as the source drew it.

    Args:
        rows: as values were judged as a whole.
        steps: value of the source -> what its operator was found to do.
        drawn: values of the source that are drawn at random.
        result: the second model.
        dequantized: whether floats stand for integers.
        far: values of the source that are far off, and integers that are beyond the spread.
    """
    judged: list[Row] = []
    wrong: set[str] = set()
    free = dequantized or bool(drawn)
    for row in rows:
        step = steps.get(row.source)
        if row.source in drawn and row.difference is not None:
            row = replace(row, verdict=Verdict.STEPWISE)
        elif step is not None and (row.verdict in BEYOND or step.leans or step.copies or dequantized):
            fails = step.fails and not _is_in_body(row, step)
            excused = free or not row.output or row.source not in far
            row = replace(row, verdict=_verdict(row, fails=fails, excused=excused), alone=step.difference)
            if fails:
                row = replace(row, is_fault=True)
                wrong |= {row.other, *step.copies}
        judged.append(row)
    unsure = wrong | {row.other for row in judged if not row.ok}
    return [_beside_faults(row, wrong, unsure, result, dequantized=dequantized) for row in judged]


def _beside_faults(row: Row, wrong: set[str], unsure: set[str], result: RunnableModel, *, dequantized: bool) -> Row:
    """Return an output that agrees by its operator or by a spread as one that differs, if a fault lies before it."""
    faults = unsure if row.verdict is Verdict.STEPWISE else wrong
    doubtful = dequantized or row.verdict in (Verdict.STEPWISE, Verdict.SPREAD)
    if row.output and doubtful and row.ok and faults & result.before(row.other):
        return replace(row, verdict=Verdict.DIFFERS)
    return row


def _is_in_body(row: Row, step: JudgedValue) -> bool:
    """Tell whether an operator with a body, inside of which nothing is shown, differs by no more than its spread."""
    if row.operator not in WITH_BODIES or row.spread is None or step.leans or step.copies:
        return False
    return step.difference.of(row.kind) <= SPREADS * row.spread.of(row.kind)


def _verdict(row: Row, *, fails: bool, excused: bool) -> Verdict:
    """The verdict on a value whose operator was judged by itself."""
    if fails:
        return Verdict.DIFFERS
    return Verdict.STEPWISE if row.verdict is Verdict.DIFFERS and excused else row.verdict
