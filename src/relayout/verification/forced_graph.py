"""A graph that computes some values from given ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import convenience

MOVING = {"Clip", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators that leave integers as they are, moved or clamped at most."""
ROUNDING = {"QuantizeLinear"}


def give_values(graph: ir.Graph, given: Sequence[str], shown: Sequence[str]) -> dict[str, ir.Value]:
    """Let the readers of values read new ones instead, and make others the graph's outputs, in place.

    Returns:
        Name of a given value -> the value that is read instead; it is no input of the graph yet.
    """
    entries = {}
    made = {value.name: value for node in graph for value in node.outputs}
    graph.outputs.clear()  # what is shown is what the model makes there, also where its readers are given another
    for name in given:
        value = made.get(name)
        if value is not None and value.uses() and value.type is not None:
            entries[name] = entry = ir.Value(name=f"{name}/given", type=value.type, shape=value.shape)
            convenience.replace_all_uses_with(value, entry)
    graph.outputs[:] = [made[name] for name in shown if name in made]
    return entries


def move_quantized(graph: ir.Graph, steps: float) -> None:
    """Move the real numbers that outputs are quantized from."""
    for quantizing in {id(node): node for node in map(_quantized_by, graph.outputs) if node is not None}.values():
        real, step = quantizing.inputs[0], quantizing.inputs[1]
        if real is None or step is None or step.dtype is None:
            continue
        share = ir.node("Constant", [], {"value": ir.tensor(np.array(steps, step.dtype.numpy()))})
        by = ir.node("Mul", [step, *share.outputs])
        moved = ir.node("Add", [real, *by.outputs])
        graph.insert_before(quantizing, [share, by, moved])
        quantizing.replace_input_with(0, moved.outputs[0])


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
    if node is None or node.op_type not in ROUNDING or node.inputs[1] is None:
        return None
    shape = node.inputs[1].shape
    return node if shape is not None and all(extent == 1 for extent in shape) else None
