"""Pools over `n h w c`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.builder import Dim, Dims, dims
from relayout.formats.tflite.enums import Padding
from relayout.formats.tflite.operation import BYTES_ONLY, MOVABLE, Operation
from relayout.formats.tflite.operators.border import bordered
from relayout.formats.tflite.operators.elementwise import rounded_away, two
from relayout.formats.tflite.registry import Unsupported, operator
from relayout.formats.tflite.window import TO_FIRST, TO_LAST, slid


def _pooled(op: Operation, op_type: str, x: ir.Value, fill: float = 0, **attributes: Any) -> tuple[ir.Value, bool]:
    """One pool over `n c h w`; whether a border of `fill` was computed, which it takes for elements."""
    options = op.options
    window, strides, ones = [options.filter_height, options.filter_width], [options.stride_h, options.stride_w], [1, 1]
    n, c, *spatial = dims(x)
    same = options.padding == Padding.SAME
    known: list[Dim] = [slid(e, k, s, 1, same) for e, k, s in zip(spatial, window, strides, strict=True)]
    last: Dims = op.out_dims([n, *known, c])
    x, border, computed = bordered(op, x, window, strides, ones, same, fill)
    shape = (last[0], last[3], last[1], last[2])
    return op.emit(op_type, [x], shape, **border, kernel_shape=window, strides=strides, **attributes), computed


def _average(op: Operation, x: ir.Value) -> ir.Value:
    """AveragePool over the elements that are there; with a computed border, divided by their share of each window."""
    mean, computed = _pooled(op, "AveragePool", x, count_include_pad=0)
    if not computed:
        return mean
    extents = op.emit("Shape", [x], (2,), ir.DataType.INT64, start=2, end=4)
    plane = op.emit("Concat", [op.ints([1, 1], "one"), extents], (4,), axis=0)
    there = op.emit("Expand", [op.number(1, x, "there"), plane], (1, 1, *dims(x)[2:]))
    share, _ = _pooled(op, "AveragePool", there, count_include_pad=0)
    return two(op, "Div", mean, share)


def _greatest(op: Operation, x: ir.Value) -> ir.Value:
    """MaxPool; a computed border holds the least there is."""
    dtype = x.dtype or ir.DataType.FLOAT
    least = float(np.iinfo(dtype.numpy().name).min) if dtype.is_integer() else -math.inf
    return _pooled(op, "MaxPool", x, least)[0]


@operator("AVERAGE_POOL_2D", options="Pool2DOptions")
def average_pool_2d(op: Operation) -> None:
    """AveragePool over the elements that are there, not over the padding."""
    op.require_rank(0, 4)
    fused = op.options.fused_activation_function
    if op.input(0).type in MOVABLE and op.input(0).quantization is None:
        _without_scale(op)
        return
    y = _average(op, op.real(0, TO_FIRST))
    op.result_alike(y, 0, perm=TO_LAST, fused=fused)


def _without_scale(op: Operation) -> None:
    """The average of plain integers, halves away from zero."""
    if op.options.fused_activation_function:
        raise Unsupported("an activation on integers without a scale, for which the kernel takes 0")
    mean = _average(op, op.transpose(op.cast(op.stored(0), ir.DataType.FLOAT), TO_FIRST))
    op.result_whole(op.transpose(rounded_away(op, mean), TO_LAST))


@operator("MAX_POOL_2D", options="Pool2DOptions")
def max_pool_2d(op: Operation) -> None:
    """MaxPool, on the integers where the result is quantized as the operand is."""
    op.require_rank(0, 4)
    if op.input(0).type in MOVABLE and op.input(0).quantization is None and op.options.fused_activation_function:
        raise Unsupported("an activation on integers without a scale, for which the kernel takes 0")
    (x,), finish = op.carried(0, types=BYTES_ONLY, fused=op.options.fused_activation_function)
    y = _greatest(op, op.transpose(x, TO_FIRST))
    finish(op.transpose(y, TO_LAST))


@operator("L2_POOL_2D", options="Pool2DOptions")
def l2_pool_2d(op: Operation) -> None:
    """Sqrt of AveragePool of the squares."""
    op.require_rank(0, 4)
    x = op.real(0, TO_FIRST)
    mean = _average(op, op.emit("Mul", [x, x], dims(x)))
    op.result(op.emit("Sqrt", [mean], dims(mean)), perm=TO_LAST, fused=op.options.fused_activation_function)
