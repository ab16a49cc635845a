"""A node that the user asks for as a custom operator: LiteRT computes it where the application registers a kernel."""

from __future__ import annotations

import onnx_ir as ir

from relayout.formats.tflite.container.flexbuffer_writer import FlexOption, to_flexbuffer
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable

RAW = "custom_options"
"""The attribute of a node that was read from a `.tflite` whose options are no map: their bytes."""


def write_custom(op: NodeExport) -> None:
    """CUSTOM of the node's name: its attributes are a FlexBuffer map.

    Raises:
        Unwritable: an attribute is a graph or a tensor, or of an operand the type or rank is not known.
    """
    inputs = [op.input(slot) if op.has(slot) else None for slot in range(len(op.node.inputs))]
    outputs = [op.output(slot) for slot in range(len(op.node.outputs))]
    raw = op.node.attributes.get(RAW)
    if raw is not None and raw.type == ir.AttributeType.TENSOR:
        options = raw.as_tensor().tobytes()
    else:
        found = {name: _option(attribute) for name, attribute in op.node.attributes.items()}
        options = to_flexbuffer(found) if found else b""
    op.graph.draft.add(f"CUSTOM {op.op_type}", inputs, outputs, options)


def _option(attribute: ir.Attr) -> FlexOption:
    kinds = ir.AttributeType
    if attribute.type in (kinds.INT, kinds.FLOAT, kinds.STRING, kinds.INTS, kinds.FLOATS, kinds.STRINGS):
        value: FlexOption = attribute.value
        return value
    raise Unwritable(f"its attribute {attribute.name} is neither a number nor a text, nor a list of these")
