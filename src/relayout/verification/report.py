"""What verification found, as values; `relayout.verification.report` shows it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from relayout.terminal import Grid, Line, ShortNames, as_text, count_of, line
from relayout.verification.compare import Difference, Kind, Verdict, wider

if TYPE_CHECKING:
    from rich.console import RenderableType

    from relayout.verification.quantization import QuantizationLoss


DIFFERENCES = ("difference", "spread", "alone", "kernels")  # fields of a row that say how far arrays are apart
OTHER_NAMES_OF_OK = ("passed", "success", "agrees")  # names that people try for `VerifyReport.ok`


@dataclass(frozen=True)
class Row:
    """One value, compared."""

    name: str  # what people call the value that both hold: by the source's signature, where that has a name for it
    source: str  # its name in the first model, the source, if that is another
    other: str  # the name of its counterpart
    output: bool  # whether it is an output of the graph; these alone decide
    dtype: str  # its element type in the source
    shape: tuple[int, ...]  # its shape in the source, as run
    kind: Kind  # what its numbers are
    verdict: Verdict  # what was found
    difference: Difference | None  # how far the two are apart; None if they cannot be compared
    # how far the source's runtime is from itself here; None if that was not asked, for nothing was far
    spread: Difference | None
    operator: str  # the operator of the source that makes it; empty for an input that is an output
    node: str  # which one: index of the operator, or name of the node
    other_operator: str  # the operator that makes its counterpart
    other_node: str  # which one
    order: int  # the place of its operator in the source's topological order
    # how far apart the two are where both are made of the source's values; None if that was not asked
    alone: Difference | None = None
    # the batch that it was compared at, which its name says, too; None where it is the source's
    batch: int | None = None
    # of an output in a `.tflite`: how far apart LiteRT's default and reference kernels are
    kernels: Difference | None = None
    agreement: float | None = None  # of class scores: the share of rows that have the same best class
    # whether an inner value fails the whole: its operator is wrong, or it is a hundred bounds off
    is_fault: bool = False

    def __repr__(self) -> str:
        """One line: the value, its type and what was found."""
        operator_text = f" of {self.operator}" if self.operator else ""
        return f"<Row: {self.name!r}{operator_text}, {self.dtype}{list(self.shape)}: {self.verdict.word}>"

    @property
    def ok(self) -> bool:
        """True if the two values agree."""
        return self.verdict.passes

    @property
    def lsb(self) -> int | None:
        """The largest difference of quantized integers, in steps."""
        return int(self.difference.max_abs) if self.difference and self.kind is Kind.STEPS else None

    @property
    def excess(self) -> float:
        """The severity, to sort by: the number that counts for the kind, as a part of the largest possible."""
        if self.difference is None:
            return math.inf
        return self.difference.of(self.kind) / (256 if self.kind is Kind.STEPS else 1)

    def worst(self, other: Row) -> Row:
        """Return the row for two runs, this and another."""
        worse = max(self, other, key=lambda row: (row.verdict.rank, row.excess))
        differences: dict[str, Any] = {name: wider(getattr(self, name), getattr(other, name)) for name in DIFFERENCES}
        agreements = [row.agreement for row in (self, other) if row.agreement is not None]
        is_fault = self.is_fault or other.is_fault
        return replace(worse, **differences, agreement=min(agreements, default=None), is_fault=is_fault)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **{k: v for k, v in asdict(self).items() if k not in ("kind", "verdict", "shape")},
            "kind": self.kind.value,
            "verdict": self.verdict.word,
            "reason": self.verdict.value,
            "shape": list(self.shape),
            **{name: _plain(getattr(self, name)) for name in DIFFERENCES},
            "lsb": self.lsb,
        }


@dataclass(frozen=True)
class Fed:
    """The feed of one input: `how` is `given` or `random`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    how: str


