"""The changes to a graph that opening a dimension makes. They are listed first, and made once the axis was followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from relayout.formats.onnx.evaluating import JOINING, MOST_ELEMENTS, SHAPE_ARITHMETIC, Evaluation
from relayout.formats.onnx.shape_vectors import MOVES, Array
from relayout.graph.domains import RESIZE
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import become
from relayout.layout import Dim, Extent
from relayout.light_dataclass import dataclass
from relayout.rules import Operator
from relayout.rules.slicing import slice_bounds
from relayout.shapes.own_axes import extents_of
from relayout.shapes.parts import OpenedFactor, Parts

Place = tuple[ir.Value, int]  # a dimension: a value and its axis


@dataclass
class DimensionRewriting:
    """A model whose dimension is opened, in place."""

    model: ir.Model
    # what was stretched already, by the graph in which it is read
    widened: dict[tuple[ir.Graph | None, ir.Value, int, OpenedFactor], ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = Names.of(self.model)

    def constant(self, array: Array, name: str) -> ir.Value:
        """Add a constant to the main graph, which bodies see, too."""
        tensor = ir.Tensor(array, name=self._names.unique(name))
        value = ir.val(tensor.name, const_value=tensor)
        self.model.graph.register_initializer(value)
        return value

    def emit(
        self, node: ir.Node, op_type: str, inputs: Sequence[ir.Value], name: str, like: ir.Value, **attributes: Any
    ) -> ir.Value:
        """Add an operator of one result before a node; the result has the element type of `like`."""
        name = self._names.unique(name)
        new_node = ir.node(op_type, inputs, attributes or None, name=name)
        (result,) = new_node.outputs
        result.name, result.type = name, like.type
        assert node.graph is not None
        node.graph.insert_before(node, new_node)
        return result

    def restate(self, node: ir.Node, slot: int, items: Sequence[int] | Array, name: str) -> None:
        """Give a node a constant of integers as an operand, of the type that the operand has."""
        before = node.inputs[slot]
        kind = np.int64 if before is None or before.dtype is None else before.dtype.numpy()
        label = before.name if before is not None and before.name else name
        node.replace_input_with(slot, self.constant(np.asarray(items, kind), label))

    def reshape(self, node: ir.Node, items: Sequence[int]) -> None:
        """Give a Reshape another shape, in which 0 copies an extent."""
        node.attributes.pop("allowzero", None)
        self.restate(node, 1, items, "shape")

    def set_integers(self, node: ir.Node, name: str, items: Sequence[int]) -> None:
        """Give a node an attribute of integers."""
        node.attributes[name] = ir.AttrInt64s(name, items)

    def scale(self, node: ir.Node, scales: Array, slot: int) -> None:
        """Let a Resize have scales, in the input before that of its sizes, and no sizes."""
        node.replace_input_with(slot, self.constant(scales, f"{node.name or node.op_type}_scales"))
        node.resize_inputs(slot + 1)

    def compute(self, node: ir.Node, slot: int, items: Sequence[tuple[bool, int]], place: Place) -> None:
        """Give a node a vector of extents, of which those marked are the opened one."""
        name = f"{node.name or node.op_type}_sizes"
        length = self.extent(node, place)
        pieces = [length if opened else self.constant(np.array([item]), name) for opened, item in items]
        node.replace_input_with(slot, self.emit(node, "Concat", pieces, name, length, axis=0))

    def regroup(self, node: ir.Node, slot: int, items: Sequence[int]) -> None:
        """Reshape an operand of a node."""
        value = node.inputs[slot]
        assert value is not None
        shape = self.constant(np.asarray(items, np.int64), f"{value.name}_shape")
        node.replace_input_with(slot, self.emit(node, "Reshape", [value, shape], f"{value.name}_rows", value))

    def become_reshape(self, node: ir.Node, items: Sequence[int]) -> None:
        """Put a Reshape to this shape in the place of a node that regroups its first operand."""
        value = node.inputs[0]
        assert value is not None
        become(node, "", "Reshape", [value, self._shape(node, items)])

    def move(self, node: ir.Node, axis: int, place: int, items: Sequence[int]) -> None:
        """Put Transposes and a Reshape in the place of a node that regroups its first operand, and moves an axis."""
        value = node.inputs[0]
        assert value is not None
        assert value.shape is not None
        if axis:
            perm = [axis, *(other for other in range(len(value.shape)) if other != axis)]
            value = self.emit(node, "Transpose", [value], f"{node.outputs[0].name}_rows", value, perm=perm)
        inputs = [value, self._shape(node, [-1, *items])]
        if not place:
            become(node, "", "Reshape", inputs)
            return
        value = self.emit(node, "Reshape", inputs, f"{node.outputs[0].name}_regrouped", value)
        others = list(range(1, len(items) + 1))
        become(node, "", "Transpose", [value], [ir.AttrInt64s("perm", [*others[:place], 0, *others[place:]])])

    def _shape(self, node: ir.Node, items: Sequence[int]) -> ir.Value:
        return self.constant(np.asarray(items, np.int64), f"{node.outputs[0].name}_shape")

    def extent(self, node: ir.Node, place: Place) -> ir.Value:
        """Return the extent of a dimension as a vector of one number, computed before a node."""
        value, axis = place
        name = f"{value.name}_extent"
        vector = ir.Value(type=ir.TensorType(ir.DataType.INT64))
        shape = self.emit(node, "Shape", [value], f"{value.name}_shape", vector)
        return self.emit(node, "Gather", [shape, self.constant(np.array([axis]), f"{name}_axis")], name, vector)

    def length(self, node: ir.Node, place: Place, part: OpenedFactor) -> ir.Value:
        """Return the extent of the opened part of a dimension, as `extent` does."""
        extent, other = self.extent(node, place), part.outer * part.inner
        if other.is_one:
            return extent
        by = self.constant(np.array([other.number]), f"{extent.name}_divisor")
        return self.emit(node, "Div", [extent, by], extent.name or "", extent)

    def widen(
        self,
        node: ir.Node,  # who reads it
        slot: int,  # which operand
        axis: int,  # of the operand
        part: OpenedFactor,  # the opened part of that axis
        place: Place,  # a dimension with the same part
    ) -> None:
        """Stretch an operand, which repeats along an axis, to the extent of an opened part."""
        value = node.inputs[slot]
        assert value is not None
        key = node.graph, value, axis, part
        if key not in self.widened:
            self.widened[key] = self._stretched(node, value, axis, part, place)
        node.replace_input_with(slot, self.widened[key])

    def _stretched(self, node: ir.Node, value: ir.Value, axis: int, part: OpenedFactor, place: Place) -> ir.Value:
        dims = list(extents_of(value))
        split = [*dims[:axis], part.outer, part.before, part.inner, *dims[axis + 1 :]]
        name, is_split, rank = f"{value.name}_stretched", not part.is_whole, len(dims) + 2
        expand = _expand_along(value, axis) if part.is_whole else None
        if expand is not None and all(dim.is_static for dim in (*dims[:axis], *dims[axis + 1 :])):
            return self._expanded_again(expand, node, [dim.number for dim in dims], axis, place)
        if is_split:
            value = self.emit(node, "Reshape", [value, self._numbers(split, name)], f"{name}_apart", value)
        axis, count = (axis + 1, rank) if is_split else (axis, len(dims))
        if not part.before.is_one:
            first = (("start", 0), ("end", 1), ("axis", axis))
            bounds = [self.constant(np.array([number]), f"{name}_{word}") for word, number in first]
            value = self.emit(node, "Slice", [value, *bounds], f"{name}_first", value)
        length = self.length(node, place, part)
        ones = [1] * (count - 1)
        value = self._expanded(node, (value, length), (ones[:axis], ones[axis:]), f"{name}_ones", name, value)
        if is_split:
            joined = [*dims[: axis - 1], Extent(-1), *dims[axis:]]
            value = self.emit(node, "Reshape", [value, self._numbers(joined, name)], f"{name}_joined", value)
        return value

    def _expanded_again(self, expand: ir.Node, node: ir.Node, dims: list[int], axis: int, place: Place) -> ir.Value:
        """Return what an Expand gives, with the extent of a dimension along an axis that it repeats."""
        value, (operand, *_) = expand.outputs[0], expand.inputs
        assert operand is not None
        name, length = f"{value.name}_stretched", self.extent(node, place)
        around = dims[:axis], dims[axis + 1 :]
        result = self._expanded(node, (operand, length), around, f"{name}_dims", name, value)
        new_node = result.producer()
        assert new_node is not None
        new_node.metadata_props.update(expand.metadata_props)
        return result

    def _expanded(
        self,
        node: ir.Node,
        operands: tuple[ir.Value, ir.Value],  # what is expanded, and the extent of one axis
        around: tuple[Sequence[int], Sequence[int]],  # the extents before that axis, and behind it
        what: str,  # the name of these
        name: str,  # that of the result
        like: ir.Value,  # a value of its element type
    ) -> ir.Value:
        """Add an Expand."""
        value, length = operands
        before, behind = ([self.constant(np.array(some, np.int64), what)] if some else [] for some in around)
        pieces = [*before, length, *behind]
        shape = length if len(pieces) == 1 else self.emit(node, "Concat", pieces, f"{name}_shape", length, axis=0)
        return self.emit(node, "Expand", [value, shape], name, like)

    def _numbers(self, extents: Sequence[Extent], name: str) -> ir.Value:
        """Return a shape as a constant; the one extent that is no number is what is left."""
        items = [extent.number if extent.is_static else -1 for extent in extents]
        return self.constant(np.array(items, np.int64), f"{name}_shape")


def _expand_along(value: ir.Value, axis: int) -> ir.Node | None:
    """Return the Expand that gives a value, if it repeats one element along an axis."""
    node = value.producer()
    if node is None or (node.domain, node.op_type) != ("", "Expand") or value.shape is None:
        return None
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    place = None if shape is None else axis - len(value.shape) + len(shape)
    return node if shape is not None and place is not None and (place < 0 or shape[place] == 1) else None


# Constants of an operator that state the extents of what it gives: how they are stated of an opened dimension.
#
# Forms that stay constants come first: 1 where an Expand stretches nothing, the end of all there is for a Slice, scales
# in place of the sizes of a Resize.

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
                array = evaluation.values.get(value.name)
                items = None if array is None else _items(array)
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
    new_items = [1 if place + lead in parts else item for place, item in enumerate(items)]
    return [] if new_items == list(items) else [lambda r: r.restate(operator.node, 1, new_items, "shape")]


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
    items = [extent.number if extent.is_static else -1 for extent in target]
    if items.count(-1) <= 1:
        return items
    for axis, extent in enumerate(target):
        if items[axis] == -1 and source is not None and axis < len(source) and source[axis] == extent:
            items[axis] = 0
    return items if items.count(-1) <= 1 else None
