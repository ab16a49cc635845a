"""The ports of a node, and the border of one with bodies: what it carries in, round and out."""

from __future__ import annotations

from collections.abc import Sequence

from relayout.infer.sites import Port, View
from relayout.rules import Letters, axis_letters


def ports_of(views: Sequence[View | None], given: Sequence[Letters | None], output: bool, body: int = -1) -> list[Port]:
    """The ports of what a node, or a body of one, reads or gives.

    Args:
        views: the operands or the results; None where one is left out.
        given: the letters of their axes; None, or none at all, for one that keeps its order.
        output: whether the node or the body gives them.
        body: the number of the body; -1 for the node itself.
    """
    ports = []
    for slot, view in enumerate(views):
        letters = given[slot] if slot < len(given) else None
        if view is not None:
            every = axis_letters(len(view.dims)) if letters is None else letters
            ports.append(Port(view, every, output, slot, letters is None, body))
    return ports


def carried_values(ports: Sequence[Port]) -> list[list[Port]]:
    """The ends of each value that is carried across a border: those that share a letter, or have none."""
    values: dict[str, list[Port]] = {}
    for port in (port for port in ports if not port.pinned):
        known = next((values[letter] for letter in port.letters or ("",) if letter in values), [])
        known.append(port)
        values.update(dict.fromkeys(port.letters or ("",), known))
    return list({id(value): value for value in values.values()}.values())
