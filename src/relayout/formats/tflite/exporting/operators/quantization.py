"""Numbers as integers, where no unit takes them in."""

from __future__ import annotations

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.exporter import _scales_of, _type
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.quantizing import quantize, quantize_by_range
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

DEQUANTIZING = frozenset({"DequantizeLinear"})
EIGHT_BITS = (TensorType.INT8, TensorType.UINT8)


@exporter("QuantizeLinear")
def quantize_linear(op: NodeExport) -> None:
    """QUANTIZE, to signed integers inside of the graph."""
    value = op.node.outputs[0]
    found = _scales_of(op.node)
    if found is None or found[0].size > 1:  # computed scales, one for each block, or for each channel
        quantize(op)
        return
    scale, zero, axis = found
    kind = _type(value)
    inside = not value.is_graph_output() and all(use.node.op_type == "DequantizeLinear" for use in value.uses())
    signed, shift = op.graph.shifts.get(kind, (kind, 0)) if inside else (kind, 0)
    if signed not in (TensorType.INT8, TensorType.UINT8, TensorType.INT16):
        raise Unwritable(f"integers of {kind.name}")
    quantization = Quantization(scale, zero - shift, axis)
    integers = _read_integers(op, signed)
    if integers is not None and inside and integers.type == signed and quantization.equals(integers.quantization):
        op.give(integers)
        op.graph.integers[value] = integers
        return
    operand = op.input(0) if integers is None else integers
    result = op.output(0)
    result.type, result.quantization = signed, quantization
    op.graph.draft.add("QUANTIZE", [operand], [result])
    if inside:
        op.graph.integers[value] = result


def _read_integers(op: NodeExport, signed: TensorType) -> DraftTensor | None:
    """Return the integers that are dequantized right before and can be rescaled as such; None: real numbers are read.

    The kernel rounds ties away from zero where ONNX rounds them to even: one step at most, and none of equal scales.
    """
    read = op.node.inputs[0]
    node = None if read is None else read.producer()
    if read is None or node is None or node.op_type not in DEQUANTIZING or node.domain or signed not in EIGHT_BITS:
        return None
    source, scales = node.inputs[0], _scales_of(node)
    is_one = scales is not None and scales[0].size == 1 and source is not None
    if not is_one or source is None or _type(source) not in EIGHT_BITS or source.const_value is not None:
        return None
    return op.graph.integers_or_none(source, node)


@exporter("DequantizeLinear")
def dequantize_linear(op: NodeExport) -> None:
    """DEQUANTIZE, where real numbers are read."""
    raise AssertionError("the graph reads it where it is wanted")


@exporter("DynamicQuantizeLinear")
def dynamic_quantize_linear(op: NodeExport) -> None:
    """REDUCE_MIN, REDUCE_MAX, DIV, ROUND and what bounds the integers."""
    quantize_by_range(op)
