"""Explicit layouts: orders that a user asks for, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from relayout.errors import LayoutError, nearest_values
from relayout.layout import Layout, perm_of
from relayout.layout.stored_as import TENSOR


class Pins:
    """The stored orders that are asked for.

    Args:
        graph: the graph that the tensors are in.
        layouts: tensor name -> (its layout in the source, its stored layout).

    Raises:
        LayoutError: a tensor does not exist, is constant, or does not fit its layout.
    """

    def __init__(self, graph: ir.Graph, layouts: Mapping[str, tuple[str, str]]) -> None:
        self._perms = {name: _perm(name, *pair) for name, pair in layouts.items()}
        if not layouts:
            return
        values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
        known = {name: value for value in reversed(values) for name in _names(value)}
        for name, (source, target) in layouts.items():
            if name not in known:
                raise LayoutError(f"--layout {name}: the model has no tensor of that name{nearest_values(name, known)}")
            _check(name, source, target, known[name])

    def __bool__(self) -> bool:
        return bool(self._perms)

    def perm(self, value: ir.Value) -> tuple[int, ...] | None:
        """The perm from the source's order of a value to the one that is asked for, if one is."""
        return next((self._perms[name] for name in _names(value) if name in self._perms), None) if self._perms else None


def _names(value: ir.Value) -> list[str]:
    return [name for name in (value.name, value.metadata_props.get(TENSOR)) if name]


def _perm(name: str, source: str, target: str) -> tuple[int, ...]:
    """Return the perm between two layouts; an error names the option."""
    try:
        return perm_of(source, target)
    except LayoutError as error:
        raise LayoutError(f"--layout {name}={source}:{target}: {error}") from None


def _check(name: str, source: str, target: str, value: ir.Value) -> None:
    if value.const_value is not None:
        raise LayoutError(f"--layout {name}: a constant is stored as its readers want it, and cannot be pinned")
    rank = None if value.shape is None else len(value.shape)
    if rank != len(Layout.parse(source).axes):
        raise LayoutError(f"--layout {name}={source}:{target}: the tensor has rank {rank}")
