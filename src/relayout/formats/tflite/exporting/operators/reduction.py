"""Reductions, softmax and normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Formula, Unwritable, each_exporter, exporter, formulas
from relayout.formats.tflite.same_operators import EXTREMES, REDUCTIONS


def _axes(op: NodeExport) -> list[int] | DraftTensor | None:
    """Return the axes of a reduction, as a tensor where they are computed; None where there are none to reduce."""
    is_listed = op.has(1) and op.dims(1) != (0,)
    if is_listed and op.constant(1) is None:
        return op.cast(op.input(1), TensorType.INT32)
    if is_listed or op.integers("axes"):  # an attribute without any says nothing
        return op.axes()
    return None if op.integer("noop_with_empty_axes") else list(range(op.rank()))


@each_exporter({name: builtin for builtin, name in REDUCTIONS.items()}, "{}.")
def _reduce(op: NodeExport, builtin: str) -> None:
    axes, operand = _axes(op), op.input(0)
    if axes is None or not op.rank():
        op.give(operand)
        return
    if operand.type == TensorType.BOOL:
        builtin = {"REDUCE_MAX": "REDUCE_ANY", "REDUCE_MIN": "REDUCE_ALL"}.get(builtin, builtin)
    listed = axes if isinstance(axes, DraftTensor) else op.ints(axes, "axes")
    op.result(builtin, [operand, listed], keep_dims=bool(op.integer("keepdims", 1)))


def _sum(op: NodeExport, tensor: DraftTensor, axes: list[int] | DraftTensor | None) -> DraftTensor:
    keep = bool(op.integer("keepdims", 1))
    if isinstance(axes, DraftTensor):
        return op.emit("SUM", [tensor, axes], op.out_dims(), keep_dims=keep)
    return tensor if axes is None else op.reduce("SUM", tensor, axes, keep=keep)


def _log_sum_exp(op: NodeExport, x: DraftTensor) -> DraftTensor:
    axes = _axes(op)
    if axes is None:
        return x
    if isinstance(axes, DraftTensor) or 0 in x.dims:
        return op.each("LOG", _sum(op, op.each("EXP", x), axes))
    top = op.reduce("REDUCE_MAX", x, axes, keep=True)
    # Of infinities nothing is subtracted: they stay what they are.
    top = op.select(op.compare("LESS", op.each("ABS", top), np.inf), top, 0.0)
    log = op.each("LOG", _sum(op, op.each("EXP", op.sub(x, top)), axes))
    return op.add(log, op.reshape(top, log.dims))


SUMS = {
    "ReduceL1": Formula("SUM of ABS.", lambda op, x: _sum(op, op.each("ABS", x), _axes(op))),
    "ReduceL2": Formula(
        "SQRT of SUM of SQUARE.", lambda op, x: op.each("SQRT", _sum(op, op.each("SQUARE", x), _axes(op)))
    ),
    "ReduceLogSum": Formula("LOG of SUM.", lambda op, x: op.each("LOG", _sum(op, x, _axes(op)))),
    "ReduceLogSumExp": Formula("LOG of SUM of EXP, below the largest element.", _log_sum_exp),
    "ReduceSumSquare": Formula("SUM of SQUARE.", lambda op, x: _sum(op, op.mul(x, x), _axes(op))),
}
formulas(SUMS)


@each_exporter({name: builtin for builtin, name in EXTREMES.items()}, "{}.")
def _arg(op: NodeExport, builtin: str) -> None:
    if not op.rank():  # one element is in the first place
        op.give(op.const(np.zeros((), np.int64)))
        return
    axis, operand = op.axis(), op.input(0)
    last, keep_dims = bool(op.integer("select_last_index")), bool(op.integer("keepdims", 1))
    if operand.type == TensorType.INT64:
        op.give(_arg_64(op, operand, axis, builtin, last=last, keep_dims=keep_dims))
        return
    if last:
        operand = op.emit("REVERSE_V2", [operand, op.ints([axis])], operand.dims)
    front, back = operand.dims[:axis], operand.dims[axis + 1 :]
    inputs = [operand, op.const(np.array(axis, np.int32), what="axis")]
    places = op.emit(builtin, inputs, (*front, *back), TensorType.INT64, output_type=TensorType.INT64)
    if last:
        places = op.sub(known(operand.dims[axis : axis + 1])[0] - 1, places)
    op.give_new(op.reshape(places, (*front, 1, *back)) if keep_dims else places)


def _arg_64(
    op: NodeExport, operand: DraftTensor, axis: int, builtin: str, *, last: bool, keep_dims: bool
) -> DraftTensor:
    """Return the first or last place of the largest or smallest element, of a type that ARG_MAX does not take."""
    best = op.reduce("REDUCE_MAX" if builtin == "ARG_MAX" else "REDUCE_MIN", operand, [axis], keep=True)
    (extent,) = known(operand.dims[axis : axis + 1])
    shape = [extent if each == axis else 1 for each in range(len(operand.dims))]
    places = op.const(np.arange(extent, dtype=np.int64).reshape(shape))
    fits = op.compare("EQUAL", operand, best)
    chosen = op.select(fits, places, -1 if last else extent)
    return op.reduce("REDUCE_MAX" if last else "REDUCE_MIN", chosen, [axis], keep=keep_dims)


@exporter("CumSum")
def cum_sum(op: NodeExport) -> None:
    """CUMSUM."""
    axis = op.cast(op.reshape(op.input(1), ()), TensorType.INT32)
    options = {"exclusive": bool(op.integer("exclusive")), "reverse": bool(op.integer("reverse"))}
    op.result("CUMSUM", [op.input(0), axis], **options)


@exporter("CumProd")
def cum_prod(op: NodeExport) -> None:
    """MUL of ever longer shifts: log2 of the extent many."""
    result = op.input(0)
    axis = int(op.required_constant(1, "the axis of a product").reshape(-1)[0]) % op.rank()
    (extent,) = known(op.dims()[axis : axis + 1])
    reverse, shifts = bool(op.integer("reverse")), list[int]()
    if op.integer("exclusive"):
        result = _shifted(op, result, axis, 1, extent, reverse=reverse)
    while sum(shifts) + 1 < extent:
        shifts.append(1 if not shifts else 2 * shifts[-1])
        result = op.mul(result, _shifted(op, result, axis, shifts[-1], extent, reverse=reverse))
    op.give(result)


def _shifted(op: NodeExport, tensor: DraftTensor, axis: int, count: int, extent: int, *, reverse: bool) -> DraftTensor:
    """Return elements moved along an axis, with ones where none come from."""
    count = min(count, extent)
    pads = [(0, 0)] * len(tensor.dims)
    pads[axis] = (0, count) if reverse else (count, 0)
    return op.pad(op.part(tensor, axis, count if reverse else 0, extent - count), pads, 1)


# Softmax and normalizations.


SEVERAL_AXES = 13  # the version of ONNX before which Softmax runs over all axes from one on


@exporter("Softmax")
def softmax(op: NodeExport) -> None:
    """SOFTMAX along the last axis; along another one EXP, SUM and DIV."""
    _softmax(op, "SOFTMAX", beta=1.0)


@exporter("LogSoftmax")
def log_softmax(op: NodeExport) -> None:
    """LOG_SOFTMAX along the last axis."""
    _softmax(op, "LOG_SOFTMAX")


def _softmax(op: NodeExport, builtin: str, **options: Any) -> None:
    operand, rank = op.input(0), op.rank()
    old = op.version < SEVERAL_AXES
    axis = op.axis(1 if old else -1)
    if old and axis != rank - 1:
        _over_last_axes(op, builtin, operand, axis, **options)
    elif axis == rank - 1:
        op.result(builtin, [operand], **options)
    elif op.quantized:
        raise Unwritable("a quantized Softmax along another axis than the last")
    else:
        _over_axes(op, operand, [axis], log=builtin == "LOG_SOFTMAX")


def _over_last_axes(op: NodeExport, builtin: str, operand: DraftTensor, axis: int, **options: Any) -> None:
    """Write a Softmax over all axes from one on: over rows of a matrix, of which one extent may be open."""
    front, back = op.elements(operand.dims[:axis], "rows"), op.elements(operand.dims[axis:], "columns")
    if isinstance(front, int) or isinstance(back, int):
        flat: Dims = (front, back)
        meaning = op.output(0).quantization
        inner = op.emit(builtin, [op.reshape(operand, flat)], flat, quantization=meaning, **options)
        op.give(op.reshape(inner, operand.dims, operand))
    elif op.quantized:
        raise Unwritable("a quantized Softmax over several axes of open extents")
    else:
        _over_axes(op, operand, range(axis, len(operand.dims)), log=builtin == "LOG_SOFTMAX")


def _over_axes(op: NodeExport, operand: DraftTensor, over: Sequence[int], *, log: bool) -> None:
    """`exp(x - max) / sum`, along any axes."""
    centered = op.sub(operand, op.reduce("REDUCE_MAX", operand, over, keep=True))
    powers = op.each("EXP", centered)
    total = op.reduce("SUM", powers, over, keep=True)
    op.give_new(op.sub(centered, op.each("LOG", total)) if log else op.div(powers, total))


@exporter("LayerNormalization")
def layer_normalization(op: NodeExport) -> None:
    """MEAN, SUB, MUL, RSQRT and what scales and shifts."""
    _normalized(op, centered=True, epsilon=op.number("epsilon", 1e-5), scale=1, bias=2, mean=1, deviation=2)


@exporter("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(op: NodeExport) -> None:
    """MUL, MEAN, RSQRT and MUL."""
    _normalized(op, centered=False, epsilon=op.number("epsilon", 1e-5), scale=1, bias=9, deviation=1)


@exporter("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(op: NodeExport) -> None:
    """ADD, then as LayerNormalization."""
    simplified = op.op_type == "SkipSimplifiedLayerNormalization"
    total = op.add(op.input(0), op.input(1))
    extra = 3 if simplified else 4
    if op.has(extra):
        total = op.add(total, op.input(extra))
    if op.gives(3):
        op.give(total, 3)
        total = op.output(3) if op.node.outputs[3].is_graph_output() else total
    epsilon = op.number("epsilon", 1e-12)
    bias = 9 if simplified else 3
    _normalized(op, centered=not simplified, epsilon=epsilon, scale=2, bias=bias, operand=total, mean=1, deviation=2)


def _normalized(
    op: NodeExport,  # the node
    *,
    centered: bool,  # whether the mean is subtracted
    epsilon: float,  # what is added to the variance
    scale: int,  # the operand that scales
    bias: int,  # the operand that shifts
    operand: DraftTensor | None = None,  # what is normalized; None: the first operand
    mean: int = 9,  # the output that is the mean
    deviation: int,  # the output that is the inverse of the deviation
) -> None:
    """Write a normalization."""
    operand = op.input(0) if operand is None else operand
    axes = range(op.axis(-1), len(operand.dims))
    if centered:
        average = _as_output(op, op.reduce("MEAN", operand, axes, keep=True), mean)
        operand = op.sub(operand, average)
    variance = op.reduce("MEAN", op.each("SQUARE", operand), axes, keep=True)
    inverse = _as_output(op, op.each("RSQRT", op.add(variance, epsilon)), deviation)
    result = op.mul(operand, inverse)
    if op.has(scale):
        result = op.mul(result, op.input(scale))
    if op.has(bias):
        result = op.add(result, op.input(bias))
    op.give(result)


def _as_output(op: NodeExport, tensor: DraftTensor, slot: int) -> DraftTensor:
    """Return a tensor that is also an output of the node, if anybody reads that."""
    if not op.gives(slot):
        return tensor
    op.give(tensor, slot)
    return op.output(slot)


@exporter("BatchNormalization")
def batch_normalization(op: NodeExport) -> None:
    """SUB, ADD, RSQRT and MULs, by computed numbers or, in training, by the batch's."""
    op.require_channels_last()
    if op.integer("training_mode"):
        _in_training(op)
        return
    if len(op.node.outputs) > 1:
        raise Unwritable("an old BatchNormalization in training")
    scale, bias, mean, variance = (op.input(slot) for slot in range(1, 5))
    inverse = op.mul(op.each("RSQRT", op.add(variance, op.number("epsilon", 1e-5))), scale)
    op.give(op.add(op.mul(op.sub(op.input(0), mean), inverse), bias))


