"""Products, convolutions and pools that LiteRT's GPU accelerator does not take, as others that it takes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from relayout.formats.tflite.container.enums import Padding
from relayout.formats.tflite.exporting.draft import DraftOperator, DraftTensor
from relayout.targets.litert_gpu.rewriting import Rewriting, array_of, operands_of, sizes_of


def bias_as_addition(writing: Rewriting) -> bool:
    """Add the bias of a product by itself, where the weights are computed."""
    x, weights, *bias = operands_of(writing)
    if not bias or weights.data is not None:
        return False
    options = dict(writing.operator.options)
    activation = options.pop("fused_activation_function", 0)
    dims = sizes_of(writing.result)
    product = writing.add("FULLY_CONNECTED", [x, weights], dims, **options)
    writing.add("ADD", [product, bias[0]], dims, writing.result, fused_activation_function=activation)
    return True


def same_batches(writing: Rewriting) -> bool:
    """Give both operands of a product the same batch: one matrix for all of it makes one product of all rows."""
    a, b = operands_of(writing)
    options = writing.operator.options
    dims, front = sizes_of(writing.result), sizes_of(writing.result)[:-2]
    if a.dims[:-2] == b.dims[:-2]:
        return False
    if prod(sizes_of(b)[:-2]) == 1 and not options.get("adj_x"):
        rows = writing.reshape(a, [prod(sizes_of(a)[:-1]), int(a.dims[-1])])
        matrix = writing.reshape(b, sizes_of(b)[-2:])
        if matrix.data is not None:
            weights = matrix if options.get("adj_y") else writing.transpose(matrix, (1, 0))
            inner = writing.add("FULLY_CONNECTED", [rows, weights], [int(rows.dims[0]), dims[-1]], keep_num_dims=False)
        else:
            inner = writing.draft.tensor(f"{writing.result.name}/few", a.type, (int(rows.dims[0]), dims[-1]))
            writing.same(rows, matrix, result=inner)
        writing.reshape(inner, dims, writing.result)
        return True
    writing.same(writing.stretch(a, [*front, *sizes_of(a)[-2:]]), writing.stretch(b, [*front, *sizes_of(b)[-2:]]))
    return True


def exchanged(writing: Rewriting) -> bool:
    """`(bᵀ aᵀ)ᵀ`, since the accelerator wants an operand that is computed first."""
    a, b = operands_of(writing)
    if array_of(a) is None or b.data is not None:
        return False
    options, dims = writing.operator.options, sizes_of(writing.result)
    turned: dict[str, Any] = {"adj_x": not options.get("adj_y"), "adj_y": not options.get("adj_x")}
    inner = writing.add("BATCH_MATMUL", [b, a], [*dims[:-2], dims[-1], dims[-2]], **turned)
    order = (*range(len(dims) - 2), len(dims) - 1, len(dims) - 2)
    writing.transpose(inner, order, writing.result)
    return True


def adjoint_first(writing: Rewriting) -> bool:
    """Transpose the first operand of a product by itself."""
    a, b = operands_of(writing)
    options = writing.operator.options
    if not options.get("adj_x"):
        return False
    order = (*range(len(a.dims) - 2), len(a.dims) - 1, len(a.dims) - 2)
    writing.add(
        "BATCH_MATMUL",
        [writing.transpose(a, order), b],
        sizes_of(writing.result),
        writing.result,
        adj_x=False,
        adj_y=bool(options.get("adj_y")),
    )
    return True


def product_of_three_axes(writing: Rewriting) -> bool:
    """Write a product of two axes as a batch of one."""
    a, b = operands_of(writing)
    if len(a.dims) != 2 or len(b.dims) != 2:
        return False
    dims = sizes_of(writing.result)
    inner = writing.draft.tensor(f"{writing.result.name}/few", a.type, (1, *dims))
    writing.same(*(writing.reshape(each, [1, *sizes_of(each)]) for each in (a, b)), result=inner)
    writing.reshape(inner, dims, writing.result)
    return True


def product_of_few_axes(writing: Rewriting) -> bool:
    """Join the batch axes of a product, once both operands have the same."""
    a, b = operands_of(writing)
    dims, front = sizes_of(writing.result), sizes_of(writing.result)[:-2]
    if len(dims) <= 4:
        return False
    if a.dims[:-2] != b.dims[:-2]:
        return same_batches(writing)
    batch = [prod(front)]
    inner = writing.draft.tensor(f"{writing.result.name}/few", a.type, (*batch, *dims[-2:]))
    read = [writing.reshape(each, [*batch, *sizes_of(each)[-2:]]) for each in (a, b)]
    writing.same(*read, result=inner)
    writing.reshape(inner, dims, writing.result)
    return True


def weights_first(writing: Rewriting) -> bool:
    """`(w xᵀ)ᵀ` for a constant `x` and computed weights, and the bias behind."""
    x, weights, *bias = operands_of(writing)
    array = array_of(x)
    if array is None or weights.data is not None or writing.operator.options.get("fused_activation_function"):
        return False
    rows, count = prod(sizes_of(x)[:-1]), int(weights.dims[0])
    matrix = writing.constant(array.reshape(rows, -1))
    inner = writing.add("FULLY_CONNECTED", [weights, matrix], [count, rows], keep_num_dims=False)
    dims = sizes_of(writing.result)
    turned = writing.transpose(inner, (1, 0)) if rows > 1 and count > 1 else inner
    if not bias:
        writing.reshape(turned, dims, writing.result)
        return True
    writing.add("ADD", [writing.reshape(turned, dims), bias[0]], dims, writing.result)
    return True


def as_convolutions(writing: Rewriting) -> bool:
    """Write a convolution of groups as one for each group."""
    x, kernel, *bias = operands_of(writing)
    group = int(kernel.dims[-1])
    count = int(x.dims[-1]) // group
    weights, shift = array_of(kernel), array_of(bias[0]) if bias else None
    if count < 2 or weights is None or (bias and shift is None) or kernel.quantization is not None:
        return False
    out, dims = int(kernel.dims[0]) // count, sizes_of(writing.result)
    pieces = [writing.draft.tensor(f"{writing.result.name}/group", x.type, (*x.dims[:-1], group)) for _ in range(count)]
    axis = writing.ints(len(x.dims) - 1)
    writing.operators.append(DraftOperator("SPLIT", [axis, x], pieces, {"num_splits": count}))
    results = []
    for place, piece in enumerate(pieces):
        own = slice(place * out, (place + 1) * out)
        read = [
            piece,
            writing.constant(weights[own]),
            *([writing.constant(shift[own])] if shift is not None else []),
        ]
        result = writing.draft.tensor(f"{writing.result.name}/group", x.type, (*dims[:-1], out))
        writing.operators.append(DraftOperator("CONV_2D", list(read), [result], dict(writing.operator.options)))
        results.append(result)
    writing.add("CONCATENATION", results, dims, writing.result, axis=len(dims) - 1)
    return True


def as_dense(writing: Rewriting) -> bool:
    """Write a depthwise convolution as a convolution with zeros between channels."""
    x, kernel, *bias = operands_of(writing)
    weights = array_of(kernel)
    if weights is None or kernel.quantization is not None:
        return False
    channels, out = int(x.dims[-1]), int(kernel.dims[-1])
    full = np.zeros((out, *weights.shape[1:3], channels), np.float32)
    for place in range(out):
        full[place, :, :, place // (out // channels)] = weights[0, :, :, place]
    options = {name: value for name, value in writing.operator.options.items() if name != "depth_multiplier"}
    writing.operators.append(DraftOperator("CONV_2D", [x, writing.constant(full), *bias], [writing.result], options))
    return True


def volume(writing: Rewriting) -> bool:
    """Write a convolution of volumes as the sum of convolutions of their slices."""
    operator = writing.operator
    x, kernel, *bias = operands_of(writing)
    weights, options = array_of(kernel), operator.options
    if weights is None or kernel.quantization is not None:
        return False
    batch, depth, height, width, channels = sizes_of(x)
    _, out_depth, out_height, out_width, out = sizes_of(writing.result)
    size, stride, dilation = weights.shape[0], int(options.get("stride_d", 1)), int(options.get("dilation_d_factor", 1))
    before = after = 0
    if options.get("padding") == Padding.SAME:
        total = max((out_depth - 1) * stride + (size - 1) * dilation + 1 - depth, 0)
        before, after = total // 2, total - total // 2
    flat = writing.reshape(x, [1, batch, depth, height * width * channels])
    pads = [[0, 0], [0, 0], [before, after], [0, 0]]
    whole = depth + before + after
    if before or after:
        flat = writing.add("PAD", [flat, writing.ints(pads)], [1, batch, whole, height * width * channels])
    window = {
        name: options[name]
        for name in ("padding", "stride_w", "stride_h", "dilation_w_factor", "dilation_h_factor")
        if name in options
    }
    total_sum: DraftTensor | None = None
    rows = [batch * out_depth, out_height, out_width, out]
    for place in range(size):
        begin = place * dilation
        part_dims = [1, batch, out_depth, height * width * channels]
        ends = [1, batch, begin + (out_depth - 1) * stride + 1, height * width * channels]
        part = writing.add(
            "STRIDED_SLICE",
            [flat, writing.ints([0, 0, begin, 0]), writing.ints(ends), writing.ints([1, 1, stride, 1])],
            part_dims,
        )
        image = writing.reshape(part, [batch * out_depth, height, width, channels])
        own = [writing.constant(weights[place].transpose(3, 0, 1, 2)), *(bias if place == 0 else [])]
        made = writing.add("CONV_2D", [image, *own], rows, **window)
        total_sum = made if total_sum is None else writing.add("ADD", [total_sum, made], rows)
    assert total_sum is not None
    writing.reshape(total_sum, sizes_of(writing.result), writing.result)
    return not options.get("fused_activation_function")


def root_of_mean(writing: Rewriting) -> bool:
    """`sqrt(average(x²))`."""
    (x,) = operands_of(writing)
    mean = writing.draft.tensor(f"{writing.result.name}/mean", x.type, writing.result.dims)
    writing.same(writing.add("SQUARE", [x], sizes_of(x)), name="AVERAGE_POOL_2D", result=mean)
    writing.add("SQRT", [mean], sizes_of(mean), writing.result)
    return True


def response(writing: Rewriting) -> bool:
    """Divide by a power of the mean of squares over neighbouring channels, which a pool takes."""
    (x,) = operands_of(writing)
    options, dims = writing.operator.options, sizes_of(x)
    radius, alpha = int(options.get("radius", 5)), float(options.get("alpha", 1))
    count, channels, size = prod(dims[:-1]), dims[-1], 2 * radius + 1
    squares = writing.reshape(writing.add("SQUARE", [x], dims), [1, count, channels, 1])
    border = writing.ints([[0, 0], [0, 0], [radius, radius], [0, 0]])
    padded = writing.add("PAD", [squares, border], [1, count, channels + 2 * radius, 1])
    pool: dict[str, Any] = {
        "filter_width": size,
        "filter_height": 1,
        "stride_w": 1,
        "stride_h": 1,
        "padding": Padding.VALID,
    }
    mean = writing.reshape(writing.add("AVERAGE_POOL_2D", [padded], [1, count, channels, 1], **pool), dims)
    scaled = writing.add("MUL", [mean, writing.constant(np.array(alpha * size, np.float32))], dims)
    based = writing.add("ADD", [scaled, writing.constant(np.array(options.get("bias", 1), np.float32))], dims)
    power = writing.add("POW", [based, writing.constant(np.array(-float(options.get("beta", 0.5)), np.float32))], dims)
    writing.add("MUL", [x, power], dims, writing.result)
    return True
