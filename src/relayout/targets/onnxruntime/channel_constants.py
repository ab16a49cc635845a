"""Products and sums with one constant for each channel, on their way to convolutions.

They broadcast along the last axis. Where everything behind them is computed with channels first, ONNX has forms of its
own for them, and ONNX Runtime kernels: a BatchNormalization of real numbers, a depthwise convolution of bytes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Operator, Tensor
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.operators.convolution import vector, widened_from
from relayout.formats.tflite.importing.operators.elementwise import require_prelu
from relayout.formats.tflite.importing.tensors import array, dequantized
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST
from relayout.graph.domains import CONVOLUTION
from relayout.layout import perm as perms
from relayout.targets.onnxruntime.hybrid_products import multiplies_alone

TOGETHER = 16
"""So many channels at once are what ONNX Runtime's depthwise integer convolution takes; others are no faster."""


def _split(op: Operation, operator: Operator) -> tuple[Tensor, Tensor, int] | None:
    """An operator's data `n h w c`, its constant with one element for each channel, and c; None if it has none such."""
    if len(operator.inputs) != 2 or min(operator.inputs) < 0:
        return None
    first, second = (widened_from(op, op.tensors.subgraph.tensors[i]) for i in operator.inputs)
    for data, constant in ((first, second), (second, first)):
        if data.data is not None or constant.data is None or not op.tensors.has_value(data):
            continue
        shape = dims(op.tensors.value(data))
        channels = shape[3] if len(shape) == 4 else None
        ones = (1,) * (len(constant.shape) - 1)
        if isinstance(channels, int) and channels > 0 and constant.shape == (*ones, channels) and len(ones) < 4:
            return data, constant, channels
    return None


def normalized(op: Operation) -> bool:
    """Hand over an ADD as a BatchNormalization, if it adds to the product of a MUL that nothing else reads.

    Mean and variance are 0 and 1, so that scale and shift are the constants to the last bit.
    """
    flow, added = op.tensors.flow, _split(op, op.operator)
    if (
        not op.program.once(multiplies_alone)  # hybrid convolutions may be products, channels last
        or added is None
        or op.output().type != TensorType.FLOAT32
        or not flow.leads_to_spatial(op.output().index)
    ):
        return False
    (product, shift, channels), real = added, (TensorType.FLOAT32, TensorType.FLOAT16)
    scaling = flow.producer(product.index)
    if scaling is None or scaling.name != "MUL" or flow.sole_reader(product.index) is not op.operator:
        return False
    multiplied = _split(op, scaling)
    fused = options_of(scaling).fused_activation_function
    if multiplied is None or fused or multiplied[2] != channels or product.type != TensorType.FLOAT32:
        return False
    data, scale, _ = multiplied
    if data.type != TensorType.FLOAT32 or scale.type not in real or shift.type not in real:
        return False
    for operator in (op.operator, scaling):
        op.spare(operator)
    x = op.transpose(op.tensors.value(data), TO_FIRST)
    numbers = {"scale": vector(scale), "shift": vector(shift)}
    numbers |= {"mean": np.zeros(channels, np.float32), "variance": np.ones(channels, np.float32)}
    constants = [op.builder.shared(op.hint(name), values) for name, values in numbers.items()]
    y = op.emit("BatchNormalization", [x, *constants], dims(x), epsilon=0.0)
    op.result(y, perm=TO_LAST, fused=op.options.fused_activation_function)
    return True


def weighted(op: Operation) -> bool:
    """Hand over a MUL of bytes as a depthwise Conv of one element, whose scales are the constants."""
    split = _split(op, op.operator)
    if split is None or not op.tensors.flow.leads_to_spatial(op.output().index):
        return False
    data, constant, channels = split
    tensors, meaning = (data, constant, op.output()), op.tensors.quantization(constant)
    quantizations = [op.tensors.quantization(t) for t in tensors]
    if meaning is None or channels % TOGETHER or any(q is None or q.per_channel for q in quantizations):
        return False
    if any(t.type not in BYTES_ONLY for t in tensors):
        return False
    numbers = dequantized(array(constant), meaning).reshape(-1)
    signs = op.builder.array(op.hint("signs"), np.sign(numbers).astype(np.int8).reshape(-1, 1, 1, 1))
    sizes = op.builder.array(op.hint("sizes"), np.where(numbers == 0, 1, np.abs(numbers)).astype(np.float32))
    zeros = op.builder.shared(op.hint("zeros"), np.zeros(channels, np.int8))
    kernel = op.emit("DequantizeLinear", [signs, sizes, zeros], dims(signs), ir.DataType.FLOAT, axis=0)
    i = 0 if data is op.input(0) else 1
    x = op.real(i, TO_FIRST)
    shape = perms.permute(TO_FIRST, dims(op.stored(i)))
    y = op.emit(CONVOLUTION, [x, kernel], shape, kernel_shape=[1, 1], group=channels)
    op.result(y, perm=TO_LAST, fused=op.options.fused_activation_function)
    return True


def real_slopes(op: Operation) -> bool:
    """Hand over a PRELU with slopes of real numbers, if they are quantized constants: nothing dequantizes them then."""
    require_prelu(op)
    tensor = op.input(1)
    is_of_halves = widened_from(op, tensor) is not tensor
    if is_of_halves or not op.is_constant(1) or tensor.quantization is None:
        return False
    slope = op.builder.array(op.tensors.hint(tensor, "real"), dequantized(op.constant(1), tensor.quantization))
    x = op.real(0)
    op.result(op.emit("PRelu", [x, slope], dims(x)))
    return True
