"""Operators of TensorFlow that TFLite does not have, or not for such operands: they are left to the Flex delegate."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.nodedef import NodeDef
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.extents import element, product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.complexes import multiplied
from relayout.formats.tflite.importing.operators.elementwise import (
    bitwise,
    rounded_to_steps,
    shifted_bits,
    unary_of_reals,
)
from relayout.formats.tflite.importing.operators.gathering import chosen, counted, gather
from relayout.formats.tflite.importing.operators.resize import bordered
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import LAST, cut, joined, unsqueeze
from relayout.formats.tflite.importing.registry import Unsupported, each_operator, entries, of_complex, operator

_EQUATION = re.compile(r"[A-Za-z]*(,[A-Za-z]*)*->[A-Za-z]*")  # an Einsum's, without ellipses


def _flex(names: str) -> dict[str, str]:
    """Operators that ONNX has by the same name."""
    return {f"CUSTOM Flex{name}": name for name in names.split()}


each_operator(_flex("Reciprocal Selu Softmax Softplus Softsign"), "{}.")(unary_of_reals)


@each_operator(_flex("Atan Cosh Erf Sinh Tan"), "{}.")
def _of_floats(op: Operation, op_type: str) -> None:
    if op.input(0).type == TensorType.FLOAT64:
        raise Unsupported("FLOAT64, for which ONNX Runtime has no kernel")
    op.result(op.each(op_type, op.real(0)))


@operator("CUSTOM FlexEinsum")
def einsum(op: Operation) -> None:
    """Einsum."""
    equation = attributes(op).text("equation").replace(" ", "")
    terms, _, result = equation.partition("->")
    values = [op.stored(i) for i in range(len(op.operator.inputs))]
    fits = terms.count(",") + 1 == len(values) and set(result) <= set(terms)
    if not (fits and _EQUATION.fullmatch(equation)):
        raise Unsupported("an equation that is no list of axes by letters")
    extents: dict[str, Dim] = {}
    for letters, value in zip(terms.split(","), values, strict=True):
        if len(letters) == len(dims(value)):  # of what a branch gives, the file may not know the rank
            extents.update((a, d) for a, d in zip(letters, dims(value), strict=True) if extents.get(a) in (None, 1))
    op.result(op.emit("Einsum", values, tuple(extents.get(axis) for axis in result), equation=equation))


def attributes(op: Operation) -> NodeDef:
    """Return the attributes of TensorFlow's operator."""
    return NodeDef(np.asarray(op.operator.custom_options).tobytes(), op.place)


@operator("CUSTOM FlexRoll")
def roll(op: Operation) -> None:
    """Concat of two Slices for each axis: the end comes to the front."""
    x = op.stored(0)
    shifts, axes = op.integers(1), op.integers(2)
    if len(shifts) != len(axes):
        raise op.damaged(f"{len(shifts)} shifts of {len(axes)} axes")
    for shift, number in zip(shifts, axes, strict=True):
        axis = op.axis(number, len(dims(x)))
        extent = dims(x)[axis]
        if isinstance(extent, int):
            at = -shift % max(extent, 1)
            x = joined(op, [cut(op, x, [at], [LAST], [axis]), cut(op, x, [0], [at], [axis])], axis) if at else x
            continue
        # The shift may be longer than the axis, and the axis empty.
        extents = op.emit("Shape", [x], start=axis, end=axis + 1)
        extents = op.emit("Max", [extents, op.ints([1], "one")])
        place = op.emit("Mod", [op.ints([-shift], "shift"), extents])
        shape = (*dims(x)[:axis], None, *dims(x)[axis + 1 :])
        bounds = ((place, op.ints([LAST], "last")), (op.ints([0], "first"), place))
        parts = [op.emit("Slice", [x, *both, op.ints([axis], "axis")], shape) for both in bounds]
        x = op.emit("Concat", parts, dims(x), axis=axis)
    op.result(x)


