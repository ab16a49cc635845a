"""What stays on real numbers between integers, written so that the runtime's optimizer leaves it there.

A row says so where a runtime makes an operator on integers of a unit that takes longer than the unit does. The node
becomes one that its optimizer does not look for, and computes the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes
from relayout.lowering.unit_rows import DEQUANTIZING, Unit
from relayout.rules import Permuted, Regrouped, facts
from relayout.rules.in_graph import operator_of


def keep_reals(model: ir.Model, units: Sequence[Unit]) -> dict[str, int]:
    """Write what a target runs best on real numbers, in place, before its units become operators on integers.

    Returns:
        Operator -> how many nodes it runs now.
    """
    rows = [unit for unit in units if unit.reals]
    named = {name for row in rows for name in row.op_types.split()}
    counts: Counter[str] = Counter()
    for node in [node for node in all_nodes(model.graph) if node.op_type in named]:
        integers = _integers(model, node.inputs[0])
        row = None if integers is None else next((row for row in rows if _takes(model, row, node, integers)), None)
        if row is not None:
            domain, _, op_type = row.written.rpartition(":")
            node.domain, node.op_type = domain, op_type
            model.opset_imports.setdefault(domain, 1)
            counts[row.written] += 1
    return dict(sorted(counts.items()))


def read_as_reals(model: ir.Model, value: ir.Value, units: Sequence[Unit]) -> bool:
    """Whether nothing but what stays on real numbers reads a value, over views."""
    written = {unit.written for unit in units if unit.reals}
    readers = list(_readers(model, value)) if written else []
    return bool(readers) and all(f"{node.domain}:{node.op_type}" in written for node in readers)


def _takes(model: ir.Model, row: Unit, node: ir.Node, integers: ir.Value) -> bool:
    return integers.dtype is not None and row.takes(operator_of(model, node), integers.dtype.name)


def _is_view(model: ir.Model, node: ir.Node) -> bool:
    return isinstance(facts(operator_of(model, node)), Permuted | Regrouped)


def _integers(model: ir.Model, value: ir.Value | None) -> ir.Value | None:
    """The integers that a value was dequantized from, over views."""
    node = None if value is None else value.producer()
    while node is not None and _is_view(model, node):
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    return node.inputs[0] if node is not None and node.op_type in DEQUANTIZING and not node.domain else None


def _readers(model: ir.Model, value: ir.Value) -> Iterator[ir.Node]:
    values = [value]
    while values:
        for node in [use.node for use in values.pop().uses()]:
            if _is_view(model, node):
                values.append(node.outputs[0])
            else:
                yield node
