"""Follow an opened axis through a Reshape, or an operator that does as one, and through bodies of nodes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir

from relayout.layout import ONE, Extent, product
from relayout.rules import Body, Letters, Nested, Operator, normalized
from relayout.rules.views import listed_axes
from relayout.shapes.own_axes import extents_of
from relayout.shapes.parts import (
    MoreInputsError,
    OpenedFactor,
    Parts,
    as_written,
    dims_of,
    likeliest,
    moving_ways,
    ways,
)
from relayout.shapes.rewriting import shape_items

if TYPE_CHECKING:
    from relayout.shapes.following import Following


class Choice(NamedTuple):
    """A node at which an opened part could go into several dimensions, and how many ways there are."""

    node: ir.Node
    ways: int


def squeeze(operator: Operator, dims: Sequence[Extent]) -> list[Extent] | None:
    """Return all extents but those of the axes that leave: of several elements none may."""
    axes, shape = listed_axes(operator), operator.shape() or ()
    gone = [axis for axis, dim in enumerate(shape) if dim == 1] if axes is None else normalized(axes, len(dims))
    return [dim for axis, dim in enumerate(dims) if axis not in gone]


def unsqueeze(operator: Operator, dims: Sequence[Extent]) -> list[Extent] | None:
    """Return the extents, with 1 for the axes that come."""
    if (axes := listed_axes(operator)) is None:
        return None
    rank, rest = len(dims) + len(axes), iter(dims)
    return [ONE if axis in normalized(axes, rank) else next(rest) for axis in range(rank)]


def flatten(operator: Operator, dims: Sequence[Extent]) -> list[Extent] | None:
    """Return how many elements lie before the axis, and from it on."""
    axis = operator.int("axis", 1)
    border = axis % len(dims) if axis < len(dims) else len(dims)
    return [product(dims[:border]), product(dims[border:])]


GIVEN: Mapping[str, Callable[[Operator, Sequence[Extent]], list[Extent] | None] | None] = {
    **dict.fromkeys(("Gather", "Split")),
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
}
"""Operator beside Reshape -> the extents that it gives of others; None if it has to become a Reshape."""


def follow_reshape(following: "Following", node: ir.Node, operator: Operator, target: Sequence[Extent]) -> None:
    """Follow the axis through a Reshape, or an operator that does as one, and state its shape anew."""
    value, result = node.inputs[0], node.outputs[0]
    assert value is not None
    parts = following.parts.get(value)
    if not parts:
        raise following.bound(node, "takes its shape from an opened extent, and its operand has none")
    natural, written = _natural(following, node, operator, target)
    possible_ways, moving = _ways(following, node, target, natural, written)
    if len(possible_ways) > 1:
        following.offered.append(Choice(node, len(possible_ways)))
    way = possible_ways[following.choices.get(node, 0)]
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
    possible_ways: list[Parts] = [*ways(source, parts, target)]
    moving: list[Parts] = [way for way in moving_ways(source, parts, target) if way not in possible_ways]
    if not possible_ways and not moving:
        raise following.bound(node, f"mixes it with other axes: {_text(source)} becomes {_text(target)}")
    alone = [way for way in possible_ways if _is_alone(way)]
    computed = len(node.inputs) > 1 and node.inputs[1] in following.computed
    if natural is None:
        possible_ways = likeliest(possible_ways, target, written, computed=computed)
    else:  # the natural way is first, or behind those that put the parts in dimensions of their own
        ordered = [natural, *possible_ways] if _is_alone(natural) else [*alone, natural, *possible_ways]
        possible_ways = [way for place, way in enumerate(ordered) if way not in ordered[:place]]
    # A batch has mostly a dimension of its own: it is joined with another only where there is none.
    means = computed and list(dims_of(tuple(target), possible_ways[0])) == written if possible_ways else False
    moving = [] if means else [way for way in moving if way not in possible_ways]
    return [*filter(_is_alone, possible_ways), *moving, *(way for way in possible_ways if not _is_alone(way))], moving


def _state_shape(following: "Following", node: ir.Node, operator: Operator, dims: Sequence[Extent]) -> None:
    """Plan the change that makes a node give the extents `dims`."""
    value = node.inputs[0]
    assert value is not None
    items = shape_items(dims, following.dims(value))
    if items is None:
        raise following.bound(node, f"would need a shape of several open extents: {_text(dims)}")
    if node.op_type in GIVEN:
        following.last.append(lambda r: r.become_reshape(node, items))
    elif operator.has(1):
        following.changes.append(lambda r: r.reshape(node, items))
    else:
        following.changes.append(lambda r: r.set_integers(node, "shape", items))


def _natural(
    following: "Following", node: ir.Node, operator: Operator, target: Sequence[Extent]
) -> tuple[Parts | None, list[Extent] | None]:
    """Return where the parts lie if the node stays as it is, and the extents that a Reshape's own shape gives."""
    value = node.inputs[0]
    assert value is not None
    if node.op_type in GIVEN:
        extents_given = GIVEN[node.op_type]
        dims = None if extents_given is None else extents_given(operator, following.dims(value))
        possible_ways = ways(extents_of(value), following.parts[value], target) if dims is not None else []
        return next((way for way in possible_ways if list(dims_of(tuple(target), way)) == dims), None), None
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


