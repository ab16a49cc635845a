"""Convolutions over three axes in groups, for which CONV_3D has no kernel: a sum of convolutions over two.

y[n d h w o]  =  sum over t of  Conv2D(x[n (stride · d + dilation · t) h w c], kernel[t])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.operators.window import Window, bordered
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable
from relayout.formats.tflite.exporting.steps import Steps


def write_grouped_volume(op: NodeExport, image: DraftTensor, kernel: DraftTensor, bias: DraftTensor) -> None:
    """Write a convolution over three axes in groups.

    Args:
        op: the node.
        image: `n d h w c`.
        kernel: `d h w i o`, the inputs of one group.
        bias: `o`.
    """
    if image.type != TensorType.FLOAT32:
        raise Unwritable("groups of a quantized convolution over three axes")
    steps, (depth, *sizes, reads, count) = Steps(op), known(kernel.dims)
    window, (channels,) = Window.of(op, (depth, *sizes)), known(image.dims[-1:])
    whole = bordered(op, image, [(0, 0), *_border(window), (0, 0)])
    batch, *results = op.output(0).dims[:-1]
    (slices,) = known((results[0],))
    every = batch * slices if isinstance(batch, int) else f"?{op.name}.slices"
    flat: Dims = (every, *whole.dims[2:])
    is_depthwise = reads == 1
    options: dict[str, Any] = dict(zip(("stride_h", "stride_w"), window.strides[1:], strict=True))
    options |= dict(zip(("dilation_h_factor", "dilation_w_factor"), window.dilations[1:], strict=True))
    if is_depthwise:
        options["depth_multiplier"] = count // channels
    none, total = op.const(np.zeros(count, np.float32)), None
    for tap in range(depth):
        part = _slices(steps, whole, tap * window.dilations[0], window.strides[0], slices)
        inputs = [steps.reshape(part, flat), _kernel(op, steps, kernel, tap, is_depthwise=is_depthwise)]
        name = "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D"
        dims: Dims = (every, *results[1:], count)
        made = op.emit(name, [*inputs, none if tap else bias], dims, padding=Padding.VALID, **options)
        total = made if total is None else steps.add(total, made)
    assert total is not None
    op.give(op.reshaped(total, op.output(0).dims, image))


def _border(window: Window) -> list[tuple[int, int]]:
    """Return the border of each axis as numbers, also where SAME says it."""
    if not window.same:
        return list(window.pads)
    found = []
    rows = zip(window.extents, window.results, window.sizes, window.strides, window.dilations, strict=True)
    for extent, result, size, stride, dilation in rows:
        reach = (size - 1) * dilation + 1
        if isinstance(extent, int) and isinstance(result, int):
            total = max((result - 1) * stride + reach - extent, 0)
        elif stride == 1:
            total = reach - 1
        else:
            raise OpenExtentError("its border depends on an extent that is known only at run time")
        found.append((total // 2, total - total // 2))
    return found


def _slices(steps: Steps, image: DraftTensor, begin: int, stride: int, count: int) -> DraftTensor:
    """Return every so many images along the depth."""
    if stride == 1:
        return steps.part(image, 1, begin, count)
    bounds = [[0, begin, 0, 0, 0], [0, begin + (count - 1) * stride + 1, 0, 0, 0], [1, stride, 1, 1, 1]]
    dims: Dims = (image.dims[0], count, *image.dims[2:])
    inputs = [image, *(steps.ints(each) for each in bounds)]
    return steps.op.emit("STRIDED_SLICE", inputs, dims, begin_mask=0b11101, end_mask=0b11101)


def _kernel(op: NodeExport, steps: Steps, kernel: DraftTensor, tap: int, *, is_depthwise: bool) -> DraftTensor:
    """Return one image of a kernel `d h w i o` as the builtin over two axes takes it."""
    array = op.constant(1)
    own = steps.at(kernel, 0, tap) if array is None else op.const(np.ascontiguousarray(array[tap]))
    return steps.transpose(own, (2, 0, 1, 3) if is_depthwise else (3, 0, 1, 2))
