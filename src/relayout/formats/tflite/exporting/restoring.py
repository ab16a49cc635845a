"""Nodes that a builtin was spelled out in become one node again, which is that builtin.

DequantizeLinear, Scan, QuantizeLinear  ->  tflite:UNIDIRECTIONAL_SEQUENCE_LSTM
RNN, Squeeze                            ->  tflite:UNIDIRECTIONAL_SEQUENCE_RNN, Unsqueeze, Squeeze
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.exporting.draft import NUMPY_TYPES
from relayout.formats.tflite.spelled_out import (
    BUILTIN,
    DIGEST,
    DOMAIN,
    Builtin,
    Operand,
    digest,
    name_and_order,
    nodes_of,
)
from relayout.graph.source_names import SOURCE
from relayout.graph.subgraphs import captured, nested
from relayout.layout import perm as perms
from relayout.layout.stored_as import BATCH_FIRST

RESTORED = frozenset({"UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"})
"""Builtins that are restored: a sequence `time batch c` or `batch time c`, and one result."""
CELLS = ("LSTM", "RNN")
"""Operators of ONNX that run all steps: the sequence is the first operand, and the results have directions."""
LOOPS = (*CELLS, "Scan")
"""Operators that run all steps: of a Scan the sequence is the last operand."""
ELEMENTWISE = frozenset({"Add", "Cast", "DequantizeLinear", "Identity", "MatMul", "Mul", "QuantizeLinear"})
"""Operators before and behind the loop that leave time and batch where they are."""
RANK = 3
RNN_WEIGHTS = (1, 2)
"""Operands that ONNX's RNN and the builtin have at the same places."""


def restore_builtins(model: ir.Model, *, trusted: bool) -> bool:
    """Restore builtins in place; return whether there were any.

    Args:
        model: the model.
        trusted: whether the descriptions are true as they are, since the model was just read from a `.tflite`.
    """
    found = False
    for node in list(model.graph):
        text, source = node.metadata_props.get(BUILTIN), node.metadata_props.get(SOURCE, "")
        builtin = None if text is None or node.graph is None else Builtin.parse(text)
        if builtin is None or builtin.name not in RESTORED or node.op_type not in LOOPS:
            continue
        nodes = nodes_of(model.graph, source)
        if trusted or node.metadata_props.get(DIGEST) == digest(nodes, builtin.names):
            found |= _Restoring(model.graph, node, nodes, builtin).run()
    return found


class _End(NamedTuple):
    """The sequence or the result: a value outside, and where its time is."""

    value: ir.Value
    time: int


