"""The share of a model that a target runs, at a glance: how many operators, in how many parts, and why not the rest."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import onnx_ir as ir

from relayout.apply.duplicate_dequantize import duplicate, merge
from relayout.formats.tflite.exporting.file_forms import RefusedOperator
from relayout.graph.quantized_unit import (
    DEQUANTIZE,
    QUANTIZE,
    QUANTIZING_DOMAINS,
    is_dequantized_view,
    is_view_node,
    unit_of,
    units_of,
)
from relayout.graph.walks import behind, producers, readers_behind
from relayout.light_dataclass import dataclass
from relayout.partition.regions import Part, parts
from relayout.rules.facts import operator_of
from relayout.targets import Target
from relayout.targets.target_table import NOT_THERE
from relayout.terminal import ShortNames, count_of

# Quantized units as wholes: while a model is parted, each has DequantizeLinears and views of its own, in one part.


@contextmanager
def whole_units(model: ir.Model) -> Iterator[None]:
    """Give each quantized unit DequantizeLinears, and views behind them, of its own, in place, until the block ends."""
    duplicates = duplicate(model, is_dequantized_view)
    merge([[node for node in group if unit_of(node) is None] for group in duplicates])
    try:
        yield
    finally:
        merge(duplicates)


ONLY_INTEGERS = re.compile(r"element type FLOAT; it takes (U?INT\d+(, )?)+$")
QUANTIZED = "convert --quantize int8 --calibrate DATA writes them in a .tflite (docs/how-to/int8.md)"
"""The note on a model of real numbers of which a target runs nothing."""
ELSEWHERE = "the target has no kernel in its layout"
TRANSPOSES = frozenset({"Transpose"})


class OperatorClaims(NamedTuple):
    """Operators of one type."""

    operator: str  # `Conv`, outside of ONNX's own domain with that: `com.microsoft:Gelu`
    claimed: int  # how many the target runs; a quantized unit counts as its operator alone
    total: int  # how many there are
    reasons: dict[str, int]  # why it does not run the others -> how many


@dataclass(frozen=True)
class Claims:
    """The share of a model that a target runs."""

    target: str  # its name
    claimed: int  # operators that it runs
    total: int  # operators of the main graph; Transposes and constants are not counted
    claimed_parts: int  # parts that it runs
    parts: int  # all parts
    operators: tuple[OperatorClaims, ...]  # the same by operator, those that it does not run first
    # operators that it does not run and that have a Transpose between them and one that it runs, by type -> how many
    borders: dict[str, int]

    def lines(
        self,
        more: int,  # Transposes of the result beyond those of the source
    ) -> Iterator[str]:
        """Return what a report says."""
        yield (
            f"{self.target} runs {self.claimed} of {count_of(self.total, 'operator')},"
            f" in {count_of(self.claimed_parts, 'part')} of {self.parts}"
        )
        absent: list[str] = []
        others: dict[str, list[str]] = {}
        for row in self.operators:
            for reason, count in row.reasons.items():
                if reason.endswith(NOT_THERE):
                    absent.append(f"{count} {row.operator}")
                else:
                    others.setdefault(reason, []).append(f"{count} of {row.total} {row.operator}")
        for reason, counts in others.items():
            yield f"not on {self.target}: {', '.join(counts)}: {reason}"
        if not self.claimed and any(map(ONLY_INTEGERS.match, others)):
            yield f"{self.target} runs integers: {QUANTIZED}"
        if absent:
            yield f"not in its table: {', '.join(absent)}"
        if self.borders:
            listed = ", ".join(f"{count} {name}" for name, count in self.borders.items())
            begin = f"{count_of(more, 'more Transpose')} than the source; " if more > 0 else ""
            yield f"{begin}Transposes at the border of {self.target}: beside {listed}"


def claims(
    model: ir.Model,  # the model; it is as it was afterwards
    target: Target,
) -> Claims | None:
    """Return what a target runs of a model whose layouts are chosen; None of a target without a table."""
    if not target.kernels or target.rest:
        return None
    with whole_units(model):
        model_parts = parts(model, target)
        on_target = {node for part in model_parts if part.claimed for node in part.nodes}
        totals, reasons = Counter[str](), Counter[tuple[str, str]]()
        for node in _operators(model, model_parts):
            name = _name(node)
            totals[name] += 1
            if node not in on_target:
                reasons[name, target.why_not(operator_of(model, node)) or ELSEWHERE] += 1
        borders = Counter(_name(node) for node in _borders(model.graph, on_target))
    claimed, total = sum(part.claimed for part in model_parts), totals.total()
    rows, listed_borders = _rows(totals, reasons), dict(borders.most_common())
    return Claims(target.name, total - reasons.total(), total, claimed, len(model_parts), rows, listed_borders)


def _rows(totals: Mapping[str, int], reasons: Mapping[tuple[str, str], int]) -> tuple[OperatorClaims, ...]:
    """Return a row for each operator, of how many there are and why some do not run, those first."""
    rows = []
    for name, total in totals.items():
        own = {reason: count for (each, reason), count in reasons.items() if each == name}
        rows.append(OperatorClaims(name, total - sum(own.values()), total, own))
    return tuple(sorted(rows, key=lambda row: (row.claimed - row.total, row.operator)))


def _operators(model: ir.Model, model_parts: Iterable[Part]) -> Iterator[ir.Node]:
    """Yield the nodes that compute: no Transposes, and of a quantized unit its operator alone."""
    unit_in_model = units_of(model)
    for node in (node for part in model_parts for node in part.nodes):
        if node.op_type in TRANSPOSES:
            continue
        unit = unit_in_model(node)
        if unit is None or unit.node is node:
            yield node


def _borders(graph: ir.Graph, on_target: set[ir.Node]) -> Iterator[ir.Node]:
    """Yield the nodes that the host runs and that a Transpose separates from one that the target runs."""
    host_nodes: dict[ir.Node, None] = {}
    for node in graph:
        if node.op_type not in TRANSPOSES or node.domain:
            continue
        before = list(producers([behind(node.inputs[0], _is_passed)]))
        after = [other for other in readers_behind(node.outputs[0], _is_passed) if other is not None]
        if any(other in on_target for other in after):
            host_nodes.update((other, None) for other in before if other not in on_target)
        if any(other in on_target for other in before):
            host_nodes.update((other, None) for other in after if other not in on_target)
    yield from host_nodes


def _is_passed(node: ir.Node) -> bool:
    is_end = node.op_type in (DEQUANTIZE, QUANTIZE) and node.domain in QUANTIZING_DOMAINS
    return is_end or is_view_node(node)


def _name(node: ir.Node) -> str:
    """Return an operator's name; of a function of layouts that of the operator which it runs."""
    if not node.domain or node.domain == "ai.onnx" or node.domain.startswith("relayout."):
        return node.op_type
    return f"{node.domain}:{node.op_type}"


