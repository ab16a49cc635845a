"""Convolutions. TFLite stores activations as `n h w c`, kernels as `o h w i`; ONNX wants channels first in both."""

from __future__ import annotations

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.builder import Dim, dims
from relayout.formats.tflite.enums import Padding
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.registry import Unsupported, operator
from relayout.formats.tflite.window import TO_FIRST, TO_LAST, auto_pad, pads, slid


def _emit(op: Operation, kernel: ir.Value, group: int, dilations: list[int]) -> None:
    """Transpose - Conv - Transpose, given a kernel in ONNX's order `o i h w`."""
    options = op.options
    strides = [options.stride_h, options.stride_w]
    x = op.real(0, TO_FIRST)
    n, _, *spatial = dims(x)
    o, _, *window = dims(kernel)
    same = options.padding == Padding.SAME
    known: list[Dim] = [slid(e, k, s, d, same) for e, k, s, d in zip(spatial, window, strides, dilations, strict=True)]
    last = op.out_dims([n, *known, o])
    y = op.emit(
        "Conv",
        [x, kernel, op.bias(2)],
        (last[0], last[3], last[1], last[2]),
        auto_pad=auto_pad(spatial, same),
        pads=pads(spatial, window, strides, dilations, same),
        dilations=dilations,
        group=group,
        kernel_shape=window,
        strides=strides,
    )
    op.result(y, perm=TO_LAST, fused=options.fused_activation_function)


@operator("CONV_2D", options="Conv2DOptions")
def conv_2d(op: Operation) -> None:
    """Conv; a kernel with fewer input channels than the data is a grouped one."""
    op.require_rank(0, 4)
    op.require_rank(1, 4)
    kernel = op.real(1, TO_FIRST)
    channels, depth = dims(op.stored(0))[3], dims(kernel)[1]
    if not isinstance(channels, int) or not isinstance(depth, int) or depth == 0 or channels % depth:
        raise ReadError(f"{channels} channels do not fit a kernel of {depth}", where=op.place)
    _emit(op, kernel, channels // depth, [op.options.dilation_h_factor, op.options.dilation_w_factor])


@operator("DEPTHWISE_CONV_2D", options="DepthwiseConv2DOptions")
def depthwise_conv_2d(op: Operation) -> None:
    """Conv with a group for each channel; the kernel `1 h w (c m)` becomes `(c m) 1 h w`.

    The option `depth_multiplier` may be stale; like the kernels, this goes by the shapes.
    """
    op.require_rank(0, 4)
    op.require_rank(1, 4)
    kernel = op.real(1, (3, 0, 1, 2))
    channels = dims(op.stored(0))[3]
    if not isinstance(channels, int) or dims(kernel)[1] != 1:
        raise ReadError(f"{channels} channels do not fit a depthwise kernel {dims(kernel)}", where=op.place)
    _emit(op, kernel, channels, [op.options.dilation_h_factor, op.options.dilation_w_factor])


@operator("TRANSPOSE_CONV", options="TransposeConvOptions")
def transpose_conv(op: Operation) -> None:
    """ConvTranspose. Operands: output shape, kernel `o h w i`, data, bias.

    The padding is that of the convolution from the output back to the input; what it leaves over at the end is either
    cut off (`pads`) or filled with zeros (`output_padding`).
    """
    op.require_rank(1, 4)
    op.require_rank(2, 4)
    options = op.options
    strides, kernel = [options.stride_h, options.stride_w], op.real(1, (3, 0, 1, 2))
    x = op.real(2, TO_FIRST)
    n, _, *spatial = dims(x)
    _, o, *window = dims(kernel)
    wanted: list[Dim] = list(op.integers(0, 4) if op.is_constant(0) else op.tensors.declared(op.output()))[1:3]
    begins, ends, more = [], [], []
    for extent, k, s, target in zip(spatial, window, strides, wanted, strict=True):
        if not isinstance(extent, int) or not isinstance(k, int) or not isinstance(target, int):
            raise Unsupported("unknown height or width")
        places = -(-target // s) if options.padding == Padding.SAME else (target + s - k) // s
        begin = max((places - 1) * s + k - target, 0) // 2
        end = (extent - 1) * s + k - begin - target
        begins.append(begin)
        ends.append(max(end, 0))
        more.append(max(-end, 0))
    # ONNX Runtime takes an output padding below the stride only; a longer one is zeros, and the bias comes after them.
    long = any(m >= s for m, s in zip(more, strides, strict=True))
    short = [int(w) - m for w, m in zip(wanted, more, strict=True) if isinstance(w, int)]
    y = op.emit(
        "ConvTranspose",
        [x, kernel, None if long else op.bias(3)],
        (n, o, *(short if long else wanted)),
        kernel_shape=window,
        output_padding=None if long else more,
        pads=begins + ends,
        strides=strides,
    )
    if long:
        y = op.emit("Pad", [y, op.ints([0, 0, 0, 0, 0, 0, *more], "pads")], (n, o, *wanted), mode="constant")
        bias = op.bias(3)
        if bias is not None:
            column = op.emit("Unsqueeze", [bias, op.ints([1, 2])], (*dims(bias), 1, 1))
            y = op.emit("Add", [y, column], dims(y))
    op.result(y, perm=TO_LAST, fused=options.fused_activation_function)
