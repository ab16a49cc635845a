"""The report of a result that is a `.tflite`: what it counts is what the file has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import onnx_ir as ir

from relayout.formats.tflite.container.model import Model
from relayout.formats.tflite.container.transposes import TRANSPOSE, transposes
from relayout.formats.tflite.container.versions import min_runtime_version
from relayout.formats.tflite.exporting.transposes_in_steps import transposes_of_graph
from relayout.graph.subgraphs import all_nodes
from relayout.reports import Report


def tflite_report(report: Report, model: ir.Model, file: Model, source: Model | None) -> Report:
    """Return the report of a result that was exported: its operators, Transposes and bytes are those of the file.

    Args:
        report: the report of the plan.
        model: the graph that was exported.
        file: the result.
        source: the whole `.tflite` that it was made of, if it was one: its own Transposes are the source's.
    """
    if source is not None:
        count, size = transposes(source)
        report = replace(report, source_transposes=count, source_bytes=size)

    counts = Counter(operator.name for subgraph in file.subgraphs for operator in subgraph.operators)
    ordered = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    report = replace(report, operators=ordered, min_runtime=min_runtime_version(file))
    count, size = _beyond_plan(report, model, file)
    if not (count or size):
        return report
    total = report.bytes + size
    return replace(
        report,
        transposes=report.transposes + count,
        bytes=total,
        lower_bound=min(report.lower_bound, total),
        proved=report.proved and total <= report.lower_bound,
        notes=(*report.notes, *([_inside_operators(count, size, model, file)] if size > 0 else [])),
    )


def _beyond_plan(report: Report, model: ir.Model, file: Model) -> tuple[int, int]:
    """Return how many TRANSPOSEs a file has besides those of the plan, and their bytes; fewer ones are negative.

    What open extents and the bodies of loops count as, the plan alone knows. There the file is held to its graph.
    """
    count, size = transposes(file)
    if len(file.subgraphs) == 1 and _is_static(file):
        return count - report.transposes, size - report.bytes
    sizes, steps = transposes_of_graph(model)
    count, size = count - len(sizes) - len(steps), size - sum(sizes) - sum(steps)
    if min(count, size) <= 0:
        count = size = 0
    return count + len(steps), size + sum(steps)


def _is_static(file: Model) -> bool:
    return all(dim >= 0 for graph in file.subgraphs for tensor in graph.tensors for dim in tensor.signature)


def _names_of_tensors(node: ir.Node) -> Iterator[str]:
    """Yield what the names of the tensors are, or begin with, that a node becomes."""
    yield node.name or node.op_type
    yield from (value.name or "" for value in node.outputs)


def _inside_operators(count: int, size: int, model: ir.Model, file: Model) -> str:
    """Return the note on TRANSPOSEs that operators become besides those of the plan."""
    names = {name: node.op_type for node in all_nodes(model.graph) for name in _names_of_tensors(node)}
    tensors = (
        graph.tensors[operator.outputs[0]].name
        for graph in file.subgraphs
        for operator in graph.operators
        if operator.name == TRANSPOSE
    )
    producers = (names.get(each) or names.get(each.rpartition("/transpose")[0]) for each in tensors)
    kinds = [kind for kind in dict.fromkeys(producers) if kind]
    kinds = [kind for kind in kinds if kind != "Transpose"] or kinds  # more axes than a kernel takes: several steps
    named = f": {', '.join(kinds)}" if kinds else ""
    return (
        f"of them {count} ({size:,} bytes) are steps of operators that LiteRT has no builtin for, which the bound does"
        f" not know{named}"
    )
