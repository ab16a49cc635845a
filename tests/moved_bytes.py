"""Hold the report of every `.tflite` that the tests write to its file: TRANSPOSEs, their bytes, permuting GATHERs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

import relayout.pipeline.stages as stages
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import BITS, Model, Tensor
from relayout.graph.subgraphs import all_nodes

UNCOUNTED = frozenset({"Transpose"})
"""Operators whose TRANSPOSEs the problem does not know. The list only gets shorter. A Transpose is left where constants
are computed in each run: those that are outputs, too, and those of operators that are not computed beforehand. The plan
takes what follows from constants alone for computed once."""
NOTE = re.compile(r"steps of operators that LiteRT has no builtin for, which the bound does not know(?:: (.*))?$")


@contextmanager
def reports_are_held_to_files() -> Iterator[None]:
    """Check every result that is a `.tflite` while the block runs."""
    write: Callable[..., Any] = stages._as_tflite

    def checked(*arguments: Any) -> Any:
        result = write(*arguments)
        problem = difference(result.model, result.file, result.report)
        assert not problem, problem
        return result

    stages._as_tflite = checked
    try:
        yield
    finally:
        stages._as_tflite = write


def difference(model: ir.Model, file: Model, report: Any) -> str:
    """Say where a report differs from its file; "" where it does not.

    Open extents and bodies count in a plan as what they may be at run time, and in a file as 1: there no more is asked
    than that each TRANSPOSE is one of the graph.
    """
    for note in report.notes:
        match = NOTE.search(note)
        kinds = set((match[1] or "").split(", ")) - {""} if match else set()
        if match and not (kinds and kinds <= UNCOUNTED):
            return (
                f"TRANSPOSEs that no Transpose of the graph is, of {sorted(kinds - UNCOUNTED) or 'unknown operators'}"
            )
    if permuting_gathers(file) > permuting_nodes(model):
        return "a GATHER permutes an axis, and no Gather of the graph does"
    tensors = [tensor for graph in file.subgraphs for tensor in graph.tensors]
    if len(file.subgraphs) > 1 or any(dim < 0 for tensor in tensors for dim in tensor.signature):
        return ""
    moved = run_time_transposes(file)
    if (len(moved), sum(moved)) != (report.transposes, report.bytes):
        counts = f"{len(moved)} TRANSPOSEs of {sum(moved)} bytes, the report {report.transposes} of {report.bytes}"
        return f"the file has {counts}"
    return ""


def run_time_transposes(file: Model) -> list[int]:
    """Return the bytes of each TRANSPOSE that moves elements, of operands that a run computes."""
    return [
        prod(data.signature) * BITS[data.type] // 8
        for graph in file.subgraphs
        for operator in graph.operators
        if operator.name == "TRANSPOSE"
        for data, order in [tuple(graph.tensors[index] for index in operator.inputs)]
        if data.data is None and _moves(data.signature, order.content.view(np.int32).tolist())
    ]


def _moves(dims: tuple[int, ...], order: list[int]) -> bool:
    places = [axis for axis in order if dims[axis] != 1]
    return places != sorted(places)


def permuting_gathers(file: Model) -> int:
    """Return how many GATHERs read every element of an axis once, in another order."""
    pairs = [
        tuple(graph.tensors[index] for index in operator.inputs[:2])
        for graph in file.subgraphs
        for operator in graph.operators
        if operator.name == "GATHER"
    ]
    return sum(data.data is None and _permutes(_elements(places)) for data, places in pairs)


def _elements(tensor: Tensor) -> list[int]:
    kinds = {TensorType.INT16: np.int16, TensorType.INT32: np.int32, TensorType.INT64: np.int64}
    return [] if tensor.data is None else tensor.content.view(kinds[tensor.type]).reshape(-1).tolist()


def permuting_nodes(model: ir.Model) -> int:
    """Return how many Gathers of a graph read every element of an axis once, in another order."""
    constants = [
        node.inputs[1].const_value
        for node in all_nodes(model.graph)
        if node.op_type == "Gather" and node.inputs[1] is not None
    ]
    return sum(places is not None and _permutes(places.numpy().reshape(-1).tolist()) for places in constants)


def _permutes(places: list[int]) -> bool:
    count = len(places)
    places = [place % count for place in places] if all(-count <= place < count for place in places) else []
    return bool(places) and places != sorted(places) and sorted(places) == list(range(count))
