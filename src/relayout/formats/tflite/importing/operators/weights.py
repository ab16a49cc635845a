"""Weights whose element type is not that of the data beside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.registry import Unsupported
from relayout.formats.tflite.importing.tensors import FEW_BITS, literal

LONG_BLOCKS = 256, 128
"""Columns that a kernel of ONNX Runtime's takes at once."""
_FLOATS = (TensorType.FLOAT32, TensorType.FLOAT16)
_MISREAD = {
    (TensorType.UINT8, TensorType.INT8): "UINT8 data beside INT8 weights, which the kernel reads as unsigned",
    (TensorType.INT8, TensorType.UINT8): "INT8 data beside UINT8 weights, for which there is no kernel",
}
"""Types of data and weights -> why nobody means what their product would be."""


def weights(op: Operation, i: int, data: int, perm: Sequence[int] | None = None) -> ir.Value:
    """The real numbers of operand i as operand `data` meets them, with the axes in another order if `perm` is given.

    1. Beside real numbers, weights of half precision are widened, and bytes are integers with a sign around 0, whatever
       the file calls them: so the first converters wrote them, and so the kernels read them.
    2. Beside uint8, uint8 weights are int8, they and their zero point 128 lower: ONNX Runtime multiplies uint8 by int8
       twice as fast as by uint8.
    3. A scale for each block of a row is DequantizeLinear's `block_size`: ONNX Runtime makes one kernel of it and a
       MatMul.
    """
    tensor, other = op.input(i), op.input(data).stated
    if size := block_size(op, i, data):
        return _by_blocks(op, tensor, size, perm)
    if (other, tensor.stated) in _MISREAD:
        raise Unsupported(_MISREAD[other, tensor.stated])
    if other == TensorType.FLOAT32 and tensor.type == TensorType.FLOAT16:
        return op.cast(op.real(i, perm), ir.DataType.FLOAT)
    if other in _FLOATS and tensor.type == TensorType.UINT8:
        return _signed(op, i, perm)
    quantization = op.tensors.quantization(tensor)
    whole = quantization is not None and not quantization.per_channel
    if other == tensor.stated == TensorType.UINT8 and whole and tensor.data is not None:
        return _lower(op, i, perm)
    return op.real(i, perm)


def _lower(op: Operation, i: int, perm: Sequence[int] | None) -> ir.Value:
    """A constant of uint8 as int8: the same numbers, integers and zero point 128 lower."""
    value, scale, zero_point = op.tensors.lowered(op.input(i))
    value = value if perm is None else op.transpose(value, perm)
    name = op.tensors.hint(op.input(i), "dequantized")
    return op.emit("DequantizeLinear", [value, scale, zero_point], dims(value), ir.DataType.FLOAT, name=name)


def block_size(op: Operation, i: int, data: int) -> int:
    """How many columns of a matrix of weights share a scale, as `weights` writes them; 0: all of a row.

    Few bits in long rows have blocks, too, whose scales are equal, for the same kernel: with 2048 columns it multiplies
    one row of data in a tenth of the time of real numbers, and 128 rows in a third. In short rows it takes longer.
    """
    tensor = op.input(i)
    if tensor.blocks is not None:
        return tensor.blocks.size
    meaning = op.tensors.quantization(tensor)
    if meaning is None or tensor.data is None or tensor.type not in FEW_BITS:
        return 0
    by_rows = not meaning.per_channel or meaning.axis == 0
    if op.input(data).type != TensorType.FLOAT32 or len(tensor.shape) != 2 or not by_rows or meaning.zero_point.any():
        return 0
    return next((size for size in LONG_BLOCKS if tensor.shape[1] % size == 0), 0)


def _by_blocks(op: Operation, tensor: Tensor, size: int, perm: Sequence[int] | None) -> ir.Value:
    integers, scales = op.tensors.blockwise(tensor, size)
    name, perm = op.tensors.hint(tensor, "dequantized"), (0, 1) if perm is None else perm
    if op.tensors.dequantize:
        real = ir.LazyTensor(
            lambda: ir.Tensor(integers.numpy().astype(np.float32) * np.repeat(scales, size, 1)),
            ir.DataType.FLOAT,
            ir.Shape(tensor.shape),
        )
        return op.transpose(op.builder.initializer(name, real), perm)
    values = [op.builder.initializer(op.tensors.names[tensor.index], integers)]
    values.append(op.builder.array(op.tensors.hint(tensor, "scale"), scales))
    moved = [value if tuple(perm) == (0, 1) else op.transpose(value, perm) for value in values]
    axis = list(perm).index(1)
    return op.emit("DequantizeLinear", moved, dims(moved[0]), ir.DataType.FLOAT, name=name, axis=axis, block_size=size)


def _signed(op: Operation, i: int, perm: Sequence[int] | None) -> ir.Value:
    tensor = op.input(i)
    quantization = tensor.quantization
    if quantization is None or not op.is_constant(i):
        raise Unsupported("weights of 8 bits without a sign that have no scale or are computed")
    value = op.builder.initializer(op.tensors.hint(tensor, "signed"), literal(tensor, ir.DataType.INT8))
    value = value if perm is None else op.transpose(value, perm)
    axis = quantization.axis if perm is None else list(perm).index(quantization.axis)
    around_zero = quantization._replace(zero_point=np.zeros_like(quantization.zero_point))
    return op.widened(tensor, around_zero, value, axis if quantization.per_channel else None)
