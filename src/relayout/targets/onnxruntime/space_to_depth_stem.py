"""A first convolution of bytes, which reads an image of a few channels in steps of two: of blocks of two by two.

ONNX Runtime's integer convolutions take channels in fours; of three it copies every window first. With each block's
elements as channels, three are twelve, and the step is one: the same products, and zeros where a window of odd size or
border begins or ends within a block. The bytes of the image are moved once more for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import Padding
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.convolution import require_conv_2d
from relayout.formats.tflite.importing.operators.pooling import unbordered
from relayout.formats.tflite.importing.tensors import array
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST, pads, slid
from relayout.graph.domains import CONVOLUTION
from relayout.targets.onnxruntime.operation_forms import convolves_bytes

BLOCK = 2
TOGETHER, LEAST = 4, 16
"""ONNX Runtime's integer convolutions take so many channels at once; and yield as many, and at least so many."""


class _Axis(NamedTuple):
    """One axis in blocks: its extent, the window's, the border; and the zeros before the window's own elements."""

    extent: int
    blocks: int
    begin: int
    end: int
    before: int


def _axis(extent: Dim, window: int, border: int, places: Dim) -> _Axis | None:
    """Windows that begin at `2 i - border`, moved to begin with a block; None if the extent is not in blocks."""
    if not isinstance(extent, int) or not isinstance(places, int) or extent % BLOCK or places < 1:
        return None
    before = border % BLOCK
    begin, blocks = (border + before) // BLOCK, -(-(window + before) // BLOCK)
    end = places - 1 + blocks - begin - extent // BLOCK
    return _Axis(extent // BLOCK, blocks, begin, end, before) if end >= 0 else None


def condensed(op: Operation) -> bool:
    """Hand over a CONV_2D as SpaceToDepth and Conv, if ONNX Runtime is faster at it."""
    require_conv_2d(op)
    options, kernel = op.options, op.input(1)
    steps = [options.stride_h, options.stride_w, options.dilation_h_factor, options.dilation_w_factor]
    if not convolves_bytes(op) or steps != [BLOCK, BLOCK, 1, 1] or len(kernel.shape) != 4:
        return False
    o, *window, depth = kernel.shape
    n, *spatial, channels = dims(op.stored(0))
    if channels != depth or depth % TOGETHER == 0 or o % TOGETHER or o < LEAST or max(window) < BLOCK:
        return False
    same, border = options.padding == Padding.SAME, unbordered(op, window, [1, 1])
    inner = op.stored(0) if border is None else op.tensors.value(border.inner)
    around = pads(spatial, window, steps[:2], [1, 1], same) if border is None else border.pads
    places = [slid(e, k, BLOCK, 1, same) for e, k in zip(spatial, window, strict=True)]
    axes = [_axis(*each) for each in zip(dims(inner)[1:3], window, around[:2], places, strict=True)]
    if None in axes:
        return False
    y = _convolved(op, op.transpose(inner, TO_FIRST), [axis for axis in axes if axis], (n, o, *places))
    op.result(y, perm=TO_LAST, fused=options.fused_activation_function)
    return True


def _convolved(op: Operation, image: ir.Value, axes: Sequence[_Axis], shape: Dims) -> ir.Value:
    """Return the convolution of an image `n c h w`, of 0 in its border, by the kernel in blocks."""
    weights, (n, *_) = op.input(1), dims(image)
    depth = weights.shape[3] * BLOCK**2
    blocks = op.emit("SpaceToDepth", [image], (n, depth, *(axis.extent for axis in axes)), blocksize=BLOCK)
    window = [axis.blocks for axis in axes]
    content = ir.LazyTensor(
        lambda: ir.Tensor(kernel_in_blocks(array(weights), axes)),
        ir.DataType.INT8,
        ir.Shape((weights.shape[0], depth, *window)),
    )
    kernel = op.builder.initializer(op.tensors.hint(weights, "blocks"), content)
    border = [*(axis.begin for axis in axes), *(axis.end for axis in axes)]
    operands = [op.dequantize(0, blocks), op.dequantize(1, kernel, 0), op.bias(2, 0, 1)]
    return op.emit(CONVOLUTION, operands, shape, pads=border, kernel_shape=window)


def kernel_in_blocks(kernel: npt.NDArray[np.int8], axes: Sequence[_Axis]) -> npt.NDArray[np.int8]:
    """Return a kernel `o h w i` as `o (dh dw i) h w`, in steps of a block; zeros fill the blocks that it does not."""
    o, *window, i = kernel.shape
    behind = [axis.blocks * BLOCK - k - axis.before for axis, k in zip(axes, window, strict=True)]
    borders = [(axis.before, rest) for axis, rest in zip(axes, behind, strict=True)]
    y, x = (axis.blocks for axis in axes)
    parted = np.pad(kernel, [(0, 0), *borders, (0, 0)]).reshape(o, y, BLOCK, x, BLOCK, i)
    return np.ascontiguousarray(parted.transpose(0, 2, 4, 5, 1, 3).reshape(o, BLOCK**2 * i, y, x))
