"""Pools over `n h w c`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.builder import Dim, Dims, dims
from relayout.formats.tflite.enums import Padding
from relayout.formats.tflite.operation import BYTES_ONLY, MOVABLE, Operation
from relayout.formats.tflite.operators.elementwise import rounded_away
from relayout.formats.tflite.registry import Unsupported, operator
from relayout.formats.tflite.window import TO_FIRST, TO_LAST, auto_pad, pads, slid


def _emit(op: Operation, op_type: str, *operands: ir.Value, **attributes: Any) -> ir.Value:
    """One pool over `n c h w`, padding left out of what is pooled."""
    options = op.options
    window, strides, ones = [options.filter_height, options.filter_width], [options.stride_h, options.stride_w], [1, 1]
    n, c, *spatial = dims(operands[0])
    # A window of one element needs no border; ONNX Runtime's auto_pad would cut some off where strides are longer.
    same = options.padding == Padding.SAME and max(window) > 1
    known: list[Dim] = [slid(e, k, s, 1, same) for e, k, s in zip(spatial, window, strides, strict=True)]
    last: Dims = op.out_dims([n, *known, c])
    return op.emit(
        op_type,
        operands,
        (last[0], last[3], last[1], last[2]),
        auto_pad=auto_pad(spatial, strides, ones, same),
        pads=pads(spatial, window, strides, ones, same),
        kernel_shape=window,
        strides=strides,
        **attributes,
    )


@operator("AVERAGE_POOL_2D", options="Pool2DOptions")
def average_pool_2d(op: Operation) -> None:
    """AveragePool over the elements that are there, not over the padding; of bytes without padding a Conv of ones."""
    op.require_rank(0, 4)
    fused = op.options.fused_activation_function
    if op.input(0).type in MOVABLE and op.input(0).quantization is None:
        _without_scale(op)
        return
    x = op.real(0, TO_FIRST)
    y = _of_ones(op, x) if _is_summed(op, x) else _emit(op, "AveragePool", x, count_include_pad=0)
    op.result_alike(y, 0, perm=TO_LAST, fused=fused)


MOST_ONES = 64
"""Elements of the largest window that is written as a convolution: the kernel lies in the file."""


def _is_summed(op: Operation, x: ir.Value) -> bool:
    """Whether each of an 8-bit pool's windows has all of its elements, so that a sum and one factor are the average.

    ONNX Runtime's depthwise integer convolution takes a twentieth of its integer AveragePool's time.
    """
    options, (_, channels, *spatial) = op.options, dims(x)
    window, strides = [options.filter_height, options.filter_width], [options.stride_h, options.stride_w]
    border = pads(spatial, window, strides, [1, 1], options.padding == Padding.SAME and max(window) > 1)
    quantization = op.tensors.quantization(op.input(0))
    return (
        op.input(0).type in BYTES_ONLY
        and quantization is not None
        and not quantization.per_channel
        and isinstance(channels, int)
        and channels > 0
        and 1 < window[0] * window[1] <= MOST_ONES
        and border == [0, 0, 0, 0]
    )


def _of_ones(op: Operation, x: ir.Value) -> ir.Value:
    """A depthwise Conv whose kernel is ones, worth one part of the window each."""
    channels, window = dims(x)[1], (op.options.filter_height, op.options.filter_width)
    ones = op.builder.shared(op.hint("ones"), np.ones((channels, 1, *window), np.int8))
    part = op.builder.array(op.hint("part"), np.array(1 / (window[0] * window[1]), np.float32))
    zero = op.builder.shared(op.hint("zero"), np.array(0, np.int8))
    kernel = op.emit("DequantizeLinear", [ones, part, zero], dims(ones), ir.DataType.FLOAT)
    return _emit(op, "Conv", x, kernel, group=channels)


def _without_scale(op: Operation) -> None:
    """The average of plain integers, halves away from zero."""
    if op.options.fused_activation_function:
        raise Unsupported("an activation on integers without a scale, for which the kernel takes 0")
    mean = _emit(
        op, "AveragePool", op.transpose(op.cast(op.stored(0), ir.DataType.FLOAT), TO_FIRST), count_include_pad=0
    )
    op.result_whole(op.transpose(rounded_away(op, mean), TO_LAST))


@operator("MAX_POOL_2D", options="Pool2DOptions")
def max_pool_2d(op: Operation) -> None:
    """MaxPool, on the integers where the result is quantized as the operand is."""
    op.require_rank(0, 4)
    if op.input(0).type in MOVABLE and op.input(0).quantization is None and op.options.fused_activation_function:
        raise Unsupported("an activation on integers without a scale, for which the kernel takes 0")
    (x,), finish = op.carried(0, types=BYTES_ONLY, fused=op.options.fused_activation_function)
    y = _emit(op, "MaxPool", op.transpose(x, TO_FIRST))
    finish(op.transpose(y, TO_LAST))


@operator("L2_POOL_2D", options="Pool2DOptions")
def l2_pool_2d(op: Operation) -> None:
    """Sqrt of AveragePool of the squares."""
    op.require_rank(0, 4)
    x = op.real(0, TO_FIRST)
    mean = _emit(op, "AveragePool", op.emit("Mul", [x, x], dims(x)), count_include_pad=0)
    op.result(op.emit("Sqrt", [mean], dims(mean)), perm=TO_LAST, fused=op.options.fused_activation_function)