# Follow an opened axis into the bodies of an If, a Loop or a Scan, and out of them.
#
# A value that crosses a border has one letter on both sides, so the axis is opened before, inside and after. What a
# body gives may open a state that began with a fixed extent: then the body is followed once more with it opened.

MOST_ROUNDS = 8  # how often a body is followed: each round opens another state


class NodeWithBodies:
    """A node with bodies through which an axis is followed."""

    def __init__(self, following: "Following", node: ir.Node, fact: Nested) -> None:
        self.following, self.node, self.fact = following, node, fact
        self.letters: dict[str, OpenedFactor] = {}  # the opened part of each letter that has one

    def follow(self) -> None:
        """Follow the axis through the node.

        Raises:
            OpeningError: an operator in a body, or the node itself, binds it.
        """
        parts, signature = self.following.parts, self.fact.signature
        for operand, names in zip(self.node.inputs, signature.inputs, strict=True):
            self._learn(operand, names)
        self._settle()
        if not signature.whole.isdisjoint(self.letters):
            raise self.following.bound(self.node, "runs once for each of its elements")
        for body, graph in self._bodies():
            for value, names in zip(graph.outputs, body.outputs, strict=False):
                if not self._parts(names).keys() <= parts.get(value, {}).keys():
                    reason = f"gives '{value.name}' with a fixed extent from one of its bodies"
                    raise self.following.bound(self.node, reason)
        for slot, names in enumerate(signature.inputs):
            operand = self.node.inputs[slot]
            for axis, part in self._parts(names).items():
                if operand is not None and axis not in parts.get(operand, {}):
                    self.following.demand(self.node, slot, axis, part, self._visible(part))
        for value, names in zip(self.node.outputs, signature.outputs, strict=True):
            if value.name:
                parts[value] = self._parts(names)

    def _settle(self) -> None:
        """Follow the axis through the bodies again and again, until no letter gets a part any more."""
        begun = self.following.mark()
        for _ in range(MOST_ROUNDS):
            self.following.reset(begun)
            known = dict(self.letters)
            for body, graph in self._bodies():
                for value, names in zip(graph.inputs, body.inputs, strict=False):
                    self.following.parts[value] = self._parts(names)
                outputs = list(zip(graph.outputs, body.outputs, strict=False))
                try:
                    self.following.follow_all(graph)
                except MoreInputsError as more:  # states that an operator of the body pairs with an opened axis
                    outputs = [each for each in zip(graph.inputs, body.inputs, strict=False) if each[0] in more.seeds]
                    if not outputs:
                        raise
                    self.following.parts.update((value, dict(more.seeds[value])) for value, _ in outputs)
                for value, names in outputs:
                    self._learn(value, names)
            if self.letters == known:
                return
        raise self.following.bound(self.node, "opens one state after another")

    def _bodies(self) -> Iterator[tuple[Body, ir.Graph]]:
        for body in self.fact.bodies:
            yield body, self.node.attributes[body.attribute].as_graph()

    def _learn(self, value: ir.Value | None, names: Letters | None) -> None:
        """Let letters have the parts of a value.

        Raises:
            OpeningError: the value has no letters, or a letter another part.
        """
        for axis, part in self.following.parts.get(value, {}).items() if value is not None else ():
            if names is None:
                raise self.following.bound(self.node, f"reads '{value.name}' as a parameter" if value else "")
            if self.letters.setdefault(names[axis], part) != part:
                raise self.following.bound(self.node, "carries it in two ways that do not agree")

    def _parts(self, names: Letters | None) -> Parts:
        return {axis: self.letters[name] for axis, name in enumerate(names or ()) if name in self.letters}

    def _visible(self, part: OpenedFactor) -> tuple[ir.Value, int]:
        """Return a dimension with a part that the node can see."""
        for value, parts in self.following.parts.items():
            if value.graph is self.node.graph and value not in self.node.outputs and part in parts.values():
                return value, next(axis for axis, own in parts.items() if own == part)
        raise self.following.bound(self.node, "begins with a state of fixed extent")