class _Restoring:
    """A builtin and the nodes that it is spelled out in."""

    def __init__(self, graph: ir.Graph, loop: ir.Node, nodes: Sequence[ir.Node], builtin: Builtin) -> None:
        self.graph, self.loop, self.nodes, self.builtin = graph, loop, nodes, builtin
        self.inside = set(nodes)

    def run(self) -> bool:
        """Restore it; return False where the nodes are not of the form that is known."""
        sequence, result = self._sequence(), self._result()
        if sequence is None or result is None or not self._is_closed(sequence.value, result.value):
            return False
        sequence = self._as_in_file(sequence)
        inputs: list[ir.Value | None] = []
        for place, operand in enumerate(self.builtin.inputs):
            value = sequence.value if place == 0 else self._value(operand.name) if operand and operand.name else None
            if operand is not None and operand.name and value is None:
                value = self._weights(place, operand)
                if value is None:
                    return False
            inputs.append(value)
        builtin = self._at_batch(sequence, inputs)
        if builtin is None:
            return False
        made = ir.Node(
            DOMAIN,
            self.builtin.name,
            inputs,
            [ir.AttrString("description", builtin.dump()), ir.AttrInt64("time_major", int(sequence.time == 0))],
            name=self.loop.name,
        )
        made.metadata_props[SOURCE] = self.loop.metadata_props.get(SOURCE, "")
        made.meta[BATCH_FIRST] = True
        self.graph.opset_imports.setdefault(DOMAIN, 1)
        self._replace(made, result, turned=result.time != sequence.time)
        return True

    def _sequence(self) -> _End | None:
        """Return the value that the loop's sequence is made of, outside of the nodes."""
        value, time = self.loop.inputs[-1], self._axis("scan_input_axes")
        if self.loop.op_type in CELLS:
            value, time = self.loop.inputs[0], self.loop.attributes.get_int("layout", 0)
        while value is not None and (node := value.producer()) in self.inside and node is not None:
            perm = _perm(node)
            if perm is None:
                return None
            time = perm[time]
            value = next((each for each in node.inputs if each is not None and _rank(each) == RANK), None)
        return None if value is None or _rank(value) != RANK or time > 1 else _End(value, time)

    def _axis(self, name: str) -> int:
        (axis,) = self.loop.attributes.get_ints(name, [0])
        return axis % RANK

    def _as_in_file(self, sequence: _End) -> _End:
        """Return a sequence of one step or of a batch of one in the file's order: there a Transpose moves nothing."""
        is_moved = bool(self.builtin.options.get("time_major")) != (sequence.time == 0)
        if sequence.value.shape is None or not is_moved or 1 not in list(sequence.value.shape)[:2]:
            return sequence
        return _End(self._turned(sequence.value, [1, 0, 2]), 1 - sequence.time)

    def _at_batch(self, sequence: _End, inputs: Sequence[ir.Value | None]) -> Builtin | None:
        """Return the builtin with variables for the sequences that the graph has now; None where it cannot have them.

        A variable has a row for each sequence, and no runtime gives it other rows. So the batch must be a number.
        """
        shape, operands = sequence.value.shape, list(self.builtin.inputs)
        batch = None if shape is None else shape[1 - sequence.time]
        for place, (operand, value) in enumerate(zip(self.builtin.inputs, inputs, strict=True)):
            if operand is None or place == 0:
                continue
            if operand.variable:
                if not isinstance(batch, int):
                    return None
                operands[place] = operand = operand._replace(shape=(batch, *operand.shape[1:]))
            if value is not None and (value.shape is None or list(value.shape) != list(operand.shape)):
                return None
        return self.builtin._replace(inputs=tuple(operands))

    def _result(self) -> _End | None:
        """Return the value that others read of what the loop yields."""
        if self.loop.op_type in CELLS:
            return _End(self.loop.outputs[0], self.loop.attributes.get_int("layout", 0))
        value, time = self.loop.outputs[-1], self._axis("scan_output_axes")
        while not value.is_graph_output():
            users = [use.node for use in value.uses()]
            if len(users) != 1 or users[0] not in self.inside:
                break
            perm = _perm(users[0])
            if perm is None:
                return None
            time, value = perm.index(time), users[0].outputs[0]
        return None if _rank(value) != RANK or time > 1 else _End(value, time)

    def _is_closed(self, sequence: ir.Value, result: ir.Value) -> bool:
        """Return whether the nodes read nothing computed but the sequence and constants, and give the result alone."""
        behind = self._behind()
        for node in self.nodes:
            for value in () if node in behind else (*node.inputs, *captured(node)):
                if value is None or value is sequence or value.producer() in self.inside:
                    continue
                if value.name not in self.builtin.names and not _follows_from_constants(value):
                    return False
            for value in () if node in behind else node.outputs:
                outside = value.is_graph_output() or any(not self._is_user(use.node) for use in value.uses())
                if outside and value is not result:
                    return False
        return True

    def _is_user(self, node: ir.Node) -> bool:
        """Return whether a node is one of these, or in the loop's body."""
        return node in self.inside or (node.graph is not None and node.graph is not self.graph)

    def _value(self, name: str) -> ir.Value | None:
        """Return the value of a name in the order of axes that the file has, if there is one."""
        graph = self.graph
        values = {value.name: value for node in graph for value in node.outputs} | dict(graph.initializers)
        if name in values:
            return values[name]
        for other, value in values.items():
            stem, order = name_and_order(other or "")
            if stem == name and order is not None:
                fits = sorted(order) == list(range(_rank(value)))
                return self._turned(value, perms.inverse(order)) if fits else None
        return None

    def _weights(self, place: int, operand: Operand) -> ir.Value | None:
        """Return weights that are a constant of ONNX's RNN, without its axis of directions; None where they are not."""
        value = self.loop.inputs[place] if self.loop.op_type == "RNN" and place in RNN_WEIGHTS else None
        node = None if value is None else value.producer()
        if node is not None and node.op_type == "DequantizeLinear":
            value = node.inputs[0]
        constant = None if value is None or value.is_graph_input() else value.const_value
        if value is None or constant is None or tuple(constant.shape.numpy()) != (1, *operand.shape):
            return None
        if NUMPY_TYPES.get(constant.dtype.numpy().name) != operand.type:
            return None
        dims = ir.Shape(operand.shape)
        tensor = ir.LazyTensor(
            lambda: ir.Tensor(constant.numpy()[0]),
            dtype=constant.dtype,
            shape=dims,
            name=self._unique(f"{value.name}/direction"),
        )
        made = ir.Value(name=tensor.name, shape=dims, type=value.type, const_value=tensor)
        self.graph.register_initializer(made)
        return made

    def _turned(self, value: ir.Value, perm: Sequence[int]) -> ir.Value:
        """Return a value with its axes in another order; a constant stays one."""
        constant, shape = value.const_value, value.shape
        assert shape is not None
        dims = [shape[axis] for axis in perm]
        if constant is None:
            node = ir.Node("", "Transpose", [value], [ir.AttrInt64s("perm", list(perm))])
            made = node.outputs[0]
            made.name = self._unique(f"{value.name}/turned")
            self.graph.insert_before(self.loop, node)
        else:
            tensor = ir.LazyTensor(
                lambda: ir.Tensor(np.ascontiguousarray(constant.numpy().transpose(perm))),
                dtype=constant.dtype,
                shape=ir.Shape(dims),
                name=self._unique(f"{value.name}/turned"),
            )
            made = ir.Value(name=tensor.name, const_value=tensor)
        made.shape, made.type = ir.Shape(dims), value.type
        if constant is not None:
            self.graph.register_initializer(made)
        return made

    def _unique(self, name: str) -> str:
        taken = {value.name for node in self.graph for value in node.outputs} | set(self.graph.initializers)
        while name in taken:
            name += "_"
        return name

    def _replace(self, made: ir.Node, result: _End, *, turned: bool) -> None:
        """Put the builtin in the place of the nodes, and what its result is moved by behind it."""
        value, nodes, behind = result.value, [made], self._behind()
        name, value.name = value.name, None
        dims = [] if value.shape is None else list(value.shape)
        if self.loop.op_type in CELLS:  # directions between time and batch, or behind them
            directions = 2 if result.time else 1
            axes = ir.Value(name=self._unique(f"{name}/axes"), const_value=ir.tensor([directions], ir.DataType.INT64))
            axes.shape, axes.type = ir.Shape([1]), ir.TensorType(ir.DataType.INT64)
            self.graph.register_initializer(axes)
            nodes.append(ir.Node("", "Unsqueeze", [None, axes]))
            dims = [*dims[:directions], *dims[directions + 1 :]]
        if turned:
            nodes.insert(1, ir.Node("", "Transpose", [None], [ir.AttrInt64s("perm", [1, 0, 2])]))
        shape = [dims[1], dims[0], *dims[2:]] if turned else dims
        for place, (before, node) in enumerate(pairwise(nodes)):
            given = before.outputs[0]
            given.shape, given.type, given.name = ir.Shape(shape), value.type, self._unique(f"{name}/builtin{place}")
            node.replace_input_with(0, given)
            shape = dims
        last = nodes[-1].outputs[0]
        last.shape, last.type, last.name = value.shape, value.type, name
        last.metadata_props.update(value.metadata_props)
        place_of = value.producer()
        assert place_of is not None
        self.graph.insert_before(place_of, nodes)
        value.replace_all_uses_with(last, replace_graph_outputs=True)
        for inner in nested(self.loop):
            inner.resize_inputs(0)
        self.graph.remove([node for node in self.nodes[::-1] if node not in behind], safe=True)

    def _behind(self) -> set[ir.Node]:
        """Return those of the nodes that read what an LSTM yields, and stay: it has directions, which they drop."""
        found: set[ir.Node] = set()
        for node in (self.loop, *self.nodes) if self.loop.op_type in CELLS else ():
            if node is self.loop or node in found:
                found |= {use.node for value in node.outputs for use in value.uses() if use.node in self.inside}
        return found


