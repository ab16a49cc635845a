"""The border of a node with bodies: what it carries in, round and out."""

from __future__ import annotations

from collections.abc import Sequence

from relayout.infer.sites import Port, View
from relayout.rules import Letters, axis_letters


def ends(views: Sequence[View | None], given: Sequence[Letters | None], output: bool, body: int = -1) -> list[Port]:
    """The ends of what a node with bodies reads or gives, or one of its bodies.

    Args:
        views: the operands or the results; None where one is left out.
        given: the letters of their axes; None for one that keeps its order.
        output: whether the node or the body gives them.
        body: the number of the body; -1 for the node itself.
    """
    return [
        Port(view, axis_letters(len(view.dims)) if letters is None else letters, output, slot, letters is None, body)
        for slot, (view, letters) in enumerate(zip(views, given, strict=False))
        if view is not None
    ]


def carried_values(ports: Sequence[Port]) -> list[list[Port]]:
    """The ends of each value that is carried across a border: those that share a letter, or have none."""
    values: dict[str, list[Port]] = {}
    for port in (port for port in ports if not port.pinned):
        known = next((values[letter] for letter in port.letters or ("",) if letter in values), [])
        known.append(port)
        values.update(dict.fromkeys(port.letters or ("",), known))
    return list({id(value): value for value in values.values()}.values())
