"""Convolutions. TFLite stores activations as `n h w c`, kernels as `o h w i`; ONNX wants channels first in both."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.pooling import bordered, unbordered
from relayout.formats.tflite.importing.operators.weights import weights
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_FIRST_3D, TO_LAST, TO_LAST_3D, slid
from relayout.layout import perm as perms


def convolved(
    op: Operation,
    kernel: ir.Value,
    group: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    first: Sequence[int],
    last: Sequence[int],
) -> None:
    """Transpose - Conv - Transpose, given a kernel in ONNX's order `o i *s`; `first` and `last` order the data."""
    options, shape = op.options, perms.permute(first, dims(op.stored(0)))
    n, _, *spatial = shape
    o, _, *extents = dims(kernel)
    window = [k for k in extents if isinstance(k, int)]
    if len(window) != len(extents):
        raise Unsupported("a kernel of unknown size")
    same = options.padding == Padding.SAME
    known: list[Dim] = [slid(e, k, s, d, same) for e, k, s, d in zip(spatial, window, strides, dilations, strict=True)]
    if (around := unbordered(op, window, dilations)) is None:
        x, border, _ = bordered(op, op.real(0, first), window, strides, dilations, same)
    else:
        x = op.dequantize(0, op.transpose(op.tensors.value(around.inner), first))
        border = {"pads": around.pads}
    y = op.emit(
        "Conv",
        [x, kernel, op.bias(2, 0, 1)],
        perms.permute(first, op.out_dims([n, *known, o])),
        **border,
        dilations=list(dilations),
        group=group,
        kernel_shape=window,
        strides=list(strides),
    )
    op.result(y, perm=last, fused=options.fused_activation_function)


def groups(op: Operation, depth: Dim) -> int:
    """Return how many groups a kernel of so many input channels divides the data into."""
    channels = dims(op.stored(0))[-1]
    if not isinstance(channels, int) and isinstance(depth, int):
        raise Unsupported("an unknown number of channels, of which ONNX wants the number of groups")
    if not isinstance(channels, int) or not isinstance(depth, int) or depth == 0 or channels % depth:
        raise ReadError(f"{channels} channels do not fit a kernel of {depth}", where=op.place)
    return channels // depth


def grouped(op: Operation, perm: Sequence[int]) -> tuple[ir.Value, int]:
    """Return the kernel in ONNX's order `o i h w`, and the number of groups."""
    kernel = weights(op, 1, 0, perm)
    return kernel, groups(op, dims(kernel)[1])


def _integers(op: Operation, bias: int) -> None:
    """Refuse weights or a bias that the kernel takes for others."""
    quantization = op.input(1).quantization
    if op.input(1).type == TensorType.INT2:
        raise Unsupported("INT2 weights, which the kernel does not unpack")
    if (op.input(0).type, op.input(1).type) == (TensorType.FLOAT32, TensorType.FLOAT16):
        raise Unsupported("FLOAT32 data beside FLOAT16 weights, which the kernel reads as FLOAT32")
    if op.input(1).type == TensorType.UINT8 and quantization is not None and quantization.per_channel:
        raise Unsupported("UINT8 weights with a scale for each channel, of which the kernel takes one")
    if op.input(0).type != TensorType.INT16:
        return
    if op.input(1).type == TensorType.INT16:
        raise Unsupported("INT16 data beside INT16 weights, which the kernel reads as bytes")
    if op.has(bias) and op.input(bias).type == TensorType.INT32:
        raise Unsupported("INT16 data beside an INT32 bias, which the kernel reads as INT64")


@operator("CONV_2D", options="Conv2DOptions")
def conv_2d(op: Operation) -> None:
    """Conv; a kernel with fewer input channels than the data is a grouped one."""
    require_conv_2d(op)
    planar(op, *grouped(op, TO_FIRST))


def require_conv_2d(op: Operation) -> None:
    """Refuse operands that CONV_2D does not have, or that its kernel takes for others."""
    op.require_rank(0, 4)
    op.require_rank(1, 4)
    _integers(op, 2)


def planar(op: Operation, kernel: ir.Value, group: int) -> None:
    """Hand over a convolution of images, by its options, given a kernel `o i h w` and the number of groups."""
    options = op.options
    strides, dilations = [options.stride_h, options.stride_w], [options.dilation_h_factor, options.dilation_w_factor]
    convolved(op, kernel, group, strides, dilations, TO_FIRST, TO_LAST)


@operator("DEPTHWISE_CONV_2D", options="DepthwiseConv2DOptions")
def depthwise_conv_2d(op: Operation) -> None:
    """Conv with a group for each channel; the kernel `1 h w (c m)` becomes `(c m) 1 h w`.

    The option `depth_multiplier` may be stale; like the kernels, this goes by the shapes.
    """
    require_depthwise(op)
    planar(op, *grouped(op, DEPTHWISE))


DEPTHWISE = (3, 0, 1, 2)  # the perm of a depthwise kernel, `1 h w (c m) -> (c m) 1 h w`


def require_depthwise(op: Operation) -> None:
    """Refuse operands that DEPTHWISE_CONV_2D does not have."""
    op.require_rank(0, 4)
    op.require_rank(1, 4)
    if op.input(0).type == TensorType.INT16 and op.input(1).type == TensorType.INT4:
        raise Unsupported("INT16 data beside INT4 weights, which the kernel does not unpack")
    if op.extents(1)[0] != 1:
        raise ReadError(f"a depthwise kernel of {op.extents(1)}", where=op.place)


@operator("CONV_3D", options="Conv3DOptions")
def conv_3d(op: Operation) -> None:
    """Conv over `n d h w c`; the kernel `d h w i o` becomes `o i d h w`."""
    op.require_rank(0, 5)
    op.require_rank(1, 5)
    options, kernel = op.options, weights(op, 1, 0, (4, 3, 0, 1, 2))
    strides = [options.stride_d, options.stride_h, options.stride_w]
    dilations = [options.dilation_d_factor, options.dilation_h_factor, options.dilation_w_factor]
    convolved(op, kernel, groups(op, dims(kernel)[1]), strides, dilations, TO_FIRST_3D, TO_LAST_3D)
