"""Convolutions, and transposed ones.

TFLite stores activations as `n h w c`, kernels as `o h w i`; ONNX wants channels first in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.contents import contents
from relayout.formats.tflite.importing.extents import shifted, times
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.pooling import bordered, unbordered
from relayout.formats.tflite.importing.operators.weights import weights
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_FIRST_3D, TO_LAST, TO_LAST_3D, slid
from relayout.graph.domains import CONVOLUTION
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
        CONVOLUTION,
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


# Transposed convolutions: from every element a window, the windows added up.


class Border(NamedTuple):
    """What is cut off at both ends of an axis, or added at its end where `more` is positive."""

    begin: int
    end: int
    more: int


def border(extent: Dim, window: Dim, stride: int, dilation: int, target: Dim, same: bool) -> Border | None:
    """The padding is that of the convolution from the output back to the input.

    With `effective = (window - 1) * dilation + 1` and `full = (extent - 1) * stride + effective` elements computed,
    `begin` of them are cut off, and `full - begin - target` at the end; if that is negative, zeros are added instead.
    An extent known only at run time is no obstacle where the target is `stride` times as large (SAME), or that and
    what the window stands over (VALID), for then it cancels. Where it does not, this is None.
    """
    if not isinstance(window, int):
        raise Unsupported("a kernel of unknown size")
    effective = (window - 1) * dilation + 1
    if not isinstance(extent, int) or not isinstance(target, int):
        rest = 0 if same else max(effective - stride, 0)
        if extent is None or target is None or target != shifted(times(extent, stride), rest):
            return None
        # Any extent large enough shows what all of them have in common.
        extent = effective + 1
        target = extent * stride + rest
    places = -(-target // stride) if same else (target + stride - effective) // stride
    begin = max((places - 1) * stride + effective - target, 0) // 2
    end = (extent - 1) * stride + effective - begin - target
    return Border(begin, max(end, 0), max(-end, 0))


def _emit(
    op: Operation,
    kernel: ir.Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    first: Sequence[int],
    last: Sequence[int],
) -> None:
    """Transpose - ConvTranspose - Transpose, given a kernel in ONNX's order `i o *s`."""
    x, rank = op.real(2, first), len(first)
    n, _, *spatial = dims(x)
    _, o, *window = dims(kernel)
    whole: Sequence[Dim] = op.integers(0, rank) if op.is_constant(0) else contents(op.stored(0)) or ()
    wanted = list(op.out_dims(whole if len(whole) == rank else (None,) * rank))[1:-1]
    same = op.options.padding == Padding.SAME
    found = [border(*five, same) for five in zip(spatial, window, strides, dilations, wanted, strict=True)]
    each = [b for b in found if b is not None]
    if len(each) < len(found):
        y = _computed(op, x, kernel, strides, dilations, wanted)
        op.result(y, perm=last, fused=op.options.fused_activation_function)
        return
    more = [b.more for b in each]
    # ONNX Runtime takes an output padding below the stride only; a longer one is zeros, and the bias comes after them.
    long = any(m >= s for m, s in zip(more, strides, strict=True))
    y = op.emit(
        "ConvTranspose",
        [x, kernel, None if long else op.bias(3, 2, 1)],
        (n, o, *(shifted(w, -m) for w, m in zip(wanted, more, strict=True))) if long else (n, o, *wanted),
        kernel_shape=window,
        dilations=list(dilations),
        output_padding=None if long else more,
        pads=[b.begin for b in each] + [b.end for b in each],
        strides=list(strides),
    )
    if long:
        pads = op.ints([*[0] * rank, 0, 0, *more], "pads")
        y = op.emit("Pad", [y, pads], (n, o, *wanted), mode="constant")
        y = _biased(op, y)
    op.result(y, perm=last, fused=op.options.fused_activation_function)


def _biased(op: Operation, y: ir.Value) -> ir.Value:
    bias, rank = op.bias(3, 2, 1), len(dims(y))
    if bias is None:
        return y
    return op.emit("Add", [y, op.emit("Unsqueeze", [bias, op.ints(range(1, rank - 1))])])


def _computed(
    op: Operation,
    x: ir.Value,
    kernel: ir.Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    wanted: Sequence[Dim],
) -> ir.Value:
    """All that is computed, zeros behind it where the target asks for more; of these the part that `border` means."""
    n, o, *_ = dims(x)[0], *dims(kernel)[1:]
    many, effective = len(wanted), [(int(w or 0) - 1) * d + 1 for w, d in zip(dims(kernel)[2:], dilations, strict=True)]
    whole = (n, o, *[None] * many)
    y = op.emit("ConvTranspose", [x, kernel], whole, dilations=list(dilations), strides=list(strides))
    bounds = [op.ints([v], name) for v, name in ((1, "starts"), (1 + many, "ends"), (0, "axes"))]
    target = op.emit("Slice", [op.cast(op.stored(0), ir.DataType.INT64), *bounds])
    step, size = op.ints(strides, "strides"), op.ints(effective, "windows")
    room = op.each("Add", target, op.ints([s - 1 for s in strides], "rest"))
    if op.options.padding != Padding.SAME:
        room = op.each("Sub", op.each("Add", target, step), size)
    places = op.each("Sub", op.each("Div", room, step), op.ints([1] * many, "one"))
    total = op.each("Sub", op.each("Add", op.each("Mul", places, step), size), target)
    nothing = op.ints([0] * many, "none")
    begin = op.each("Div", op.each("Max", total, nothing), op.ints([2] * many, "two"))
    end = op.each("Add", begin, target)
    missing = op.each("Sub", end, op.emit("Shape", [y], start=2, end=2 + many))
    outer = op.ints([0, 0], "outer")
    amounts = [outer, nothing, outer, op.each("Max", missing, nothing)]
    y = op.emit("Pad", [y, op.emit("Concat", amounts, (2 * many + 4,), axis=0)], whole, mode="constant")
    axes = op.ints(range(2, 2 + many), "axes")
    return _biased(op, op.emit("Slice", [y, begin, end, axes], (n, o, *wanted)))


@operator("TRANSPOSE_CONV", options="TransposeConvOptions")
def transpose_conv(op: Operation) -> None:
    """ConvTranspose. Operands: output shape, kernel `o h w i`, data, bias."""
    require_transpose_conv(op)
    strides = [op.options.stride_h, op.options.stride_w]
    _emit(op, weights(op, 1, 2, (3, 0, 1, 2)), strides, [1, 1], TO_FIRST, TO_LAST)


def require_transpose_conv(op: Operation) -> None:
    """Refuse operands that TRANSPOSE_CONV does not have, or that its kernel takes for others."""
    op.require_rank(1, 4)
    op.require_rank(2, 4)
    if op.input(2).type == TensorType.INT16 and op.has(3) and op.input(3).type == TensorType.INT32:
        raise Unsupported("INT16 data beside an INT32 bias, which the kernel reads as INT64")


@operator("CONV_3D_TRANSPOSE", options="Conv3DOptions")
def conv_3d_transpose(op: Operation) -> None:
    """ConvTranspose over `n d h w c`. Operands: output shape, kernel `d h w o i`, data, bias."""
    op.require_rank(1, 5)
    op.require_rank(2, 5)
    options, kernel = op.options, weights(op, 1, 2, (4, 3, 0, 1, 2))
    strides = [options.stride_d, options.stride_h, options.stride_w]
    dilations = [options.dilation_d_factor, options.dilation_h_factor, options.dilation_w_factor]
    _emit(op, kernel, strides, dilations, TO_FIRST_3D, TO_LAST_3D)
