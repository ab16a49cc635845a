"""A convolution of real numbers and int8 weights as a product of integers.

An image is quantized at run time, to 255 steps; the elements of each window are put side by side, as a row; and rows
are multiplied by the weights. ONNX Runtime has fast kernels for products of integers, and none for such convolutions:
this takes a quarter to a half of a float Conv's time where there are channels enough. What it stands for is no longer
seen in the graph, and all is channels last: for those who count time.

That is how LiteRT computes it, but that its delegate rounds each pixel by itself where windows are of one pixel, of
which nothing would be won. There an image is rounded at once, as LiteRT's other kernels do.
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
from relayout.formats.tflite.tensors import array
from relayout.formats.tflite.window import pads, slid

LEAST = 16
"""Channels from which on it pays to copy each element of a window."""
MARGIN = 0.8
"""The part of a Conv's time that a product may take: neighbours that want channels first take longer beside it."""
REORDERING = 0.4
"""What an element costs, in ns, that is brought to channels first, or back."""
FIRST = ("DEPTHWISE_CONV_2D",)
"""Operators that ONNX Runtime has no kernel for but with channels first."""


@dataclass(frozen=True)
class _Windows:
    """Along each axis: a window's elements, the number of windows, how far apart these are, and those."""

    extents: tuple[int, ...]
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    def pays(self, read: int, channels: int, units: int, reordered: int) -> bool:
        """Whether ONNX Runtime takes less time for the product than for a float Conv.

        The times are those of `bench/measure_hybrid.py`, in ns, on one thread of an x86 server with AVX-512 VNNI: of a
        node, a product of two elements, an element of a window that is copied, one that is read or given. Of what a
        Conv reads and gives it is half: between two of them no element is reordered.

        Args:
            read: elements of the image.
            channels: how many of them are one pixel.
            units: elements given for each window.
            reordered: elements, read or given, that another operator has channels first.
        """
        window, count = math.prod(self.extents), math.prod(self.counts)
        rows, given = count * window * channels, count * units
        if window > 1 and channels < LEAST:
            return False
        copying = 6200 + 0.14 * rows if window > 1 else 0
        product = 2200 + 0.0044 * rows * units + 0.26 * read + 0.37 * given + REORDERING * reordered
        return copying + product < MARGIN * (2000 + 0.018 * rows * units + 0.13 * (read + given))


def unrolled(op: Operation) -> bool:
    """Hand over a CONV_2D as MatMulInteger, if that is wanted and ONNX Runtime is faster at it."""
    weights, image = op.input(1), op.stored(0)
    n, *spatial, channels = dims(image)
    extents = [e for e in spatial if isinstance(e, int)]
    if not op.program.choices.fast or n != 1 or len(extents) != 2 or weights.shape[3] != channels:
        return False
    if not hybrid.has_centred_weights(op):
        return False
    o, *window, depth = weights.shape
    if min(weights.shape) < 1:
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
    read, given = math.prod(extents) * depth, math.prod(counts) * o
    if not windows.pays(read, depth, o, _reordered(op, read, given)):
        return False
    y = _product(op, inner, windows, around)
    bias = op.bias(2, 0, 1)
    op.result(y if bias is None else two(op, "Add", y, bias), fused=options.fused_activation_function)
    return True


def _reordered(op: Operation, read: int, given: int) -> int:
    """How many elements of image and result an operator beside it has channels first."""
    maker = op.tensors.flow.producer(op.operator.inputs[0])
    readers = op.tensors.flow.readers(op.operator.outputs[0])
    before = read if maker is not None and maker.name in FIRST else 0
    return before + (given if any(reader.name in FIRST for reader in readers) else 0)


def _rows(op: Operation, x: ir.Value, windows: _Windows) -> ir.Value:
    """The windows over `1 h w c` as rows, `1 y x (kw kh c)`; of the height long runs are copied, so it comes first."""
    steps = zip(windows.extents, windows.counts, windows.strides, windows.dilations, strict=True)
    for axis, (extent, count, stride, dilation) in enumerate(steps, 1):
        if extent == stride == 1:
            continue
        starts = [place * dilation for place in range(extent)]
        ends = [start + (count - 1) * stride + 1 for start in starts]
        parts = [cut(op, x, [start], [end], [axis], [stride]) for start, end in zip(starts, ends, strict=True)]
        *shape, depth = dims(parts[0])
        width = depth * extent if isinstance(depth, int) else None
        x = op.emit("Concat", parts, (*shape, width), axis=3) if len(parts) > 1 else parts[0]
    return x


def _product(op: Operation, image: ir.Value, windows: _Windows, around: Sequence[int]) -> ir.Value:
    """Windows over an image `1 h w c` times the weights, without the bias."""
    (_, *extents, depth), (o, *_), scale = dims(image), op.input(1).shape, op.input(1).quantization
    integers, step, zero = hybrid.quantized(op, image)
    if any(around):
        amounts = op.ints([0, *around[:2], 0, 0, *around[2:], 0], "pads")
        grown = [shifted(e, a + b) for e, a, b in zip(extents, around[:2], around[2:], strict=True)]
        integers = op.emit("Pad", [integers, amounts, zero], (1, *grown, depth), mode="constant")
    rows = _rows(op, integers, windows)
    steps = op.builder.array(op.tensors.hint(op.input(1), "scale"), np.ones(1) if scale is None else scale.scale)
    sums = op.emit("MatMulInteger", [rows, _columns(op), zero], (1, *windows.counts, o), ir.DataType.INT32)
    return two(op, "Mul", op.cast(sums, ir.DataType.FLOAT), two(op, "Mul", step, steps))


def _columns(op: Operation) -> ir.Value:
    """The weights `o h w i` as `(w h i) o`."""
    weights = op.input(1)
    o, *rest = weights.shape
    content = ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(array(weights).transpose(2, 1, 3, 0).reshape(-1, o))),
        ir.DataType.INT8,
        ir.Shape([math.prod(rest), o]),
    )
    return op.builder.initializer(op.tensors.hint(weights, "columns"), content)
