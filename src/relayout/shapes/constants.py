"""Constants of an operator that state the extents of what it gives: how they are stated of an opened dimension.

Forms that stay constants come first: 1 where an Expand stretches nothing, the end of all there is for a Slice, scales
in place of the sizes of a Resize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from relayout.formats.onnx.evaluating import JOINING, MOST_ELEMENTS, SHAPE_ARITHMETIC, Evaluation
from relayout.formats.onnx.shape_vectors import MOVES, Array
from relayout.graph.domains import RESIZE
from relayout.layout import Dim, Extent
from relayout.rules import Operator
from relayout.shapes.own_axes import slice_bounds
from relayout.shapes.parts import Parts
from relayout.shapes.rewriting import DimensionRewriting, Place

# Vectors of extents that a graph computes from an opened dimension: what they hold in the result.

Items = list[Extent | None]  # the elements of a vector of extents; None is one that is not known

SIZED = frozenset(("ConstantOfShape", "Expand", "Range", "Split"))
"""Operators of shape arithmetic whose results have as many elements as an operand says."""


class Computed:
    """The known values that follow from opened extents."""

    def __init__(
        self,
        model: ir.Model,  # its opset imports count
        names: frozenset[str],  # the names of opened extents
    ) -> None:
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


Change = Callable[[DimensionRewriting], None]  # a change to the graph, to be made once the axis was followed to the end
State = Callable[[Operator, Parts, Place], list[Change] | None]  # how the constants of an operator are stated anew
END = np.iinfo(np.int64).max  # the end of a Slice that takes all that there is, of whatever extent
SCALES, SIZES = 2, 3  # inputs of a Resize


def expand(operator: Operator, parts: Parts, _: Place) -> list[Change] | None:
    """Ask for 1 along an opened axis: the operand has its extent already."""
    items, output = operator.integers(1), operator.outputs[0]
    if items is None or output is None:
        return None
    lead = len(output) - len(items)
    found = [1 if place + lead in parts else item for place, item in enumerate(items)]
    return [] if found == list(items) else [lambda r: r.restate(operator.node, 1, found, "shape")]


def slice_(operator: Operator, parts: Parts, _: Place) -> list[Change] | None:
    """Take all up to the end along an opened axis, whatever its extent."""
    bounds = slice_bounds(operator)
    if bounds is None:
        return []
    ends = [END if axis in parts else end for axis, (_, end, _) in bounds.items()]
    if ends == [end for _, end, _ in bounds.values()]:
        return []
    if not operator.has(2):
        return [lambda r: r.set_integers(operator.node, "ends", ends)]
    most = 2 ** (8 * operator.dtype(2).itemsize - 1) - 1
    return [lambda r: r.restate(operator.node, 2, [min(end, most) for end in ends], "ends")]


def resize(operator: Operator, parts: Parts, place: Place) -> list[Change] | None:
    """Say scales where all are whole, which keep an opened extent; else compute the sizes."""
    sizes, shape = operator.integers(SIZES), operator.shape()
    axes = operator.ints("axes") or tuple(range(len(shape or ())))
    if not operator.has(SIZES) or not any(axis in parts for axis in axes):
        return []
    if sizes is None or shape is None:
        return None
    pairs = [(size, shape[axis]) for size, axis in zip(sizes, axes, strict=True)]
    if all(isinstance(before, int) and size % before == 0 for size, before in pairs):
        scales = np.array([size // before for size, before in pairs if isinstance(before, int)], np.float32)
        return [lambda r: r.scale(operator.node, scales, SCALES)]
    items = [(axis in parts, size) for axis, size in zip(axes, sizes, strict=True)]
    if any(opened and size != before for (opened, size), (_, before) in zip(items, pairs, strict=True)):
        return None
    return [lambda r: r.compute(operator.node, SIZES, items, place)]


def affine_grid(operator: Operator, parts: Parts, place: Place) -> list[Change] | None:
    """Compute the size of the image, whose first extent is the opened one."""
    sizes = operator.integers(1)
    if 0 not in parts:
        return []
    if sizes is None:
        return None
    items = [(index == 0, size) for index, size in enumerate(sizes)]
    return [lambda r: r.compute(operator.node, 1, items, place)]


STATED: Mapping[tuple[str, str], State] = {
    ("", "AffineGrid"): affine_grid,
    ("", "Expand"): expand,
    ("", RESIZE): resize,
    ("", "Slice"): slice_,
}
"""(domain, operator) -> how its constants are stated anew, by the opened axes of its result and a dimension that has
the opened extent; None where what states extents is no constant."""


def shape_items(
    target: Sequence[Extent],  # the extents of the result
    source: Sequence[Extent] | None,  # the extents of the operand, which 0 copies; None where it does not
) -> list[int] | None:
    """Return a constant shape for a Reshape; None where more than one extent would have to be computed."""
    found = [extent.number if extent.is_static else -1 for extent in target]
    if found.count(-1) <= 1:
        return found
    for axis, extent in enumerate(target):
        if found[axis] == -1 and source is not None and axis < len(source) and source[axis] == extent:
            found[axis] = 0
    return found if found.count(-1) <= 1 else None