@operator("CUSTOM FlexGatherV2")
def gather_v2(op: Operation) -> None:
    """As GATHER, whose axis is an operand."""
    (axis,) = op.integers(2, 1)
    op.options = Table("GatherOptions", 0, {"axis": axis, "batch_dims": attributes(op).number("batch_dims")})
    gather(op)


@operator("CUSTOM FlexConcatV2")
def concat_v2(op: Operation) -> None:
    """Concat; the axis is the last operand."""
    count = len(op.operator.inputs) - 1
    if count < 1:
        raise op.damaged("nothing to concatenate")
    (axis,), parts = op.integers(count, 1), [op.stored(i) for i in range(count)]
    op.result(joined(op, parts, op.axis(axis, len(dims(parts[0])))))


@operator("CUSTOM FlexBiasAdd")
def bias_add(op: Operation) -> None:
    """Add to each channel; with channels first the bias has axes of 1 behind."""
    x, bias = op.stored(0), op.stored(1)
    if len(dims(x)) < 2 or len(dims(bias)) != 1:
        raise op.damaged(f"a bias of shape {list(dims(bias))} for {list(dims(x))}")
    if attributes(op).text("data_format").startswith("NC"):
        bias = unsqueeze(op, bias, range(1, len(dims(x)) - 1)) if len(dims(x)) > 2 else bias
    op.result(op.each("Add", x, bias))


# Operators that TFLite has, too, but not for such operands, as those of 64 bits: they are left to the Flex delegate.
#
# Operands are those of TFLite's, and so is the translation; attributes take the place of its options.

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_KEEP = {"keep_dims": "keep_dims"}
_SEEDS = {"seed": "seed", "seed2": "seed2"}

_PLAIN = """
    Abs=ABS AddN=ADD_N AddV2=ADD ArgMax=ARG_MAX ArgMin=ARG_MIN BitwiseXor=BITWISE_XOR BroadcastTo=BROADCAST_TO
    Ceil=CEIL Cos=COS Elu=ELU Equal=EQUAL Exp=EXP Fill=FILL Floor=FLOOR FloorDiv=FLOOR_DIV FloorMod=FLOOR_MOD
    GatherNd=GATHER_ND Greater=GREATER GreaterEqual=GREATER_EQUAL Less=LESS LessEqual=LESS_EQUAL Log=LOG
    LogSoftmax=LOG_SOFTMAX Maximum=MAXIMUM Minimum=MINIMUM Mul=MUL Neg=NEG NotEqual=NOT_EQUAL Pad=PAD Pow=POW
    Range=RANGE RealDiv=DIV Relu=RELU Relu6=RELU6 ReverseV2=REVERSE_V2 Round=ROUND Rsqrt=RSQRT ScatterNd=SCATTER_ND
    SelectV2=SELECT_V2 Sigmoid=LOGISTIC Sign=SIGN Sin=SIN Slice=SLICE Split=SPLIT Sqrt=SQRT Square=SQUARE
    SquaredDifference=SQUARED_DIFFERENCE Sub=SUB Tanh=TANH Tile=TILE TopKV2=TOPK_V2 Transpose=TRANSPOSE Unique=UNIQUE
    UniqueWithCounts=UNIQUE
"""
ALIKE: dict[str, tuple[str, dict[str, str]]] = {
    **{name: (of_tflite, {}) for name, _, of_tflite in (pair.partition("=") for pair in _PLAIN.split())},
    "BatchMatMulV2": ("BATCH_MATMUL", {"adj_x": "adj_x", "adj_y": "adj_y"}),
    "Cumsum": ("CUMSUM", {"exclusive": "exclusive", "reverse": "reverse"}),
    "MatMul": ("BATCH_MATMUL", {"adj_x": "transpose_a", "adj_y": "transpose_b"}),
    "Max": ("REDUCE_MAX", _KEEP),
    "Mean": ("MEAN", _KEEP),
    "Min": ("REDUCE_MIN", _KEEP),
    "Multinomial": ("MULTINOMIAL", _SEEDS),
    "Pack": ("PACK", {"axis": "axis"}),
    "Prod": ("REDUCE_PROD", _KEEP),
    "RandomStandardNormal": ("RANDOM_STANDARD_NORMAL", _SEEDS),
    "RandomUniform": ("RANDOM_UNIFORM", _SEEDS),
    "ReverseSequence": ("REVERSE_SEQUENCE", {"seq_dim": "seq_dim", "batch_dim": "batch_dim"}),
    "StridedSlice": ("STRIDED_SLICE", {name: name for name in _MASKS}),
    "Sum": ("SUM", _KEEP),
    "Unpack": ("UNPACK", {"axis": "axis"}),
}
"""TensorFlow's operator -> TFLite's, and the attribute for each of its options; others have their defaults."""


