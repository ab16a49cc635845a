"""Average pools of bytes as depthwise convolutions of ones, for which ONNX Runtime has a fast integer kernel."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import BYTES_ONLY, MOVABLE, Operation
from relayout.formats.tflite.importing.operators.pooling import Sliding, pooled, unbordered
from relayout.formats.tflite.importing.operators.reduction import mean_of_steps
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST, is_open, pads
from relayout.graph.domains import CONVOLUTION

# The mean of a quantized image over height and width as GlobalAveragePool, of which there is an integer kernel.


def mean_as_pool(op: Operation) -> bool:
    """Hand over a MEAN as GlobalAveragePool, if it is one of quantized images over height and width."""
    if mean_of_steps(op):
        return True
    rank, quantized = len(dims(op.stored(0))), op.tensors.quantization(op.input(0)) is not None
    if not quantized or rank != 4 or not op.is_constant(1) or {op.axis(a, 4) for a in op.integers(1)} != {1, 2}:
        return False
    n, _, _, c = dims(op.stored(0))
    pooled = op.emit("GlobalAveragePool", [op.real(0, TO_FIRST)], (n, c, 1, 1))
    y = op.transpose(op.quantize(pooled), TO_LAST)
    op.result_stored(y if op.options.keep_dims else op.emit("Squeeze", [y, op.ints([1, 2])]))
    return True


MOST_ONES, MOST_IN_ALL = 64, 1 << 20
"""Elements of the largest window that is written as a convolution, and of all channels' windows: the kernel lies in the
file, and how many channels there are is what a file says."""


def average_pool_as_conv(op: Operation) -> bool:
    """Hand over an AVERAGE_POOL_2D as a convolution of ones, if each of its windows is whole."""
    op.require_rank(0, 4)
    if op.input(0).type in MOVABLE and op.input(0).quantization is None:
        return False
    channels = _summable(op)
    if channels:
        op.result_alike(_summed(op, channels), TO_LAST, op.options.fused_activation_function)
    return bool(channels)


def _summable(op: Operation) -> int:
    """The channels of an 8-bit pool each of whose windows is whole, so that a sum and one factor make the average.

    Of any other 0. ONNX Runtime's depthwise integer convolution takes a twentieth of its integer AveragePool's time.
    """
    over, (_, *spatial, channels) = Sliding.of(op), dims(op.stored(0))
    window, strides, same, quantization = over.window, over.strides, over.same, op.tensors.quantization(op.input(0))
    if not isinstance(channels, int):
        return 0
    summable = (
        op.input(0).type in BYTES_ONLY
        and quantization is not None
        and not quantization.per_channel
        and 1 < window[0] * window[1] <= MOST_ONES
        and window[0] * window[1] * channels <= MOST_IN_ALL
        and not (same and is_open(spatial, window, strides, [1, 1]))
        and not any(pads(spatial, window, strides, [1, 1], same))
    )
    return channels if summable else 0


def _summed(op: Operation, channels: int) -> ir.Value:
    """A depthwise Conv of `n c h w` whose kernel is ones, worth one part of the window each; a PAD is its border.

    Of a window of an even number an average may lie between two integers. QuantizeLinear takes the even one, the kernel
    the one further from the integer 0: of uint8 the greater one. There the sum counts in halves, and one half more
    decides.
    """
    over = Sliding.of(op)
    window, border = over.window, unbordered(op, over.window, over.ones)
    count = window[0] * window[1]
    decided = count % 2 == 0 and op.input(0).stated == TensorType.UINT8
    ones = op.builder.shared(op.hint("ones"), np.full([channels, 1, *window], 1 + decided, np.int8))
    part = np.array(1 / ((1 + decided) * count), np.float32)
    zero = op.builder.shared(op.hint("zero"), np.array(0, np.int8))
    kernel = [op.emit("DequantizeLinear", [ones, op.builder.array(op.hint("part"), part), zero])]
    quantization = op.input(0).quantization
    if decided and quantization is not None:
        half = op.builder.shared(op.hint("half"), np.ones(channels, np.int32))
        step = op.builder.array(op.hint("half_step"), quantization.scale.reshape(()) * part)
        kernel.append(op.emit("DequantizeLinear", [half, step]))
    inner = op.stored(0) if border is None else op.tensors.value(border.inner)
    x = op.dequantize(0, op.transpose(inner, TO_FIRST))
    return pooled(op, over, CONVOLUTION, x, border, kernel=kernel, group=channels)[0]
