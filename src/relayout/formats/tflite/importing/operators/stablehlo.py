"""StableHLO operators that work on each element by itself. Their operands have equal shapes: nothing is broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.extents import product
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.operators.control import carried_operands, hand_over
from relayout.formats.tflite.importing.operators.elementwise import shifted_bits, unary_of_reals
from relayout.formats.tflite.importing.operators.gathering import chosen, counted
from relayout.formats.tflite.importing.operators.resize import bordered, fitting, interleave, overwritten
from relayout.formats.tflite.importing.operators.shape import regrouped, scalar
from relayout.formats.tflite.importing.operators.slicing import FIRST, LAST, cut, joined
from relayout.formats.tflite.importing.registry import Unsupported, each_operator, operator
from relayout.graph.domains import CONVOLUTION

# StableHLO operators that move, cut and join elements.

_INT64 = ir.DataType.INT64


def listed(values: Sequence[int], count: int, what: str, op: Operation) -> list[int]:
    """Return a list of options as Python integers; it has one for each dimension."""
    if len(values) != count:
        raise op.damaged(f"{what} has {len(values)} numbers for {count} dimensions")
    return [int(v) for v in values]


def per_axis(op: Operation, option: str, count: int) -> list[int]:
    """Return an option with a number for each of some axes; ones where the file leaves it out."""
    numbers = getattr(op.options, option)
    return listed(numbers, count, option, op) if len(numbers) else [1] * count


def distinct_axes(values: Sequence[int], rank: int, op: Operation) -> list[int]:
    """Distinct axes, counted from the front."""
    axes = [op.axis(int(a), rank) for a in values[: rank + 1]]
    if len(set(axes)) != len(axes):
        raise op.damaged(f"axes {axes} are not distinct")
    return axes


def fixed(op: Operation, shape: Sequence[Dim]) -> list[int]:
    """Return a shape all of whose extents are known."""
    return op.fixed(shape, "unknown dimensions, where StableHLO has none")


@operator("STABLEHLO_RESHAPE")
def reshape(op: Operation) -> None:
    """Reshape to the shape of the result."""
    (x,), finish = op.carried(0)
    target = [d if isinstance(d, int) else -1 for d in op.tensors.claimed(op.output())]
    finish(op.reshape(x, regrouped(dims(x), target, op)))


@operator("STABLEHLO_TRANSPOSE", options="StablehloTransposeOptions")
def transpose(op: Operation) -> None:
    """Transpose."""
    (x,), finish = op.carried(0)
    perm = distinct_axes(listed(op.options.permutation, len(dims(x)), "permutation", op), len(dims(x)), op)
    finish(op.emit("Transpose", [x], perm=perm))


@operator("STABLEHLO_CONCATENATE", options="StablehloConcatenateOptions")
def concatenate(op: Operation) -> None:
    """Concat."""
    parts, finish = op.carried(*range(len(op.operator.inputs)))
    finish(joined(op, parts, op.axis(op.options.dimension, len(dims(parts[0])))))


@operator("STABLEHLO_SLICE", options="StablehloSliceOptions")
def slice_(op: Operation) -> None:
    """Slice."""
    (x,), finish = op.carried(0)
    rank, options = len(dims(x)), op.options
    starts, limits, strides = (
        listed(getattr(options, name), rank, name, op) for name in ("start_indices", "limit_indices", "strides")
    )
    if min([*starts, *limits], default=0) < 0 or min(strides, default=1) < 1:
        raise op.damaged(f"a slice from {starts[:9]} to {limits[:9]} by {strides[:9]}")
    finish(cut(op, x, starts, limits, range(rank), strides))


def _start(op: Operation, first: int) -> ir.Value:
    """Return the scalars that say where a part begins, as one vector."""
    parts = [op.cast(scalar(op, op.stored(i)), _INT64) for i in range(first, len(op.operator.inputs))]
    return op.emit("Concat", [op.reshape(p, (1,)) for p in parts], axis=0)


@operator("STABLEHLO_DYNAMIC_SLICE", options="StablehloDynamicSliceOptions")
def dynamic_slice(op: Operation) -> None:
    """Slice from computed places, which are moved so that the part fits."""
    (x,), finish = op.carried(0)
    rank = len(dims(x))
    sizes = listed(op.options.slice_sizes, rank, "slice_sizes", op)
    start = op.each("Max", _start(op, 1), op.ints([0] * rank, "zeros"))
    start = op.each("Min", start, fitting(op, x, sizes))
    finish(op.emit("Slice", [x, start, op.each("Add", start, op.ints(sizes, "sizes"))], tuple(sizes)))


@operator("STABLEHLO_DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(op: Operation) -> None:
    """A Where of the padded update and the operand by a padded mask."""
    (x, update), finish = op.carried(0, 1, types=BYTES_ONLY)
    finish(overwritten(op, x, update, _start(op, 2)))


@operator("STABLEHLO_PAD", options="StablehloPadOptions")
def pad(op: Operation) -> None:
    """Pad; between the elements too, or, where an amount is negative, a Slice."""
    (x, value), finish = op.carried(0, 1, types=BYTES_ONLY)
    rank, options, value = len(dims(x)), op.options, scalar(op, value)
    lows, highs, between = (
        listed(getattr(options, name), rank, name, op)
        for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    for axis, step in enumerate(between):
        x = interleave(op, x, axis, step + 1, value)
    finish(bordered(op, x, lows, highs, value))


@operator("STABLEHLO_IOTA", options="StablehloIotaOptions")
def iota(op: Operation) -> None:
    """Range along one axis, expanded to the others."""
    shape = fixed(op, op.tensors.claimed(op.output()))
    axis = op.axis(op.options.iota_dimension, len(shape))
    like = op.ints([0], "start")
    numbers = counted(op, op.number(shape[axis], like, "count"), shape[axis])
    column = op.reshape(numbers, [shape[axis], *[1] * (len(shape) - axis - 1)])
    y = op.emit("Expand", [column, op.ints(shape, "shape")])
    op.result_stored(op.cast(y, op.tensors.plain_dtype(op.output())))


@operator("STABLEHLO_BROADCAST_IN_DIM", options="StablehloBroadcastInDimOptions")
def broadcast_in_dim(op: Operation) -> None:
    """Reshape that puts each axis in its place among ones, then Expand."""
    (x,), finish = op.carried(0)
    shape = fixed(op, op.tensors.claimed(op.output()))
    places = listed(op.options.broadcast_dimensions, len(dims(x)), "broadcast_dimensions", op)
    places = distinct_axes(places, len(shape), op)
    order = sorted(range(len(places)), key=places.__getitem__)
    x = ordered(op, x, order)
    spread_shape: list[Dim] = [1] * len(shape)
    for i, place in enumerate(sorted(places)):
        spread_shape[place] = dims(x)[i]
    finish(op.emit("Expand", [op.reshape(x, spread_shape), op.ints(shape, "shape")]))


# StableHLO operators that multiply and add up: products and convolutions with any order of axes.


def ordered(op: Operation, x: ir.Value, perm: Sequence[int]) -> ir.Value:
    """Return a Transpose, where it changes the order."""
    return x if list(perm) == list(range(len(dims(x)))) else op.transpose(x, perm)


@operator("STABLEHLO_DOT_GENERAL", options="StablehloDotGeneralOptions")
def dot_general(op: Operation) -> None:
    """MatMul, the axes of either operand put together as batch, free, contracted."""
    options, a, b = op.options, op.real(0), op.real(1)
    rank_a, rank_b = len(dims(a)), len(dims(b))
    batch_a = distinct_axes(options.lhs_batching_dimensions, rank_a, op)
    batch_b = distinct_axes(options.rhs_batching_dimensions, rank_b, op)
    shared_a = distinct_axes(options.lhs_contracting_dimensions, rank_a, op)
    shared_b = distinct_axes(options.rhs_contracting_dimensions, rank_b, op)
    if not shared_a:
        raise Unsupported("a product without a common axis")
    if len(batch_a) != len(batch_b) or len(shared_a) != len(shared_b):
        raise op.damaged("the operands differ in the number of their common axes")
    free_a = [d for d in range(rank_a) if d not in (*batch_a, *shared_a)]
    free_b = [d for d in range(rank_b) if d not in (*batch_b, *shared_b)]
    a, b = ordered(op, a, [*batch_a, *free_a, *shared_a]), ordered(op, b, [*batch_b, *shared_b, *free_b])
    many = len(batch_a)
    batch, rows = dims(a)[:many], dims(a)[many : many + len(free_a)]
    columns, inner = dims(b)[many + len(shared_b) :], product(dims(a)[many + len(free_a) :])
    if len(rows) != 1 or len(shared_a) != 1:
        a = op.reshape(a, (*batch, product(rows), inner))
    if len(columns) != 1 or len(shared_b) != 1:
        b = op.reshape(b, (*batch, inner, product(columns)))
    y = op.emit("MatMul", [a, b])
    if len(rows) != 1 or len(columns) != 1:
        y = op.reshape(y, (*batch, *rows, *columns))
    op.result(y)


@operator("STABLEHLO_CONVOLUTION", options="StablehloConvolutionOptions")
def convolution(op: Operation) -> None:
    """Conv between Transposes; data with zeros in between are written out, a reversed window is a reversed kernel."""
    options, rank = op.options, len(dims(op.stored(0)))
    many = rank - 2
    if many < 1 or len(dims(op.stored(1))) != rank:
        raise op.damaged(f"a convolution of rank {rank}")
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
        raise op.damaged("a convolution whose window does not fit its rank")
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
        raise op.damaged(f"{c} channels do not fit {group} groups of {i}")
    extents = [_places(*six) for six in zip(spatial, window, strides, dilations, lows, highs, strict=True)]
    shape = (n, o, *extents)
    y = op.emit(
        CONVOLUTION, [x, kernel], shape, dilations=dilations, group=group, kernel_shape=window, pads=lows + highs,
        strides=strides,
    )  # fmt: skip
    op.result(y, perm=[last.index(axis) for axis in range(rank)])


def _places(extent: Dim, window: Dim, stride: int, dilation: int, low: int, high: int) -> Dim:
    if not isinstance(extent, int) or not isinstance(window, int):
        return None
    return math.floor((extent + low + high - (window - 1) * dilation - 1) / stride) + 1


_UNARY = {
    "ABS": "Abs",
    "COSINE": "Cos",
    "EXPONENTIAL": "Exp",
    "FLOOR": "Floor",
    "LOG": "Log",
    "LOGISTIC": "Sigmoid",
    "NEGATE": "Neg",
    "TANH": "Tanh",
}

_OF_INTEGERS = {"ADD": ("Add", "Or"), "MAXIMUM": ("Max", "Or"), "MINIMUM": ("Min", "And"), "MULTIPLY": ("Mul", "And")}
"""Those that LiteRT has kernels for, which take no notice of scales; and what they are of booleans."""

_COMPARISONS = ("Equal", "", "GreaterOrEqual", "Greater", "LessOrEqual", "Less")
"""What the numbers of `StablehloComparisonDirection` stand for; 1 is "not equal"."""


each_operator({f"STABLEHLO_{name}": op_type for name, op_type in _UNARY.items()}, "{}.")(unary_of_reals)


@each_operator({"STABLEHLO_DIVIDE": "Div", "STABLEHLO_POWER": "Pow", "STABLEHLO_SUBTRACT": "Sub"}, "{}.")
def _binary(op: Operation, op_type: str) -> None:
    op.result(op.each(op_type, op.real(0), op.real(1)))


@each_operator({f"STABLEHLO_{name}": row for name, row in _OF_INTEGERS.items()}, "{}, {} of booleans.")
def _of_integers(op: Operation, op_type: str, logical: str) -> None:
    a, b = op.whole(0), op.whole(1)
    op.result_whole(op.each(logical if a.dtype == ir.DataType.BOOL else op_type, a, b))


@each_operator({"STABLEHLO_AND": "And", "STABLEHLO_OR": "Or"}, "{0} of booleans, Bitwise{0} of integers.")
def _logical(op: Operation, op_type: str) -> None:
    a, b = op.raw(0), op.raw(1)
    op.result_stored(op.each(op_type if a.dtype == ir.DataType.BOOL else f"Bitwise{op_type}", a, b))


@operator("STABLEHLO_REMAINDER")
def remainder(op: Operation) -> None:
    """Mod with the sign of the dividend."""
    op.result(op.emit("Mod", [op.real(0), op.real(1)], fmod=1))


@operator("STABLEHLO_RSQRT")
def rsqrt(op: Operation) -> None:
    """Reciprocal of Sqrt."""
    op.result(op.each("Reciprocal", op.each("Sqrt", op.real(0))))


@operator("STABLEHLO_CBRT")
def cbrt(op: Operation) -> None:
    """Pow of the magnitude, with the sign."""
    x = op.real(0)
    root = op.each("Pow", op.each("Abs", x), op.number(1 / 3, x, "third"))
    op.result(op.each("Mul", root, op.each("Sign", x)))


@operator("STABLEHLO_COMPARE", options="StablehloCompareOptions")
def compare(op: Operation) -> None:
    """Equal, Less and so on; Not of Equal."""
    op.result_stored(compared(op, op.options.comparison_direction, op.real(0), op.real(1)))


def compared(op: Operation, direction: int, a: ir.Value, b: ir.Value) -> ir.Value:
    """Return a comparison by the number that the schema has for it."""
    if not 0 <= direction < len(_COMPARISONS):
        raise Unsupported(f"comparison {direction}")
    y = op.each(_COMPARISONS[direction] or "Equal", a, b)
    return y if _COMPARISONS[direction] else op.each("Not", y)


@operator("STABLEHLO_CONVERT")
def convert(op: Operation) -> None:
    """Cast."""
    op.result(op.cast(op.real(0), op.tensors.plain_dtype(op.output())))


@operator("STABLEHLO_CLAMP")
def clamp(op: Operation) -> None:
    """Max with the lower end, Min with the upper one; the value is operand 1."""
    op.result(op.each("Min", op.each("Max", op.real(1), op.real(0)), op.real(2)))


@operator("STABLEHLO_SELECT")
def select(op: Operation) -> None:
    """A Where."""
    op.result(chosen(op, op.stored(0), op.real(1), op.real(2)))


@operator("STABLEHLO_SHIFT_LEFT")
def shift_left(op: Operation) -> None:
    """BitShift of the same bits without a sign."""
    op.result_stored(shifted_bits(op, op.raw(0), op.raw(1), "LEFT"))


@operator("STABLEHLO_COMPOSITE", options="StableHLOCompositeOptions")
def composite(op: Operation) -> None:
    """The operators of the decomposition, in place."""
    hand_over(op, op.program.inline(op.options.decomposition_subgraph_index, carried_operands(op), op.place))
