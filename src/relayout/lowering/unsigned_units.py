"""Data between quantized units as uint8, for targets whose kernels take no int8."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.apply.provenance import holds_itself
from relayout.formats.onnx.parts import ANNOTATION
from relayout.graph.source_names import stands_for
from relayout.graph.subgraphs import all_nodes
from relayout.lowering.keep_float import read_as_reals
from relayout.lowering.unit_integers import IntegerReader
from relayout.lowering.unit_rows import DEQUANTIZING, QUANTIZING, Unit


def make_unsigned(model: ir.Model, units: Sequence[Unit], reader: IntegerReader) -> None:
    """Store the data between units as uint8: an integer and its zero point move by 128, and mean the same."""
    for node in list(all_nodes(model.graph)):
        if node.domain or node.op_type not in QUANTIZING | DEQUANTIZING or not _is_signed(reader, node):
            continue
        value = node.outputs[0]
        if node.op_type in QUANTIZING and _ends_in_signed(reader, value):
            _shift(reader, node)
            stands_for(value, value)
            holds_itself(value)
            value.meta.pop(ANNOTATION, None)  # its zero point is that of the other type
            value.dtype, value.name = ir.DataType.UINT8, reader.names.unique(f"{value.name}/unsigned")
            for use in value.uses():
                _shift(reader, use.node)
        elif node.op_type in QUANTIZING and value.is_graph_output():
            _pair(reader, node, node.inputs[0], after=False)
        elif node.op_type in DEQUANTIZING and node.inputs[0] in model.graph.inputs and value.uses():
            if read_as_reals(model, value, units):
                continue  # nothing is gained by another type
            _pair(reader, node, value, after=True)


def _ends_in_signed(reader: IntegerReader, value: ir.Value) -> bool:
    """Tell whether nodes that dequantize int8 alone read a value, as their first operand."""
    uses = value.uses()
    alone = all(use.idx == 0 and use.node.op_type in DEQUANTIZING and not use.node.domain for use in uses)
    return bool(uses) and alone and not value.is_graph_output() and all(_is_signed(reader, use.node) for use in uses)


def _is_signed(reader: IntegerReader, node: ir.Node) -> bool:
    """Tell whether a node quantizes or dequantizes int8, as a whole."""
    values = node.outputs[0] if node.op_type in QUANTIZING else node.inputs[0]
    found = None if values is None else reader.integers(node, values)
    named = len(node.inputs) > 2 and node.inputs[2] is not None
    return found is not None and named and found.is_plain and found.values.dtype == ir.DataType.INT8


def _shift(reader: IntegerReader, node: ir.Node) -> None:
    node.attributes.pop("output_dtype", None)
    node.replace_input_with(2, reader.shifted(node.inputs[2]))


def _pair(reader: IntegerReader, node: ir.Node, value: ir.Value | None, *, after: bool) -> None:
    """A QuantizeLinear to uint8 and back at an end of the model, which keeps its int8."""
    assert value is not None
    scale, zero = node.inputs[1], reader.shifted(node.inputs[2])
    uses = list(value.uses())
    stored = ir.Value(
        name=reader.names.unique(f"{value.name}/unsigned"), type=ir.TensorType(ir.DataType.UINT8), shape=value.shape
    )
    real = ir.Value(name=reader.names.unique(f"{value.name}/real"), type=value.type, shape=value.shape)
    ends = [
        ir.Node("", op_type, [read, scale, zero], outputs=[given], name=reader.names.unique(f"{given.name}/{op_type}"))
        for op_type, read, given in (("QuantizeLinear", value, stored), ("DequantizeLinear", stored, real))
    ]
    made: tuple[ir.Value | ir.Node, ...] = (stored, real, *ends)
    for each in made:
        stands_for(each, value)
    assert node.graph is not None
    if after:
        node.graph.insert_after(node, ends)
        for use in uses:
            use.node.replace_input_with(use.idx, real)
    else:
        node.graph.insert_before(node, ends)
        node.replace_input_with(0, real)
