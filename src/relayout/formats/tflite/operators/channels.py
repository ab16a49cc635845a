"""Products and sums with one constant for each channel, on their way to convolutions.

They broadcast along the last axis. Where everything behind them is computed with channels first, ONNX has forms of its
own for them, and ONNX Runtime kernels: a BatchNormalization of real numbers, a depthwise convolution of bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.builder import dims, permuted
from relayout.formats.tflite.enums import TensorType
from relayout.formats.tflite.model import Operator, Tensor
from relayout.formats.tflite.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.tensors import array, dequantized
from relayout.formats.tflite.window import TO_FIRST, TO_LAST

TOGETHER = 16
"""So many channels at once are what ONNX Runtime's depthwise integer convolution takes; others are no faster."""


def _for_each_channel(tensor: Tensor, channels: int) -> bool:
    """Whether a constant has one element for each channel, and no other."""
    return (
        tensor.data is not None
        and tensor.shape[-1:] == (channels,)
        and len(tensor.shape) <= 4
        and int(np.prod(tensor.shape)) == channels
    )


def _split(op: Operation, operator: Operator) -> tuple[Tensor, Tensor, int] | None:
    """An operator's data `n h w c`, its constants `c`, and c; None if it has none such."""
    if len(operator.inputs) != 2 or min(operator.inputs) < 0:
        return None
    first, second = (op.tensors.subgraph.tensors[i] for i in operator.inputs)
    for data, constant in ((first, second), (second, first)):
        if data.data is not None or not op.tensors.has_value(data):
            continue
        shape = dims(op.tensors.value(data))
        channels = shape[-1] if len(shape) == 4 else None
        if isinstance(channels, int) and channels > 0 and _for_each_channel(constant, channels):
            return data, constant, channels
    return None


def _vector(tensor: Tensor) -> npt.NDArray[Any]:
    return array(tensor).reshape(-1)


def normalized(op: Operation) -> bool:
    """Hand over an ADD as a BatchNormalization, if it adds to the product of a MUL that nothing else reads.

    Mean and variance are 0 and 1, so that scale and shift are the constants to the last bit.
    """
    flow, added = op.tensors.flow, _split(op, op.operator)
    if added is None or op.output().type != TensorType.FLOAT32 or not flow.leads_to_spatial(op.output().index):
        return False
    product, shift, channels = added
    scaling = flow.producer(product.index)
    if scaling is None or scaling.name != "MUL" or flow.sole_reader(product.index) is not op.operator:
        return False
    multiplied = _split(op, scaling)
    fused = scaling.options is not None and scaling.options.fused_activation_function
    if multiplied is None or fused or multiplied[0].type != TensorType.FLOAT32 or multiplied[2] != channels:
        return False
    data, scale, _ = multiplied
    node = op.tensors.value(product).producer()
    op.builder.spare |= {id(node)}
    x = op.transpose(op.tensors.value(data), TO_FIRST)
    constants = [
        op.builder.shared(op.hint(name), numbers)
        for name, numbers in (
            ("scale", _vector(scale)),
            ("shift", _vector(shift)),
            ("mean", np.zeros(channels, np.float32)),
            ("variance", np.ones(channels, np.float32)),
        )
    ]
    y = op.emit("BatchNormalization", [x, *constants], dims(x), epsilon=0.0)
    op.result(y, perm=TO_LAST, fused=op.options.fused_activation_function)
    return True


def weighted(op: Operation) -> bool:
    """Hand over a MUL of bytes as a depthwise Conv of one element, whose scales are the constants."""
    split = _split(op, op.operator)
    if split is None or not op.tensors.flow.leads_to_spatial(op.output().index):
        return False
    data, constant, channels = split
    quantizations = [op.tensors.quantization(t) for t in (data, constant, op.output())]
    bytes_ = all(t.type in BYTES_ONLY for t in (data, constant, op.output()))
    if not bytes_ or channels % TOGETHER or any(q is None or q.per_channel for q in quantizations):
        return False
    numbers = dequantized(constant, quantizations[1]).reshape(-1) if quantizations[1] else np.empty(0, np.float32)
    signs = op.builder.array(op.hint("signs"), np.sign(numbers).astype(np.int8).reshape(-1, 1, 1, 1))
    sizes = op.builder.array(op.hint("sizes"), np.where(numbers == 0, 1, np.abs(numbers)).astype(np.float32))
    zeros = op.builder.shared(op.hint("zeros"), np.zeros(channels, np.int8))
    kernel = op.emit("DequantizeLinear", [signs, sizes, zeros], dims(signs), ir.DataType.FLOAT, axis=0)
    i = 0 if data is op.input(0) else 1
    x = op.real(i, TO_FIRST)
    y = op.emit("Conv", [x, kernel], permuted(dims(op.stored(i)), TO_FIRST), kernel_shape=[1, 1], group=channels)
    op.result(y, perm=TO_LAST, fused=op.options.fused_activation_function)
    return True
