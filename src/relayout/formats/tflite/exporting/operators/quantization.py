"""Numbers as integers, where no unit takes them in."""

from __future__ import annotations

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.quantizing import quantize, quantize_by_range
from relayout.formats.tflite.exporting.registry import exporter
from relayout.formats.tflite.exporting.scales import scales_of
from relayout.formats.tflite.exporting.value_types import kernel_type


@exporter("QuantizeLinear")
def quantize_linear(op: NodeExport) -> None:
    """QUANTIZE, to signed integers inside of the graph."""
    value = op.node.outputs[0]
    found = scales_of(op.node)
    if found is None or found[0].size > 1:  # computed scales, one for each block, or for each channel
        quantize(op)
        return
    scale, zero, axis = found
    kind = kernel_type(value)
    inside = not value.is_graph_output() and all(use.node.op_type == "DequantizeLinear" for use in value.uses())
    signed, shift = op.graph.integers.shifts.get(kind, (kind, 0)) if inside else (kind, 0)
    if signed not in (TensorType.INT8, TensorType.UINT8, TensorType.INT16):
        quantize(op)
        return
    quantization = Quantization(scale, zero - shift, axis)
    operand = op.input(0)
    result = op.output(0)
    result.type, result.quantization = signed, quantization
    op.graph.draft.add("QUANTIZE", [operand], [result])
    if inside:
        op.graph.integers.by_value[value] = result


@exporter("DequantizeLinear")
def dequantize_linear(op: NodeExport) -> None:
    """DEQUANTIZE, where real numbers are read."""
    raise AssertionError("the graph reads it where it is wanted")


@exporter("DynamicQuantizeLinear")
def dynamic_quantize_linear(op: NodeExport) -> None:
    """REDUCE_MIN, REDUCE_MAX, DIV, ROUND and what bounds the integers."""
    quantize_by_range(op)