@each_operator({f"CUSTOM Flex{name}": row for name, row in ALIKE.items()}, "As {}.")
def _alike(op: Operation, name: str, options: dict[str, str]) -> None:
    entry, node_def = entries()[name], attributes(op)
    own_options = options_of(op.operator, entry)
    op.options = Table(
        own_options.kind, 0, {**own_options.fields, **{o: node_def.number(a) for o, a in options.items()}}
    )
    entry.translate(op)


# Operators of TensorFlow on each element by itself that TFLite does not have: they are left to the Flex delegate.

_INT64 = ir.DataType.INT64


@each_operator({"CUSTOM FlexInvert": "BitwiseNot", "CUSTOM FlexIsNan": "IsNaN"}, "{}.")
def _unary(op: Operation, op_type: str) -> None:
    op.result(op.each(op_type, op.stored(0)))


each_operator(_flex("BitwiseAnd BitwiseOr"), "{}, broadcast from the right.")(bitwise)


def _count(op: Operation) -> ir.Value:
    """By how many bits operand 0 is shifted: not below 0, nor by all there are."""
    x, count = op.stored(0), op.cast(op.stored(1), _INT64)
    most = op.number((x.dtype or _INT64).bitwidth - 1, count, "most")
    return op.each("Max", op.each("Min", count, most), op.number(0, count, "least"))


@operator("CUSTOM FlexLeftShift")
def left_shift(op: Operation) -> None:
    """BitShift of integers without a sign; by at most all bits but one."""
    op.result(shifted_bits(op, op.stored(0), _count(op), "LEFT"))


@operator("CUSTOM FlexRightShift")
def right_shift(op: Operation) -> None:
    """As RIGHT_SHIFT; by at most all bits but one."""
    op.result(shifted_bits(op, op.stored(0), _count(op), "RIGHT"))


@operator("CUSTOM FlexIsFinite")
def is_finite(op: Operation) -> None:
    """Neither IsInf nor IsNaN."""
    x = op.stored(0)
    op.result(op.each("Not", op.each("Or", op.each("IsInf", x), op.each("IsNaN", x))))


@each_operator({"CUSTOM FlexDivNoNan": "Div", "CUSTOM FlexMulNoNan": "Mul"}, "{}; 0 where the second operand is 0.")
def _unless(op: Operation, op_type: str) -> None:
    a, b = op.stored(0), op.stored(1)
    zero = op.number(0, b, "zero")
    nothing = op.each("Equal", b, zero)
    # A quotient of integers by 0 ends the process, though it is not chosen.
    by = chosen(op, nothing, op.number(1, b, "one"), b)
    op.result(chosen(op, nothing, zero, op.each(op_type, a, by)))


@operator("CUSTOM FlexTruncateDiv")
def truncate_div(op: Operation) -> None:
    """Div; of real numbers what is before the point."""
    quotient = op.each("Div", op.plain(0), op.plain(1))
    if quotient.dtype is not None and quotient.dtype.is_floating_point():
        down = op.each("Floor", op.each("Abs", quotient))
        quotient = op.each("Mul", down, op.each("Sign", quotient))
    op.result(quotient)


