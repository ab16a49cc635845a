"""Weights whose element type is not that of the data beside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.registry import Unsupported
from relayout.formats.tflite.importing.tensors import array, literal

_FLOATS = (TensorType.FLOAT32, TensorType.FLOAT16)
_MISREAD = {  # types of data and weights -> why nobody means what their product would be
    (TensorType.UINT8, TensorType.INT8): "UINT8 data beside INT8 weights, which the kernel reads as unsigned",
    (TensorType.INT8, TensorType.UINT8): "INT8 data beside UINT8 weights, for which there is no kernel",
}


def weights(op: Operation, i: int, data: int, perm: Sequence[int] | None = None) -> ir.Value:
    """The real numbers of operand i as operand `data` meets them, with the axes in another order if `perm` is given.

    1. Beside real numbers, weights of half precision are widened, and bytes are integers with a sign around 0, whatever
       the file calls them: so the first converters wrote them, and so the kernels read them.
    2. A scale for each block of a row is DequantizeLinear's `block_size`.
    """
    tensor, other = op.input(i), op.input(data).stated
    if tensor.blocks is not None:
        return weights_in_blocks(op, tensor, tensor.blocks.size, perm)
    if (other, tensor.stated) in _MISREAD:
        raise Unsupported(_MISREAD[other, tensor.stated])
    if other == TensorType.FLOAT32 and tensor.type == TensorType.FLOAT16:
        return op.cast(op.real(i, perm), ir.DataType.FLOAT)
    if other in _FLOATS and tensor.type == TensorType.UINT8:
        return _signed(op, i, perm)
    return op.real(i, perm)


def weights_in_blocks(
    op: Operation,  # the operator that reads it
    tensor: Tensor,  # the matrix
    size: int,  # columns of a block
    perm: Sequence[int] | None,  # the order of axes in which it is wanted
    *,
    zeros: bool = True,  # whether zero points are named, which are all 0
) -> ir.Value:
    """Return the real numbers of a constant matrix, with a scale for each block of so many columns."""
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
    if zeros:
        zero = np.zeros(scales.shape, integers.dtype.numpy())
        values.append(op.builder.initializer(op.tensors.hint(tensor, "zero_point"), ir.Tensor(zero, integers.dtype)))
    moved = [value if tuple(perm) == (0, 1) else op.transpose(value, perm) for value in values]
    return op.emit("DequantizeLinear", moved, name=name, axis=list(perm).index(1), block_size=size)


def _signed(op: Operation, i: int, perm: Sequence[int] | None) -> ir.Value:
    tensor = op.input(i)
    quantization = tensor.quantization
    if quantization is None or not op.is_constant(i):
        raise Unsupported("weights of 8 bits without a sign that have no scale or are computed")
    value = op.builder.initializer(op.tensors.hint(tensor, "signed"), literal(tensor, ir.DataType.INT8))
    value = value if perm is None else op.transpose(value, perm)
    axis = quantization.axis if perm is None else list(perm).index(quantization.axis)
    around_zero = quantization._replace(zero_point=np.zeros_like(quantization.zero_point))
    return op.real_constant(tensor, around_zero, value, axis if quantization.per_channel else None)


def widened_from(op: Operation, tensor: Tensor) -> Tensor:
    """Return the constant of half precision that a tensor was widened from; else the tensor itself."""
    producer = op.tensors.flow.producer(tensor.index)
    if producer is None or producer.name != "DEQUANTIZE" or len(producer.inputs) != 1:
        return tensor
    narrow = op.tensors.subgraph.tensors[producer.inputs[0]]
    return narrow if narrow.type == TensorType.FLOAT16 and narrow.data is not None else tensor


def vector(tensor: Tensor) -> npt.NDArray[np.float32]:
    """A constant's elements, one after the other."""
    return array(tensor).reshape(-1).astype(np.float32)
