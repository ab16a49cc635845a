"""A graph that computes some values from given ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir import convenience

from relayout.graph.subgraphs import all_nodes

MOVING = {"Clip", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators that leave integers as they are, moved or clamped at most."""
ROUNDING = {"QuantizeLinear"}


def give_values(graph: ir.Graph, entry_names: Sequence[str], shown: Sequence[str]) -> dict[str, ir.Value]:
    """Let the readers of values read new ones instead, and make others the graph's outputs, in place.

    Returns:
        Name of a given value -> the value that is read instead; it is no input of the graph yet.
    """
    entries = {}
    value_by_name = {value.name: value for node in graph for value in node.outputs}
    graph.outputs.clear()  # what is shown is what the model makes there, also where its readers are given another
    for name in entry_names:
        value = value_by_name.get(name)
        if value is not None and value.uses() and value.type is not None:
            entries[name] = entry = ir.Value(name=f"{name}/given", type=value.type, shape=value.shape)
            convenience.replace_all_uses_with(value, entry)
    graph.outputs[:] = [value_by_name[name] for name in shown if name in value_by_name]
    return entries


def move_at_random(graph: ir.Graph, steps: Mapping[str, float], seed: int = 0) -> None:
    """Move the real numbers that values are quantized from, at random, by up to so many steps of each, in bodies too.

    What has a step for each channel stays where it is.
    """
    for number, node in enumerate([node for node in all_nodes(graph) if node.op_type in ROUNDING]):
        real, most = node.inputs[0], steps.get(node.outputs[0].name or "")
        if most and _has_one_step(node):
            limits = {"low": -float(most), "high": float(most), "seed": float(number + 1000 * seed)}
            _move(node, ir.node("RandomUniformLike", [real], limits))


def move_quantized(graph: ir.Graph, steps: float) -> None:
    """Move the real numbers that outputs are quantized from."""
    for node in {id(node): node for node in map(_quantized_by, graph.outputs) if node is not None}.values():
        step = node.inputs[1]
        if step is not None and step.dtype is not None:
            share = ir.tensor(np.array(steps, step.dtype.numpy()))
            _move(node, ir.node("Constant", [], {"value": share}))


def _move(quantizing: ir.Node, share: ir.Node) -> None:
    """Let a QuantizeLinear read its operand moved by as many steps as a node gives."""
    real, step, *_ = quantizing.inputs
    by = ir.node("Mul", [*share.outputs, step])
    moved = ir.node("Add", [real, *by.outputs])
    for part, each in zip(("share", "by", "moved"), (share, by, moved), strict=True):
        each.outputs[0].name = f"{quantizing.outputs[0].name}/{part}"
    assert quantizing.graph is not None
    quantizing.graph.insert_before(quantizing, [share, by, moved])
    quantizing.replace_input_with(0, moved.outputs[0])


def _has_one_step(quantizing: ir.Node) -> bool:
    """Tell whether a QuantizeLinear has one step for all elements."""
    shape = None if quantizing.inputs[1] is None else quantizing.inputs[1].shape
    return shape is not None and all(extent == 1 for extent in shape)


def take_magnitudes(graph: ir.Graph) -> None:
    """Give the operators that make outputs the magnitudes of their operands."""
    for node in {id(node): node for value in graph.outputs if (node := value.producer()) is not None}.values():
        for slot, operand in enumerate(node.inputs):
            if operand is not None and (operand.dtype is None or operand.dtype.is_floating_point()):
                magnitude = ir.node("Abs", [operand])
                graph.insert_before(node, magnitude)
                node.replace_input_with(slot, magnitude.outputs[0])


def _quantized_by(value: ir.Value) -> ir.Node | None:
    """The QuantizeLinear, of one step for all elements, whose integers a value holds, moved and clamped at most."""
    node = value.producer()
    while node is not None and node.op_type in MOVING and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node if node is not None and node.op_type in ROUNDING and _has_one_step(node) else None


# A recurrent operator that is given its own results of the steps before, as it is given all else.
#
# What one step rounds, the next makes more of, and a clamp that only integers have is one that the state has, too.
# What an LSTM or an RNN yields is its state, so that it can be given as a sequence beside the operand, with the
# weights beside each other; of the state that it computes itself nothing is left. A Scan is given it as one more
# sequence.


def recall(graph: ir.Graph, name: str) -> ir.Value | None:
    """Make the operator behind a value read the value's own elements as its results of the steps before.

    Returns:
        the new input, of the value's type and shape; None if there is no such operator.
    """
    value = next((value for node in graph for value in node.outputs if value.name == name), None)
    entry = None if value is None else ir.Value(name=f"{name}/own", type=value.type, shape=value.shape)
    path: list[ir.Node] = []
    while value is not None and (node := value.producer()) is not None and node.op_type in UNDOING:
        path.append(node)
        value = node.inputs[0]
    node = None if value is None else value.producer()
    if value is None or entry is None or entry.shape is None or node is None or any(map(_is_open, path)):
        return None
    reading = READING.get(node.op_type)
    return entry if reading is not None and reading(_Before(graph, node), value, entry, path) else None


def _is_open(node: ir.Node) -> bool:
    """Tell whether a node cannot be undone: its operand has several unknown extents, or another one is computed."""
    operand = node.inputs[0]
    shape = None if operand is None else operand.shape
    computed = any(one is not None and one.producer() is not None for one in node.inputs[1:])
    return computed or shape is None or sum(not isinstance(extent, int) for extent in shape) > 1


