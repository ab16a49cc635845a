"""Reductions."""

from __future__ import annotations

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import each_exporter, exporter
from relayout.formats.tflite.same_operators import EXTREMES, REDUCTIONS


class Reduced:
    """The axes of a reduction, and the extents of its result with and without them."""

    def __init__(self, op: NodeExport) -> None:
        self.keep = bool(op.integer("keepdims", 1))
        computed = op.has(1) and op.constant(1) is None and op.dims(1) != (0,)
        given = op.node.attributes.get("axes") is not None or op.has(1)
        empty = op.has(1) and not computed and (op.dims(1) == (0,))
        self.is_noop = (not given or empty) and bool(op.integer("noop_with_empty_axes"))
        self.listed = op.cast(op.input(1), TensorType.INT32) if computed else None
        self.axes = op.axes() if given and not empty and not computed else list(range(op.rank()))
        self.kept: Dims = tuple(1 if axis in self.axes else dim for axis, dim in enumerate(op.dims()))

    def dims(self, op: NodeExport) -> Dims:
        """Return the extents of the result."""
        if self.listed is not None:
            return op.out_dims()
        return self.kept if self.keep else tuple(d for axis, d in enumerate(op.dims()) if axis not in self.axes)

    def tensor(self, op: NodeExport) -> DraftTensor:
        """Return the axes as an operand."""
        return op.ints(self.axes, "axes") if self.listed is None else self.listed


@each_exporter({name: builtin for builtin, name in REDUCTIONS.items()}, "{}.")
def _reduce(op: NodeExport, builtin: str) -> None:
    reduced = Reduced(op)
    operand = op.input(0)
    if reduced.is_noop or not op.rank():
        op.give(operand)
        return
    if operand.type == TensorType.BOOL:
        builtin = {"REDUCE_MAX": "REDUCE_ANY", "REDUCE_MIN": "REDUCE_ALL"}.get(builtin, builtin)
    op.result(builtin, [operand, reduced.tensor(op)], keep_dims=reduced.keep)


def _sum(op: NodeExport, tensor: DraftTensor, reduced: Reduced) -> DraftTensor:
    if reduced.is_noop:
        return tensor
    return op.emit("SUM", [tensor, reduced.tensor(op)], reduced.dims(op), keep_dims=reduced.keep)


@exporter("ReduceL1")
def reduce_l1(op: NodeExport) -> None:
    """SUM of ABS."""
    op.give(_sum(op, op.each("ABS", op.input(0)), Reduced(op)))


@exporter("ReduceL2")
def reduce_l2(op: NodeExport) -> None:
    """SQRT of SUM of SQUARE."""
    op.result("SQRT", [_sum(op, op.each("SQUARE", op.input(0)), Reduced(op))])


@exporter("ReduceSumSquare")
def reduce_sum_square(op: NodeExport) -> None:
    """SUM of SQUARE."""
    operand = op.input(0)
    op.give(_sum(op, op.mul(operand, operand), Reduced(op)))


@exporter("ReduceLogSum")
def reduce_log_sum(op: NodeExport) -> None:
    """LOG of SUM."""
    op.result("LOG", [_sum(op, op.input(0), Reduced(op))])


@exporter("ReduceLogSumExp")
def reduce_log_sum_exp(op: NodeExport) -> None:
    """LOG of SUM of EXP, below the largest element."""
    operand, reduced = op.input(0), Reduced(op)
    if reduced.is_noop:
        op.give(operand)
        return
    if reduced.listed is not None or 0 in operand.dims:
        op.result("LOG", [_sum(op, op.each("EXP", operand), reduced)])
        return
    top = op.reduce("REDUCE_MAX", operand, reduced.axes, keep=True)
    # Of infinities nothing is subtracted: they stay what they are.
    finite = op.compare("LESS", op.each("ABS", top), np.inf)
    top = op.select(finite, top, 0.0)
    rest = op.each("EXP", op.sub(operand, top))
    log = op.each("LOG", _sum(op, rest, reduced))
    op.result("ADD", [log, op.reshape(top, reduced.dims(op))])


@each_exporter({name: builtin for builtin, name in EXTREMES.items()}, "{}.")
def _arg(op: NodeExport, builtin: str) -> None:
    if not op.rank():  # one element is in the first place
        op.give(op.const(np.zeros((), np.int64)))
        return
    axis, operand = op.axis(), op.input(0)
    last = bool(op.integer("select_last_index"))
    kept = bool(op.integer("keepdims", 1))
    if operand.type == TensorType.INT64:
        op.give(_arg_64(op, operand, axis, builtin, last=last, kept=kept))
        return
    if last:
        operand = op.emit("REVERSE_V2", [operand, op.ints([axis])], operand.dims)
    inputs = [operand, op.const(np.array(axis, np.int32), what="axis")]
    if not kept and not last:
        op.result(builtin, inputs, output_type=TensorType.INT64)
        return
    without: Dims = (*operand.dims[:axis], *operand.dims[axis + 1 :])
    found = op.emit(builtin, inputs, without, TensorType.INT64, output_type=TensorType.INT64)
    if last:
        found = op.sub(known(operand.dims[axis : axis + 1])[0] - 1, found)
    op.give(op.reshape(found, (*operand.dims[:axis], 1, *operand.dims[axis + 1 :])) if kept else found)


def _arg_64(op: NodeExport, operand: DraftTensor, axis: int, builtin: str, *, last: bool, kept: bool) -> DraftTensor:
    """Return the first or last place of the largest or smallest element, of a type that ARG_MAX does not take."""
    best = op.reduce("REDUCE_MAX" if builtin == "ARG_MAX" else "REDUCE_MIN", operand, [axis], keep=True)
    (extent,) = known(operand.dims[axis : axis + 1])
    shape = [extent if each == axis else 1 for each in range(len(operand.dims))]
    places = op.const(np.arange(extent, dtype=np.int64).reshape(shape))
    fits = op.compare("EQUAL", operand, best)
    chosen = op.select(fits, places, -1 if last else extent)
    return op.reduce("REDUCE_MAX" if last else "REDUCE_MIN", chosen, [axis], keep=kept)


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
