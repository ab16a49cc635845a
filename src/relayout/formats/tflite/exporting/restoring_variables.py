"""Values that were a resource variable become one again: what a run begins with, and what it leaves to the next one.

y = Add(initial, x)  ->  y = Add(READ_VARIABLE(initial), x), ASSIGN_VARIABLE(y)
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.formats.tflite.digests import tensor_in
from relayout.formats.tflite.exporting.file_order import FileOrder
from relayout.formats.tflite.exporting.value_types import TYPES, kernel_type, stored_type
from relayout.formats.tflite.exporting.values_by_tensor import ValuesByTensor
from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.formats.tflite.states import ASSIGN, READ, RESTORED, VARIABLES, Variable, load_variables
from relayout.graph.facts import add_facts, facts_of


def restore_variables(model: ir.Model) -> None:
    """Restore the variables that a model's metadata names, in place.

    One stays as it is whose values are not there, or not as often read as when they were described. In the order of the
    graph a variable is read where the first run's constant was, and assigned to in the end.
    """
    described = load_variables(model.metadata_props.pop(VARIABLES, ""))
    if not described:
        return
    values = ValuesByTensor(model.graph)
    names: set[str] = set()
    for each in described:
        if each.name not in names and _Variable(model.graph, each, values).restore():
            names.add(each.name)
    add_facts(model, begun_anew=[name for name in facts_of(model).begun_anew if name not in names])


class _Variable:
    def __init__(self, graph: ir.Graph, described: Variable, values: ValuesByTensor) -> None:
        self.graph, self.described, self.order = graph, described, FileOrder(values)
        self.initial = [each for each in values.holding(described.initial) if _is_initializer(each)]
        self.assigned = next(values.holding(described.assigned), None)

    def restore(self) -> bool:
        """Restore it; return False where it cannot be."""
        uses = sum(len(value.uses()) for value in self.initial)
        if not self.initial or self.assigned is None or uses != self.described.uses:
            return False
        first = self._as_in_file(self.initial[0], self.described.initial)
        last = self._as_in_file(self.assigned, self.described.assigned)
        if first is None or last is None or not _fits(first, last):
            return False
        name, unique = self.described.name, self.order.values.unique
        end = [*self.order.nodes, _node(ASSIGN, last, name, unique(f"{name}/assigned"))]
        read = _node(READ, first, name, unique(name))
        self.order.nodes = begin = [read]
        stored = [self._as_stored(read.outputs[0], value) for value in self.initial]
        if any(value is None for value in stored):
            for node in (*begin, *end):
                node.resize_inputs(0)
            return False
        self._insert(begin, end, stored)
        return True

    def _insert(self, begin: Sequence[ir.Node], end: Sequence[ir.Node], stored: Sequence[ir.Value | None]) -> None:
        self.graph.opset_imports.setdefault(DOMAIN, 1)
        for constant in self.order.constants:
            self.graph.register_initializer(constant)
        for value, read in zip(self.initial, stored, strict=True):
            for use in [each for each in value.uses() if each.node is not begin[0]]:
                use.node.replace_input_with(use.idx, read)
        self.graph.extend(end)
        self.graph.insert_before(self.graph[0], begin)

    def _as_in_file(self, value: ir.Value, name: str) -> ir.Value | None:
        held = tensor_in(value, {name})
        return None if held is None else self.order.as_in_file(value, held)

    def _as_stored(self, read: ir.Value, value: ir.Value) -> ir.Value | None:
        held = tensor_in(value, {self.described.initial})
        return None if held is None else self.order.as_stored(read, value, held)


def _node(op_type: str, value: ir.Value, variable: str, given: str) -> ir.Node:
    """Return a node of a variable; what ASSIGN gives is there for nobody."""
    name = f"{variable}/{op_type}"
    made = ir.Node(DOMAIN, op_type, [value], [ir.AttrString("variable", variable)], name=name)
    made.outputs[0].name, made.outputs[0].shape, made.outputs[0].type = given, value.shape, value.type
    made.meta[RESTORED] = True
    return made


def _is_initializer(value: ir.Value) -> bool:
    is_end = value.is_graph_input() or value.is_graph_output()
    return value.producer() is None and value.const_value is not None and not is_end


def _fits(first: ir.Value, last: ir.Value) -> bool:
    """Return whether a run can leave what the next one begins with: of a known type, and of as many elements."""
    if first.shape is None or last.shape is None or not last.shape.is_static():
        return False
    same = first.dtype == last.dtype and first.shape == last.shape
    return same and first.dtype in TYPES and stored_type(first) == kernel_type(first)
