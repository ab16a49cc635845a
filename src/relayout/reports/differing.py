"""Two models side by side: which operators both have, in what these differ, and where only one has any.

Constants are not compared: whether two models compute the same is what `verify` finds out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import Any

import onnx
import onnx_ir as ir

from relayout.errors import printable
from relayout.light_dataclass import dataclass, plain
from relayout.reports.chart import Chart, Edge, Mark, Region, Side, Spot, Stored
from relayout.reports.layouts import layout_name
from relayout.terminal import ShortNames, count_of

ENDS = ("input", "output")  # inputs and outputs in the chart, where other entries have an operator's name
MOST = 4_000  # operators without a namesake up to which the order of the rest is aligned; that takes their product


@dataclass(frozen=True)
class Looked:
    """One of two models."""

    name: str  # what to call it
    chart: Chart  # of a plan for it; its side `before` is the model as it is
    # operator, by its name or that of its first output -> its attributes, as text
    attributes: Mapping[str, Mapping[str, str]]
    # of a `.tflite`, the TRANSPOSE operators in the file; a literal import has more around convolutions
    own: int | None = None


@dataclass(frozen=True)
class Changed:
    """An operator that both have, and in what it differs: `pads (0, 0) -> (1, 1)`."""

    spot: int
    what: tuple[str, ...]


@dataclass(frozen=True)
class Diff:
    """The parts that two models have in common, and the others."""

    first: str  # what the first is called
    second: str  # what the second is called
    # operators and values of both; `before` is the first model, `after` the second. Of a value that both have, `layout`
    # is the first's and `stored` the second's.
    chart: Chart
    only_first: tuple[int, ...]  # operators (indices of `chart.spots`) that the second lacks
    only_second: tuple[int, ...]  # operators that the first lacks
    changed: tuple[Changed, ...]  # operators that both have and that differ
    # of each that is a `.tflite`, the TRANSPOSE operators in the file; None for ONNX
    own: tuple[int | None, int | None] = (None, None)

    @property
    def both(self) -> int:
        """The number of operators that both models have."""
        return len(self.chart.spots) - len(self.only_first) - len(self.only_second)

    def __repr__(self) -> str:
        """One line, also where a notebook shows it: every operator is in it."""
        only = f"only the first has {len(self.only_first)}, only the second {len(self.only_second)}"
        return f"<Diff: both have {self.both} operators, of which {len(self.changed)} differ; {only}>"

    def html(self) -> str:
        """Both side by side as one page without requests."""
        from relayout.reports.page import diff_page

        return diff_page(self)

    def to_dict(self) -> dict[str, Any]:
        """For machines: JSON types only."""
        return dict(plain(self))

    def __str__(self) -> str:
        """Return the text that a terminal shows."""
        return "\n".join(map(printable, self.lines()))

    def lines(self, most: int = 40) -> Iterator[str]:
        """Yield the differences in lines, up to so many of a kind."""
        sides = (self.first, self.chart.before), (self.second, self.chart.after)
        for (name, side), own in zip(sides, self.own, strict=True):
            size = sum(mark.bytes for mark in side.transposes)
            count = len(side.transposes)
            moved = f"{size:,} bytes per inference"
            if own is None:
                yield f"{name}: {count_of(count, 'Transpose')}, {moved}"
            else:
                literally = f"translated to ONNX operator by operator it has {count}, {moved}"
                yield f"{name}: {count_of(own, 'Transpose')} in the file; {literally}"
        differ = f"{len(self.changed)} of them differ{'s' if len(self.changed) == 1 else ''}"
        yield f"both have {self.both} operators, inputs and outputs; {differ}"
        operators = [f"{spot.operator} {spot.name}" for spot in self.chart.spots]
        short = ShortNames(operators)
        for item in self.changed[:most]:
            yield f"  {short(operators[item.spot])}: {', '.join(item.what)}"
        yield from _more(len(self.changed), most)
        for name, only in ((self.first, self.only_first), (self.second, self.only_second)):
            if only:
                yield f"only {name} has {len(only)}"
                yield from (f"  {short(operators[spot])}" for spot in only[:most])
                yield from _more(len(only), most)


def _more(count: int, most: int) -> Iterator[str]:
    if count > most:
        yield f"  … {count - most} more (--json lists all)"


def attributes_of(graph: ir.Graph) -> dict[str, dict[str, str]]:
    """Operator -> its attributes as text, defaults of the standard among them, subgraphs left out."""
    versions = graph.opset_imports
    return {
        node.name or node.outputs[0].name or "": _defaults(node.domain, node.op_type, versions.get(node.domain, 1))
        | {
            attribute.name: _written(attribute)
            for attribute in node.attributes.values()
            if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) and not attribute.is_ref()
        }
        for node in graph
        if node.outputs
    }


@cache
def _defaults(domain: str, op_type: str, version: int) -> dict[str, str]:
    if not onnx.defs.has(op_type, domain=domain, max_inclusive_version=version):
        return {}
    schema = onnx.defs.get_schema(op_type, version, domain)
    defaults = {
        name: attribute.default_value for name, attribute in schema.attributes.items() if attribute.default_value
    }
    return {name: _written(ir.serde.deserialize_attribute(value)) for name, value in defaults.items() if value.type}


def _written(attribute: ir.Attr) -> str:
    value = attribute.value
    if attribute.type == ir.AttributeType.FLOAT:
        return f"{value:g}"
    if attribute.type == ir.AttributeType.TENSOR:
        return f"{value.dtype.name.lower()} {list(value.shape.numpy())}"
    return str(list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else value)


def diff(a: Looked, b: Looked) -> Diff:
    """Return what two models have in common and where they differ."""
    return _Joined(a, b).run()


class _Joined:
    def __init__(self, a: Looked, b: Looked) -> None:
        self.a, self.b = a, b
        self.pairs = matched(a.chart, b.chart)
        self.spots: list[Spot] = list(a.chart.spots)
        self.values: list[Stored] = list(a.chart.values)
        self.spot: dict[int, int] = {theirs: mine for mine, theirs in self.pairs.items()}
        self.value: dict[int, int] = {}

    def run(self) -> Diff:
        first = self.a.chart.before
        self.values = [value._replace(stored=value.layout, others=()) for value in self.values]
        for mine, theirs in self.pairs.items():
            self.value.update(zip(self.b.chart.spots[theirs].outputs, self.a.chart.spots[mine].outputs, strict=False))
        for number, value in enumerate(self.b.chart.values):
            known = self.value.setdefault(number, len(self.values))
            if known < len(self.values):
                self.values[known] = self.values[known]._replace(stored=value.layout)
            else:
                self.values.append(value._replace(stored=value.layout, others=()))
        changed = [Changed(mine, what) for mine, theirs in self.pairs.items() if (what := self._what(mine, theirs))]
        for number, spot in enumerate(self.b.chart.spots):
            if number not in self.spot:
                self.spot[number] = len(self.spots)
                self.spots.append(spot._replace(outputs=tuple(self.value[value] for value in spot.outputs)))
        count = len(self.a.chart.spots)
        return Diff(
            self.a.name,
            self.b.name,
            Chart(tuple(self.spots), tuple(self.values), first, self._side(self.b.chart.before)),
            tuple(spot for spot in range(count) if spot not in self.pairs),
            tuple(range(count, len(self.spots))),
            tuple(changed),
            (self.a.own, self.b.own),
        )

    def _side(self, side: Side) -> Side:
        """Return the second model's side, in the numbers of both."""
        spot, value = self.spot, self.value
        return Side(
            tuple(Edge(value[e.value], spot[e.producer], spot[e.reader], e.through) for e in side.edges),
            tuple(Mark(value[m.value], m.layout, m.bytes, m.reason) for m in side.transposes),
            tuple(Region(r.layout, tuple(spot[inside] for inside in r.spots), r.bytes) for r in side.regions),
        )

    def _what(self, mine: int, theirs: int) -> tuple[str, ...]:
        left, right = self.a.chart.spots[mine], self.b.chart.spots[theirs]
        changes = [("operator", left.operator, right.operator)]
        if left.operator in ENDS:
            changes.append(("renamed:", left.name, right.name))
        had, has = self.a.attributes.get(left.name, {}), self.b.attributes.get(right.name, {})
        names = {*had, *has} if left.operator == right.operator else had.keys() & has.keys()
        changes += [(name, had.get(name, "none"), has.get(name, "none")) for name in sorted(names)]
        changes.append(("outputs", str(len(left.outputs)), str(len(right.outputs))))
        for one, other in zip(left.outputs, right.outputs, strict=False):
            a, b = self.a.chart.values[one], self.b.chart.values[other]
            changes.append(("type", a.dtype, b.dtype))
            permuted = a.layout != b.layout and sorted(map(str, a.shape)) == sorted(map(str, b.shape))
            if permuted:
                changes.append(("layout", layout_name(a.layout), layout_name(b.layout)))
            else:
                changes.append(("shape", " × ".join(map(str, a.shape)), " × ".join(map(str, b.shape))))
        return tuple(dict.fromkeys(f"{name} {old} -> {new}" for name, old, new in changes if old != new))


