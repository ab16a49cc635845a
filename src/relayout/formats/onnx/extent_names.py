"""Names that shape inference makes up for extents, and the names that say the same."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.formats.onnx.value_shapes import MADE_UP, OutputsOf
from relayout.graph.subgraphs import all_nodes
from relayout.layout import Extent
from relayout.layout.stored_as import STATED


class ExtentNames:
    """Names that inference made up for extents, and what else these are called.

    A name stands for one extent and is never used for another: `used` holds all names so far.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.used: set[str] = set()
        ends = (*graph.inputs, *graph.outputs)
        shapes = (shape for end in ends for shape in (end.shape, end.meta.get(STATED)) if shape is not None)
        self._kept = {name for shape in shapes for dim in shape for name in symbols_of_dim(dim)}
        self._same: dict[str, Extent] = {}

    def learn(self, before: ir.Shape | None, after: Sequence[int | ir.SymbolicDim | str] | None) -> None:
        """Return the shape with the extents of another one in place of names that were made up."""
        if before is None or after is None or len(before) != len(after):
            return
        for dim, other in zip(before, after, strict=True):
            name = None if isinstance(dim, int) else dim.value
            found = other if isinstance(other, int | str) else other.value
            if name is None or found in (None, "") or not MADE_UP.fullmatch(name) or name in self._kept:
                continue
            extent = self._of(Extent.of(found))
            if name not in self._same and name not in extent.names:
                self._same[name] = extent

    def settle(self, model: ir.Model, outputs_of: OutputsOf | None) -> None:
        """Say every extent by its one name, node after node: by what a node reads its outputs' may be known.

        [b, 8, h, w] -> Conv -> [unk__8, 8, h, w]: unk__8 is b
        """
        for node in model.graph:
            for value in node.outputs if self._same else ():
                self._rename(value)
            if outputs_of is not None and any(any(map(_is_made_up_here, v.shape or ())) for v in node.outputs):
                for value, (_, shape) in zip(node.outputs, outputs_of(node, model.opset_imports), strict=False):
                    self.learn(value.shape, shape)
                    self._rename(value)
        for value in (value for node in all_nodes(model.graph) for value in node.outputs) if self._same else ():
            self._rename(value)

    def _of(self, extent: Extent) -> Extent:
        while not self._same.keys().isdisjoint(extent.names):
            extent = extent.fixed({name: str(self._same[name]) for name in extent.names if name in self._same})
        return extent

    def _rename(self, value: ir.Value) -> None:
        if value.shape is None or not any(self._same.keys() & symbols_of_dim(dim) for dim in value.shape):
            return
        dims = [
            dim if isinstance(dim, int) or dim.value is None else self._of(Extent.of(dim.value)) for dim in value.shape
        ]
        value.shape = ir.Shape([(d.number if d.is_static else str(d)) if isinstance(d, Extent) else d for d in dims])


def symbols_of_dim(dim: int | ir.SymbolicDim) -> frozenset[str]:
    """Return the symbols in the extent of a dimension."""
    return frozenset() if isinstance(dim, int) or dim.value is None else Extent.of(dim.value).names


def _is_made_up_here(dim: int | ir.SymbolicDim) -> bool:
    return not isinstance(dim, int) and dim.value is not None and MADE_UP.fullmatch(dim.value) is not None
