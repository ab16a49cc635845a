"""The Transposes that a file holds."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes


def perms(model: ir.Model) -> Iterator[tuple[int, ...] | None]:
    """The perm of each Transpose, in bodies too; None where it only reverses the axes."""
    for node in all_nodes(model.graph):
        if node.op_type == "Transpose":
            attribute = node.attributes.get("perm")
            yield None if attribute is None else tuple(attribute.as_ints())