class _Before:
    """The results of the steps before, on their way to an operator."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self._graph, self._node = graph, node

    def _emit(self, operator: str, operands: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        node = ir.node(operator, operands, attributes)
        self._graph.insert_before(self._node, node)
        return node.outputs[0]

    def _constant(self, numbers: list[int]) -> ir.Value:
        return self._emit("Constant", [], value=ir.tensor(np.array(numbers, np.int64)))

    def of(self, value: ir.Value, path: list[ir.Node]) -> ir.Value:
        """Return the recurrent operator's own result, from the value that the nodes of `path` made of it."""
        for node in path:
            value = UNDOING[node.op_type](self, value, node)
        return value

    def turned_back(self, value: ir.Value, node: ir.Node) -> ir.Value:
        """Return the operand of a Transpose, from its result."""
        (shape,) = (operand.shape for operand in node.inputs[:1] if operand is not None)
        perm = list(node.attributes.get_ints("perm", range(len(shape or ()))[::-1]))
        return self._emit("Transpose", [value], perm=[perm.index(axis) for axis in range(len(perm))])

    def reshaped(self, value: ir.Value, node: ir.Node) -> ir.Value:
        """Return the operand of a node that keeps the order of elements, from its result."""
        (shape,) = (operand.shape for operand in node.inputs[:1] if operand is not None)
        extents = [extent if isinstance(extent, int) else -1 for extent in shape or ()]
        return self._emit("Reshape", [value, self._constant(extents)])

    def inverted(self, value: ir.Value, node: ir.Node, inverse: str) -> ir.Value:
        """Return the operand of a node with constants, from its result."""
        return self._emit(inverse, [value, *node.inputs[1:]], **_axis(node))

    def _shifted(self, results: ir.Value, first: ir.Value, *, reverse: bool) -> ir.Value:
        """`time ...` one step later, the first being given as `1 ...`."""
        ends = ([1], [2**31]) if reverse else ([0], [-1])
        rest = self._emit("Slice", [results, *map(self._constant, ends), self._constant([0])])
        return self._emit("Concat", [rest, first] if reverse else [first, rest], axis=0)

    def read_by_weights(self, value: ir.Value, entry: ir.Value, path: list[ir.Node]) -> bool:
        """As more elements of the operand: `x W + h R` is `(x h) (W R)`."""
        node, direction = self._node, self._node.attributes.get_string("direction", "forward")
        if value.index() != 0 or direction not in ("forward", "reverse"):
            return False
        results, reverse = self.of(entry, path), direction == "reverse"
        x, kernel, recurrent = node.inputs[:3]
        steps = self._emit("Squeeze", [results, self._constant([1])])
        first = node.inputs[5] if len(node.inputs) > 5 else None
        if first is None:
            some = self._emit("Slice", [steps, *map(self._constant, ([0], [1], [0]))])
            first = self._emit("Sub", [some, some])
        node.replace_input_with(0, self._emit("Concat", [x, self._shifted(steps, first, reverse=reverse)], axis=2))
        node.replace_input_with(1, self._emit("Concat", [kernel, recurrent], axis=2))
        node.replace_input_with(2, self._emit("Sub", [recurrent, recurrent]))
        return True

    def read_by_body(self, value: ir.Value, entry: ir.Value, path: list[ir.Node]) -> bool:
        """As one more sequence of a Scan, in the place of a state."""
        node, body = self._node, self._node.attributes["body"].as_graph()
        listed = _listed(node, value)
        if listed is None:
            return False
        results, (place, reverse) = self.of(entry, path), listed
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
        return True


Reading: TypeAlias = Callable[[_Before, ir.Value, ir.Value, list[ir.Node]], bool]
READING: dict[str, Reading] = {  # recurrent operator -> how it is given its results
    "LSTM": _Before.read_by_weights,
    "RNN": _Before.read_by_weights,
    "Scan": _Before.read_by_body,
}

UNDOING: dict[str, Callable[[_Before, ir.Value, ir.Node], ir.Value]] = {
    **dict.fromkeys(("Identity", "Reshape", "Squeeze", "Unsqueeze"), _Before.reshaped),
    "Transpose": _Before.turned_back,
    "Add": partial(_Before.inverted, inverse="Sub"),
    "Mul": partial(_Before.inverted, inverse="Div"),
    "QuantizeLinear": partial(_Before.inverted, inverse="DequantizeLinear"),
}
"""Operator behind a recurrent one whose result tells its operand -> how."""

IDENTITIES = {"Identity"}


def _listed(node: ir.Node, value: ir.Value) -> tuple[int, bool] | None:
    """The state of a Scan that a result lists, step by step, and whether from the last on; None if it lists none."""
    if any(any(node.attributes.get_ints(name, [])) for name in ("scan_input_axes", "scan_output_axes")):
        return None
    origins = [_origin(result) for result in node.attributes["body"].as_graph().outputs]
    states, place = len(node.inputs) - node.attributes["num_scan_inputs"].as_int(), value.index() or 0
    if place < states or origins[place] not in origins[:states]:
        return None
    ways = node.attributes.get_ints("scan_output_directions", [0] * (len(origins) - states))
    return origins.index(origins[place]), bool(ways[place - states])


def _origin(value: ir.Value) -> ir.Value:
    """Return the value behind Identities."""
    while (node := value.producer()) is not None and node.op_type in IDENTITIES and node.inputs[0] is not None:
        value = node.inputs[0]
    return value


def _axis(node: ir.Node) -> dict[str, int]:
    return {"axis": node.attributes["axis"].as_int()} if "axis" in node.attributes else {}
