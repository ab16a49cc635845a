"""Verdicts on values by what each operator makes of the source's own values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from relayout.verification.compare import Verdict
from relayout.verification.report import Row
from relayout.verification.side import RunnableModel
from relayout.verification.stepwise import JudgedValue


def judged_by_operator(
    rows: Sequence[Row],
    steps: Mapping[str, JudgedValue],
    drawn: frozenset[str],
    result: RunnableModel,
    *,
    dequantized: bool,
) -> list[Row]:
    """Return rows judged once more by what each operator makes of the source's own values.

    An output agrees if its own operator does, and so does every value before it, in one way or the other; but for
    those that lean, though by a step only. Of a float model of integers operators decide alone: what is saturated
    in the source is not there, and what is close in the end need not be right. What is drawn at random is as the
    source drew it for all that follows.

    Args:
        rows: as values were judged as a whole.
        steps: value of the source -> what its operator was found to do.
        drawn: values of the source that are drawn at random.
        result: the second model.
        dequantized: whether floats stand for integers.
    """
    judged, wrong = [], set()
    for row in rows:
        step = steps.get(row.source)
        if row.source in drawn and row.difference is not None:
            row = replace(row, verdict=Verdict.STEPWISE)
        elif step is not None and (row.verdict is Verdict.DIFFERS or step.leans or step.copies or dequantized):
            verdict = Verdict.DIFFERS if step.fails else row.verdict if row.ok else Verdict.STEPWISE
            row = replace(row, verdict=verdict, alone=step.difference)
            wrong |= {row.other, *step.copies} if step.fails else set()
        judged.append(row)
    unsure = wrong | {row.other for row in judged if not row.ok}
    for place, row in enumerate(judged):
        faults = unsure if row.verdict is Verdict.STEPWISE else wrong if dequantized else set()
        if row.output and row.ok and faults & result.before(row.other):
            judged[place] = replace(row, verdict=Verdict.DIFFERS)
    return judged
