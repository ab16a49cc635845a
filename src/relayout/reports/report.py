"""The report of a conversion: Transposes and bytes before, after and at least, layouts, and the reason for each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx_ir as ir

from relayout.graph.source_names import known_as
from relayout.graph.subgraphs import all_graphs
from relayout.infer.formulation import size_of
from relayout.infer.plans import Crossing, Plan
from relayout.infer.sites import Form
from relayout.infer.stored_orders import placed
from relayout.infer.strided_copies import is_scattered
from relayout.layout import Extent
from relayout.layout.perm import between, is_identity
from relayout.light_dataclass import plain
from relayout.reports.drawing import Drawing
from relayout.reports.layouts import Axes
from relayout.terminal import count_of

if TYPE_CHECKING:
    from relayout.infer.plans import Relaxed
    from relayout.partition.claims import Claims
    from relayout.quantization.findings import QuantizationSummary
    from relayout.reports import inspection
    from relayout.reports.chart import Chart
    from relayout.reports.reasons import Cause


UNKNOWN = "unknown"  # in the place of a shape of which not even the rank is known

DROPPED = "some candidate layouts were left out: the bound holds for the others"
"""What a report notes where there are more orders than the cap on candidates."""


class Transposed(NamedTuple):
    """A Transpose that remains at run time."""

    tensor: str  # the value that is transposed, by the name that the source has for it
    shape: tuple[int | str, ...]  # its shape before
    layout: str  # stored order before and after, in einops' notation
    bytes: int  # what it moves in one inference, in all its steps
    producer: str  # the operator that gives the value in the first order
    readers: tuple[str, ...]  # the operators that want the second
    # pairs of demands that these bytes separate: which operator must be in which order, and which other in another;
    # read off the certificate, heaviest first, their bytes sum to these
    causes: "tuple[Cause, ...]"
    reason: str  # the causes for people
    axes: tuple[tuple[str, int | str], ...] = ()  # the axes in `layout` with their extents
    factors: tuple[int | str, ...] = ()  # the bytes as a product: a number, and open extents


class Interface(NamedTuple):
    """An input or output of the result: its layout in einops' notation, `n h w c -> n c h w` where it changed.

    `scale` and `zero_point` say what integers of 8 bits mean; None for other ends.
    """

    kind: str
    name: str
    dtype: str
    shape: tuple[int | str, ...]
    layout: str
    scale: float | None = None
    zero_point: int | None = None


def integers_in_words(ends: "Iterable[Interface | inspection.End]") -> list[str]:
    """Return a line for each input and output of quantized integers: `image: int8 = round(x / 0.0039) - 128`."""
    lines = []
    for end in ends:
        if end.scale is not None and end.zero_point is not None:
            sign, distance = "+" if end.zero_point > 0 else "-", abs(end.zero_point)
            shift = f" {sign} {distance}" if distance else ""
            lines.append(f"{end.name}: {end.dtype.removesuffix(' q')} = round(x / {end.scale:.6g}){shift}")
    return lines


class Remaining:
    """The Transposes that remain, each with its reason, found when they are first looked at.

    What the graph calls their values is noted before the plan is applied to it.

    Args:
        plan: the plan.
        axes: names of axes.
    """

    def __init__(self, plan: Plan, axes: Axes) -> None:
        self._plan, self._axes, self._share = plan, axes, 1
        self._names = [known_as(crossing.root.value) for crossing in plan.crossings]

    @cached_property
    def rows(self) -> tuple[Transposed, ...]:
        """The Transposes, in the order of the graph."""
        rows = tuple(_remaining(self._plan, self._axes, self._names, self._share))
        del self._plan, self._axes  # as large as the model
        return rows

    def divided(self, share: int) -> "Remaining":
        """Return the same with so many bytes of the plan as one, as where a quantizer makes integers of floats.

        Nobody may have looked at it yet.
        """
        other = copy(self)
        other._share = share
        return other

    def reasons(self) -> list[str]:
        """For each why it remains."""
        return [row.reason for row in self.rows]


def _remaining(plan: Plan, axes: Axes, names: Sequence[str], share: int) -> Iterator[Transposed]:
    from relayout.reports.reasons import causes, sentence

    for crossing, whole, name in zip(plan.crossings, causes(plan, axes), names, strict=True):
        scaled_causes = tuple(cause._replace(bytes=cause.bytes // share) for cause in whole)
        yield Transposed(
            name,
            tuple(_extent(piece.extent) for piece in crossing.root.dims),
            " -> ".join(axes.orders(crossing.root, crossing.producer_order, crossing.order)),
            crossing.size // share,
            crossing.producer.name,
            tuple(dict.fromkeys(site.name for site in crossing.readers)),
            scaled_causes,
            sentence(scaled_causes),
            tuple(
                (name, _extent(e)) for name, e in axes.extents(crossing.root, crossing.producer_order, crossing.order)
            ),
            _factors(plan, crossing, share),
        )


def _factors(plan: Plan, crossing: Crossing, share: int) -> tuple[int | str, ...]:
    """Return the bytes of a Transpose as a product; an extent without a name counts as at least 1 in its price."""
    symbols = [symbol for piece in crossing.root.dims for symbol in piece.extent.symbols]
    priced = size_of(crossing.root, plan.sites.at, plan.sites.likely)
    number = crossing.size * size_of(crossing.root, {}) // priced if priced else 0
    return number // share, *(f"({symbol})" if "+" in symbol or " - " in symbol else symbol for symbol in symbols)


@dataclass(frozen=True)
class Report:
    """The account of a conversion: what it did, and what is proved of it.

    Args:
        operators: operator -> how many in the result; of a `.tflite`, its own operators.
        source_transposes: Transposes of the source graph that move data (a literal import's own included).
        source_bytes: bytes they move in one inference; a dynamic dimension counts as 1.
        transposes: Transposes in the result that move data.
        bytes: bytes they move.
        lower_bound: bytes below which no choice of orders can go; where prices count, what they leave of the proof.
        proved: the independent checker agreed that `bytes` equals the lower bound.
        remains: what finds `remaining`.
        interface: inputs and outputs with their layouts.
        barriers: operators that keep the source's order, with the reason -> how many.
        what_if: operators and ends of the interface that are fixed, with the bytes that each costs alone.
        notes: what else a reader should know (a cap that was reached, a time limit).
        claims: what the target runs, and why not the rest; None without a target that has a table.
        hint: what to ask for to get a better result; empty where nothing is known.
        at: dynamic dimension -> the extent that bytes are counted with; any other counts as 1.
        per_transpose: bytes that each Transpose counted as besides those that it moves.
        at_most: Transposes that a plan could have, where one with more than the source's would move fewer bytes.
        scattered_at_most: bytes that a plan could take element by element, likewise.
        in_functions: Transposes in the bodies of the functions that layouts are written as, or that were written out: a
            backend with kernels for them has none; not among `transposes`.
        min_runtime: of a `.tflite`, the oldest release of TensorFlow Lite or LiteRT that has all its operators.
        quantization: what became of a `.tflite` that was quantized; None of any other.
        seconds: stage -> wall time.
        drawing: how `chart` is made.
    """

    operators: dict[str, int]
    source_transposes: int
    source_bytes: int
    transposes: int
    bytes: int
    lower_bound: int
    proved: bool
    remains: Remaining = field(repr=False, compare=False)
    interface: tuple[Interface, ...]
    barriers: dict[str, int]
    what_if: "tuple[Relaxed, ...]" = ()
    notes: tuple[str, ...] = ()
    claims: "Claims | None" = None
    hint: str = ""
    at: dict[str, int] = field(default_factory=dict)
    per_transpose: int = 0
    at_most: int | None = None
    scattered_at_most: int | None = None
    in_functions: int = 0
    min_runtime: str = ""
    quantization: "QuantizationSummary | None" = None
    seconds: dict[str, float] = field(default_factory=dict)
    drawing: Drawing = field(default_factory=Drawing, repr=False, compare=False)

    @property
    def remaining(self) -> tuple[Transposed, ...]:
        """Each remaining Transpose with its reason."""
        return self.remains.rows

    @property
    def chart(self) -> "Chart":
        """Operators, the layout of every value, Transposes and regions, before and after."""
        return self.drawing.chart

    @property
    def verdict(self) -> str:
        """The statement about the result that was checked, and no more."""
        limits = ((self.at_most, "Transposes"), (self.scattered_at_most, "bytes taken element by element"))
        most = [f"{count:,} {what}" for count, what in limits if count is not None]
        each = f" with {' and '.join(most)} at most" if most else priced(self.per_transpose if self.transposes else 0)
        if self.proved:
            return f"proved minimal{each}"
        if self.bytes == self.lower_bound:
            return f"minimal according to the solver{each}"
        return f"not proved: at most {self.bytes - self.lower_bound} bytes above the least{each}"

    def __repr__(self) -> str:
        """One line: `print` shows all of it."""
        moved = f"{self.source_bytes:,} -> {self.bytes:,} bytes"
        return f"<Report: {self.source_transposes} -> {self.transposes} Transposes, {moved}, {self.verdict}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from relayout.reports.tables import html

        return html(self)

    def __str__(self) -> str:
        """Return the text that a terminal shows."""
        from relayout.reports.tables import text

        return text(self)

    def to_dict(self) -> dict[str, Any]:
        """For machines: JSON types only."""
        shown = (
            "remaining" if each.name == "remains" else each.name for each in fields(self) if each.name != "drawing"
        )
        values = {name: getattr(self, name) for name in shown}
        return dict(plain(values | {"chart": self.chart, "verdict": self.verdict}))


def priced(per_transpose: int, per_scattered: int = 0) -> str:
    """Return the words that a verdict adds where more than the bytes that are moved has a price."""
    pairs = (per_transpose, "Transpose"), (per_scattered, "byte taken element by element")
    prices = [f"{count_of(price, 'byte')} for each {what}" for price, what in pairs if price]
    return f" with {' and '.join(prices)}" if prices else ""


def report(plan: Plan, axes: Axes, *, relaxed: "Sequence[Relaxed]" = ()) -> Report:
    """Return the report of a plan, before it is applied."""
    notes, remains = [], Remaining(plan, axes)
    if plan.formulation.capped:
        notes.append(DROPPED)
    if not plan.solution.finished:
        notes.append("a limit stopped the solver: --time-limit, or the limit of work for a proof")
    barriers = Counter(site.reason for site in plan.sites.sites if site.reason)
    return Report(
        {},
        plan.source_count,
        plan.source_size,
        len(plan.crossings),
        plan.size,
        plan.bound,
        plan.proved,
        remains,
        tuple(_interface(plan, axes)),
        dict(sorted(barriers.items())),
        tuple(relaxed),
        tuple(notes),
        per_transpose=plan.sites.per_transpose,
        drawing=Drawing(plan, axes, remains.reasons),
    )


def operators(model: ir.Model) -> dict[str, int]:
    """Operator -> how many, most frequent first."""
    return frequencies(f"{node.domain}:{node.op_type}" if node.domain else node.op_type for node in model.graph)


def frequencies(names: Iterable[str]) -> dict[str, int]:
    """Return name -> how many, the most frequent first."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _extent(extent: Extent) -> int | str:
    return extent.number if extent.is_static else str(extent)


def _interface(plan: Plan, axes: Axes) -> Iterator[Interface]:
    for site, label in zip(plan.sites.sites, plan.labels, strict=True):
        if site.kind not in ("input", "output"):
            continue
        (port,) = site.ports
        root = port.view.root
        form = placed(site, label, port).form
        value = root.value if site.kind == "input" else plan.sites.graph.outputs[port.slot]
        layout = axes.form(root, port.view.form)
        if form != port.view.form and not is_identity(between(_numbered(port.view.form), _numbered(form))):
            layout = f"{layout} -> {axes.form(root, form)}"
        shape = tuple(map(_extent, root.shape(form)))
        if value.shape is None:
            shape, layout = (UNKNOWN,), ""
        yield Interface(site.kind, value.name or "", str(value.dtype).lower(), shape, layout)


def _numbered(form: Form) -> list[object]:
    ones = iter(range(len(form)))
    return [dim or f"one {next(ones)}" for dim in form]


# Sentences of a report about what readers would not expect: constants that grew, what was left out, other plans.

MOST_GROWN = 1 << 16  # bytes by which constants may grow without a word
MOST_SCATTERED = 1 << 16  # bytes by which Transposes of single elements may move more than the source's without a word


def constants(model: ir.Model) -> int:
    """Return the bytes of all initializers."""
    tensors = (value.const_value for graph in all_graphs(model.graph) for value in graph.initializers.values())
    return sum(
        sum(map(len, tensor.numpy().ravel())) if tensor.dtype == ir.DataType.STRING else tensor.nbytes
        for tensor in tensors
        if tensor is not None
    )


def grown(before: int, after: int) -> tuple[str, ...]:
    """Return the note on constants that grew, if they grew by more than a tenth and 64 KiB."""
    if after - before < MOST_GROWN or 10 * after < 11 * before:
        return ()
    return (f"constants take {after:,} bytes, {before:,} before: some are stored in more than one order, or padded",)


def unsaid(names: Sequence[str]) -> tuple[str, ...]:
    """Return the note on quantization annotations that fit no value of the result."""
    if not names:
        return ()
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (f"left out: the quantization annotation of {names[0]}{more}, which fits no value of the result",)


def left_out(plan: Plan) -> tuple[str, ...]:
    """Say how many of the source's nodes are not in the result, since no output needs them."""
    count = len(plan.sites.unneeded)
    return (f"left out: {count} {'node' if count == 1 else 'nodes'} that no output needs",) if count else ()


def scattered(plan: Plan) -> tuple[str, ...]:
    """Return the note on Transposes that copy single elements, if they move more bytes than the source's.

    ONNX Runtime's kernel takes about ten times as long for these as for runs.
    """
    sizes = [each.size for each in plan.crossings if is_scattered(each.root, each.producer_order, each.order)]
    if sum(sizes) <= MOST_SCATTERED or plan.scattered - plan.source_scattered <= MOST_SCATTERED:
        return ()
    each = f"{len(sizes)} Transpose{'s copy' if len(sizes) > 1 else ' copies'}"
    return (
        f"{each} single elements or short runs ({sum(sizes):,} bytes): ONNX Runtime's CPU is faster with two that copy"
        " long runs, as --target onnxruntime-cpu writes them",
    )


FOR_SOME = "another plan moves more than the source does for some open extents"
"""How the note begins of a plan that is in question where it is known what open extents are."""


def no_worse(
    report: Report,
    decided: Plan,  # its plan
    fewest: Plan,  # the plan that moves fewer bytes
) -> Report:
    """Return the report of a plan that is in no way worse than the source, where one that moves fewer bytes is."""
    pairs = (
        ("more Transposes", len(fewest.crossings), fewest.source_count),
        ("more copies of single elements", fewest.scattered, fewest.source_scattered),
    )
    what = " and ".join(text for text, takes, most in pairs if takes > most)
    alternative = f"{fewest.size:,} in {len(fewest.crossings)} (--per-transpose 0)"
    return replace(
        report,
        at_most=len(decided.crossings) if decided.sites.per_transpose else None,
        scattered_at_most=decided.scattered if decided.sites.per_scattered else None,
        notes=(*report.notes, f"fewer bytes take {what} than the source has: {alternative}"),
    )


def at_any_extent(report: Report, decided: Plan, fewer: Plan) -> Report:
    """Return the report of a plan that moves no more than the source in any run, where another one moves fewer bytes.

    Args:
        report: the report.
        decided: its plan.
        fewer: the plan that moves no more bytes where open extents count as 1, and more than the source in some run.
    """
    if fewer.size == decided.size:
        return report
    note = f"{FOR_SOME}, and {fewer.size:,} bytes if each counts as 1; fix them with --dim"
    return replace(report, notes=(*report.notes, note))


def unstated(names: Sequence[str]) -> str:
    """Return the note on values whose stated type or shape is not the one that their operators give."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the operator gives another type or shape than the source states: {names[0]}{more}"
