"""Operators that change what a tensor's numbers mean."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization, Tensor
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import one, two
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.tensors import fixed_point


@operator("QUANTIZE")
def quantize(op: Operation) -> None:
    """QuantizeLinear; of a tensor that is quantized already, DequantizeLinear first.

    ONNX quantizes to no 32 bits, and dequantizes from them only around 0: these are divided and multiplied. Shorter
    integers become them in double precision, which has all of their bits.
    """
    target = op.output()
    if target.type == TensorType.INT32 and op.tensors.quantization(op.input(0)) is not None:
        op.result_stored(op.cast(_lengthened(op, target), ir.DataType.INT32))
        return
    x = op.real(0)
    x = op.cast(x, ir.DataType.FLOAT) if x.dtype == ir.DataType.FLOAT16 else x
    if op.input(0).type == TensorType.INT32:
        x = _scaled(op, op.cast(x, ir.DataType.FLOAT), 0)
    if target.type == TensorType.INT32:
        quantization = _one_scale(target)
        scale = op.builder.array(op.hint("scale"), np.array(quantization.scale[0], np.float32))
        op.result_stored(op.cast(one(op, "Round", two(op, "Div", x, scale)), ir.DataType.INT32))
        return
    op.result(x)


def _one_scale(tensor: Tensor) -> Quantization:
    quantization = tensor.quantization
    if quantization is None or quantization.per_channel:
        raise Unsupported("32 bits without one scale")
    return quantization


def _lengthened(op: Operation, target: Tensor) -> ir.Value:
    """The operand's integers in steps of the result, times the kernel's multiplier of 31 bits."""
    given, made = _one_scale(op.input(0)), _one_scale(target)
    if not made.scale[0]:
        raise ReadError("a result whose steps are 0", where=op.place)
    multiplier, exponent = fixed_point(float(given.scale[0]) / float(made.scale[0]))
    x = op.cast(op.whole(0), ir.DataType.DOUBLE)
    centred = two(op, "Sub", x, op.number(float(given.zero_point[0]), x, "zero_point"))
    return one(op, "Round", two(op, "Mul", centred, op.number(math.ldexp(multiplier, exponent - 31), x, "scale")))


def _scaled(op: Operation, x: ir.Value, i: int) -> ir.Value:
    quantization = _one_scale(op.input(i))
    centred = two(op, "Sub", x, op.number(float(quantization.zero_point[0]), x, "zero_point"))
    return two(op, "Mul", centred, op.number(float(quantization.scale[0]), x, "scale"))


@operator("DENSIFY")
def densify(op: Operation) -> None:
    """Nothing: a sparse constant is expanded where it is read."""
    op.result_stored(op.stored(0))


@operator("DEQUANTIZE")
def dequantize(op: Operation) -> None:
    """DequantizeLinear, or Cast where the operand is half precision; a long integer is cast and multiplied."""
    if op.output().type != TensorType.FLOAT32:
        raise Unsupported(f"a result of {op.output().type.name}, in place of which the kernel writes FLOAT32")
    wide = op.input(0).type in (TensorType.INT32, TensorType.INT64) and op.input(0).quantization is not None
    x = op.cast(op.real(0), ir.DataType.FLOAT)
    op.result(_scaled(op, x, 0) if wide else x)
