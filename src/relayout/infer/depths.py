"""How deep a node lies: how many operators besides views lie on the longest way to it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

Met = tuple[ir.Node, Sequence[ir.Value], bool]
"""A node, what its subgraphs capture, and whether it is a view. A Reshape that mixes elements is one: in any graph."""


def depths_of(met: Sequence[Met]) -> dict[ir.Value, int]:
    """How deep values lie, from the nodes in their order: one deeper than what the node reads; a view as deep."""
    depths: dict[ir.Value, int] = {}
    for node, implicit, looks in met:
        read = [depths.get(value, 0) for value in (*node.inputs, *implicit) if value is not None]
        depths.update(dict.fromkeys(node.outputs, max(read, default=0) + (not looks)))
    return depths
