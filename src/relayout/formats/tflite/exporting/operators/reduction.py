"""Reductions."""

from __future__ import annotations

from functools import partial

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, described, exporter


class Reduced:
    """The axes of a reduction, and the extents of its result with and without them."""

    def __init__(self, op: NodeExport) -> None:
        self.keep = bool(op.integer("keepdims", 1))
        given = op.node.attributes.get("axes") is not None or op.has(1)
        empty = op.has(1) and op.constant(1) is not None and op.constant(1).size == 0  # type: ignore[union-attr]
        self.is_noop = (not given or empty) and bool(op.integer("noop_with_empty_axes"))
        self.axes = op.axes() if given and not empty else list(range(op.rank()))
        dims = op.dims()
        self.kept: Dims = tuple(1 if axis in self.axes else dim for axis, dim in enumerate(dims))

    def dims(self, op: NodeExport) -> Dims:
        """Return the extents of a result in between."""
        operand = op.dims()
        return self.kept if self.keep else tuple(d for axis, d in enumerate(operand) if axis not in self.axes)


def _reduce(op: NodeExport, builtin: str) -> None:
    reduced = Reduced(op)
    operand = op.input(0)
    if reduced.is_noop or not op.rank():
        op.give(operand)
        return
    takes = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)
    axes = op.ints32(reduced.axes, "axes")
    if op.quantized or operand.type in takes:
        op.result(builtin, [operand, axes], keep_dims=reduced.keep)
        return
    if operand.type not in (TensorType.INT8, TensorType.UINT8, TensorType.INT16, TensorType.BOOL):
        raise Unwritable(f"elements of {operand.type.name}")
    wide = op.cast(operand, TensorType.INT32)
    inner = op.emit(builtin, [wide, axes], op.out_dims(), keep_dims=reduced.keep)
    op.give(op.cast(inner, operand.type))


for _name, _builtin in {
    "ReduceMax": "REDUCE_MAX",
    "ReduceMean": "MEAN",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD",
    "ReduceSum": "SUM",
}.items():
    exporter(_name)(described(partial(_reduce, builtin=_builtin), _name.lower(), f"{_builtin}."))


def _sum(op: NodeExport, tensor: DraftTensor, reduced: Reduced) -> DraftTensor:
    if reduced.is_noop:
        return tensor
    axes = op.ints32(reduced.axes, "axes")
    return op.emit("SUM", [tensor, axes], reduced.dims(op), keep_dims=reduced.keep)


@exporter("ReduceL1")
def reduce_l1(op: NodeExport) -> None:
    """SUM of ABS."""
    op.give(_sum(op, op.emit("ABS", [op.input(0)], op.dims()), Reduced(op)))


@exporter("ReduceL2")
def reduce_l2(op: NodeExport) -> None:
    """SQRT of SUM of SQUARE."""
    op.result("SQRT", [_sum(op, op.emit("SQUARE", [op.input(0)], op.dims()), Reduced(op))])


@exporter("ReduceSumSquare")
def reduce_sum_square(op: NodeExport) -> None:
    """SUM of SQUARE."""
    operand = op.input(0)
    op.give(_sum(op, op.emit("MUL", [operand, operand], op.dims()), Reduced(op)))


@exporter("ReduceLogSum")
def reduce_log_sum(op: NodeExport) -> None:
    """LOG of SUM."""
    op.result("LOG", [_sum(op, op.input(0), Reduced(op))])


@exporter("ReduceLogSumExp")
def reduce_log_sum_exp(op: NodeExport) -> None:
    """LOG of SUM of EXP, below the largest element."""
    operand, reduced = op.input(0), Reduced(op)
    axes = op.ints32(reduced.axes, "axes")
    top = op.emit("REDUCE_MAX", [operand, axes], reduced.kept, keep_dims=True)
    rest = op.emit("EXP", [op.emit("SUB", [operand, top], operand.dims)], operand.dims)
    log = op.emit("LOG", [_sum(op, rest, reduced)], reduced.dims(op))
    op.result("ADD", [log, op.reshaped(top, reduced.dims(op))])


def _arg(op: NodeExport, builtin: str) -> None:
    axis, operand = op.axis(), op.input(0)
    if op.integer("select_last_index"):
        raise Unwritable("the last of several equal elements")
    if operand.type == TensorType.INT64:
        raise Unwritable("elements of INT64")
    kept = bool(op.integer("keepdims", 1))
    inputs = [operand, op.const(np.array(axis, np.int32), what="axis")]
    if not kept:
        op.result(builtin, inputs, output_type=TensorType.INT64)
        return
    without: Dims = (*operand.dims[:axis], *operand.dims[axis + 1 :])
    found = op.emit(builtin, inputs, without, TensorType.INT64, output_type=TensorType.INT64)
    op.give(op.reshaped(found, (*operand.dims[:axis], 1, *operand.dims[axis + 1 :])))


for _name, _builtin in {"ArgMax": "ARG_MAX", "ArgMin": "ARG_MIN"}.items():
    exporter(_name)(described(partial(_arg, builtin=_builtin), _name.lower(), f"{_builtin}."))


@exporter("CumSum")
def cum_sum(op: NodeExport) -> None:
    """CUMSUM."""
    axis = int(op.required_constant(1, "the axis of a sum").reshape(-1)[0]) % op.rank()
    axis_tensor = op.const(np.array(axis, np.int32), what="axis")
    op.result(
        "CUMSUM",
        [op.input(0), axis_tensor],
        exclusive=bool(op.integer("exclusive")),
        reverse=bool(op.integer("reverse")),
    )
