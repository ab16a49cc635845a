"""GRU, LSTM and RNN over sequences of open length: a Scan whose body is the operator for one step.

    GRU(x[n b i])  ->  Scan(h, x) { GRU(x[1 b i], initial_h = h) }

LiteRT runs it as a WHILE. An LSTM that LiteRT's fused kernel computes takes any length and stays.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.exporting.loops import SCAN_WITHOUT_BATCHES, Writing, unique
from relayout.formats.tflite.exporting.operators.recurrent import MOST_STEPS
from relayout.formats.tflite.exporting.operators.sequence_lstm import is_fused

STATES = {"GRU": 1, "LSTM": 2, "RNN": 1}
"""Operator -> how many states it has."""
SEQUENCE, KERNEL, RECURRENT, BIAS, LENGTHS, FIRST, PEEPHOLE = 0, 1, 2, 3, 4, 5, 7


def scan_open_recurrences(model: ir.Model, names: set[str]) -> bool:
    """Write such operators as Scans, in place; return whether there were any.

    Args:
        model: the model.
        names: of all its values; it grows.
    """
    found, version = False, model.opset_imports.get("", 1)
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            if version >= SCAN_WITHOUT_BATCHES and not node.domain and node.op_type in STATES and _is_open(node):
                _AsScan(graph, node, names, version).run()
                found = True
    return found


def _is_open(node: ir.Node) -> bool:
    """Return whether a sequence has more steps than are written one by one, or no known number of them."""
    x, recurrent = node.inputs[SEQUENCE], node.inputs[RECURRENT]
    if x is None or x.shape is None or recurrent is None or recurrent.shape is None:
        return False
    length, *rest = x.shape
    is_long = not isinstance(length, int) or length > MOST_STEPS
    known = all(isinstance(dim, int) for dim in (*rest, *recurrent.shape))
    batch_first = node.attributes.get_int("layout", 0) == 1
    if not is_long or not known or batch_first or _operand(node, LENGTHS) is not None:
        return False
    return node.op_type != "LSTM" or not is_fused(node)


def _operand(node: ir.Node, slot: int) -> ir.Value | None:
    return node.inputs[slot] if slot < len(node.inputs) else None


class _AsScan(Writing):
    """One operator as a Scan for each direction."""

    def run(self) -> None:
        node, way = self.node, self.node.attributes.get_string("direction", "forward")
        count = 2 if way == "bidirectional" else 1
        runs = [self._direction(number, count, backwards=way == "reverse" or number == 1) for number in range(count)]
        results: list[ir.Value | None] = []
        for slot in range(len(node.outputs)):
            parts = [each[slot] for each in runs]
            results.append(parts[0] if count == 1 else self.add("Concat", parts, axis=0 if slot else 1))
        self.finish(results)

    def _direction(self, number: int, count: int, *, backwards: bool) -> list[ir.Value]:
        """Return the results of all steps, and the last states, of one direction."""
        node = self.node
        shape = node.inputs[SEQUENCE].shape  # type: ignore[union-attr]
        units = node.inputs[RECURRENT].shape  # type: ignore[union-attr]
        assert shape is not None
        assert units is not None
        batch, size, hidden = int(shape[1]), int(shape[2]), int(units[2])  # type: ignore[arg-type]
        parameters = {
            slot: self._part(value, number, count)
            for slot in (KERNEL, RECURRENT, BIAS, PEEPHOLE)
            if (value := _operand(node, slot)) is not None
        }
        zeros = np.zeros((1, batch, hidden), np.float32)
        first = []
        for slot in range(FIRST, FIRST + STATES[node.op_type]):
            given = _operand(node, slot)
            first.append(self.constant(zeros) if given is None else self._part(given, number, count))
        body = self._body(parameters, (batch, size, hidden), number, count)
        way = {"scan_input_directions": [1], "scan_output_directions": [1]} if backwards else {}
        *last, every = self.add_many(
            "Scan", [*first, node.inputs[SEQUENCE]], len(first) + 1, body=body, num_scan_inputs=1, **way
        )
        return [every, *last]

    def _part(self, value: ir.Value, number: int, count: int) -> ir.Value:
        """Return one direction's part of an operand."""
        if count == 1:
            return value
        return self.add("Gather", [value, self.constant(np.array([number], np.int64))], axis=0)

    def _body(
        self, parameters: dict[int, ir.Value], extents: tuple[int, int, int], number: int, count: int
    ) -> ir.Graph:
        """Return the graph of one step: states and a row of the sequence -> states and the result."""
        node, (batch, size, hidden) = self.node, extents
        kind = ir.TensorType(ir.DataType.FLOAT)

        def value(name: str, *dims: int) -> ir.Value:
            return ir.Value(name=unique(f"{self.stem}/{name}", self.names), shape=ir.Shape(dims), type=kind)

        states = [value("state", 1, batch, hidden) for _ in range(STATES[node.op_type])]
        row = value("row", batch, size)
        shape = self.constant(np.array([1, batch, size], np.int64))
        step = ir.node("Reshape", [row, shape], outputs=[value("step", 1, batch, size)])
        inputs: list[ir.Value | None] = [step.outputs[0], None, None, None, None, *states]
        inputs += [None] * (PEEPHOLE + 1 - len(inputs))
        for slot, given in parameters.items():
            inputs[slot] = given
        while inputs[-1] is None:
            inputs.pop()
        after = [value("after", 1, batch, hidden) for _ in states]
        attributes = [each for each in node.attributes.values() if each.name not in ("direction", *LISTS)]
        attributes += [self._listed(each, number, count) for each in node.attributes.values() if each.name in LISTS]
        own = ir.Node("", node.op_type, inputs, attributes, outputs=[value("steps", 1, 1, batch, hidden), *after])
        result = ir.node("Identity", [after[0]], outputs=[value("result", 1, batch, hidden)])
        nodes = [step, own, result]
        for each in nodes:
            each.name = unique(f"{self.stem}/{each.op_type}", self.names)
        return ir.Graph([*states, row], [*after, result.outputs[0]], nodes=nodes, name=f"{self.stem}/step")

    @staticmethod
    def _listed(attribute: ir.Attr, number: int, count: int) -> ir.Attr:
        """Return one direction's part of an attribute that lists something for each direction."""
        items = list(attribute.value)
        size = len(items) // count
        return ir.Attr(attribute.name, attribute.type, items[number * size : (number + 1) * size])


LISTS = ("activations", "activation_alpha", "activation_beta")
"""Attributes that list something for each direction."""
