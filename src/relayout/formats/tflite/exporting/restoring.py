"""Nodes that a builtin was spelled out in become one node again, which is that builtin.

DequantizeLinear, Scan, QuantizeLinear  ->  tflite:UNIDIRECTIONAL_SEQUENCE_LSTM
Transpose, LSTM, LSTM, Squeeze, Concat  ->  tflite:BIDIRECTIONAL_SEQUENCE_LSTM, Transpose

Nothing of the nodes counts but the values at their ends. A value tells by its name, or in its metadata, which tensor of
the file it holds and in which order of axes, so the builtin reads and gives its tensors in the file's own order. The
Transposes between both are views, as all Transposes are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import NUMPY_TYPES
from relayout.formats.tflite.exporting.file_order import FileOrder
from relayout.formats.tflite.exporting.kernel_types import TENSOR_TYPES, kernel_type, stored_type
from relayout.formats.tflite.exporting.variables import ValuesByTensor
from relayout.formats.tflite.spelled_out import (
    ASSIGN,
    BUILTIN,
    DIGEST,
    DOMAIN,
    READ,
    RESTORED,
    VARIABLES,
    VIEWS,
    Builtin,
    Operand,
    Spellings,
    Variable,
    digest,
    is_restorable,
    load_variables,
    tensor_in,
)
from relayout.graph.facts import add_facts, facts_of
from relayout.graph.source_names import SOURCE
from relayout.graph.subgraphs import all_nodes, bodies, captured, nested
from relayout.layout.stored_as import BATCH_FIRST

# Values that were a resource variable become one again: what a run begins with, and what it leaves to the next one.
#
# y = Add(initial, x)  ->  y = Add(READ_VARIABLE(initial), x), ASSIGN_VARIABLE(y)


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
        first = _in_file(self.order, self.described.initial, self.initial[:1])
        last = _in_file(self.order, self.described.assigned, [self.assigned])
        if first is None or last is None or not _variable_fits(first, last):
            return False
        name, unique = self.described.name, self.order.values.unique
        end = [*self.order.nodes, _node(ASSIGN, last, name, unique(f"{name}/assigned"))]
        read = _node(READ, first, name, unique(name))
        self.order.nodes = begin = [read]
        pairs = [(value, tensor_in(value, {self.described.initial})) for value in self.initial]
        stored = [None if each is None else self.order.as_stored(read.outputs[0], value, each) for value, each in pairs]
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


def _is_initializer(value: ir.Value) -> bool:
    is_end = value.is_graph_input() or value.is_graph_output()
    return value.producer() is None and value.const_value is not None and not is_end


def _in_file(order: FileOrder, name: str, values: Iterable[ir.Value]) -> ir.Value | None:
    """Return a tensor of the file, which one of the values holds, in the file's order; None where none does."""
    for value in values:
        source_value = tensor_in(value, {name})
        if source_value is not None and (file_value := order.as_in_file(value, source_value)) is not None:
            return file_value
    return None


def _node(op_type: str, value: ir.Value, variable: str, output_name: str) -> ir.Node:
    """Return a node of a variable; what ASSIGN gives is there for nobody."""
    name = f"{variable}/{op_type}"
    node = ir.Node(DOMAIN, op_type, [value], [ir.AttrString("variable", variable)], name=name)
    node.outputs[0].name, node.outputs[0].shape, node.outputs[0].type = output_name, value.shape, value.type
    node.meta[RESTORED] = True
    return node


def _variable_fits(first: ir.Value, last: ir.Value) -> bool:
    """Return whether a run can leave what the next one begins with: of a known type, and of as many elements."""
    if first.shape is None or last.shape is None or not last.shape.is_static():
        return False
    same = first.dtype == last.dtype and first.shape == last.shape
    return same and first.dtype in TENSOR_TYPES and stored_type(first) == kernel_type(first)


SWITCHES = ("time_major", "merge_outputs")
"""Options that say how the axes of operands and results lie: attributes of the node, so that layouts can know them."""

TIME_FIRST = frozenset({"BIDIRECTIONAL_SEQUENCE_LSTM"})
"""Builtins of which LiteRT spoils a result of both halves where the batch comes first and has several sequences."""

PACKING = frozenset({"PACK", "UNPACK"})
"""Builtins that compute nothing, whose nodes take any order of axes: no Transpose is worth them."""


def restore_builtins(
    model: ir.Model,
    *,
    from_tflite: bool,  # whether the descriptions are true as they are, since the model was just read from a `.tflite`
    is_restored: Callable[[Builtin], bool],  # whether the result may have a builtin
) -> bool:
    """Restore builtins in place; return whether there were any."""
    if not any(BUILTIN in node.metadata_props for node in all_nodes(model.graph)):
        return False

    def restore_in(graph: ir.Graph, around: ValuesByTensor | None) -> bool:
        described = [node for node in graph if BUILTIN in node.metadata_props]
        spellings, values, is_changed = Spellings(graph), ValuesByTensor(graph, around), False
        for node in described:
            builtin = Builtin.parse(node.metadata_props[BUILTIN])
            if builtin is None or node.graph is None or not is_restorable(builtin.name):
                continue
            nodes = spellings.of(node)
            is_true = from_tflite or node.metadata_props.get(DIGEST) == digest(nodes, builtin)
            if is_true and is_restored(builtin):
                is_changed |= _Restoring(graph, node, nodes, builtin, values).run()
        return any([is_changed, *(restore_in(body, values) for node in graph for body in bodies(node))])

    return restore_in(model.graph, None)