@operator("CUSTOM FlexFakeQuantWithMinMaxVarsPerChannel")
def fake_quant_per_channel(op: Operation) -> None:
    """Clip, and rounding to steps, of each channel by its own ends; these are moved so that 0 is one of the steps."""
    node_def, x = attributes(op), op.stored(0)
    low, high = (op.constant(i).astype(np.float32) for i in (1, 2))
    bits, extent = node_def.number("num_bits"), dims(x)[-1] if dims(x) else None
    if not low.shape == high.shape == (extent,) or not 2 <= bits <= 16 or not np.all(low <= high):
        raise op.damaged(f"{bits} bits between {low.shape} and {high.shape} of {extent}")
    first, last = np.float32(node_def.number("narrow_range")), np.float32((1 << bits) - 1)
    some = high > low
    with np.errstate(over="ignore"):
        scale = np.where(some, (high - low) / (last - first), np.float32(1))
    if not np.all((scale > 1e-30) & (scale < 1e30)):
        raise op.damaged(f"steps between {scale.min()} and {scale.max()}")
    start = first - low / scale
    zero = np.where(start < first, first, np.where(start > last, last, np.floor(start + np.float32(0.5))))
    low, high = (np.where(some, (end - zero) * scale, np.float32(0)).astype(np.float32) for end in (first, last))
    clipped = op.each("Max", x, op.array("low", low))
    clipped = op.each("Min", clipped, op.array("high", high))
    op.result(rounded_to_steps(op, clipped, low, scale))


# Products and sums along an axis that are left to the Flex delegate, of all elements up to each.

Pair = Callable[[Operation, ir.Value, ir.Value], ir.Value]


def _running(
    op: Operation,  # the operator
    start: float,  # what changes nothing it is combined with
    combined: Pair,  # of two
) -> None:
    """Combine each element with the one before, then with what 2, 4, 8, ... before is combined: log n steps."""
    x, node_def = op.stored(0), attributes(op)
    (number,) = op.integers(1, 1)
    axis = op.axis(number, len(dims(x)))
    unknown = "unknown dimensions, along which the number of steps depends on them"
    (extent,) = op.fixed(dims(x)[axis : axis + 1], unknown)
    back = node_def.number("reverse")
    none = op.number(start, x, "start")

    def moved(value: ir.Value, by: int) -> ir.Value:
        low, high = ([by if a == axis else 0 for a in range(len(dims(x)))] for _ in range(2))
        behind = [-amount for amount in high]
        return bordered(op, value, behind, low, none) if back else bordered(op, value, low, behind, none)

    if node_def.number("exclusive") and extent:
        x = moved(x, 1)
    step = 1
    while step < extent:
        x = combined(op, x, moved(x, step))
        step *= 2
    op.result(x)


@operator("CUSTOM FlexCumprod")
def cumprod(op: Operation) -> None:
    """Mul with the elements before, in log n steps."""
    _running(op, 1, lambda op, a, b: op.each("Mul", a, b))


@operator("CUSTOM FlexCumulativeLogsumexp")
def cumulative_logsumexp(op: Operation) -> None:
    """Log of the sum of two Exp, the greater taken out before, in log n steps."""
    _running(op, -math.inf, _log_of_sum)


def _log_of_sum(op: Operation, a: ir.Value, b: ir.Value) -> ir.Value:
    """Taken out is a number, also where both are minus infinity, the logarithm of nothing."""
    least = op.number(float(np.finfo((a.dtype or ir.DataType.FLOAT).numpy()).min), a, "least")
    greater = op.emit("Max", [a, b, least])
    first, second = (op.each("Exp", op.each("Sub", each, greater)) for each in (a, b))
    return op.each("Add", op.each("Log", op.each("Add", first, second)), greater)


# Operators of TensorFlow on matrices that are left to the Flex delegate.

MOST_DIAGONALS = 1 << 8


@of_complex("CUSTOM FlexBatchMatMulV2")
def adjoint_product(op: Operation) -> None:
    """Conjugate a transposed operand, too."""
    node_def = attributes(op)
    multiplied(op, bool(node_def.number("adj_x")), bool(node_def.number("adj_y")))


