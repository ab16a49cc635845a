"""GRU, LSTM and RNN over sequences of open length: a Scan whose body is the operator for one step.

    GRU(x[n b i])  ->  Scan(h, x) { GRU(x[1 b i], initial_h = h) }

LiteRT runs it as a WHILE. What is marked as a loop stays (`operators/recurrent_loop.py`), as does an LSTM that LiteRT's
fused kernel computes: it takes any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from relayout.formats.onnx.replacing import Writing
from relayout.formats.tflite.exporting.loops import SCAN_WITHOUT_BATCHES, SLICES_BACKWARDS
from relayout.formats.tflite.exporting.operators.recurrent import MOST_STEPS
from relayout.formats.tflite.exporting.operators.recurrent_loop import LOOP
from relayout.formats.tflite.exporting.operators.sequence_lstm import is_fused
from relayout.formats.tflite.exporting.recurrent_operands import (
    BIAS,
    HIDDEN,
    KERNEL,
    LENGTHS,
    PEEPHOLE,
    RECURRENT,
    SEQUENCE,
    STATES,
    activations_of,
    is_recurrent,
)
from relayout.graph.source_names import Names, stands_for
from relayout.graph.subgraphs import all_graphs


def scan_open_recurrences(model: ir.Model, names: Names) -> bool:
    """Write such operators as Scans, in place; return whether there were any.

    Args:
        model: the model.
        names: of all its values; it grows.
    """
    found, version = False, model.opset_imports.get("", 1)
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            if version >= SCAN_WITHOUT_BATCHES and is_recurrent(node) and _is_open(node, model.graph):
                _AsScan(graph, node, names, version).run()
                found = True
    return found


def _is_open(node: ir.Node, main: ir.Graph) -> bool:
    """Return whether a sequence has more steps than are written one by one, or no known number of them."""
    x, kernel, recurrent = (node.inputs[slot] for slot in (SEQUENCE, KERNEL, RECURRENT))
    if x is None or x.shape is None:
        return False
    if any(each is None or each.shape is None or not each.shape.is_static() for each in (kernel, recurrent)):
        return False
    length = x.shape[1 if node.attributes.get_int("layout", 0) else 0]
    is_long = not isinstance(length, int) or length > MOST_STEPS
    return is_long and not node.meta.get(LOOP) and (node.op_type != "LSTM" or not is_fused(node, main))


def _operand(node: ir.Node, slot: int) -> ir.Value | None:
    return node.inputs[slot] if slot < len(node.inputs) else None


class _AsScan(Writing):
    """One operator as a Scan for each direction."""

    def run(self) -> None:
        node, way = self.node, self.node.attributes.get_string("direction", "forward")
        count = 2 if way == "bidirectional" else 1
        self.batch_first = node.attributes.get_int("layout", 0) == 1
        sequence = self._time_first(node.inputs[SEQUENCE])
        runs = [
            self._direction(sequence, number, count, backwards=way == "reverse" or number == 1)
            for number in range(count)
        ]
        results: list[ir.Value | None] = []
        for slot in range(len(node.outputs)):
            parts = [each[slot] for each in runs]
            result = parts[0] if count == 1 else self.add("Concat", parts, axis=0 if slot else 1)
            results.append(
                self.add("Transpose", [result], perm=[1, 0, 2] if slot else [2, 0, 1, 3])
                if self.batch_first
                else result
            )
        self.finish(results)

    def _time_first(self, value: ir.Value | None) -> ir.Value | None:
        """Return a sequence with time first, or states with directions first."""
        return self.add("Transpose", [value], perm=[1, 0, 2]) if self.batch_first and value is not None else value

    def _direction(self, sequence: ir.Value | None, number: int, count: int, *, backwards: bool) -> list[ir.Value]:
        """Return the results of all steps `t 1 b h`, and the last states `1 b h`, of one direction."""
        node, lengths = self.node, _operand(self.node, LENGTHS)
        parameters = {
            slot: self._part(value, number, count)
            for slot in (KERNEL, RECURRENT, BIAS, PEEPHOLE)
            if (value := _operand(node, slot)) is not None
        }
        first: list[ir.Value | None] = []
        for slot in range(HIDDEN, HIDDEN + STATES[node.op_type]):
            given = self._time_first(_operand(node, slot))
            first.append(self._zeros(sequence) if given is None else self._part(given, number, count))
        body = self._body(parameters, number)
        reverses = backwards and lengths is not None
        turns = backwards and not reverses and self.version < SLICES_BACKWARDS  # a Scan cannot turn its results there
        if lengths is not None:
            first.append(self.constant(np.array([0], np.int32)))
        way = {"scan_input_directions": [1]} if backwards and not reverses else {}
        if way and not turns:
            way["scan_output_directions"] = [1]
        *last, every = self.add_many(
            "Scan",
            [*first, self._reversed(sequence, lengths) if reverses else sequence],
            len(first) + 1,
            body=body,
            num_scan_inputs=1,
            **way,
        )
        if reverses or turns:
            every = self._reversed(every, self._all_steps(sequence) if turns else lengths)
        return [self.unsqueeze(every, 1), *last[: STATES[node.op_type]]]

    def _reversed(self, steps: ir.Value | None, lengths: ir.Value | None) -> ir.Value:
        """Return the first steps of each row of `t b c` backwards, as many as it has.

        The result has its type and shape from here: before version 10 ONNX has no ReverseSequence to infer them by.
        """
        wide = self.add("Cast", [lengths], to=int(ir.DataType.INT64))
        made = self.add("ReverseSequence", [steps, wide], time_axis=0, batch_axis=1)
        if steps is not None and steps.shape is not None:
            made.shape, made.type = steps.shape, steps.type
        else:
            length, batch = self._steps_and_rows()
            made.shape, made.type = ir.Shape([length, batch, self._hidden()]), ir.TensorType(ir.DataType.FLOAT)
        return made

    def _all_steps(self, sequence: ir.Value | None) -> ir.Value:
        """Return the number of steps once for each row of a sequence, `b`."""
        extents = self.add("Shape", [sequence])
        length, rows = (
            self.add("Gather", [extents, self.constant(np.array([axis], np.int64))], axis=0) for axis in (0, 1)
        )
        return self.add("Expand", [length, rows])

    def _steps_and_rows(self) -> tuple[int | ir.SymbolicDim, int | ir.SymbolicDim]:
        """Return the extents of time and batch."""
        sequence = self.node.inputs[SEQUENCE]
        assert sequence is not None
        assert sequence.shape is not None
        first, second = list(sequence.shape)[:2]
        return (second, first) if self.batch_first else (first, second)

    def _zeros(self, sequence: ir.Value | None) -> ir.Value:
        """Return states to begin with, `1 b h`."""
        (batch, _), hidden = self._extents(), self._hidden()
        if isinstance(batch, int):
            return self.constant(np.zeros((1, batch, hidden), np.float32))
        extents = self.add("Shape", [sequence])
        rows = self.add("Gather", [extents, self.constant(np.array([1], np.int64))], axis=0)
        sides = [self.constant(np.array([extent], np.int64)) for extent in (1, hidden)]
        shape = self.add("Concat", [sides[0], rows, sides[1]], axis=0)
        return self.add("Expand", [self.constant(np.zeros((1, 1, 1), np.float32)), shape])

    def _extents(self) -> tuple[int | ir.SymbolicDim, int]:
        """Return the extent of the batch, which may be open, and the number of elements of a step."""
        shape, kernel = (self.node.inputs[slot].shape for slot in (SEQUENCE, KERNEL))  # type: ignore[union-attr]
        assert shape is not None
        assert kernel is not None
        return shape[0 if self.batch_first else 1], int(kernel[2])  # type: ignore[arg-type]

    def _hidden(self) -> int:
        shape = self.node.inputs[RECURRENT].shape  # type: ignore[union-attr]
        assert shape is not None
        return int(shape[2])  # type: ignore[arg-type]

    def _part(self, value: ir.Value, number: int, count: int) -> ir.Value:
        """Return one direction's part of an operand."""
        if count == 1:
            return value
        return self.add("Gather", [value, self.constant(np.array([number], np.int64))], axis=0)

    def _body(self, parameters: dict[int, ir.Value], number: int) -> ir.Graph:
        """Return the graph of one step: states and a row of the sequence -> states and the result.

        Where rows have lengths, the last state counts the steps, and a row that has ended keeps its states.
        """
        node, (batch, size), hidden = self.node, self._extents(), self._hidden()
        lengths, nodes = _operand(node, LENGTHS), list[ir.Node]()

        def value(name: str, *dims: int | ir.SymbolicDim, kind: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
            name = self.names.unique(f"{self.stem}/{name}")
            return ir.val(name, kind, ir.Shape(dims))

        def add(op_type: str, inputs: list[ir.Value | None], result: ir.Value) -> ir.Value:
            nodes.append(ir.node(op_type, inputs, outputs=[result]))
            return result

        states = [value("state", 1, batch, hidden) for _ in range(STATES[node.op_type])]
        row = value("row", batch, size)
        shape = self.constant(np.array([1, batch if isinstance(batch, int) else -1, size], np.int64))
        step = add("Reshape", [row, shape], value("step", 1, batch, size))
        inputs: list[ir.Value | None] = [step, None, None, None, None, *states]
        inputs += [None] * (PEEPHOLE + 1 - len(inputs))
        for slot, given in parameters.items():
            inputs[slot] = given
        while inputs[-1] is None:
            inputs.pop()
        after = [value("after", 1, batch, hidden) for _ in states]
        attributes = [each for each in node.attributes.values() if each.name not in ("direction", "layout", *LISTS)]
        if "activations" in node.attributes:
            attributes += _listed(activations_of(node, number))
        nodes.append(
            ir.Node("", node.op_type, inputs, attributes, outputs=[value("steps", 1, 1, batch, hidden), *after])
        )
        result = after[0]
        counts: list[tuple[ir.Value, ir.Value]] = []
        if lengths is not None:
            integer, truth = ir.DataType.INT32, ir.DataType.BOOL
            number_before = value("number", 1, kind=integer)
            one = self.constant(np.array([1], np.int32))
            counts = [(number_before, add("Add", [number_before, one], value("number", 1, kind=integer)))]
            runs = add("Less", [number_before, lengths], value("runs", batch, kind=truth))
            column = self.constant(np.array([-1, 1], np.int64))
            runs = add("Reshape", [runs, column], value("runs", batch, 1, kind=truth))
            zero = self.constant(np.zeros((1, 1), np.float32))
            result = add("Where", [runs, result, zero], value("result", 1, batch, hidden))
            after = [
                add("Where", [runs, new, old], value("after", 1, batch, hidden))
                for new, old in zip(after, states, strict=True)
            ]
        rows = self.constant(np.array([-1, hidden], np.int64))
        result = add("Reshape", [result, rows], value("result", batch, hidden))
        for each in nodes:
            each.name = self.names.unique(f"{self.stem}/{each.op_type}")
            stands_for(each, node)
        before, behind = ([each[place] for each in counts] for place in (0, 1))
        return ir.Graph([*states, *before, row], [*after, *behind, result], nodes=nodes, name=f"{self.stem}/step")


LISTS = ("activations", "activation_alpha", "activation_beta")
"""Attributes that list something for each direction."""


def _listed(activations: Sequence[tuple[str, list[float]]]) -> Iterator[ir.Attr]:
    """Yield the attributes that give a node of one direction its activations, with all their parameters."""
    yield ir.AttrStrings(LISTS[0], [name for name, _ in activations])
    for place, list_name in enumerate(LISTS[1:]):
        if numbers := [each[place] for _, each in activations if place < len(each)]:
            yield ir.AttrFloat32s(list_name, numbers)
