"""The values of a graph by their names, by the tensors of a file that they hold, and those that constants give."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from relayout.formats.tflite.digests import holdings


class ValuesByTensor:
    """The values of a graph by their names, and by the tensors of a file that they hold.

    Args:
        graph: a graph, or a body.
        around: the values of the graph around it.
    """

    def __init__(self, graph: ir.Graph, around: ValuesByTensor | None = None) -> None:
        self.around = around
        self.taken: set[str | None] = set() if around is None else around.taken
        self._computed: set[ir.Value | None] = set() if around is None else set(around._computed)
        self._holding: dict[str, list[ir.Value]] = {}
        for value in (*graph.inputs, *graph.initializers.values(), *(out for node in graph for out in node.outputs)):
            self.add(value)
        for node in graph:
            is_extents = node.op_type == "Shape" and node.inputs[0] is not None and _is_static(node.inputs[0])
            if is_extents or all(value is None or self.follows_from_constants(value) for value in node.inputs):
                self._computed.update(node.outputs)

    def follows_from_constants(self, value: ir.Value) -> bool:
        """Return whether a value is a constant, or computed from constants and from extents that are numbers alone."""
        if value.producer() is not None:
            return value in self._computed
        return value.const_value is not None and not value.is_graph_input()

    def add(self, value: ir.Value) -> None:
        """Take note of a value."""
        self.taken.add(value.name)
        for name in {value.name or "", *(held.name for held in holdings(value))}:
            self._holding.setdefault(name, []).append(value)

    def holding(self, name: str) -> Iterator[ir.Value]:
        """Yield the values that are there and hold a tensor."""
        for value in self._holding.get(name, ()):
            node = value.producer()
            if value.name is not None and (node is None or node.graph is not None):
                yield value
        if self.around is not None:
            yield from self.around.holding(name)

    def unique(self, name: str) -> str:
        """Return a name that no value has."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _is_static(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.is_static()
