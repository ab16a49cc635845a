"""Numbers as integers, where no unit takes them in."""

from __future__ import annotations

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import NUMPY, DraftTensor
from relayout.formats.tflite.exporting.kernel_types import kernel_type
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.scales import meaning_of
from relayout.formats.tflite.exporting.units import along_axis
from relayout.graph.quantized_unit import DEQUANTIZE, scale_of

# Numbers as integers by arithmetic, where no QUANTIZE does it: scales for each channel or block, or computed ones.

KINDS = (TensorType.INT8, TensorType.UINT8, TensorType.INT16, TensorType.UINT16)


def quantize(op: NodeExport) -> None:
    """Write a QuantizeLinear: DIV, ROUND, ADD, and what bounds the result."""
    kind = op.stored_type()
    if kind not in KINDS:
        raise Unwritable(f"integers of {kind.name}")
    read = (op.cast(op.input(slot), TensorType.FLOAT32) for slot in (1, 2) if op.has(slot))
    scale, *zeros = [each if each.dims == (1,) else along_axis(op, each) for each in read]
    op.give(rounded(op, op.div(op.input(0), scale), zeros[0] if zeros else None, kind))


def rounded(op: NodeExport, number: DraftTensor, zero: DraftTensor | None, kind: TensorType) -> DraftTensor:
    """Return numbers rounded to integers of a type, moved by a zero point."""
    limits = np.iinfo(NUMPY[kind])
    whole = op.each("ROUND", number)
    whole = whole if zero is None else op.add(whole, zero)
    bounded = op.minimum(op.maximum(whole, float(limits.min)), float(limits.max))
    return op.cast(op.cast(bounded, TensorType.INT32), kind)


@exporter("DynamicQuantizeLinear")
def dynamic_quantize_linear(op: NodeExport) -> None:
    """REDUCE_MIN, REDUCE_MAX, DIV, ROUND and what bounds the integers."""
    operand = op.input(0)  # the scale is the range of the numbers, 0 among them, in 255 steps
    axes = range(op.rank())
    low = op.minimum(op.reduce("REDUCE_MIN", operand, axes), 0.0)
    high = op.maximum(op.reduce("REDUCE_MAX", operand, axes), 0.0)
    span = op.div(op.sub(high, low), 255.0)
    scale = op.select(op.compare("EQUAL", span, 0.0), 1.0, span)
    zero = rounded(op, op.div(op.each("NEG", low), scale), None, TensorType.UINT8)
    integers = rounded(op, op.div(operand, scale), op.cast(zero, TensorType.FLOAT32), TensorType.UINT8)
    for slot, tensor in ((1, scale), (2, zero), (0, integers)):
        if op.gives(slot):
            op.give(tensor, slot)


@exporter("QuantizeLinear")
def quantize_linear(op: NodeExport) -> None:
    """QUANTIZE, to signed integers inside of the graph."""
    value = op.node.outputs[0]
    scale, kind = scale_of(op.node), kernel_type(value)
    if scale is None or not scale.is_one:  # computed scales, one for each block, or for each channel
        quantize(op)
        return
    inside = not value.is_graph_output() and all(use.node.op_type == DEQUANTIZE for use in value.uses())
    signed, shift = op.graph.integers.shifts.get(kind, (kind, 0)) if inside else (kind, 0)
    if signed not in (TensorType.INT8, TensorType.UINT8, TensorType.INT16):
        quantize(op)
        return
    operand = op.input(0)
    result = op.output(0)
    result.type, result.quantization = signed, meaning_of(scale, shift)
    op.draft.add("QUANTIZE", [operand], [result])
    if inside:
        op.graph.integers.by_value[value] = result


@exporter("DequantizeLinear")
def dequantize_linear(op: NodeExport) -> None:
    """DEQUANTIZE, where real numbers are read."""
    raise AssertionError("the graph reads it where it is wanted")