@operator("CUSTOM FlexMatrixDiagPartV3")
def diagonal_part(op: Operation) -> None:
    """A Slice of the flattened matrix for each diagonal; of several Pad and Concat, the uppermost first."""
    numbers, x = op.integers(1, 2), op.stored(0)
    if len(dims(x)) < 2 or not numbers:
        raise op.damaged(f"{op.operator.name} of rank {len(dims(x))}")
    low, high, outer = numbers[0], numbers[-1], dims(x)[:-2]
    rows, columns = op.fixed(dims(x)[-2:], "unknown dimensions of a matrix, which say where its diagonal lies")
    if not -rows < low <= high < columns:
        raise op.damaged(f"diagonals {low} to {high} of {rows} rows and {columns} columns")
    if high - low >= MOST_DIAGONALS:
        raise Unsupported("many diagonals")
    last = len(outer)
    flat = op.emit("Reshape", [x, op.ints([*[0] * last, rows * columns], "shape")])
    places = range(high, low - 1, -1)
    lengths = [min(rows + min(d, 0), columns - max(d, 0)) for d in places]
    parts = []
    for d, length in zip(places, lengths, strict=True):
        first = max(d, 0) - min(d, 0) * columns
        end = first + (length - 1) * (columns + 1) + 1
        parts.append(cut(op, flat, [first], [end], [last], [columns + 1]))
    if len(numbers) == 1:
        op.result(parts[0])
        return
    above, _, below = attributes(op).text("align").partition("_")
    for i, (d, length) in enumerate(zip(places, lengths, strict=True)):
        at_front = (d >= 0 and above == "LEFT") or (d <= 0 and below == "LEFT")
        more, none = max(lengths) - length, [0] * last
        around = ([*none, 0], [*none, more]) if at_front else ([*none, more], [*none, 0])
        parts[i] = unsqueeze(op, bordered(op, parts[i], *around, op.stored(2)), [last])
    op.result(joined(op, parts, last))


@operator("CUSTOM FlexMatrixDeterminant")
def determinant(op: Operation) -> None:
    """Det."""
    if op.input(0).type != TensorType.FLOAT32:
        raise Unsupported(f"{op.input(0).type.name}, of which ONNX Runtime has no determinant")
    x = op.stored(0)
    op.result(op.emit("Det", [x], dims(x)[:-2], ir.DataType.FLOAT))


# Operators of TensorFlow that put rows into tensors by index, and are left to the Flex delegate.

_SCATTER = "ScatterND, reduction {}."


@each_operator({f"CUSTOM FlexTensorScatter{name.capitalize()}": name for name in ("add", "max", "min")}, _SCATTER)
@each_operator({"CUSTOM FlexTensorScatterUpdate": "none"}, "ScatterND, that replaces.")
@each_operator({"CUSTOM FlexTensorScatterSub": ("add", True)}, f"{_SCATTER[:-1]}, of Neg.")
def _scatter(op: Operation, reduction: str, negative: bool = False) -> None:
    x, indices, updates = op.stored(0), op.cast(op.stored(1), _INT64), op.stored(2)
    updates = op.each("Neg", updates) if negative else updates
    op.result(op.emit("ScatterND", [x, indices, updates], reduction=reduction))


