"""What the bodies of an If, a Loop and a Scan have in common: operands, states, graphs inside a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.program import Given
from relayout.formats.tflite.importing.registry import Unsupported
from relayout.formats.tflite.importing.variables import Handle
from relayout.light_dataclass import dataclass

BOOL = ir.DataType.BOOL


def carried_operands(op: Operation, first: int = 0) -> list[Given]:
    """What stands behind each operand from a position on."""
    return [
        op.tensors.handles.get(op.operator.inputs[i]) or op.stored(i) for i in range(first, len(op.operator.inputs))
    ]


def hand_over(op: Operation, results: Sequence[Given]) -> None:
    """Hand over values and handles, one for each result."""
    if len(results) != len(op.operator.outputs):
        raise ReadError(f"{len(results)} results for {len(op.operator.outputs)} tensors", where=op.place)
    for i, result in enumerate(results):
        if isinstance(result, Handle):
            op.tensors.handles[op.operator.outputs[i]] = result
        else:
            op.result_stored(result, i)


def discard(nodes: Sequence[ir.Node]) -> None:
    """Take back nodes that were written only to look at them: no value shall count them among its readers."""
    for node in nodes:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                discard(list(attribute.as_graph()))
        for i in range(len(node.inputs)):
            node.replace_input_with(i, None)


@dataclass
class NodeBody:
    """A graph inside a node: nodes that may read any value outside, and outputs of their own."""

    op: Operation
    nodes: list[ir.Node] = field(default_factory=list)

    def graph(self, inputs: Sequence[ir.Value], values: Sequence[ir.Value], name: str) -> ir.Graph:
        """The body as a graph; each of its outputs is computed within, and there once."""
        outputs: list[ir.Value] = []
        made = {id(value) for node in self.nodes for value in node.outputs}
        with self.op.builder.body() as more:
            for value in values:
                own = id(value) in made and not any(value is other for other in outputs)
                outputs.append(value if own else self.op.emit("Identity", [value], dims(value)))
        return ir.Graph(inputs, outputs, nodes=self.nodes + more, name=self.op.hint(name))


def fresh(op: Operation) -> str:
    """A name for an extent that no other has."""
    return op.builder.names.unique(op.hint("extent"))


def values_of(given: Sequence[Given], positions: Sequence[int]) -> list[ir.Value]:
    """The values at these positions, where no resources may be."""
    values = [value for i in positions if isinstance(value := given[i], ir.Value)]
    if len(values) != len(positions):
        raise Unsupported("a loop that changes which resource it uses")
    return values


def state_of(op: Operation, first: ir.Value, loose: set[int]) -> ir.Value:
    """A state of the loop inside the body; the extents of its `loose` axes may be others in every round."""
    shape = [fresh(op) if axis in loose or not isinstance(d, int) else d for axis, d in enumerate(dims(first))]
    return op.builder.value(op.builder.names.unique(op.hint("state")), first.dtype or BOOL, tuple(shape))


def changed_extents(op: Operation, states: Sequence[ir.Value], lasts: Sequence[ir.Value]) -> set[tuple[int, int]]:
    """(state, axis) of each extent that is not after a round what it was before."""
    changed = set()
    for k, (a, b) in enumerate(zip(states, lasts, strict=True)):
        if a.dtype != b.dtype:
            raise ReadError("a round changes the type of a state", where=op.place)
        if len(dims(a)) != len(dims(b)):
            raise Unsupported("a round that changes the rank of a state")
        changed |= {(k, axis) for axis, (m, n) in enumerate(zip(dims(a), dims(b), strict=True)) if m != n}
    return {(k, axis) for k, axis in changed if isinstance(dims(states[k])[axis], int)}
