"""StableHLO operators that multiply and add up: products and convolutions with any order of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.extents import product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.slicing import FIRST, LAST, cut
from relayout.formats.tflite.importing.operators.stablehlo_moving import distinct_axes, fixed, listed, per_axis
from relayout.formats.tflite.importing.operators.windows import bordered, interleave
from relayout.formats.tflite.importing.registry import Unsupported, operator


def _ordered(op: Operation, x: ir.Value, perm: Sequence[int]) -> ir.Value:
    return x if list(perm) == list(range(len(dims(x)))) else op.transpose(x, perm)


@operator("STABLEHLO_DOT_GENERAL", options="StablehloDotGeneralOptions")
def dot_general(op: Operation) -> None:
    """MatMul, the axes of either operand put together as batch, free, contracted."""
    options, a, b = op.options, op.real(0), op.real(1)
    rank_a, rank_b = len(dims(a)), len(dims(b))
    batch_a, batch_b = (
        distinct_axes(options.lhs_batching_dimensions, rank_a, op),
        distinct_axes(options.rhs_batching_dimensions, rank_b, op),
    )
    shared_a, shared_b = (
        distinct_axes(options.lhs_contracting_dimensions, rank_a, op),
        distinct_axes(options.rhs_contracting_dimensions, rank_b, op),
    )
    if not shared_a:
        raise Unsupported("a product without a common axis")
    if len(batch_a) != len(batch_b) or len(shared_a) != len(shared_b):
        raise ReadError("the operands differ in the number of their common axes", where=op.place)
    free_a = [d for d in range(rank_a) if d not in (*batch_a, *shared_a)]
    free_b = [d for d in range(rank_b) if d not in (*batch_b, *shared_b)]
    a, b = _ordered(op, a, [*batch_a, *free_a, *shared_a]), _ordered(op, b, [*batch_b, *shared_b, *free_b])
    many = len(batch_a)
    batch, rows = dims(a)[:many], dims(a)[many : many + len(free_a)]
    columns, inner = dims(b)[many + len(shared_b) :], product(dims(a)[many + len(free_a) :])
    if len(rows) != 1 or len(shared_a) != 1:
        a = op.reshape(a, (*batch, product(rows), inner))
    if len(columns) != 1 or len(shared_b) != 1:
        b = op.reshape(b, (*batch, inner, product(columns)))
    y = op.emit("MatMul", [a, b], (*batch, dims(a)[-2], dims(b)[-1]))
    if len(rows) != 1 or len(columns) != 1:
        y = op.reshape(y, (*batch, *rows, *columns))
    op.result(y)


@operator("STABLEHLO_CONVOLUTION", options="StablehloConvolutionOptions")
def convolution(op: Operation) -> None:
    """Conv between Transposes; data with zeros in between are written out, a reversed window is a reversed kernel."""
    options, rank = op.options, len(dims(op.stored(0)))
    many = rank - 2
    if many < 1 or len(dims(op.stored(1))) != rank:
        raise ReadError(f"a convolution of rank {rank}", where=op.place)
    if options.batch_group_count != 1:
        raise Unsupported("groups of the batch")

    def order(batch: int, feature: int, spatial: Sequence[int]) -> list[int]:
        return distinct_axes([batch, feature, *listed(spatial, many, "spatial dimensions", op)], rank, op)

    first = order(options.input_batch_dimension, options.input_feature_dimension, options.input_spatial_dimensions)
    kernel_order = order(
        options.kernel_output_feature_dimension,
        options.kernel_input_feature_dimension,
        options.kernel_spatial_dimensions,
    )
    last = order(options.output_batch_dimension, options.output_feature_dimension, options.output_spatial_dimensions)
    x, kernel = op.real(0, first), op.real(1, kernel_order)
    reverse = [i + 2 for i, back in enumerate(options.window_reversal[:many]) if back]
    if reverse:
        kernel = cut(op, kernel, [LAST] * len(reverse), [FIRST] * len(reverse), reverse, [-1] * len(reverse))

    sizes = ("window_strides", "lhs_dilation", "rhs_dilation")
    strides, gaps, dilations = (per_axis(op, name, many) for name in sizes)
    flat = [int(v) for v in options.padding[: 2 * many + 1]] or [0] * 2 * many
    if len(flat) != 2 * many or min([*strides, *gaps, *dilations]) < 1:
        raise ReadError("a convolution whose window does not fit its rank", where=op.place)
    lows, highs, zero = flat[::2], flat[1::2], op.number(0, x, "zero")
    for axis, step in enumerate(gaps, 2):
        x = interleave(op, x, axis, step, zero)
    if min(flat) < 0:
        x = bordered(op, x, [0, 0, *lows], [0, 0, *highs], zero)
        lows, highs = [0] * many, [0] * many
    n, c, *spatial = dims(x)
    o, i, *window = dims(kernel)
    window = list(fixed(op, window))
    group = options.feature_group_count
    if isinstance(c, int) and isinstance(i, int) and i * group != c:
        raise ReadError(f"{c} channels do not fit {group} groups of {i}", where=op.place)
    extents = [_places(*six) for six in zip(spatial, window, strides, dilations, lows, highs, strict=True)]
    shape = (n, o, *extents)
    y = op.emit(
        "Conv", [x, kernel], shape, dilations=dilations, group=group, kernel_shape=window, pads=lows + highs,
        strides=strides,
    )  # fmt: skip
    op.result(y, perm=[last.index(axis) for axis in range(rank)])


def _places(extent: Dim, window: Dim, stride: int, dilation: int, low: int, high: int) -> Dim:
    if not isinstance(extent, int) or not isinstance(window, int):
        return None
    return math.floor((extent + low + high - (window - 1) * dilation - 1) / stride) + 1
