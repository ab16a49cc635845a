"""A recurrent operator that is given its own results of the steps before, as it is given all else.

What one step rounds, the next makes more of, and a clamp that only integers have is one that the state has, too. What
an LSTM or an RNN yields is its state, so that it can be given as a sequence beside the operand, with the weights beside
each other; of the state that it computes itself nothing is left. A Scan is given it as one more sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import convenience

RECURRENT = {"LSTM", "RNN"}
UNDOING = {"Add": "Sub", "Mul": "Div", "QuantizeLinear": "DequantizeLinear"}
"""Operators with constants, or which round, and what gives their first operand back."""
MOVING = {*UNDOING, "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators behind a recurrent one whose result tells their operand."""


def recall(graph: ir.Graph, name: str) -> ir.Value | None:
    """Make the operator behind a value read the value's own elements as its results of the steps before.

    Returns:
        the new input, of the value's type and shape; None if there is no such operator.
    """
    value = next((value for node in graph for value in node.outputs if value.name == name), None)
    entry = None if value is None else ir.Value(name=f"{name}/own", type=value.type, shape=value.shape)
    path: list[ir.Node] = []
    while value is not None and (node := value.producer()) is not None and node.op_type in MOVING:
        path.append(node)
        value = node.inputs[0]
    node = None if value is None else value.producer()
    if value is None or entry is None or entry.shape is None or node is None or any(map(_is_open, path)):
        return None
    before = _Before(graph, node)
    if node.op_type in RECURRENT and value.index() == 0 and before.direction != "bidirectional":
        before.read_by_weights(before.of(entry, path))
    elif node.op_type == "Scan" and (listed := _listed(node, value)) is not None:
        before.read_by_body(before.of(entry, path), listed[0], reverse=listed[1])
    else:
        return None
    return entry


def _is_open(node: ir.Node) -> bool:
    """Whether it cannot be undone: more than one extent of its operand is not known, or another operand is computed."""
    operand = node.inputs[0]
    shape = None if operand is None else operand.shape
    computed = node.op_type in UNDOING and any(one is not None and one.producer() for one in node.inputs[1:])
    return computed or shape is None or sum(not isinstance(extent, int) for extent in shape) > 1


class _Before:
    """The results of the steps before, on their way to an operator."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self._graph, self._node = graph, node
        self.direction = node.attributes.get_string("direction", "forward")

    def _emit(self, operator: str, operands: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        made = ir.node(operator, operands, attributes)
        self._graph.insert_before(self._node, made)
        return made.outputs[0]

    def _constant(self, numbers: list[int]) -> ir.Value:
        return self._emit("Constant", [], value=ir.tensor(np.array(numbers, np.int64)))

    def of(self, value: ir.Value, path: list[ir.Node]) -> ir.Value:
        """What the operator yields, of what was made of it."""
        for node in path:
            operand = node.inputs[0]
            if node.op_type == "Transpose" and operand is not None and operand.shape is not None:
                perm = node.attributes.get_ints("perm", tuple(range(len(operand.shape)))[::-1])
                value = self._emit("Transpose", [value], perm=[list(perm).index(axis) for axis in range(len(perm))])
            elif node.op_type in UNDOING:
                value = self._emit(UNDOING[node.op_type], [value, *node.inputs[1:]], **_axis(node))
            elif operand is not None and operand.shape is not None:
                extents = [extent if isinstance(extent, int) else -1 for extent in operand.shape]
                value = self._emit("Reshape", [value, self._constant(extents)])
        return value

    def _shifted(self, results: ir.Value, first: ir.Value, *, reverse: bool) -> ir.Value:
        """`time ...` one step later, the first being given as `1 ...`."""
        ends = ([1], [2**31]) if reverse else ([0], [-1])
        rest = self._emit("Slice", [results, *map(self._constant, ends), self._constant([0])])
        return self._emit("Concat", [rest, first] if reverse else [first, rest], axis=0)

    def read_by_weights(self, results: ir.Value) -> None:
        """As more elements of the operand: `x W + h R` is `(x h) (W R)`."""
        node, reverse = self._node, self.direction == "reverse"
        x, kernel, recurrent = node.inputs[:3]
        steps = self._emit("Squeeze", [results, self._constant([1])])
        first = node.inputs[5] if len(node.inputs) > 5 else None
        if first is None:
            some = self._emit("Slice", [steps, *map(self._constant, ([0], [1], [0]))])
            first = self._emit("Sub", [some, some])
        node.replace_input_with(0, self._emit("Concat", [x, self._shifted(steps, first, reverse=reverse)], axis=2))
        node.replace_input_with(1, self._emit("Concat", [kernel, recurrent], axis=2))
        node.replace_input_with(2, self._emit("Sub", [recurrent, recurrent]))

    def read_by_body(self, results: ir.Value, place: int, *, reverse: bool) -> None:
        """As one more sequence of a Scan, in the place of a state."""
        node, body = self._node, self._node.attributes["body"].as_graph()
        first = self._emit("Unsqueeze", [node.inputs[place], self._constant([0])])
        state, count = body.inputs[place], node.attributes["num_scan_inputs"].as_int()
        own = ir.Value(name=f"{state.name}/own", type=state.type, shape=state.shape)
        convenience.replace_all_uses_with(state, own)
        body.inputs.append(own)
        ways = node.attributes.get_ints("scan_input_directions", [0] * count)
        node.attributes.add(ir.AttrInt64s("scan_input_directions", [*ways, int(reverse)]))
        node.attributes.add(ir.AttrInt64("num_scan_inputs", count + 1))
        node.resize_inputs(len(node.inputs) + 1)
        node.replace_input_with(len(node.inputs) - 1, self._shifted(results, first, reverse=reverse))


def _listed(node: ir.Node, value: ir.Value) -> tuple[int, bool] | None:
    """The state of a Scan that a result lists, step by step, and whether from the last on; None if it lists none."""
    if any(any(node.attributes.get_ints(name, [])) for name in ("scan_input_axes", "scan_output_axes")):
        return None
    made = [_origin(result) for result in node.attributes["body"].as_graph().outputs]
    states, place = len(node.inputs) - node.attributes["num_scan_inputs"].as_int(), value.index() or 0
    if place < states or made[place] not in made[:states]:
        return None
    ways = node.attributes.get_ints("scan_output_directions", [0] * (len(made) - states))
    return made.index(made[place]), bool(ways[place - states])


def _origin(value: ir.Value) -> ir.Value:
    """The value behind Identities."""
    while (node := value.producer()) is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value = node.inputs[0]
    return value


def _axis(node: ir.Node) -> dict[str, int]:
    return {"axis": node.attributes["axis"].as_int()} if "axis" in node.attributes else {}
