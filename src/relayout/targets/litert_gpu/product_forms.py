"""Products, convolutions and pools that LiteRT's GPU accelerator does not take, as others that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from relayout.formats.tflite.container.enums import Padding
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.rewriting import Form
from relayout.targets.litert_gpu.rewriting import GpuRewriting, sizes_of


def bias_as_addition(writing: GpuRewriting) -> DraftTensor | None:
    """Add the bias of a product by itself, where the weights are computed."""
    x, weights, *bias = writing.operands
    if not bias or weights.data is not None:
        return None
    options = dict(writing.operator.options)
    activation = options.pop("fused_activation_function", 0)
    product = writing.emit("FULLY_CONNECTED", [x, weights], writing.result.dims, **options)
    return writing.each("ADD", product, bias[0], fused_activation_function=activation)


def same_batches(writing: GpuRewriting) -> DraftTensor | None:
    """Give both operands of a product the same batch: one matrix for all of it makes one product of all rows."""
    a, b = writing.operands
    options, dims = writing.operator.options, writing.result.dims
    if a.dims[:-2] == b.dims[:-2]:
        return None
    if prod(sizes_of(b)[:-2]) > 1 or options.get("adj_x"):
        return writing.same(*(writing.stretch(each, (*dims[:-2], *each.dims[-2:])) for each in (a, b)))
    rows = writing.reshape(a, [prod(sizes_of(a)[:-1]), a.dims[-1]])
    matrix, product_dims = writing.reshape(b, b.dims[-2:]), (rows.dims[0], dims[-1])
    if matrix.data is None:
        return writing.same(rows, matrix, dims=product_dims)
    weights = matrix if options.get("adj_y") else writing.transpose(matrix, (1, 0))
    return writing.emit("FULLY_CONNECTED", [rows, weights], product_dims, keep_num_dims=False)


def exchanged(writing: GpuRewriting) -> DraftTensor | None:
    """`(bᵀ aᵀ)ᵀ`, since the accelerator wants an operand that is computed first."""
    a, b = writing.operands
    if writing.constant_array(a) is None or b.data is not None:
        return None
    options = writing.operator.options
    product = writing.matmul(b, a, adj_x=not options.get("adj_y"), adj_y=not options.get("adj_x"))
    return _adjoint(writing, product)


def adjoint_first(writing: GpuRewriting) -> DraftTensor | None:
    """Transpose the first operand of a product by itself."""
    a, b = writing.operands
    options = writing.operator.options
    if not options.get("adj_x"):
        return None
    return writing.matmul(_adjoint(writing, a), b, adj_y=bool(options.get("adj_y")))


def _adjoint(writing: GpuRewriting, matrices: DraftTensor) -> DraftTensor:
    rank = len(matrices.dims)
    return writing.transpose(matrices, (*range(rank - 2), rank - 1, rank - 2))


def product_of_three_axes(writing: GpuRewriting) -> DraftTensor | None:
    """Write a product of two axes as a batch of one."""
    a, b = writing.operands
    if len(a.dims) != 2 or len(b.dims) != 2:
        return None
    batches = (writing.reshape(each, (1, *each.dims)) for each in (a, b))
    return writing.same(*batches, dims=(1, *writing.result.dims))


def product_of_few_axes(writing: GpuRewriting) -> DraftTensor | None:
    """Join the batch axes of a product, once both operands have the same."""
    a, b = writing.operands
    dims = sizes_of(writing.result)
    if len(dims) <= 4:
        return None
    if a.dims[:-2] != b.dims[:-2]:
        return same_batches(writing)
    batches = (writing.reshape(each, (prod(dims[:-2]), *each.dims[-2:])) for each in (a, b))
    return writing.same(*batches, dims=(prod(dims[:-2]), *dims[-2:]))


def weights_first(writing: GpuRewriting) -> DraftTensor | None:
    """`(w xᵀ)ᵀ` for a constant `x` and computed weights, and the bias behind."""
    x, weights, *bias = writing.operands
    array = writing.constant_array(x)
    if array is None or weights.data is not None or writing.operator.options.get("fused_activation_function"):
        return None
    rows, count = prod(sizes_of(x)[:-1]), int(weights.dims[0])
    matrix = writing.const(array.reshape(rows, -1))
    product = writing.emit("FULLY_CONNECTED", [weights, matrix], (count, rows), keep_num_dims=False)
    result = writing.transpose(product, (1, 0)) if rows > 1 and count > 1 else product
    return writing.add(writing.reshape(result, writing.result.dims), bias[0]) if bias else result


def as_convolutions(writing: GpuRewriting) -> DraftTensor | None:
    """Write a convolution of groups as one for each group."""
    x, kernel, *bias = writing.operands
    group = int(kernel.dims[-1])
    count = int(x.dims[-1]) // group
    arrays = [writing.constant_array(each) for each in (kernel, *bias)]
    if count < 2 or any(array is None for array in arrays) or kernel.quantization is not None:
        return None
    size, axis = int(kernel.dims[0]) // count, writing.ints(np.array(len(x.dims) - 1))
    pieces = writing.outputs("SPLIT", [axis, x], [(x.type, (*x.dims[:-1], group))] * count, num_splits=count)
    results = []
    for place, piece in enumerate(pieces):
        own = [writing.const(array[place * size : (place + 1) * size]) for array in arrays if array is not None]
        results.append(writing.same(piece, *own, dims=(*writing.result.dims[:-1], size)))
    return writing.concat(results, -1)


def as_dense(writing: GpuRewriting) -> DraftTensor | None:
    """Write a depthwise convolution as a convolution with zeros between channels."""
    x, kernel, *bias = writing.operands
    weights = writing.constant_array(kernel)
    if weights is None or kernel.quantization is not None:
        return None
    channels, count = int(x.dims[-1]), int(kernel.dims[-1])
    full = np.zeros((count, *weights.shape[1:3], channels), np.float32)
    for place in range(count):
        full[place, :, :, place // (count // channels)] = weights[0, :, :, place]
    options = {name: value for name, value in writing.operator.options.items() if name != "depth_multiplier"}
    return writing.emit("CONV_2D", [x, writing.const(full), *bias], writing.result.dims, **options)


def volume(writing: GpuRewriting) -> DraftTensor | None:
    """Write a convolution of volumes as the sum of convolutions of their slices."""
    x, kernel, *bias = writing.operands
    weights, options = writing.constant_array(kernel), writing.operator.options
    if weights is None or kernel.quantization is not None or options.get("fused_activation_function"):
        return None
    batch, depth, height, width, channels = sizes_of(x)
    _, out_depth, *out = sizes_of(writing.result)
    size, stride, dilation = weights.shape[0], int(options.get("stride_d", 1)), int(options.get("dilation_d_factor", 1))
    border = 0
    if options.get("padding") == Padding.SAME:
        border = max((out_depth - 1) * stride + (size - 1) * dilation + 1 - depth, 0)
    elements = height * width * channels
    flat = writing.reshape(x, [1, batch, depth, elements])
    flat = writing.pad(flat, [(0, 0), (0, 0), (border // 2, border - border // 2), (0, 0)])
    names = ("padding", "stride_w", "stride_h", "dilation_w_factor", "dilation_h_factor")
    window = {name: options[name] for name in names if name in options}
    total: DraftTensor | None = None
    for place in range(size):
        begin = place * dilation
        end = begin + (out_depth - 1) * stride + 1
        bounds: Sequence[list[int]] = ([0, 0, begin, 0], [1, batch, end, elements], [1, 1, stride, 1])
        part = writing.emit("STRIDED_SLICE", [flat, *map(writing.ints, bounds)], (1, batch, out_depth, elements))
        image = writing.reshape(part, [batch * out_depth, height, width, channels])
        own = [writing.const(weights[place].transpose(3, 0, 1, 2)), *(bias if place == 0 else [])]
        product = writing.emit("CONV_2D", [image, *own], (batch * out_depth, *out), **window)
        total = product if total is None else writing.add(total, product)
    return total


def root_of_mean(writing: GpuRewriting) -> DraftTensor | None:
    """`sqrt(average(x²))`."""
    (x,) = writing.operands
    return writing.each("SQRT", writing.same(writing.each("SQUARE", x), name="AVERAGE_POOL_2D"))


PRODUCTS: Mapping[str, Sequence[Form]] = {
    "BATCH_MATMUL": (product_of_few_axes, same_batches, exchanged, product_of_three_axes, adjoint_first),
    "CONV_2D": (as_convolutions,),
    "DEPTHWISE_CONV_2D": (as_dense,),
    "CONV_3D": (volume,),
    "L2_POOL_2D": (root_of_mean,),
}
"""Builtin -> its forms, the best first."""
