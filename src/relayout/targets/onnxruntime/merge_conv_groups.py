"""Integer convolutions in groups with fewer, wider groups: weights of 0 stand between what was apart.

ONNX Runtime's integer convolutions put each group's windows side by side and multiply them by themselves, in blocks of
16 units. Groups of a few channels are short runs and blocks that are mostly empty: one channel that gives two takes 13
times as long as in floats. So some groups become one, of all their channels: the same products, and more of 0.

    o i=1 h w, 8 groups of 8 channels  ->  o i=8 h w, one group

Where every channel gives one there is a kernel of its own, and nothing to gain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.convolution import (
    DEPTHWISE,
    planar,
    require_conv_2d,
    require_depthwise,
)
from relayout.formats.tflite.importing.tensors import array
from relayout.formats.tflite.importing.window import TO_FIRST
from relayout.layout import perm as perms

NODE, RUN, PRODUCT = 7_400, 4.0, 0.0047
"""What a convolution takes, in ns: as such, with the call of a session; for each run of bytes in a window of a group,
where there are several groups; and for each product of two elements (`bench/measure_groups.py`)."""
DEPTH, UNITS = 4, 16  # elements of a window, and units of a group, that the kernel multiplies at once
GAIN = 1.3  # how much faster joined groups have to be
MOST = 2**18  # bytes that a kernel may grow by
_SIGNED, _UNSIGNED = (TensorType.INT8, TensorType.INT8), (TensorType.UINT8, TensorType.UINT8)

Bytes = npt.NDArray[np.int8]


def merged_conv(op: Operation) -> bool:
    """Hand over a CONV_2D with fewer groups, if ONNX Runtime is faster with them."""
    require_conv_2d(op)
    return _merged(op, TO_FIRST)


def merged_depthwise(op: Operation) -> bool:
    """Hand over a DEPTHWISE_CONV_2D with fewer groups, if ONNX Runtime is faster with them."""
    require_depthwise(op)
    return _merged(op, DEPTHWISE)


def _merged(op: Operation, perm: Sequence[int]) -> bool:
    wider_conv = widened(op, perm)
    if wider_conv is not None:
        planar(op, *wider_conv)
    return wider_conv is not None


def widened(op: Operation, perm: Sequence[int]) -> tuple[ir.Value, int] | None:
    """The kernel `o i *k` and the number of groups, if ONNX Runtime is faster with fewer; `perm` leads to that order.

    Data and result are uint8, and the weights bytes in the file: no others are multiplied as integers.
    """
    if not _is_of_bytes(op, perm[0]):
        return None
    o, depth, *window = perms.permute(perm, op.input(1).shape)
    channels = dims(op.stored(0))[-1]
    if not isinstance(channels, int) or min(channels, o, depth, *window) < 1:
        return None
    if channels % depth or o % (channels // depth):
        return None
    groups = channels // depth
    count = groups_in_one(groups, o, depth, window, math.prod(op.output().shape[:-1]))
    if count == 1:
        return None
    shape = ir.Shape((o, depth * count, *window))
    weights, quantization = op.input(1), op.tensors.quantization(op.input(1))
    zeros = (np.zeros(1, np.int64) if quantization is None else quantization.zero_point).astype(np.int8)

    def content() -> ir.TensorProtocol:
        return ir.Tensor(wider(array(weights).transpose(perm), zeros, groups, count))

    kernel = op.builder.initializer(op.tensors.hint(weights, "wider"), ir.LazyTensor(content, ir.DataType.INT8, shape))
    axis = 0 if quantization is not None and quantization.per_channel else None
    return op.dequantize(1, kernel, axis), groups // count


def groups_in_one(groups: int, units: int, depth: int, window: Sequence[int], places: int) -> int:
    """Return how many groups become one: as many as take the least time, or 1. Each group has `units` channels."""
    if depth == 1 and units == groups:
        return 1
    runs = math.prod(window)
    counts = [n for n in range(1, min(groups, 1 + MOST // (units * depth * runs)) + 1) if groups % n == 0]
    times: dict[int, float] = {}
    for n in counts:  # what ONNX Runtime takes, in ns
        several = groups // n
        products = -(-depth * n * runs // DEPTH) * DEPTH * -(-units // several // UNITS) * UNITS
        times[n] = NODE + places * several * (RUN * runs * (several > 1) + PRODUCT * products)
    best = min(counts, key=times.__getitem__)
    return best if times[best] * GAIN <= times[1] else 1


def wider(kernel: Bytes, zeros: Bytes, groups: int, count: int) -> Bytes:
    """A kernel `o i *k` of so many groups, `count` of them as one; `zeros` is what means 0, for each of o or all."""
    o, i, *window = kernel.shape
    blocks = (groups // count, count, o // groups)
    grouped_kernel = kernel.reshape(*blocks, i, *window)
    merged_kernel = np.empty((*blocks, count, i, *window), np.int8)
    merged_kernel[...] = np.broadcast_to(zeros, o).reshape(*blocks, 1, 1, *(1 for _ in window))
    for k in range(count):
        merged_kernel[:, k, :, k] = grouped_kernel[:, k]
    return merged_kernel.reshape(o, count * i, *window)


def _is_of_bytes(op: Operation, axis: int) -> bool:
    """Tell whether an integer kernel computes this: uint8 by constants, scaled by the result's channels, if by any."""
    tensors = (op.input(0), op.input(1), op.output())
    data, weights, result = (op.tensors.quantization(tensor) for tensor in tensors)
    return (
        data is not None
        and weights is not None
        and result is not None
        and not data.per_channel
        and not result.per_channel
        and (op.input(0).type, op.output().type) == (TensorType.UINT8, TensorType.UINT8)
        and (op.input(0).stated, op.input(1).stated) in (_SIGNED, _UNSIGNED)
        and op.input(1).type == TensorType.INT8
        and (not weights.per_channel or weights.axis == axis)
        and op.input(1).data is not None
        and op.input(1).sparsity is None
    )
