"""A convolution of real numbers and int8 weights as a product of integers, as LiteRT computes it.

An image is quantized at run time, to 255 steps; the elements of each window are put side by side, as a row; and rows
are multiplied by the weights. ONNX Runtime has fast kernels for products of integers, and none for such convolutions:
this takes a third to a half of a float Conv's time where there are channels enough. What it stands for is no longer
seen in the graph, and all is channels last: for those who count time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.builder import dims
from relayout.formats.tflite.enums import Padding
from relayout.formats.tflite.extents import shifted
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators import hybrid
from relayout.formats.tflite.operators.border import unbordered
from relayout.formats.tflite.operators.elementwise import two
from relayout.formats.tflite.operators.slicing import cut
from relayout.formats.tflite.operators.surroundings import unrolls
from relayout.formats.tflite.tensors import array
from relayout.formats.tflite.window import pads, slid

LEAST, MOST = 64, 25
"""Channels from which on it pays to copy each element of a window; and elements of a window up to which it does."""


@dataclass(frozen=True)
class _Windows:
    """Along each axis: a window's elements, the number of windows, how far apart these are, and those."""

    extents: tuple[int, ...]
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def are_pixels(self) -> bool:
        """Whether each is one pixel, and all are there: LiteRT rounds each of them by itself then."""
        return (*self.extents, *self.strides) == (1, 1, 1, 1)


def unrolled(op: Operation) -> bool:
    """Hand over a CONV_2D as MatMulInteger, if that is wanted and ONNX Runtime is faster at it."""
    weights, image = op.input(1), op.stored(0)
    n, *spatial, channels = dims(image)
    extents = [e for e in spatial if isinstance(e, int)]
    if not op.program.once(unrolls) or n != 1 or len(extents) != 2 or weights.shape[3] != channels:
        return False
    if not hybrid.has_centred_weights(op):
        return False
    o, *window, depth = weights.shape
    if depth < LEAST or window[0] * window[1] > MOST or min(weights.shape) < 1:
        return False
    options = op.options
    strides, dilations = [options.stride_h, options.stride_w], [options.dilation_h_factor, options.dilation_w_factor]
    same, border = options.padding == Padding.SAME, unbordered(op, window, dilations)
    inner = image if border is None else op.tensors.value(border.inner)
    around = pads(extents, window, strides, dilations, same) if border is None else list(border.pads)
    places = [slid(e, k, s, d, same) for e, k, s, d in zip(extents, window, strides, dilations, strict=True)]
    counts = [count for count in places if isinstance(count, int) and count > 0]
    if len(counts) != 2:
        return False
    windows = _Windows(tuple(window), tuple(counts), tuple(strides), tuple(dilations))
    if windows.are_pixels and not any(around):
        y = hybrid.product(op, op.reshape(inner, (math.prod(counts), depth)), _columns(op))
    else:
        y = _product(op, inner, windows, around)
    bias = op.bias(2, 0, 1)
    y = y if bias is None else two(op, "Add", y, bias)
    op.result(op.reshape(y, (1, *counts, o)), fused=options.fused_activation_function)
    return True


def _rows(op: Operation, x: ir.Value, windows: _Windows, depth: int) -> ir.Value:
    """The windows over `1 h w c`, each a row `(h w c)`."""
    elements = []
    for place in np.ndindex(windows.extents):
        starts = [at * d for at, d in zip(place, windows.dilations, strict=True)]
        ends = [s + (n - 1) * step + 1 for s, n, step in zip(starts, windows.counts, windows.strides, strict=True)]
        whole = (*starts, *ends, *windows.strides) == (0, 0, *dims(x)[1:3], 1, 1)
        elements.append(x if whole else cut(op, x, starts, ends, [1, 2], windows.strides))
    size = len(elements) * depth
    joined = op.emit("Concat", elements, (1, *windows.counts, size), axis=3) if len(elements) > 1 else elements[0]
    return op.reshape(joined, (math.prod(windows.counts), size))


def _product(op: Operation, image: ir.Value, windows: _Windows, around: Sequence[int]) -> ir.Value:
    """Windows over an image `1 h w c` times the weights, without the bias: a row for each."""
    (_, *extents, _), (o, *_, depth), scale = dims(image), op.input(1).shape, op.input(1).quantization
    integers, step, zero = hybrid.quantized(op, image)
    if any(around):
        amounts = op.ints([0, *around[:2], 0, 0, *around[2:], 0], "pads")
        grown = [shifted(e, a + b) for e, a, b in zip(extents, around[:2], around[2:], strict=True)]
        integers = op.emit("Pad", [integers, amounts, zero], (1, *grown, depth), mode="constant")
    rows = _rows(op, integers, windows, depth)
    steps = op.builder.array(op.tensors.hint(op.input(1), "scale"), np.ones(1) if scale is None else scale.scale)
    sums = op.emit("MatMulInteger", [rows, _columns(op), zero], (dims(rows)[0], o), ir.DataType.INT32)
    return two(op, "Mul", op.cast(sums, ir.DataType.FLOAT), two(op, "Mul", step, steps))


def _columns(op: Operation) -> ir.Value:
    """The weights `o h w i` as `(h w i) o`."""
    weights = op.input(1)
    o, *rest = weights.shape
    content = ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(array(weights).reshape(o, -1).T)),
        ir.DataType.INT8,
        ir.Shape([math.prod(rest), o]),
    )
    return op.builder.initializer(op.tensors.hint(weights, "columns"), content)