@operator("CUSTOM FlexDenseBincount")
def bincount(op: Operation) -> None:
    """ScatterND that adds ones, or weights, to zeros; what is beyond the last bin counts in one more, cut off again."""
    x, weights = op.cast(op.stored(0), _INT64), op.stored(2)
    shape, rank = dims(x), len(dims(x))
    if rank not in (1, 2):
        raise op.damaged(f"{op.operator.name} of rank {rank}")
    known = op.integers(1, 1)[0] if op.is_constant(1) else None
    size = scalar(op, op.cast(op.stored(1), _INT64)) if known is None else op.number(known, x, "size")
    more = op.each("Add", size, op.number(1, x, "one"))
    x, total = op.each("Min", x, size), more
    out = op.out_dims((*shape[:-1], known))
    if rank == 2:  # the bins of a row behind those of the row before
        rows = scalar(op, op.emit("Shape", [x], start=0, end=1))
        places = op.each("Mul", counted(op, rows, shape[0]), more)
        x, total = op.each("Add", x, unsqueeze(op, places, [1])), op.each("Mul", rows, more)
    vector = op.ints([1], "vector")
    zeros = op.emit("Expand", [op.number(0, weights, "zero"), op.emit("Reshape", [total, vector], (1,))], (None,))
    binary = attributes(op).number("binary_output")
    if binary or 0 in dims(weights):
        weights = op.emit("Expand", [op.number(1, weights, "one"), op.emit("Shape", [x])])
    reduction = "max" if binary else "add"
    y = op.emit("ScatterND", [zeros, unsqueeze(op, x, [rank]), weights], reduction=reduction)
    if rank == 2:
        target = op.emit("Concat", [op.ints([-1], "rows"), op.emit("Reshape", [more, vector])], axis=0)
        y = op.emit("Reshape", [y, target], (shape[0], None if known is None else known + 1))
    ends = [op.ints(values, name) for values, name in (([0], "starts"), ([-1], "ends"), ([rank - 1], "axes"))]
    op.result(op.emit("Slice", [y, *ends], out))


@operator("CUSTOM FlexDynamicPartition")
def dynamic_partition(op: Operation) -> None:
    """Gather of the rows of each part where they are known, else Compress."""
    x, parts, count = op.stored(0), op.stored(1), len(op.operator.outputs)
    rank = len(dims(parts))
    pairs = list(zip(dims(x), dims(parts), strict=False))
    if len(pairs) < rank or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        raise op.damaged(f"parts of shape {list(dims(parts))} for {list(dims(x))}")
    rest = dims(x)[rank:]
    if rank != 1:
        many = product(dims(parts))
        x, parts = op.reshape(x, (many, *rest)), op.reshape(parts, (many,))
    known = op.constant(1).reshape(-1) if op.is_constant(1) else None
    for k in range(count):
        if known is not None:
            rows = np.flatnonzero(known == k)
            op.result(op.emit("Gather", [x, op.array("rows", rows)], axis=0), k)
            continue
        here = op.each("Equal", parts, op.number(k, parts, "part"))
        op.result(op.emit("Compress", [x, here], (op.tensors.symbol(op.output(k), 0), *rest), axis=0), k)


# TensorFlow's lists of tensors: here the tensors of their rows (see `importing/lists.py`).
#
# Extents of a row that nobody knows when a list is made are 0 until one is written: `zeros[n 0]` becomes `zeros[n *e]`.


@operator("CUSTOM FlexTensorListReserve")
def reserve(op: Operation) -> None:
    """Expand of a zero. Operands: what is known of a row's shape, how many rows."""
    rows, count = _number(op, 1)
    op.result_stored(_zeros(op, rows, count))


@operator("CUSTOM FlexEmptyTensorList")
def empty(op: Operation) -> None:
    """A tensor of no rows. Operands: what is known of a row's shape, the most rows, which nobody asks for."""
    op.result_stored(_zeros(op, op.ints([0], "rows"), 0))


_SAME = {
    "CUSTOM FlexTensorListFromTensor": "The tensor itself, whose rows the list holds.",
    "CUSTOM FlexTensorListStack": "The list's tensor. Operands: list, what is known of a row's shape.",
}


@each_operator(_SAME, "{}")
def _same(op: Operation, _: str) -> None:
    op.result_stored(op.stored(0))


@operator("CUSTOM FlexTensorListSetItem")
def set_item(op: Operation) -> None:
    """ScatterND of one row. Operands: list, index, row."""
    place, _ = _number(op, 1)
    longer = attributes(op).number("resize_if_index_out_of_bounds")
    rows = _widened(op, op.stored(0), op.stored(2), place if longer else None)
    updates = unsqueeze(op, op.stored(2), [0])
    op.result_stored(op.emit("ScatterND", [rows, op.emit("Unsqueeze", [place, op.ints([0])]), updates]))


@operator("CUSTOM FlexTensorListPushBack")
def push_back(op: Operation) -> None:
    """Concat with one more row. Operands: list, row."""
    rows = _widened(op, op.stored(0), op.stored(1))
    op.result_stored(joined(op, [rows, unsqueeze(op, op.stored(1), [0])], 0))