@dataclass(frozen=True)
class VerifyReport:
    """The report on whether two models compute the same, and if not, where they part.

    Args:
        a: the source.
        b: what is held against it.
        rows: every value compared, in the source's topological order.
        inputs: what was fed.
        unmatched: how many interior values of the source have no counterpart (fused, folded, or renamed).
        seed: of the random inputs, as asked.
        runs: how many inputs were tried.
        rtol: the relative bound, as asked.
        atol: the absolute bound, as asked.
        runtimes: names and versions of what ran the models.
        notes: what else a reader should know.
        batches: where the second model's batch was opened: those that it ran with.
        loss: what quantization cost, where the second model is the first with less precision: there are no rows then.
    """

    a: str
    b: str
    rows: tuple[Row, ...]
    inputs: tuple[Fed, ...]
    unmatched: int
    seed: int
    runs: int
    rtol: float
    atol: float
    runtimes: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    loss: QuantizationLoss | None = None

    if not TYPE_CHECKING:  # a type checker would take it for any attribute

        def __getattr__(self, name: str) -> Any:
            """Name the attribute that there is for what others call it."""
            advice = ": .ok tells whether the outputs agree" if name in OTHER_NAMES_OF_OK else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    @property
    def ok(self) -> bool:
        """Tell whether all outputs of the graph agree and no inner value is a fault; not where nothing was compared."""
        if self.loss is not None:
            return self.loss.ok
        return self.is_compared and all(row.ok for row in self.outputs) and not self.faults

    @property
    def is_compared(self) -> bool:
        """Tell whether there is a verdict: every output was compared, or one of those that were differs."""
        if self.loss is not None:
            return bool(self.loss.outputs)
        compared = [row for row in self.outputs if row.verdict is not Verdict.NOT_COMPARED]
        return bool(compared) and (len(compared) == len(self.outputs) or not all(row.ok for row in compared))

    @property
    def faults(self) -> tuple[Row, ...]:
        """Inner values that are wrong by themselves, or a hundred bounds off, whatever the outputs make of that."""
        return tuple(row for row in self.interiors if row.is_fault)

    @property
    def outputs(self) -> tuple[Row, ...]:
        """The graph's outputs."""
        return tuple(row for row in self.rows if row.output)

    @property
    def interiors(self) -> tuple[Row, ...]:
        """All other values that were compared."""
        return tuple(row for row in self.rows if not row.output)

    @property
    def first(self) -> Row | None:
        """The first value, in the source's order, that diverges: where to look."""
        differing = [row for row in self.rows if not row.ok and row.verdict is not Verdict.NOT_COMPARED]
        return next((row for row in differing if row.is_fault), differing[0] if differing else None)

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> how many values, best verdict first."""
        counted = Counter(row.verdict for row in self.rows)
        return {verdict.value: counted[verdict] for verdict in Verdict if counted[verdict]}

    @property
    def tolerance(self) -> str:
        """The tolerance that outputs were held to, in words."""
        kinds = {row.kind for row in self.outputs}
        verdicts = {row.verdict for row in self.outputs}
        reals = [row for row in self.outputs if row.kind is Kind.REAL and row.verdict in (Verdict.EQUAL, Verdict.CLOSE)]
        by_step = [row for row in reals if row.difference is not None and row.difference.max_rel > 2 * self.rtol]
        said = [f"{self.rtol:g} of the largest value"] if len(by_step) < len(reals) else []
        said += ["one step"] if Kind.STEPS in kinds else []
        said += ["one step of the integers that they stand for"] if by_step else []
        said += ["the source's own rounding"] if Verdict.SPREAD in verdicts else []
        said += ["one rounding of each operator on the source's values"] if Verdict.STEPWISE in verdicts else []
        return ", or ".join(said) if said else "no difference at all"

    @property
    def disagreement(self) -> str:
        """A sentence on how far the source is from itself with its runtime's other kernels, if beyond tolerance."""
        spread_rows = [row for row in self.outputs if row.spread is not None and row.kind is Kind.REAL]
        worst = max((row.spread.max_rel for row in spread_rows if row.spread is not None), default=0.0)
        if not spread_rows or worst <= 100 * self.rtol:
            return ""
        runtime = self.runtimes[0][0] if self.runtimes else "its runtime"
        share = percent(worst)
        return (
            f"the source disagrees with itself: two sets of kernels of {runtime} are {share} of the largest value apart"
            " on this input; feed a real one with --input NAME=FILE.npy"
        )

    @property
    def verdict(self) -> str:
        """The result in one line."""
        if self.loss is not None:
            return f"{self.loss.verdict} ({self.b} against {self.a})"
        if self.ok:
            count = len({row.name.removesuffix(f" at batch {row.batch}") for row in self.outputs})
            agree = "1 output agrees" if count == 1 else f"{count} outputs agree"
            return f"PASSED: {agree}{self._at_batches} within {self.tolerance} ({self.b} against {self.a})"
        if not self.outputs:
            return f"NOT COMPARED: no output of {self.b} has a counterpart in {self.a}"
        if not self.is_compared:
            names = ", ".join(f"'{row.name}'" for row in self.outputs if row.verdict is Verdict.NOT_COMPARED)
            return f"NOT COMPARED: {names} ({self.b} against {self.a})"
        bad = [row for row in self.outputs if not row.ok and row.verdict is not Verdict.NOT_COMPARED]
        first = self.first or bad[0]
        producer = f", made by {first.operator} {first.node}".rstrip() if first.operator else ""
        if not bad:
            return f"FAILED: inner value '{first.name}'{producer} differs, though no output shows it on these inputs"
        fault = "is missing" if bad[0].verdict is Verdict.MISSING else bad[0].verdict.value
        return f"FAILED: output '{bad[0].name}' {fault}; the first to diverge is '{first.name}'{producer}"

    @property
    def _at_batches(self) -> str:
        """The batches that ran, in words; empty where no batch was opened."""
        *others, last = map(str, self.batches or ("",))
        listed = f"{', '.join(others)} and {last}" if others else last
        return f" at {'batches' if others else 'batch'} {listed}" if last else ""

    def __repr__(self) -> str:
        """One line, also where a notebook shows it: every value has a row."""
        return f"<VerifyReport: {self.verdict}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from relayout.terminal import as_html

        return as_html(*render(self))

    def __str__(self) -> str:
        """Return the text that a terminal shows."""
        return text(self)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: infinities and NaN are null."""
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "a": self.a,
            "b": self.b,
            "first": self.first.to_dict() if self.first else None,
            "counts": self.counts,
            "unmatched": self.unmatched,
            "rows": [row.to_dict() for row in self.rows],
            "inputs": [{**asdict(fed), "shape": list(fed.shape)} for fed in self.inputs],
            "seed": self.seed,
            "runs": self.runs,
            "rtol": self.rtol,
            "atol": self.atol,
            "runtimes": dict(self.runtimes),
            "notes": list(self.notes),
            "batches": list(self.batches),
            "quantization": None if self.loss is None else self.loss.to_dict(),
        }


def percent(share: float) -> str:
    """Return a share in percent with two digits, and from 10 % on as a whole number: `0.25 %`, `100 %`."""
    return f"{100 * share:{'.2g' if share < 0.1 else ',.0f'}} %"


def _plain(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in asdict(difference).items()
    }


# A verification report for the terminal: outputs; where they fail, the worst interior values and where they part.

WIDTH = 88  # columns where there is no terminal to ask

NAME_WIDTH = 26  # columns of a name in a table; a longer one takes several lines

SENTENCE_WIDTH = 60  # characters of a name in a sentence

STEPWISE = (  # the line under the table that explains the verdict
    f"{Verdict.STEPWISE}: farther off as a whole, but its operator agrees on the source's own values, and so does each"
    " before it"
)

WORST = 8  # how many interior values are listed


def render(report: VerifyReport) -> list[Line | Grid]:
    """Return the paragraphs and tables of a report."""
    parts: list[Line | Grid] = [line((report.verdict, "bold green" if report.ok else "bold red"))]
    if report.loss is not None:
        return [*parts, *report.loss.render(), *_foot(report)]
    if report.disagreement:
        parts.insert(0, line((report.disagreement, "yellow")))
    short = ShortNames((row.name for row in report.rows), NAME_WIDTH - 2)
    parts.append(_table("outputs", report.outputs, short))
    worst = sorted(
        (row for row in report.interiors if row.difference is None or row.excess),
        key=lambda row: (-row.verdict.rank, -row.excess),
    )[:WORST]
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
    parts.append(line((f"tensors compared: {counts}{unmatched}", "dim")))
    return [*parts, *_foot(report)]


def _foot(report: VerifyReport) -> list[Line | Grid]:
    """Tell what was fed, by what it was run, and the notes."""
    fed = ", ".join(f"{i.name} {i.dtype}{list(i.shape)} {i.how}" for i in report.inputs) or "nothing"
    runtimes = ", ".join(f"{name} {version}" for name, version in report.runtimes)
    runs = count_of(report.runs, "run")
    ran = line((f"fed: {fed}; seed {report.seed}, {runs}; {runtimes}", "dim"))
    return [ran, *(line((f"note: {note}", "dim")) for note in report.notes)]


def _counted(report: VerifyReport) -> Iterator[str]:
    """Count the values of each verdict. If outputs agree, inner values that do not are told by their distance."""
    for verdict, count in report.counts.items():
        if verdict != Verdict.DIFFERS.value or not report.ok:
            yield f"{count} {_for_several(verdict) if count > 1 else verdict}"
            continue
        differing_rows = [row for row in report.interiors if row.verdict is Verdict.DIFFERS]
        reals = [
            row.difference.max_rel for row in differing_rows if row.difference is not None and row.kind is Kind.REAL
        ]
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
    """Return the same without colours, in lines of up to `WIDTH` columns."""
    return as_text(*render(report), width=WIDTH)


HEADINGS = ("value", "made by", "type", "off by", "spread", "verdict")
NUMBERS = frozenset(("off by", "spread"))  # Headings of columns that are never wrapped


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
    """Return the number that counts: relative error, LSB, or share of elements."""
    if difference is None:
        return ""
    if difference.share == 0:
        return "0"
    number = difference.of(kind)
    return {Kind.REAL: f"{number:.1e}", Kind.STEPS: f"{number:.0f} LSB", Kind.EXACT: f"{100 * number:.3g} %"}[kind]


def _where(row: Row, report: VerifyReport) -> str:
    node = f"{row.operator} {row.node}".strip() or "an input"
    other = f"{row.other_operator} {row.other_node}".strip() or "nothing"
    before = sum(each.order < row.order for each in report.rows)
    several = f"the {before:,} tensors compared before it agree"
    agreed = {0: "no tensor before it was compared", 1: "the tensor compared before it agrees"}.get(before, several)
    name = ShortNames((each.name for each in report.rows), SENTENCE_WIDTH)(row.name)
    others = [text for each in report.rows for text in (each.other, f"{each.other_operator} {each.other_node}")]
    short = ShortNames(others, SENTENCE_WIDTH)
    return f"first divergence: '{name}', made by {node}, against '{short(row.other)}', made by {short(other)}; {agreed}"
