"""Convolutions, transposed ones and matrix products, and their weights.

TFLite stores activations as `n h w c`, kernels as `o h w i`; ONNX wants channels first in both.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import FullyConnectedOptionsWeightsFormat, Padding, TensorType
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.importing.builder import Dim, broadcast, dims
from relayout.formats.tflite.importing.extents import contents, divided, product, shifted, times
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.pooling import bordered, unbordered
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.tensors import array, literal
from relayout.formats.tflite.importing.window import TO_FIRST, TO_FIRST_3D, TO_LAST, TO_LAST_3D, slid
from relayout.formats.tflite.spelled_out import ASYMMETRIC, ROUNDED, SYMMETRIC
from relayout.graph.domains import CONVOLUTION
from relayout.layout import perm as perms

# Weights whose element type is not that of the data beside them.

_FLOATS = (TensorType.FLOAT32, TensorType.FLOAT16)
_MISREAD = {  # types of data and weights -> why nobody means what their product would be
    (TensorType.UINT8, TensorType.INT8): "UINT8 data beside INT8 weights, which the kernel reads as unsigned",
    (TensorType.INT8, TensorType.UINT8): "INT8 data beside UINT8 weights, for which there is no kernel",
}


def weights(op: Operation, i: int, data: int, perm: Sequence[int] | None = None) -> ir.Value:
    """The real numbers of operand i as operand `data` meets them, with the axes in another order if `perm` is given.

    1. Beside real numbers, weights of half precision are widened, and bytes are integers with a sign around 0, whatever
       the file calls them: so the first converters wrote them, and so the kernels read them.
    2. A scale for each block of a row is DequantizeLinear's `block_size`.
    """
    tensor, other = op.input(i), op.input(data).stated
    if tensor.blocks is not None:
        return weights_in_blocks(op, tensor, tensor.blocks.size, perm)
    if (other, tensor.stated) in _MISREAD:
        raise Unsupported(_MISREAD[other, tensor.stated])
    if other == TensorType.FLOAT32 and tensor.type == TensorType.FLOAT16:
        return op.cast(op.real(i, perm), ir.DataType.FLOAT)
    if other in _FLOATS and tensor.type == TensorType.UINT8:
        return _signed(op, i, perm)
    return op.real(i, perm)


def weights_in_blocks(
    op: Operation,  # the operator that reads it
    tensor: Tensor,  # the matrix
    size: int,  # columns of a block
    perm: Sequence[int] | None,  # the order of axes in which it is wanted
    *,
    zeros: bool = True,  # whether zero points are named, which are all 0
) -> ir.Value:
    """Return the real numbers of a constant matrix, with a scale for each block of so many columns."""
    integers, scales = op.tensors.blockwise(tensor, size)
    name, perm = op.tensors.hint(tensor, "dequantized"), (0, 1) if perm is None else perm
    if op.tensors.dequantize:
        real = ir.LazyTensor(
            lambda: ir.Tensor(integers.numpy().astype(np.float32) * np.repeat(scales, size, 1)),
            ir.DataType.FLOAT,
            ir.Shape(tensor.shape),
        )
        return op.transpose(op.builder.initializer(name, real), perm)
    values = [op.builder.initializer(op.tensors.names[tensor.index], integers)]
    values.append(op.builder.array(op.tensors.hint(tensor, "scale"), scales))
    if zeros:
        zero = np.zeros(scales.shape, integers.dtype.numpy())
        values.append(op.builder.initializer(op.tensors.hint(tensor, "zero_point"), ir.Tensor(zero, integers.dtype)))
    moved = [value if tuple(perm) == (0, 1) else op.transpose(value, perm) for value in values]
    return op.emit("DequantizeLinear", moved, name=name, axis=list(perm).index(1), block_size=size)


def _signed(op: Operation, i: int, perm: Sequence[int] | None) -> ir.Value:
    tensor = op.input(i)
    quantization = tensor.quantization
    if quantization is None or not op.is_constant(i):
        raise Unsupported("weights of 8 bits without a sign that have no scale or are computed")
    value = op.builder.initializer(op.tensors.hint(tensor, "signed"), literal(tensor, ir.DataType.INT8))
    value = value if perm is None else op.transpose(value, perm)
    axis = quantization.axis if perm is None else list(perm).index(quantization.axis)
    around_zero = quantization._replace(zero_point=np.zeros_like(quantization.zero_point))
    return op.real_constant(tensor, around_zero, value, axis if quantization.per_channel else None)


def widened_from(op: Operation, tensor: Tensor) -> Tensor:
    """Return the constant of half precision that a tensor was widened from; else the tensor itself."""
    producer = op.tensors.flow.producer(tensor.index)
    if producer is None or producer.name != "DEQUANTIZE" or len(producer.inputs) != 1:
        return tensor
    narrow = op.tensors.subgraph.tensors[producer.inputs[0]]
    return narrow if narrow.type == TensorType.FLOAT16 and narrow.data is not None else tensor


def vector(tensor: Tensor) -> npt.NDArray[np.float32]:
    """Return a constant's elements, one after the other."""
    return array(tensor).reshape(-1).astype(np.float32)


