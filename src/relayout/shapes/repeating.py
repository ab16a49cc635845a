"""Values of fixed extents that hold the same for every step of an axis: more steps are as good."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from relayout.layout import Extent
from relayout.rules import Fact, Operator, Permuted, Regrouped, Signature, draws
from relayout.shapes.parts import OpenedFactor
from relayout.shapes.regrouping import ways

Look = Callable[[ir.Node], tuple[Operator, Fact]]
"""The facts about a node."""
MOST_STEPS = 64
"""Operators between a value and the constants that it follows from."""


def repeats_along(value: ir.Value, axis: int, part: OpenedFactor, look: Look) -> bool:
    """Tell whether a value of fixed extents holds the same for every step of a part of an axis.

    Args:
        value: the value, of known shape.
        axis: one of its axes.
        part: what is opened of it.
        look: what gives the operator and the fact of a node.
    """
    return _Repeating(look).holds(value, axis, part, MOST_STEPS)


class _Repeating:
    """A walk back from a value, in which each value is looked at once, however many paths lead to it."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.known: dict[tuple[ir.Value, int, OpenedFactor], bool] = {}

    def holds(self, value: ir.Value, axis: int, part: OpenedFactor, steps: int) -> bool:
        """Tell whether a value repeats, of which so many operators may lie before it."""
        key = value, axis, part
        if key not in self.known:
            self.known[key] = self._holds(value, axis, part, steps)
        return self.known[key]

    def _holds(self, value: ir.Value, axis: int, part: OpenedFactor, steps: int) -> bool:
        if value.is_graph_input() or value.shape is None or not steps:
            return False
        if value.const_value is not None:
            return _holds_the_same(value.const_value, axis, part)
        node = value.producer()
        if node is None or draws(node) or any(each.type is ir.AttributeType.GRAPH for each in node.attributes.values()):
            return False
        operator, fact = self.look(node)
        made = REPEATED.get((node.domain, node.op_type))
        if made is not None and made(operator, axis, part):
            return True
        return all(
            operand is not None and self.holds(operand, place, own, steps - 1)
            for operand, place, own in sources(node, value, axis, part, fact) or [(None, 0, part)]
        )


def _holds_the_same(tensor: ir.TensorProtocol, axis: int, part: OpenedFactor) -> bool:
    if not all(extent.is_static for extent in (part.outer, part.before, part.inner)):
        return False
    array = tensor.numpy()
    split = (part.outer.number, part.before.number, part.inner.number)
    apart = array.reshape(*array.shape[:axis], *split, *array.shape[axis + 1 :])
    return bool((apart == apart.take([0], axis + 1)).all())


def of_shape(_operator: Operator, _axis: int, _part: OpenedFactor) -> bool:
    """All elements are equal."""
    return True


def stretched(operator: Operator, axis: int, part: OpenedFactor) -> bool:
    """An Expand repeats what has 1 element along the axis, or no such axis."""
    shape, output = operator.shape(), operator.outputs[0]
    if shape is None or output is None:
        return False
    place = axis - len(output) + len(shape)
    return place < 0 or (shape[place] == 1 and Extent.of(output[axis]) == part.source_extent)


def tiled(operator: Operator, axis: int, part: OpenedFactor) -> bool:
    """A Tile repeats the whole axis, so the part leads it and what the operand has is its inside."""
    shape, repeats_ = operator.shape(), operator.integers(1)
    if shape is None or repeats_ is None or axis >= len(repeats_):
        return False
    inside = part.inner.divide(Extent.of(shape[axis]))
    return inside is not None and repeats_[axis] % (part.outer * part.before * inside).number == 0


def resized(operator: Operator, axis: int, _part: OpenedFactor) -> bool:
    """A Resize repeats the one element that an axis has, but where it crops."""
    shape, mode = operator.shape(), operator.string("coordinate_transformation_mode", "half_pixel")
    return shape is not None and shape[axis] == 1 and mode != "tf_crop_and_resize"


REPEATED: Mapping[tuple[str, str], Callable[[Operator, int, OpenedFactor], bool]] = {
    ("", "ConstantOfShape"): of_shape,
    ("", "Expand"): stretched,
    ("", "Resize"): resized,
    ("", "Tile"): tiled,
}
"""(domain, operator) -> whether it repeats along an axis of its result, whatever its operand holds."""


def sources(
    node: ir.Node, value: ir.Value, axis: int, part: OpenedFactor, fact: Fact
) -> list[tuple[ir.Value | None, int, OpenedFactor]]:
    """List the axes of a node's operands that are an axis of what it gives; None in place of one that is not known."""
    first = node.inputs[0] if node.inputs else None
    if isinstance(fact, Permuted) and first is not None:
        return [(first, fact.perm[axis], part)]
    if isinstance(fact, Regrouped) and first is not None and first.shape is not None and value.shape is not None:
        back = ways(extents_of(value), {axis: part}, extents_of(first))
        return [(first, place, found) for place, found in back[0].items()] if back else []
    names = fact.outputs[list(node.outputs).index(value)] if isinstance(fact, Signature) else None
    if not isinstance(fact, Signature) or names is None or names[axis] in fact.whole | fact.across:
        return []
    return [
        (operand, place, part)
        for operand, letters in zip(node.inputs, fact.inputs, strict=True)
        for place, letter in enumerate(letters or ())
        if operand is not None and letter == names[axis] and extents_of(operand)[place] == part.source_extent
    ]


def extents_of(value: ir.Value) -> tuple[Extent, ...]:
    """Return the extents of a value of known rank."""
    assert value.shape is not None
    return tuple(Extent.of(dim if isinstance(dim, int) else str(dim.value)) for dim in value.shape)
