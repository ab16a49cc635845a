"""StableHLO operators whose arithmetic is a subgraph: reductions and sorts."""

from __future__ import annotations

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.stablehlo_moving import distinct_axes, fixed, per_axis
from relayout.formats.tflite.importing.operators.windows import bordered, interleave, reduce_windows
from relayout.formats.tflite.importing.registry import Unsupported, operator

_REDUCERS = {
    "ADD": "Add",
    "AND": "And",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "MUL": "Mul",
    "MULTIPLY": "Mul",
    "OR": "Or",
}
"""Operators that a reducing subgraph may consist of, without STABLEHLO_ in front."""

_WHOLE = {"Add": "ReduceSum", "Max": "ReduceMax", "Min": "ReduceMin", "Mul": "ReduceProd"}


def reducer(op: Operation, index: int) -> str:
    """The ONNX operator that a subgraph of two numbers is; "" where it yields its second operand as it is."""
    subgraph = op.program.subgraph(index, op.place)
    if len(subgraph.inputs) != 2 or len(subgraph.outputs) != 1:
        raise Unsupported("a reduction of several tensors")
    if not subgraph.operators and subgraph.outputs[0] == subgraph.inputs[1]:
        return ""
    names = [o.name.removeprefix("STABLEHLO_") for o in subgraph.operators]
    if len(names) != 1 or names[0] not in _REDUCERS:
        raise Unsupported(f"a reduction by {' '.join(names[:4]) or 'nothing'}")
    (only,) = subgraph.operators
    if sorted(only.inputs) != sorted(subgraph.inputs) or only.outputs != subgraph.outputs:
        raise Unsupported("a reduction that is no operator of both its operands")
    return _REDUCERS[names[0]]


@operator("STABLEHLO_REDUCE", options="StablehloReduceOptions")
def reduce(op: Operation) -> None:
    """ReduceSum, ReduceMax and so on, then the start value."""
    if len(op.operator.inputs) != 2:
        raise Unsupported("a reduction of several tensors")
    op_type, x, start = reducer(op, op.options.body_subgraph_index), op.real(0), scalar(op, op.real(1))
    axes = distinct_axes(op.options.dimensions, len(dims(x)), op)
    shape = tuple(dim for axis, dim in enumerate(dims(x)) if axis not in axes)
    if not op_type:
        raise Unsupported("a reduction by nothing")
    if op_type in ("And", "Or"):
        bits = op.cast(x, ir.DataType.UINT8)
        whole = "ReduceMin" if op_type == "And" else "ReduceMax"
        y = op.cast(op.emit(whole, [bits, op.ints(axes)], shape, keepdims=0, noop_with_empty_axes=1), ir.DataType.BOOL)
    else:
        y = op.emit(_WHOLE[op_type], [x, op.ints(axes)], shape, keepdims=0, noop_with_empty_axes=1)
    op.result(two(op, op_type, y, start))


@operator("STABLEHLO_REDUCE_WINDOW", options="StablehloReduceWindowOptions")
def reduce_window(op: Operation) -> None:
    """Slices of the operand, with the start value around and between its elements, combined."""
    if len(op.operator.inputs) != 2:
        raise Unsupported("a reduction of several tensors")
    options, x, start = op.options, op.real(0), scalar(op, op.real(1))
    rank, op_type = len(dims(x)), reducer(op, op.options.body_subgraph_index)

    flat = [int(v) for v in options.padding[: 2 * rank + 1]] or [0] * 2 * rank
    if len(flat) != 2 * rank or not op_type:
        raise ReadError(f"paddings {flat[:9]} do not fit rank {rank}", where=op.place)
    if x.dtype == ir.DataType.BOOL:
        raise Unsupported("windows of booleans")
    for axis, step in enumerate(per_axis(op, "base_dilations", rank)):
        x = interleave(op, x, axis, step, start)
    x = bordered(op, x, flat[::2], flat[1::2], start)
    sizes = ("window_dimensions", "window_strides", "window_dilations")
    window, strides, dilations = (per_axis(op, name, rank) for name in sizes)
    op.result(reduce_windows(op, op_type, x, start, window, strides, dilations))


@operator("STABLEHLO_SORT", options="StablehloSortOptions")
def sort(op: Operation) -> None:
    """TopK of all elements, which leaves equal ones in order; further operands follow by GatherElements."""
    options, count = op.options, len(op.operator.inputs)
    largest = _descending(op, options.comparator_subgraph_index)
    keys = op.real(0)
    axis = op.axis(options.dimension, len(dims(keys)))
    extent = fixed(op, dims(keys)[axis : axis + 1])[0]
    kept = [(op.hint(n), d, dims(keys)) for n, d in (("sorted", keys.dtype), ("order", ir.DataType.INT64)) if d]
    values, order = op.builder.emit(
        "TopK", [keys, op.ints([extent], "k")], kept, source=op.source, axis=axis, largest=int(largest), sorted=1
    )
    op.result(values)
    for i in range(1, count):
        op.result(op.emit("GatherElements", [op.real(i), order], dims(op.stored(i)), axis=axis), i)


def _descending(op: Operation, index: int) -> bool:
    """Whether a comparator asks for the larger first: it compares its first two operands, and nothing else."""
    subgraph = op.program.subgraph(index, op.place)
    if len(subgraph.operators) != 1 or len(subgraph.inputs) != 2 * len(op.operator.inputs):
        raise Unsupported("a comparator of several operators")
    (only,) = subgraph.operators
    direct = only.inputs == subgraph.inputs[:2]
    if not direct and only.inputs != subgraph.inputs[1::-1]:
        raise Unsupported("a comparator of other operands")
    if only.name == "STABLEHLO_COMPARE" and options_of(only).comparison_direction in (3, 5):
        greater = options_of(only).comparison_direction == 3
    elif only.name in ("GREATER", "LESS"):
        greater = only.name == "GREATER"
    else:
        raise Unsupported(f"a comparator {only.name}")
    return bool(greater == direct)
