"""Nodes say of which builtin they are made, where ONNX has no operator for it."""

from __future__ import annotations

import onnx_ir as ir

from relayout.formats.tflite.importing.marking import options_to_say
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.recurrent import is_forgotten
from relayout.formats.tflite.importing.operators.weights import widened_from
from relayout.formats.tflite.spelled_out import BUILTIN, Builtin, Operand


def mark(op: Operation, node: ir.Node | None, states: tuple[int, ...] = ()) -> None:
    """Write the description of an operator into the metadata of a node that it is made of.

    Args:
        op: the operator.
        node: the node in the middle.
        states: its operands that are variables.
    """
    tensors = op.tensors.subgraph.tensors
    used = [tensors[i] for i in (*op.operator.inputs, *op.operator.outputs, *op.operator.intermediates) if i >= 0]
    if node is None or op.tensors.dequantize or any(tensor.shifted for tensor in used):
        return
    kept = [i for i in states if is_forgotten(op, i) or _is_set_once(op, i)]
    if not all(i in kept or (op.input(i).is_variable and op.tensors.has_value(op.input(i))) for i in states):
        return
    description = _description(op, kept)
    if len(description.intermediates) == len(op.operator.intermediates):
        node.metadata_props[BUILTIN] = description.dump()


def _description(op: Operation, kept: list[int]) -> Builtin:
    """Describe an operator; a state that is `kept` has no name, since nothing is read from it."""
    inputs = [
        None if not op.has(i) else Operand.of(op.input(i), "" if i in kept else op.stored(i).name or "")
        for i in range(len(op.operator.inputs))
    ]
    results = [op.output(i) for i in range(len(op.operator.outputs))]
    outputs = [Operand.of(tensor, op.tensors.names[tensor.index]) for tensor in results]
    between = [Operand.of(op.tensors.subgraph.tensors[i]) for i in op.operator.intermediates if i >= 0]
    return Builtin(op.operator.name, options_to_say(op), tuple(inputs), tuple(outputs), tuple(between))


def _is_set_once(op: Operation, i: int) -> bool:
    """Return whether a DEQUANTIZE of constant zeros writes a variable, which LiteRT runs in the first run only."""
    tensor = op.input(i)
    source = widened_from(op, tensor)
    once = tensor.is_variable and source is not tensor and op.program.choices.state == "zero" and not op.program.nested
    return once and not source.content.any()