def _perm(node: ir.Node) -> list[int] | None:
    """Return the order in which a node stores time, batch and rest of its operand; None where it does otherwise."""
    if node.op_type in ELEMENTWISE:
        return [0, 1, 2]
    if node.op_type == "Transpose":
        perm = list(node.attributes.get_ints("perm", []))
        return perm if len(perm) == RANK and perm[2] == 2 else None
    source = node.inputs[0] if node.op_type == "Reshape" else None
    before, after = (None if each is None else each.shape for each in (source, node.outputs[0]))
    if before is None or after is None or len(before) != RANK or len(after) != RANK:
        return None
    if list(before) == list(after):
        return [0, 1, 2]
    swapped = [before[1], before[0], before[2]] == list(after) and 1 in (before[0], before[1])
    return [1, 0, 2] if swapped else None


def _is_static(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.is_static()


def _rank(value: ir.Value) -> int:
    return -1 if value.shape is None else len(value.shape)


def _follows_from_constants(value: ir.Value) -> bool:
    """Return whether a value is a constant, or computed from constants and from extents that are numbers alone."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        node = each.producer()
        if node is not None and node.op_type == "Shape" and node.inputs[0] is not None and _is_static(node.inputs[0]):
            continue
        if each.is_graph_input() or (node is None and each.const_value is None):
            return False
        if node is not None:
            waiting += [operand for operand in node.inputs if operand is not None]
    return True