def matched(a: Chart, b: Chart) -> dict[int, int]:
    """Operators of the first -> of the second: by name and type, by name, by what they give, then by their order."""

    def tensor(chart: Chart, spot: Spot) -> str:
        return chart.values[spot.outputs[0]].tensor if spot.outputs else ""

    counterpart_of: dict[int, int] = {}
    matched_others: set[int] = set()
    for key in (
        lambda chart, spot: (spot.operator, spot.name),
        lambda chart, spot: spot.name,
        lambda chart, spot: (spot.operator, tensor(chart, spot)) if tensor(chart, spot) else None,
    ):
        named = {
            key(b, spot): number for number, spot in reversed(list(enumerate(b.spots))) if number not in matched_others
        }
        for number, spot in enumerate(a.spots):
            other = named.get(key(a, spot)) if number not in counterpart_of and key(a, spot) is not None else None
            if other is not None and other not in matched_others:
                counterpart_of[number] = other
                matched_others.add(other)
    left = [number for number in range(len(a.spots)) if number not in counterpart_of]
    right = [number for number in range(len(b.spots)) if number not in matched_others]
    if max(len(left), len(right)) <= MOST:
        kinds = [[chart.spots[number].operator for number in rest] for chart, rest in ((a, left), (b, right))]
        for i, j, size in SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_matching_blocks():
            counterpart_of.update(zip(left[i : i + size], right[j : j + size], strict=True))
    return dict(sorted(counterpart_of.items()))
