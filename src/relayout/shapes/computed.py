"""Vectors of extents that a graph computes from an opened dimension: what they hold in the result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir

from relayout.formats.onnx.evaluated_operators import JOINING, SHAPE_ARITHMETIC
from relayout.formats.onnx.evaluating import MOST_ELEMENTS, Evaluation
from relayout.formats.onnx.moving_elements import MOVES
from relayout.formats.onnx.shape_vectors import Array
from relayout.layout import Dim, Extent

Items = list[Extent | None]
"""The elements of a vector of extents; None is one that is not known."""

SIZED = frozenset(("ConstantOfShape", "Expand", "Range", "Split"))
"""Operators of shape arithmetic whose results have as many elements as an operand says."""


class Computed:
    """The known values that follow from opened extents.

    Args:
        model: its opset imports count.
        names: the names of opened extents.
    """

    def __init__(self, model: ir.Model, names: frozenset[str]) -> None:
        self._names = names
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
        self._evaluation = Evaluation(onnx.ModelProto(opset_import=imports), {})
        self._items: dict[ir.Value, Items | None] = {}
        self._others: dict[ir.Value, Items] = {}

    def __contains__(self, value: ir.Value | None) -> bool:
        return value in self._items

    def items(self, value: ir.Value) -> Items | None:
        """Return the elements of a vector of extents; None where they are not known."""
        return self._items.get(value, self._others.get(value))

    def knows(self, value: ir.Value | None) -> bool:
        """Tell whether a value is a vector of extents that were read, opened or not."""
        return value in self._items or value in self._others

    def values(self) -> Iterator[ir.Value]:
        """Yield all values that follow from opened extents, in the order of the graph."""
        yield from self._items

    def shape(self, node: ir.Node, dims: tuple[Extent, ...]) -> None:
        """Note what a Shape or a Size gives of an operand that has these extents in the result."""
        value = node.inputs[0]
        assert value is not None
        assert value.name
        kind = int(value.dtype or ir.DataType.FLOAT)
        stated: list[Dim] = [extent.number if extent.is_static else str(extent) for extent in dims]
        self._evaluation.shapes[value.name] = onnx.helper.make_tensor_type_proto(kind, stated).tensor_type
        self.follow(node)

    def follow(self, node: ir.Node) -> None:
        """Note what a node gives that reads values which follow from opened extents."""
        evaluation = self._evaluation
        for value in node.inputs:
            if value is None or value in self._items or value.const_value is None or not value.name:
                continue
            if value.const_value.size <= MOST_ELEMENTS:
                evaluation.values[value.name] = value.const_value.numpy()
        for value in node.outputs:
            if value.name and value.dtype is not None:
                kind = onnx.helper.make_tensor_type_proto(int(value.dtype), None).tensor_type
                evaluation.shapes[value.name] = kind
        for _ in evaluation.run(ir.serde.serialize_node(node)):
            pass
        for value in node.outputs:
            if value.name:
                found = evaluation.values.get(value.name)
                items = None if found is None else _items(found)
                if items is None or any(item is None or not self._names.isdisjoint(item.names) for item in items):
                    self._items[value] = items
                else:
                    self._others[value] = items


def is_arithmetic(node: ir.Node, computed: Computed) -> bool:
    """Tell whether a node computes vectors of extents, whose length does not depend on what they hold."""
    name = node.op_type
    if node.domain or name not in SHAPE_ARITHMETIC or name in SIZED:
        return False
    return name not in MOVES or name in JOINING or not any(value in computed for value in node.inputs[1:])


def _items(array: Array) -> Items:
    """Return the elements as extents; those that are no integers are numbers that nobody counts by."""
    if array.dtype.kind not in "iO":
        return []
    return [None if item is None else Extent.of(item) for item in np.ravel(array).tolist()]
