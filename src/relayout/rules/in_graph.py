"""Nodes as their rules and targets see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir

from relayout.graph.domains import domain_of_version
from relayout.layout import Dim
from relayout.rules.layouts import DOMAIN as FUNCTIONS
from relayout.rules.operator import WRAPPING, Operator


def operator_of(model: ir.Model, node: ir.Node, imports: Mapping[str, int] | None = None) -> Operator:
    """A node as its rule and a target see it; in a function, by the versions that this imports."""
    domain = domain_of_version(node.domain, FUNCTIONS)
    inputs, outputs = (tuple(_shape(value) for value in values) for values in (node.inputs, node.outputs))
    return Operator(node, (model.opset_imports if imports is None else imports).get(domain, 1), inputs, outputs)


def _shape(value: ir.Value | None) -> tuple[Dim, ...] | None:
    if value is None or value.shape is None or type(value.type) in WRAPPING:
        return None
    return tuple(_dims(value.name or "", value.shape))


def _dims(name: str, shape: Iterable[int | ir.SymbolicDim]) -> Iterator[Dim]:
    for axis, dim in enumerate(shape):
        yield dim if isinstance(dim, int) else str(dim.value or f"?{name}.{axis}")