# Convolutions.


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
    window = op.fixed(extents, "a kernel of unknown size")
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
        raise op.damaged(f"{channels} channels do not fit a kernel of {depth}")
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
        raise op.damaged(f"a depthwise kernel of {op.extents(1)}")


@operator("CONV_3D", options="Conv3DOptions")
def conv_3d(op: Operation) -> None:
    """Conv over `n d h w c`; the kernel `d h w i o` becomes `o i d h w`."""
    op.require_rank(0, 5)
    op.require_rank(1, 5)
    kernel = weights(op, 1, 0, (4, 3, 0, 1, 2))
    convolved(op, kernel, groups(op, dims(kernel)[1]), *_steps_3d(op), TO_FIRST_3D, TO_LAST_3D)


def _steps_3d(op: Operation) -> tuple[list[int], list[int]]:
    """Return the strides and the dilations of a convolution over `d h w`."""
    options = op.options
    strides = [options.stride_d, options.stride_h, options.stride_w]
    return strides, [options.dilation_d_factor, options.dilation_h_factor, options.dilation_w_factor]


# Transposed convolutions: from every element a window, the windows added up.


class Border(NamedTuple):
    """The elements that are cut off at both ends of an axis, or added at its end where `more` is positive."""

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
    output_dims = list(op.out_dims(whole if len(whole) == rank else (None,) * rank))[1:-1]
    same = op.options.padding == Padding.SAME
    borders = [border(*five, same) for five in zip(spatial, window, strides, dilations, output_dims, strict=True)]
    each = [b for b in borders if b is not None]
    if len(each) < len(borders):
        y = _computed(op, x, kernel, strides, dilations, output_dims)
        op.result(y, perm=last, fused=op.options.fused_activation_function)
        return
    more = [b.more for b in each]
    # ONNX Runtime takes an output padding below the stride only; a longer one is zeros, and the bias comes after them.
    long = any(m >= s for m, s in zip(more, strides, strict=True))
    y = op.emit(
        "ConvTranspose",
        [x, kernel, None if long else op.bias(3, 2, 1)],
        (n, o, *(shifted(w, -m) for w, m in zip(output_dims, more, strict=True))) if long else (n, o, *output_dims),
        kernel_shape=window,
        dilations=list(dilations),
        output_padding=None if long else more,
        pads=[b.begin for b in each] + [b.end for b in each],
        strides=list(strides),
    )
    if long:
        pads = op.ints([*[0] * rank, 0, 0, *more], "pads")
        y = op.emit("Pad", [y, pads], (n, o, *output_dims), mode="constant")
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
    output_dims: Sequence[Dim],
) -> ir.Value:
    """All that is computed, zeros behind it where the target asks for more; of these the part that `border` means."""
    n, o, *_ = dims(x)[0], *dims(kernel)[1:]
    many, effective = (
        len(output_dims),
        [(int(w or 0) - 1) * d + 1 for w, d in zip(dims(kernel)[2:], dilations, strict=True)],
    )
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
    return _biased(op, op.emit("Slice", [y, begin, end, axes], (n, o, *output_dims)))


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
    _emit(op, weights(op, 1, 2, (4, 3, 0, 1, 2)), *_steps_3d(op), TO_FIRST_3D, TO_LAST_3D)


# Matrix products.


class Rows(NamedTuple):
    """The data of a FULLY_CONNECTED: so many rows of so many columns, times weights `units columns`."""

    data: ir.Value
    rows: Dim
    columns: int
    units: int

    def matrix(self, op: Operation) -> ir.Value:
        """Return the data as `rows columns`."""
        shape = (self.rows, self.columns)
        return self.data if dims(self.data) == shape else op.reshape(self.data, shape)

    def keeps_rank(self, op: Operation) -> bool:
        """Tell whether the result has the data's leading axes and the data is rows along its last one."""
        return bool(op.options.keep_num_dims) and dims(self.data)[-1] == self.columns

    def several_are_open(self, op: Operation) -> bool:
        """Tell whether no Reshape can name the data's extents. (A MatMul takes no data of 16 bits.)"""
        open_ = sum(not isinstance(d, int) for d in dims(self.data))
        return open_ > 1 and op.input(0).type != TensorType.INT16


