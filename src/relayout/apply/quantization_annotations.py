"""What a graph says of its values beside their nodes: which initializers are their scales and zero points.

ONNX's `quantization_annotation` names a tensor, and tensors for `SCALE_TENSOR` and `ZERO_POINT_TENSOR`. It is about the
value, in whatever order it is stored: a value of the result says what the source says of the value that it holds, and
what is named stays in the graph, though no node reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from relayout.formats.onnx.parts import ANNOTATION as KEY
from relayout.graph.subgraphs import graph_values
from relayout.infer.sites import Root


class Annotations:
    """The annotations of a source, noted before it is rewritten."""

    def __init__(
        self,
        originals: Mapping[Root, Sequence[ir.Value]],  # root -> the values of the source that are views of it
    ) -> None:
        self._said: dict[Root, dict[str, dict[str, str]]] = {}
        self._holding = {root: list(values) for root, values in originals.items()}
        for root, values in originals.items():
            said = {value.name or "": dict(value.meta[KEY]) for value in values if value.meta.get(KEY)}
            if said:
                self._said[root] = said
        annotations = [each for said in self._said.values() for each in said.values()]
        self.named = {name for annotation in annotations for name in annotation.values()}  # the tensors that they name

    def carry(self, value: ir.Value, root: Root) -> None:
        """Say of a value that holds a root what the source says of the value of that name, or else of the root."""
        said = self._said.get(root)
        if said:
            value.meta[KEY] = said.get(value.name or "") or next(iter(said.values()))
            self._holding[root].append(value)

    def settle(self, graphs: Sequence[ir.Graph]) -> list[str]:
        """Leave out what names tensors that are not there, and tensors that nothing names any longer.

        Returns:
            The values of the source of which the result does not say the same.
        """
        if not self._said:
            return []
        values = {value for graph in graphs for value in graph_values(graph)}
        there = {value.name for value in values}
        for value in values:
            if not there.issuperset(value.meta.get(KEY, {}).values()):
                del value.meta[KEY]
        named = {name for value in values for name in value.meta.get(KEY, {}).values()}
        for graph in graphs:
            for name in self.named - named:
                spare = graph.initializers.get(name)
                if spare is not None and not (spare.uses() or spare.is_graph_input() or spare.is_graph_output()):
                    del graph.initializers[name]
        unsaid = []
        for root, said in self._said.items():
            annotations = [value.meta.get(KEY) for value in self._holding[root] if value in values]
            unsaid += [name for name, annotation in said.items() if annotation not in annotations]
        return unsaid
