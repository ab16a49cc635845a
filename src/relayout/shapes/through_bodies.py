"""Follow an opened axis into the bodies of an If, a Loop or a Scan, and out of them.

A value that crosses a border has one letter on both sides, so the axis is opened before, inside and after. What a body
gives may open a state that began with a fixed extent: then the body is followed once more with that state opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.rules import Body, Letters, Nested
from relayout.shapes.parts import MoreInputsError, OpenedFactor, Parts

if TYPE_CHECKING:
    from relayout.shapes.following import Following

MOST_ROUNDS = 8  # how often a body is followed: each round opens another state


class NodeWithBodies:
    """A node with bodies through which an axis is followed."""

    def __init__(self, following: Following, node: ir.Node, fact: Nested) -> None:
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
