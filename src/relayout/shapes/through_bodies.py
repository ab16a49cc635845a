"""Follow an opened axis into the bodies of an If, a Loop or a Scan, and out of them.

A value that crosses a border has one letter on both sides, so the axis is opened before, inside and after. What a body
gives may open a state that began with a fixed extent: then the body is followed once more with that state opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.rules import Body, Letters, Nested
from relayout.shapes.parts import MoreInputsError, OpenedFactor, Parts

if TYPE_CHECKING:
    from relayout.shapes.following import Following

MOST_ROUNDS = 8
"""How often a body is followed: each round opens another state."""


def follow_bodies(following: Following, node: ir.Node, fact: Nested) -> None:
    """Follow an axis through a node with bodies.

    Raises:
        OpeningError: an operator in a body, or the node itself, binds it.
    """
    letters: dict[str, OpenedFactor] = {}
    for value, names in zip(node.inputs, fact.signature.inputs, strict=True):
        _learn(following, node, value, names, letters)
    _settle(following, node, fact, letters)
    if not fact.signature.whole.isdisjoint(letters):
        raise following.bound(node, "runs once for each of its elements")
    for body, graph in _bodies(node, fact):
        for value, names in zip(graph.outputs, body.outputs, strict=False):
            opened = following.parts.get(value, {})
            if any(name in letters and axis not in opened for axis, name in enumerate(names or ())):
                raise following.bound(node, f"gives '{value.name}' with a fixed extent from one of its bodies")
    _demand_states(following, node, fact, letters)
    for value, names in zip(node.outputs, fact.signature.outputs, strict=True):
        if value.name:
            following.parts[value] = _parts(names, letters)


def _settle(following: Following, node: ir.Node, fact: Nested, letters: dict[str, OpenedFactor]) -> None:
    """Follow the axis through the bodies again and again, until no letter gets a part any more."""
    begun = following.mark()
    for _ in range(MOST_ROUNDS):
        following.reset(begun)
        known = dict(letters)
        for body, graph in _bodies(node, fact):
            for value, names in zip(graph.inputs, body.inputs, strict=False):
                following.parts[value] = _parts(names, letters)
            try:
                following.follow_all(graph)
            except MoreInputsError as more:
                _open_states(following, node, body, graph, more, letters)
                continue
            for value, names in zip(graph.outputs, body.outputs, strict=False):
                _learn(following, node, value, names, letters)
        if letters == known:
            return
    raise following.bound(node, "opens one state after another")


def _demand_states(following: Following, node: ir.Node, fact: Nested, letters: Mapping[str, OpenedFactor]) -> None:
    """Open the axes of the node's operands that are open in its bodies."""
    for slot, names in enumerate(fact.signature.inputs):
        value = node.inputs[slot]
        if value is None:
            continue
        own = following.parts.get(value, {})
        for axis, name in enumerate(names or ()):
            if name in letters and axis not in own:
                following.demand(node, slot, axis, letters[name], _visible(following, node, letters[name]))


def _open_states(
    following: Following,
    node: ir.Node,
    body: Body,
    graph: ir.Graph,
    more: MoreInputsError,
    letters: dict[str, OpenedFactor],
) -> None:
    """Let letters have the parts of states that an operator of a body pairs with an opened axis.

    Raises:
        MoreInputsError: inputs outside of the body hold the axis.
        OpeningError: a letter has another part.
    """
    states = [(value, names) for value, names in zip(graph.inputs, body.inputs, strict=False) if value in more.seeds]
    if not states:
        raise more
    for value, names in states:
        following.parts[value] = dict(more.seeds[value])
        _learn(following, node, value, names, letters)


def _bodies(node: ir.Node, fact: Nested) -> Iterator[tuple[Body, ir.Graph]]:
    for body in fact.bodies:
        yield body, node.attributes[body.attribute].as_graph()


def _learn(
    following: Following, node: ir.Node, value: ir.Value | None, names: Letters | None, letters: dict[str, OpenedFactor]
) -> None:
    """Let letters have the parts of a value.

    Raises:
        OpeningError: the value has no letters, or a letter another part.
    """
    for axis, part in following.parts.get(value, {}).items() if value is not None else ():
        if names is None:
            raise following.bound(node, f"reads '{value.name}' as a parameter" if value is not None else "")
        if letters.setdefault(names[axis], part) != part:
            raise following.bound(node, "carries it in two ways that do not agree")


def _parts(names: Sequence[str] | None, letters: dict[str, OpenedFactor]) -> Parts:
    return {axis: letters[name] for axis, name in enumerate(names or ()) if name in letters}


def _visible(following: Following, node: ir.Node, part: OpenedFactor) -> tuple[ir.Value, int]:
    """Return a dimension with a part that a node can see."""
    seen = (value for value in following.parts if value.graph is node.graph or value.is_graph_input())
    for value in seen:
        for axis, found in following.parts[value].items():
            if found == part and value.graph is node.graph and value not in node.outputs:
                return value, axis
    raise following.bound(node, "begins with a state of fixed extent")
