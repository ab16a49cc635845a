"""What a user knows values and nodes as: by the source's names, also where layouts are decided on something else.

For a target, kernels and numbers are brought into its forms first. The values that are made then have names of their
own, since they are others than the source's; reports speak of the value of the source that they stand for.
"""

from __future__ import annotations

import onnx_ir as ir

STANDS_FOR = "relayout.stands_for"
"""In the `meta` of a value or a node, in memory only: the name by which the source has it."""


def stands_for(made: ir.Value | ir.Node, value: ir.Value) -> None:
    """Say which value of the source something is in the place of, before it gets another name."""
    made.meta[STANDS_FOR] = known_as(value)


def known_as(value: ir.Value) -> str:
    """The name by which a user knows a value."""
    found: str = value.meta.get(STANDS_FOR) or value.name or ""
    return found


def label(node: ir.Node) -> str:
    """How reports call a node: by its name, by that of its first output, or by its operator."""
    found: str = node.meta.get(STANDS_FOR) or node.name or known_as(node.outputs[0]) or node.op_type
    return found
