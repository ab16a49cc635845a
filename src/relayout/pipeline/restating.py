"""Declarations of an earlier conversion, restated or removed where extents change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.graph.subgraphs import all_nodes
from relayout.layout.restated import restated, with_extents
from relayout.layout.stored_as import Holds


@contextmanager
def restating(model: ir.Model) -> Iterator[None]:
    """State anew what values are declared to hold once dimensions were opened, or have another extent, in place."""
    before = {value: _extents(value) for value in _declaring(model)}
    yield
    for value, known in before.items():
        now = _extents(value)
        if known != now:
            _state(value, [restated(held, known, now) if known and now else None for held in _held(value)])


def restate_fixed(model: ir.Model) -> None:
    """State anew what values are declared to hold once open dimensions were given numbers, in place."""
    for value in _declaring(model):
        now = _extents(value)
        if now is not None:
            _state(value, [with_extents(held, now) for held in _held(value)])


def _declaring(model: ir.Model) -> list[ir.Value]:
    values = [*model.graph.inputs, *(value for node in all_nodes(model.graph) for value in node.outputs)]
    return [value for value in values if Holds.KEY in value.metadata_props]


def _held(value: ir.Value) -> list[Holds]:
    try:
        return Holds.load(value.metadata_props[Holds.KEY])
    except LayoutError:  # metadata of others
        return []


def _state(value: ir.Value, held: list[Holds | None]) -> None:
    kept = [each for each in held if each is not None]
    value.metadata_props.pop(Holds.KEY)
    if kept:
        value.metadata_props[Holds.KEY] = Holds.dump(kept)


def _extents(value: ir.Value) -> tuple[int, ...] | None:
    return None if value.shape is None else tuple([dim if isinstance(dim, int) else -1 for dim in value.shape])