@operator("CUSTOM FlexTensorListPopBack")
def pop_back(op: Operation) -> None:
    """Slice of all rows but the last, and Gather of that. Operands: list, what is known of a row's shape."""
    rows = op.stored(0)
    op.result_stored(cut(op, rows, [0], [-1], [0]), 0)
    op.result_stored(op.emit("Gather", [rows, op.number(-1, op.ints([0]), "last")], axis=0), 1)


@operator("CUSTOM FlexTensorListGetItem")
def get_item(op: Operation) -> None:
    """Gather of one row. Operands: list, index, what is known of a row's shape."""
    op.result_stored(op.emit("Gather", [op.stored(0), scalar(op, op.stored(1))], axis=0))


@operator("CUSTOM FlexTensorListGather")
def gather_rows(op: Operation) -> None:
    """Gather of rows. Operands: list, indices, what is known of a row's shape."""
    rows, indices = op.stored(0), op.stored(1)
    op.result_stored(op.emit("Gather", [rows, indices], axis=0))


@operator("CUSTOM FlexTensorListLength")
def length(op: Operation) -> None:
    """Shape."""
    op.result_whole(op.reshape(op.emit("Shape", [op.stored(0)], start=0, end=1), ()))


@operator("CUSTOM FlexTensorListResize")
def resize(op: Operation) -> None:
    """Slice and Pad to so many rows. Operands: list, how many."""
    rows = op.stored(0)
    new_extents, count = _number(op, 1)
    shape = (None, *dims(rows)[1:])
    first = op.emit("Slice", [rows, op.ints([0], "first"), new_extents, op.ints([0])], shape)
    op.result_stored(padded(op, first, new_extents, (count, *shape[1:])))


def _number(op: Operation, i: int) -> tuple[ir.Value, Dim]:
    """Operand i, one integer, as int64 in one dimension; and what is known of it."""
    value = op.stored(i)
    return op.reshape(op.cast(value, _INT64), (1,)), element(value)


def _zeros(op: Operation, rows: ir.Value, count: Dim) -> ir.Value:
    """Return a list of so many rows, each of which is 0."""
    dtype, extents = op.tensors.dtype(op.output()), op.tensors.declared(op.output())[1:]
    shape = op.ints([extent if isinstance(extent, int) else 0 for extent in extents], "row")
    if isinstance(count, int):
        rows = op.ints([count], "rows")
    whole = op.emit("Concat", [rows, shape], axis=0)
    zero = op.array("zero", np.zeros((), dtype.numpy()))
    return op.emit("Expand", [zero, whole], op.out_dims((count, *extents)))


def _widened(
    op: Operation,  # the operator
    rows: ir.Value,  # the list
    row: ir.Value,
    place: ir.Value | None = None,  # an index that the list has to reach; None where it does
) -> ir.Value:
    """Return a list whose rows have a row's shape: those written before had it, or there were none."""
    shape: Dims = (dims(rows)[0] if place is None else None, *dims(row))
    if shape == dims(rows):
        return rows
    have = op.emit("Shape", [rows], start=0, end=1)
    if place is not None:
        have = op.emit("Max", [have, op.emit("Add", [place, op.ints([1], "one")])])
    return padded(op, rows, op.emit("Concat", [have, op.emit("Shape", [row])], axis=0), shape)


def padded(op: Operation, rows: ir.Value, new_extents: ir.Value, shape: Dims) -> ir.Value:
    """Return a list with zeros behind its elements: `new_extents` are extents of its first axes."""
    count = dims(new_extents)[0]
    have = op.emit("Shape", [rows], start=0, end=count)
    zeros = op.ints([0] * int(count or 0), "zeros")
    pads = op.emit("Concat", [zeros, op.emit("Sub", [new_extents, have])], axis=0)
    zero = op.number(0, rows, "zero")
    return op.emit("Pad", [rows, pads, zero, op.ints(range(int(count or 0)))], op.out_dims(shape))
