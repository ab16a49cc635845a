"""Operators that change what a tensor's numbers mean."""

from __future__ import annotations

import onnx_ir as ir

from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.registry import operator


@operator("QUANTIZE")
def quantize(op: Operation) -> None:
    """QuantizeLinear; of a tensor that is quantized already, DequantizeLinear first."""
    op.result(op.real(0))


@operator("DENSIFY")
def densify(op: Operation) -> None:
    """Nothing: a sparse constant is expanded where it is read."""
    op.result_stored(op.stored(0))


@operator("DEQUANTIZE")
def dequantize(op: Operation) -> None:
    """DequantizeLinear, or Cast where the operand is half precision."""
    op.result(op.cast(op.real(0), ir.DataType.FLOAT))