# The operators of a `.tflite` that a target takes which takes a file as a whole or not at all.

MOST_PLACES = 3  # tensors that a line names
LONG_INTEGERS = "Tensor type(INT64) is not supported"
REMEDY_OF_LONG_INTEGERS = "--input-type int32 and --output-type int32 make int64 inputs and outputs int32"


@dataclass(frozen=True)
class FileClaims(Claims):
    """The operators of a file that a target takes: by builtin, as one part, without borders."""

    places: dict[str, list[str]]  # "builtin: reason" -> the first results of such operators

    def lines(self, more: int) -> Iterator[str]:
        """Return what a report says; `more` does not count where a file is taken as a whole."""
        if self.claimed == self.total:
            yield f"{self.target} takes all {count_of(self.total, 'operator')}: the whole network"
            return
        yield (
            f"{self.target} takes a network as a whole or not at all, and does not take"
            f" {self.total - self.claimed} of {count_of(self.total, 'operator')}"
        )
        short = ShortNames(tensor for tensors in self.places.values() for tensor in tensors)
        for reason in dict.fromkeys(reason for row in self.operators for reason in row.reasons):
            rows = [row for row in self.operators if reason in row.reasons]
            counts = ", ".join(f"{row.reasons[reason]} of {row.total} {row.operator}" for row in rows)
            tensors = [tensor for row in rows for tensor in self.places[f"{row.operator}: {reason}"]]
            named = ", ".join([*map(short, tensors[:MOST_PLACES]), *(["…"] if len(tensors) > MOST_PLACES else [])])
            is_long = reason == LONG_INTEGERS and any(row.operator == "CAST" for row in rows)
            cure = f"; {REMEDY_OF_LONG_INTEGERS}" if is_long else ""
            yield f"not on {self.target}: {counts}, at {named}: {reason}{cure}"


def file_claims(
    target: str,  # its name
    counts: Mapping[str, int],  # builtin -> how many operators of the file are one
    refused: Sequence[RefusedOperator],  # those that the target does not take
) -> FileClaims:
    """Return what a target takes of a file."""
    reasons = Counter((each.name, each.reason) for each in refused)
    places: dict[str, list[str]] = {}
    for each in refused:
        places.setdefault(f"{each.name}: {each.reason}", []).append(each.tensor)
    total, rows = sum(counts.values()), _rows(counts, reasons)
    return FileClaims(target, total - len(refused), total, int(not refused), 1, rows, {}, places)
