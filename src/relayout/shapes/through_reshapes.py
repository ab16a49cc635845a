"""Follow an opened axis through a Reshape, or an operator that does as one, and state its shape anew."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir

from relayout.layout import Extent, product
from relayout.rules import Operator, normalized
from relayout.rules.views import listed_axes
from relayout.shapes.constants import shape_items
from relayout.shapes.own_axes import extents_of
from relayout.shapes.parts import OpenedFactor, Parts, as_written, dims_of, likeliest, moving_ways, ways

if TYPE_CHECKING:
    from relayout.shapes.following import Following


class Choice(NamedTuple):
    """A node at which an opened part could go into several dimensions, and how many ways there are."""

    node: ir.Node
    ways: int


def squeeze(operator: Operator, parts: Parts) -> dict[int, OpenedFactor] | None:
    """Keep a part where it is, if its axis does not leave."""
    shape, axes = operator.shape(), listed_axes(operator)
    if shape is None:
        return None
    gone = [axis for axis, dim in enumerate(shape) if dim == 1] if axes is None else normalized(axes, len(shape))
    rest = [axis for axis in range(len(shape)) if axis not in gone]
    return {rest.index(axis): part for axis, part in parts.items()} if set(rest).issuperset(parts) else None


def unsqueeze(operator: Operator, parts: Parts) -> dict[int, OpenedFactor] | None:
    """Keep a part in its axis, wherever others come."""
    shape, axes = operator.shape(), listed_axes(operator)
    if shape is None or axes is None:
        return None
    rank = len(shape) + len(axes)
    rest = [axis for axis in range(rank) if axis not in normalized(axes, rank)]
    return {rest[axis]: part for axis, part in parts.items()}


def flatten(operator: Operator, parts: Parts) -> dict[int, OpenedFactor] | None:
    """Put a part into the first of two dimensions if it stands before the axis, else into the second."""
    shape = operator.shape()
    if shape is None:
        return None
    extents, axis = [Extent.of(dim) for dim in shape], operator.int("axis", 1)
    border = axis % len(shape) if axis < len(shape) and shape else len(shape)
    sides: dict[int, OpenedFactor] = {}
    for place, part in parts.items():
        side = int(place >= border)
        start, stop = ((0, border), (border, len(shape)))[side]
        if side in sides:
            return None
        outer = product(extents[start:place]) * part.outer
        sides[side] = part._replace(outer=outer, inner=part.inner * product(extents[place + 1 : stop]))
    return sides


NATURAL: Mapping[str, Callable[[Operator, Parts], dict[int, OpenedFactor] | None] | None] = {
    **dict.fromkeys(("Gather", "Split")),
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
}
"""Operator beside Reshape -> where parts lie behind it; None if it has to become a Reshape."""


def follow_reshape(following: "Following", node: ir.Node, operator: Operator, target: Sequence[Extent]) -> None:
    """Follow the axis through a Reshape, or an operator that does as one, and state its shape anew."""
    value, result = node.inputs[0], node.outputs[0]
    assert value is not None
    parts = following.parts.get(value)
    if not parts:
        raise following.bound(node, "takes its shape from an opened extent, and its operand has none")
    natural, written = _natural(following, node, operator, parts)
    found, moving = _ways(following, node, target, natural, written)
    if len(found) > 1:
        following.offered.append(Choice(node, len(found)))
    way = found[following.choices.get(node, 0)]
    following.parts[result] = way
    dims = list(dims_of(tuple(target), way))
    if way in moving and way != natural:
        ((axis, _),), ((place, _),) = parts.items(), way.items()
        rest = [extent.number for index, extent in enumerate(target) if index != place]
        following.last.append(lambda r: r.move(node, axis, place, rest))
    elif way != natural and dims != written:
        _state_shape(following, node, operator, dims)


def _ways(
    following: "Following",
    node: ir.Node,  # the Reshape, or the operator that does as one
    target: Sequence[Extent],  # the extents of its result in the source
    natural: Parts | None,  # the way of the node as it stands
    written: list[Extent] | None,  # the extents that a Reshape's own shape gives
) -> tuple[list[Parts], list[Parts]]:
    """Return the ways in which a Reshape may put the parts of an axis, the likeliest first; those that move it."""
    value = node.inputs[0]
    assert value is not None
    source, parts = extents_of(value), following.parts[value]
    found: list[Parts] = [*ways(source, parts, target)]
    moving: list[Parts] = [way for way in moving_ways(source, parts, target) if way not in found]
    if not found and not moving:
        raise following.bound(node, f"mixes it with other axes: {_text(source)} becomes {_text(target)}")
    alone = [way for way in found if _is_alone(way)]
    computed = len(node.inputs) > 1 and node.inputs[1] in following.computed
    if natural is None:
        found = likeliest(found, target, written, computed=computed)
    else:  # the natural way is first, or behind those that put the parts in dimensions of their own
        ordered = [natural, *found] if _is_alone(natural) else [*alone, natural, *found]
        found = [way for place, way in enumerate(ordered) if way not in ordered[:place]]
    # A batch has mostly a dimension of its own: it is joined with another only where there is none.
    means = computed and list(dims_of(tuple(target), found[0])) == written if found else False
    moving = [] if means else [way for way in moving if way not in found]
    return [*filter(_is_alone, found), *moving, *(way for way in found if not _is_alone(way))], moving


def _state_shape(following: "Following", node: ir.Node, operator: Operator, dims: Sequence[Extent]) -> None:
    """Plan the change that makes a node give the extents `dims`."""
    value = node.inputs[0]
    assert value is not None
    items = shape_items(dims, following.dims(value))
    if items is None:
        raise following.bound(node, f"would need a shape of several open extents: {_text(dims)}")
    if node.op_type in NATURAL:
        following.last.append(lambda r: r.become_reshape(node, items))
    elif operator.has(1):
        following.changes.append(lambda r: r.reshape(node, items))
    else:
        following.changes.append(lambda r: r.set_integers(node, "shape", items))


def _natural(
    following: "Following", node: ir.Node, operator: Operator, parts: Parts
) -> tuple[Parts | None, list[Extent] | None]:
    """Return where the parts lie if the node stays as it is, and the extents that a Reshape's own shape gives."""
    if node.op_type in NATURAL:
        natural = NATURAL[node.op_type]
        return None if natural is None else natural(operator, parts), None
    value = node.inputs[0]
    assert value is not None
    shape = node.inputs[1] if len(node.inputs) > 1 else None
    items = None if shape is None else following.computed.items(shape)
    if items is None and (shape is None or shape not in following.computed):
        known = operator.integers(1) if operator.has(1) else operator.ints("shape")
        items = None if known is None else [Extent(item) for item in known]
    copies = not operator.int("allowzero", 0)
    return None, None if items is None else as_written(items, following.dims(value), copies=copies)


def _is_alone(way: Parts) -> bool:
    """Tell whether the parts are in dimensions that hold nothing else."""
    return all(part.is_whole for part in way.values())


def _text(extents: Sequence[Extent]) -> str:
    return f"[{', '.join(map(str, extents))}]"
