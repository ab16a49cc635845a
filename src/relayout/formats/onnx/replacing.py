"""A node of a graph that other nodes take the place of, before layouts are chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.graph.source_names import Names, label, stands_for
from relayout.graph.subgraphs import all_nodes, take_over

AXES_AS_OPERANDS = 13  # version from which on the axes of an Unsqueeze are an operand


class Writing:
    """A node of a graph that others take the place of."""

    def __init__(self, graph: ir.Graph, node: ir.Node, names: Names, version: int) -> None:
        self.graph, self.node, self.names, self.version = graph, node, names, version
        self.stem = label(node)

    def add(self, op_type: str, inputs: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        """Add a node before the one that is replaced; return its result."""
        return self.add_many(op_type, inputs, 1, **attributes)[0]

    def add_many(
        self, op_type: str, inputs: Sequence[ir.Value | None], count: int, **attributes: Any
    ) -> list[ir.Value]:
        """Add a node of several results before the one that is replaced; return these."""
        name = self.names.unique(f"{self.stem}/{op_type}")
        node = ir.node(op_type, list(inputs), attributes or None, num_outputs=count, name=name)
        stands_for(node, self.node)
        for value in node.outputs:
            value.name = self.names.unique(f"{self.stem}/{op_type.lower()}")
        self.graph.insert_before(self.node, node)
        return list(node.outputs)

    def unsqueeze(self, value: ir.Value, axis: int) -> ir.Value:
        """Add a node that gives a value one more axis; return its result."""
        return self._with_axes("Unsqueeze", value, axis)

    def squeeze(self, value: ir.Value, axis: int) -> ir.Value:
        """Add a node that gives a value one axis less; return its result."""
        return self._with_axes("Squeeze", value, axis)

    def _with_axes(self, op_type: str, value: ir.Value, axis: int) -> ir.Value:
        if self.version < AXES_AS_OPERANDS:
            return self.add(op_type, [value], axes=[axis])
        return self.add(op_type, [value, self.constant(np.array([axis], np.int64))])

    def constant(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> ir.Value:
        """Add a constant."""
        tensor = ir.tensor(array, name=self.names.unique(f"{self.stem}/constant"))
        value = ir.val(tensor.name, const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def finish(self, results: Sequence[ir.Value | None]) -> None:
        """Let values be what the node gave, and remove it."""
        for output, value in zip(self.node.outputs, results, strict=True):
            if output.name and value is not None:
                copy = ir.node("Identity", [value], name=self.names.unique(f"{self.stem}/Identity"))
                self.graph.insert_before(self.node, copy)
                take_over(copy.outputs[0], output)
        self.graph.remove(self.node, safe=True)


# The Transposes that a file holds.


def perms(model: ir.Model) -> Iterator[tuple[int, ...] | None]:
    """Yield the perm of each Transpose, in bodies too; None where it only reverses the axes."""
    for node in all_nodes(model.graph):
        if node.op_type == "Transpose":
            attribute = node.attributes.get("perm")
            yield None if attribute is None else tuple(attribute.as_ints())
