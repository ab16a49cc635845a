"""Operators that older opsets do not have, written in others that they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.formats.onnx.older_model import NewerError, OlderModel
from relayout.formats.onnx.operator_schemas import first_version


class OlderSteps:
    """The operators that stand for a node, in front of it."""

    def __init__(self, older: OlderModel, node: ir.Node) -> None:
        self.older, self.original = older, node
        value = node.inputs[0]
        self.dtype = None if value is None else value.dtype
        self.x = value

    def constant(self, number: float) -> ir.Value:
        """Return a number of the operand's type."""
        if self.dtype is None:
            raise NewerError(f"an unknown element type, from opset {first_version(self.original.op_type)} on")
        return self.older.constant("constant", np.array(number, self.dtype.numpy()))

    def add(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Return the result of a new operator, of the operand's type and shape unless `like` says otherwise."""
        node = self.original
        name = self.older.names.unique(f"{node.outputs[0].name}/{op_type.lower()}")
        result = ir.Value(name=name, type=node.outputs[0].type)
        made = ir.node(op_type, inputs, attributes or None, outputs=[result], name=name)
        assert node.graph is not None
        node.graph.insert_before(node, made)
        return result

    def give(self, value: ir.Value) -> None:
        """Let a value stand for the node's first output; the node goes."""
        node, output = self.original, self.original.outputs[0]
        if any(each.uses() or each.is_graph_output() for each in node.outputs[1:]):
            raise NewerError(f"its other outputs, from opset {first_version(node.op_type)} on")
        last = value.producer()
        assert last is not None
        assert node.graph is not None
        name, inputs, attributes = output.name, last.inputs, list(last.attributes.values())
        end = ir.Value(name=name, type=output.type, shape=output.shape)
        end.metadata_props.update(output.metadata_props)
        made = ir.Node("", last.op_type, inputs, attributes, outputs=[end], name=node.name)
        node.graph.insert_before(node, made)
        ir.convenience.replace_all_uses_with(output, end, replace_graph_outputs=True)
        node.graph.remove([node, last], safe=True)


def _hard_swish(steps: OlderSteps) -> None:
    slope = steps.add("HardSigmoid", steps.x, alpha=1 / 6, beta=0.5)
    steps.give(steps.add("Mul", steps.x, slope))


def _mish(steps: OlderSteps) -> None:
    steps.give(steps.add("Mul", steps.x, steps.add("Tanh", steps.add("Softplus", steps.x))))


def _gelu(steps: OlderSteps) -> None:
    half = steps.add("Mul", steps.x, steps.constant(0.5))
    if steps.original.attributes.get_string("approximate", "none") == "tanh":
        cube = steps.add("Mul", steps.add("Mul", steps.x, steps.x), steps.x)
        inner = steps.add("Add", steps.x, steps.add("Mul", cube, steps.constant(0.044715)))
        curve = steps.add("Tanh", steps.add("Mul", inner, steps.constant(float(np.sqrt(2 / np.pi)))))
    else:
        curve = steps.add("Erf", steps.add("Mul", steps.x, steps.constant(float(np.sqrt(0.5)))))
    steps.give(steps.add("Mul", half, steps.add("Add", curve, steps.constant(1.0))))


def _layer_normalization(steps: OlderSteps) -> None:
    node = steps.original
    value = steps.x
    if value is None or value.shape is None:
        raise NewerError("an unknown rank, from opset 17 on")
    rank = len(value.shape)
    axes = list(range(node.attributes.get_int("axis", -1) % rank, rank))
    axes = [axis - rank for axis in axes]

    def mean(each: ir.Value | None) -> ir.Value:
        if steps.older.opset >= 18:
            numbers = steps.older.constant("axes", np.array(axes, np.int64))
            return steps.add("ReduceMean", each, numbers, keepdims=1)
        return steps.add("ReduceMean", each, axes=axes, keepdims=1)

    centred = steps.add("Sub", value, mean(value))
    variance = mean(steps.add("Mul", centred, centred))
    epsilon = steps.constant(node.attributes.get_float("epsilon", 1e-5))
    deviation = steps.add("Sqrt", steps.add("Add", variance, epsilon))
    result = steps.add("Mul", steps.add("Div", centred, deviation), node.inputs[1])
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        result = steps.add("Add", result, node.inputs[2])
    steps.give(result)


DEFINITIONS: Mapping[str, Callable[[OlderSteps], None]] = {
    "Gelu": _gelu,
    "HardSwish": _hard_swish,
    "LayerNormalization": _layer_normalization,
    "Mish": _mish,
}
"""Operators that become older ones."""