def fully_connected_rows(op: Operation) -> Rows:
    """Return the rows of a FULLY_CONNECTED: what the operand's elements make, whatever its rank."""
    if op.options.weights_format != FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise Unsupported("shuffled weights")
    op.require_rank(1, 2)
    x, (units, columns) = op.stored(0), op.extents(1)
    shape = dims(x)
    if not isinstance(columns, int) or columns == 0 or not isinstance(units, int):
        raise op.damaged(f"{columns} columns")
    fixed = [d for d in shape if isinstance(d, int)]
    if len(fixed) == len(shape) and math.prod(fixed) % columns:
        raise op.damaged(f"shape {list(shape)} does not make rows of {columns}")
    rows = shape[0] if len(shape) == 2 and shape[1] == columns else divided(product(shape), columns)
    return Rows(x, rows, columns, units)


@operator("FULLY_CONNECTED", options="FullyConnectedOptions")
def fully_connected(op: Operation) -> None:
    """Gemm with the weights as they are, `units columns`, between the Reshapes that other ranks need.

    Weights with a scale for each block are a MatMul's. With `keep_num_dims` the data's leading axes come back. Data of
    16 bits is never a MatMul's: ONNX Runtime 1.32 takes 8 bits of it beside weights of 8 bits whose columns lie
    innermost.
    """
    rows, by_blocks = fully_connected_rows(op), op.input(1).blocks is not None
    if rows.keeps_rank(op) and (rows.several_are_open(op) or by_blocks):
        matrix_product(op, op.real(0), weights(op, 1, 0, (1, 0)), rows.units)
        return
    x, bias = rows.matrix(op), op.bias(2, 0, 1)
    if by_blocks:
        y = op.emit("MatMul", [op.dequantize(0, x), weights(op, 1, 0, (1, 0))])
        y = y if bias is None else op.each("Add", y, bias)
    else:
        kernel = weights(op, 1, 0)
        node, is_rounded = (
            kernel.producer(),
            (op.input(0).type, op.input(1).type) == (TensorType.FLOAT32, TensorType.INT8),
        )
        if op.program.multiplies_reals and is_rounded and node is not None and node.op_type == "DequantizeLinear":
            # The product rounds its data, and does not stay one by itself.
            node.metadata_props[ROUNDED] = ASYMMETRIC if op.options.asymmetric_quantize_inputs else SYMMETRIC
        y = op.emit("Gemm", [op.dequantize(0, x), kernel, bias], transB=1)
    hand_over_rows(op, rows, y)


def hand_over_rows(op: Operation, rows: Rows, y: ir.Value) -> None:
    """Hand over the real numbers `rows units` as the result, in its shape."""
    options, shape = op.options, dims(rows.data)
    y = op.quantize(y, fused=options.fused_activation_function)
    final = op.out_dims((*shape[:-1], rows.units) if options.keep_num_dims else (rows.rows, rows.units))
    if sum(not isinstance(d, int) for d in final) > 1:  # the operand's leading extents
        leading = op.emit("Shape", [op.stored(0)], start=0, end=len(final) - 1)
        target = op.emit("Concat", [leading, op.ints([d for d in final[-1:] if isinstance(d, int)], "units")], axis=0)
        op.result_stored(op.emit("Reshape", [y, target], final, allowzero=1))
        return
    op.result_stored(y if final == dims(y) else op.reshape(y, final))


def matrix_product(op: Operation, x: ir.Value, kernel: ir.Value, units: int) -> None:
    """Hand over a MatMul with weights `columns units`, where a Reshape would have to know several dimensions."""
    bias = op.bias(2, 0, 1)
    y = op.emit("MatMul", [x, kernel])
    op.result(y if bias is None else op.each("Add", y, bias), fused=op.options.fused_activation_function)


@operator("BATCH_MATMUL", options="BatchMatMulOptions")
def batch_matmul(op: Operation) -> None:
    """MatMul; an adjoint operand is transposed first. Of two adjoint matrices Gemm is the product as they lie."""
    plain = op.output().type == TensorType.INT32  # of bytes: the sums of products as they are
    ranks = [len(dims(op.stored(place))) for place in (0, 1)]
    if op.options.adj_x and op.options.adj_y and ranks == [2, 2] and not plain:
        a, b = op.real(0), op.real(1)
        op.result(op.emit("Gemm", [a, b], op.out_dims((dims(a)[1], dims(b)[0])), transA=1, transB=1))
        return

    def operand(i: int, adjoint: bool) -> ir.Value:
        rank = len(dims(op.stored(i)))
        if rank < 2:
            raise op.damaged(f"operand {i} is no matrix")
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        if plain:
            return op.transpose(op.whole(i), swapped) if adjoint else op.whole(i)
        return op.real(i, swapped if adjoint else None)

    a, b = operand(0, op.options.adj_x), operand(1, op.options.adj_y)
    shape = (*broadcast(dims(a)[:-2], dims(b)[:-2]), dims(a)[-2], dims(b)[-1])
    op.result(op.emit("MatMul", [a, b], op.out_dims(shape)))