class _Restoring:
    """A builtin and the nodes that it is spelled out in."""

    def __init__(
        self, graph: ir.Graph, middle: ir.Node, nodes: Sequence[ir.Node], builtin: Builtin, values: ValuesByTensor
    ) -> None:
        self.graph, self.middle, self.builtin, self.values = graph, middle, builtin, values
        self.nodes = list(nodes)
        self.inside = set(nodes)
        self.bodies = {inner for node in nodes for inner in nested(node)}
        self.order = FileOrder(values)

    def run(self) -> bool:
        """Restore it; return False where a value at the ends is no tensor of the file, or has other extents."""
        names, operands = [each.name for each in self.builtin.outputs], self.builtin.names
        outside_values = [value for value in self._given_outside() if tensor_in(value, names) is not None]
        self._leave([value for value in self._given_outside() if value not in outside_values])
        places = {
            source_value.name: value
            for value in outside_values
            if (source_value := tensor_in(value, names)) is not None
        }
        if (
            not outside_values
            or len(places) != len(outside_values)
            or len(self._given_outside()) != len(outside_values)
        ):
            return False
        read = list(dict.fromkeys(self._read()))
        if not all(self._is_known(value, operands) for value in read):
            return False
        inputs = self._operands(read)
        builtin = None if inputs is None else self._as_here(inputs)
        results = None if inputs is None or builtin is None else self._results(builtin, inputs, places)
        if results is None or (self.builtin.name in PACKING and self._costs_transposes()):
            for node in self.order.nodes:  # they read nothing
                node.resize_inputs(0)
            return False
        self._replace(results)
        return True

    def _is_known(self, value: ir.Value, names: Collection[str]) -> bool:
        """Return whether a value is an operand, or follows from constants."""
        return tensor_in(value, names) is not None or self.values.follows_from_constants(value)

    def _results(
        self, builtin: Builtin, inputs: Sequence[ir.Value | None], places: Mapping[str, ir.Value]
    ) -> dict[ir.Value, ir.Value] | None:
        """Return values of the graph -> what the builtin gives in their place; None where it cannot."""
        replacement_of: dict[ir.Value, ir.Value] = {}
        node = self._node(builtin, inputs)
        for operand, output in zip(builtin.outputs, node.outputs, strict=True):
            value = places.get(operand.name)
            replacement = self._file_value(output, operand, value)
            if replacement is None:
                return None
            if value is not None:
                replacement_of[value] = replacement
        return replacement_of

    def _costs_transposes(self) -> bool:
        """Return whether it needs a Transpose, or keeps one of the file that the nodes can do without."""
        before = [value.producer() for value in self._read()]
        behind = [use.node for value in self._given_outside() for use in value.uses()]
        sources = [node.metadata_props.get(SOURCE, "") for node in (*before, *behind) if node is not None]
        is_beside = any(source.startswith("TRANSPOSE ") for source in sources)
        return is_beside or any(node.op_type == "Transpose" for node in self.order.nodes)

    # What the nodes read and give.

    def _leave(self, values: Sequence[ir.Value]) -> None:
        """Leave nodes where they are that others read, too: views of an operand, and what follows from constants."""

        def is_view(value: ir.Value) -> bool:
            node = value.producer()
            return node is not None and node.op_type in VIEWS and tensor_in(value, self.builtin.names) is not None

        waiting = [value for value in values if is_view(value) or self.values.follows_from_constants(value)]
        while waiting:
            node = waiting.pop().producer()
            if node is not None and node in self.inside and node is not self.middle:
                self.inside.discard(node)
                self.nodes.remove(node)
                waiting += [value for value in node.inputs if value is not None]

    def _read(self) -> Iterator[ir.Value]:
        for node in self.nodes:
            for value in (*node.inputs, *captured(node)):
                if value is not None and value.producer() not in self.inside:
                    yield value

    def _given_outside(self) -> list[ir.Value]:
        return [value for node in self.nodes for value in node.outputs if self._is_read_outside(value)]

    def _is_read_outside(self, value: ir.Value) -> bool:
        users = [use.node for use in value.uses()]
        own = (each in self.inside or (each.graph is not self.graph and each in self.bodies) for each in users)
        return value.is_graph_output() or not all(own)

    # Operands.

    def _operands(self, read: Sequence[ir.Value]) -> list[ir.Value | None] | None:
        """Return the operands as the file has them; None where one is not there."""
        operands: list[ir.Value | None] = []
        for operand in self.builtin.inputs:
            value = None
            if operand is not None and operand.numbers is not None:
                value = self.order.constant(operand.array, f"{self.middle.name}/operand")
            elif operand is not None and operand.name:
                value = self._tensor(operand.name, read)
                if value is None:
                    return None
            operands.append(value)
        return operands

    def _tensor(self, name: str, read: Sequence[ir.Value]) -> ir.Value | None:
        """Return a tensor of the file: one that the nodes read, or that follows from constants."""
        others = (value for value in self.values.holding(name) if self.values.follows_from_constants(value))
        return _in_file(self.order, name, chain(read, others))

    def _as_here(self, inputs: Sequence[ir.Value | None]) -> Builtin | None:
        """Return the builtin with scales, and variables for the sequences that the graph has now; None: it cannot be.

        A variable has a row for each sequence, and no runtime gives it other rows. So the batch must be a number.
        """
        first, operands = inputs[0] if inputs else None, list(self.builtin.inputs)
        axis = self.builtin.switch("time_major")
        shape = None if first is None else first.shape
        batch = None if shape is None or len(shape) <= axis else shape[axis]
        if self.builtin.name in TIME_FIRST and self.builtin.switch("merge_outputs") and not axis and batch != 1:
            return None
        for place, (operand, value) in enumerate(zip(self.builtin.inputs, inputs, strict=True)):
            if operand is not None and operand.variable:
                if not isinstance(batch, int):
                    return None
                operands[place] = operand = operand._replace(shape=(batch, *operand.shape[1:]))
            if operand is not None and operand.scales:
                meaning = self._scales(operand)
                if meaning is None:
                    return None
                operands[place] = operand = operand._replace(quantization=meaning, scales="")
            if operand is not None and value is not None and not _fits(value, operand):
                return None
        return self.builtin._replace(inputs=tuple(operands))

    def _scales(self, operand: Operand) -> Quantization | None:
        """Return what a constant's integers mean by the scales that the graph has for it."""
        value = self._tensor(operand.scales, ())
        scale = None if value is None or value.const_value is None else value.const_value.numpy()
        axis = 0 if operand.quantization is None else operand.quantization.axis
        if scale is None or scale.dtype != np.float32 or scale.ndim != 1 or not 0 <= axis < len(operand.shape):
            return None
        fits = scale.size == operand.shape[axis] and np.isfinite(scale).all() and (scale >= 0).all()
        return Quantization(scale, np.zeros(scale.shape, np.int64), axis) if fits else None

    # The builtin.

    def _node(self, builtin: Builtin, inputs: Sequence[ir.Value | None]) -> ir.Node:
        switches = [ir.AttrInt64(name, builtin.switch(name)) for name in SWITCHES if name in builtin.known_options]
        node = ir.Node(
            DOMAIN,
            builtin.op_type,
            inputs,
            [ir.AttrString("description", builtin.dump()), *switches],
            num_outputs=len(builtin.outputs),
            name=self.middle.name,
        )
        node.metadata_props[SOURCE] = self.middle.metadata_props.get(SOURCE, "")
        node.meta[BATCH_FIRST] = True
        self.order.nodes.append(node)
        return node

    def _file_value(self, output: ir.Value, operand: Operand, value: ir.Value | None) -> ir.Value | None:
        """Return what a value of the graph holds of a result, which is in the file's order; None where it cannot be."""
        output.name = self.values.unique(f"{operand.name}/builtin")
        source_value = None if value is None else tensor_in(value, {operand.name})
        if value is None or source_value is None:
            kind = next(name for name, each in NUMPY_TYPES.items() if each == operand.type)
            output.shape, output.type = ir.Shape(operand.shape), ir.TensorType(ir.DataType.from_numpy(np.dtype(kind)))
            return output
        return self.order.as_stored(output, value, source_value)

    def _replace(self, results: Mapping[ir.Value, ir.Value]) -> None:
        """Put what was made in the place of the nodes: what a value of the graph was is computed anew."""
        self.graph.opset_imports.setdefault(DOMAIN, 1)
        for constant in self.order.constants:
            self.graph.register_initializer(constant)
        self.graph.insert_before(self.nodes[-1], self.order.nodes)
        for value, replacement in results.items():
            name, value.name = value.name, None
            replacement.name = name
            replacement.metadata_props.update(value.metadata_props)
            value.replace_all_uses_with(replacement, replace_graph_outputs=True)
        for inner in self.bodies:
            inner.resize_inputs(0)
        self.graph.remove(self.nodes[::-1], safe=True)
        for replacement in results.values():
            self.values.add(replacement)
        if len(results) > 1:
            self.graph.sort()  # who reads the first result may stand before the builtin


def _fits(value: ir.Value, operand: Operand) -> bool:
    """Return whether a value has the type and extents of an operand: a constant all of them, another their number."""
    if value.shape is None or len(value.shape) != len(operand.shape):
        return False
    if value.dtype not in TENSOR_TYPES or kernel_type(value) != operand.type:
        return False
    constant = value.const_value is not None and not value.is_graph_input()
    return not (constant or operand.variable) or list(value.shape) == list(operand.shape)