def _in_training(op: NodeExport) -> None:
    """Write a BatchNormalization by the mean and variance of the batch, which move the given ones."""
    operand, momentum = op.input(0), op.number("momentum", 0.9)
    axes = range(max(op.rank() - 1, 1))  # of one axis all is one channel
    mean = op.reduce("MEAN", operand, axes)
    centered = op.sub(operand, mean)
    variance = op.reduce("MEAN", op.each("SQUARE", centered), axes)
    inverse = op.each("RSQRT", op.add(variance, op.number("epsilon", 1e-5)))
    op.give(op.add(op.mul(centered, op.mul(inverse, op.input(1))), op.input(2)))
    for slot, statistic in ((1, mean), (2, variance)):
        if op.gives(slot):
            before = op.mul(op.input(slot + 2), momentum)
            op.give(op.add(before, op.mul(statistic, 1 - momentum)), slot)


@exporter("LRN")
def local_response_normalization(op: NodeExport) -> None:
    """AVERAGE_POOL_2D of squares over channels, ADD, POW and MUL."""
    # LOCAL_RESPONSE_NORMALIZATION has two kernels, and the reference kernel leaves the last channel of a window out.
    op.require_channels_last()
    operand, size = op.input(0), op.integer("size")
    (channels,), outer = known(operand.dims[-1:]), operand.dims[:-1]
    rows = op.elements(outer, "rows")
    columns = op.reshape(op.mul(operand, operand), (rows, channels, 1, 1))
    window: dict[str, Any] = {"filter_height": size, "filter_width": 1, "stride_h": 1, "stride_w": 1}
    means = op.emit("AVERAGE_POOL_2D", [columns], columns.dims, padding=Padding.SAME, **window)
    # Each mean is of the channels that there are: at both ends a window has fewer than its size.
    place, before = np.arange(channels), (size - 1) // 2
    counts = np.minimum(place, before) + np.minimum(place[::-1], size - 1 - before) + 1
    totals = op.mul(op.reshape(means, operand.dims, like=operand), counts * (op.number("alpha", 1e-4) / size))
    powers = op.each("POW", op.add(totals, op.number("bias", 1.0)), -op.number("beta", 0.75))
    op.give(op.mul(operand, powers))


@exporter("LpNormalization")
def lp_normalization(op: NodeExport) -> None:
    """SUM of SQUARE or ABS, and DIV; 0 where all elements are."""
    operand, squared = op.input(0), op.integer("p", 2) == 2
    total = op.reduce("SUM", op.each("SQUARE" if squared else "ABS", operand), [op.axis(-1)], keep=True)
    norm = op.each("SQRT", total) if squared else total
    op.give_new(op.div(operand, op.select(op.compare("EQUAL", norm, 0.0), 1.0, norm)))
