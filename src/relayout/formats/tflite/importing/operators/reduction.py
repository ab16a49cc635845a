"""Reductions over axes, and the search for extremes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.registry import ANY_OPSET, Unsupported, each_operator, operator
from relayout.formats.tflite.importing.tensors import QUANTIZED_TYPES
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST
from relayout.formats.tflite.same_operators import EXTREMES


def _axes(op: Operation, x: ir.Value) -> tuple[ir.Value, Dims]:
    """Return the axes as an operand, and the shape that is left."""
    rank, keep = len(dims(x)), op.options.keep_dims
    if not op.is_constant(1):
        open_shape = tuple(None for _ in range(rank if keep else len(op.tensors.declared(op.output()))))
        return op.cast(op.stored(1), ir.DataType.INT64), op.out_dims(open_shape)
    axes = sorted({op.axis(axis, rank) for axis in op.integers(1)})
    shape: list[Dim] = [1 if a in axes else dim for a, dim in enumerate(dims(x)) if keep or a not in axes]
    return op.ints(axes), tuple(shape)


def _reduce(op: Operation, op_type: str, x: ir.Value) -> ir.Value:
    axes, shape = _axes(op, x)
    # No axes mean no reduction in TFLite; ONNX would reduce all without the flag.
    return op.emit(op_type, [x, axes], shape, keepdims=int(op.options.keep_dims), noop_with_empty_axes=1)


@operator("SUM", options="ReducerOptions")
def sum_(op: Operation) -> None:
    """ReduceSum of real numbers."""
    op.result(_reduce(op, "ReduceSum", op.real(0)))


@operator("REDUCE_PROD", options="ReducerOptions")
def product(op: Operation) -> None:
    """ReduceProd of real numbers."""
    if op.input(0).quantization is not None and op.input(0).type in QUANTIZED_TYPES:
        raise Unsupported("a product of quantized numbers, which the kernel rounds after each factor")
    op.result(_reduce(op, "ReduceProd", op.real(0)))


@operator("MEAN", options="ReducerOptions")
def mean(op: Operation) -> None:
    """ReduceMean.

    Of 16 bits it is that of the integers, in steps of the operand: the kernel's sums are exact, and where a mean is
    close to 0 (of rows that are normalized already) a step of the result is less than what sums of real numbers round.
    """
    if not mean_of_steps(op):
        op.result(_reduce(op, "ReduceMean", op.real(0)))


def mean_of_steps(op: Operation) -> bool:
    """Hand over the mean of integers of 16 bits around 0, if there is one scale for all."""
    before, after = (op.tensors.quantization(tensor) for tensor in (op.input(0), op.output()))
    if before is None or after is None or before.per_channel or after.per_channel or before.zero_point.any():
        return False
    if not op.input(0).type == op.output().type == TensorType.INT16:
        return False
    y = _reduce(op, "ReduceMean", op.cast(op.stored(0), ir.DataType.FLOAT))
    step = op.array("step", (after.scale / before.scale).reshape(()))
    op.result_stored(op.emit("QuantizeLinear", [y, step, op.tensors.parameters(op.output())[1]]))
    return True


_CHOOSING = {"REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin"}


@each_operator(
    _CHOOSING, "{}, on the integers where the result is quantized as the operand is.", options="ReducerOptions"
)
def _choosing(op: Operation, op_type: str) -> None:
    (x,), finish = op.carried(0, types=BYTES_ONLY)
    finish(_reduce(op, op_type, x))


@each_operator({"REDUCE_ALL": "ReduceMin", "REDUCE_ANY": "ReduceMax"}, "{} of booleans.", options="ReducerOptions")
def _logical(op: Operation, op_type: str) -> None:
    # ReduceMax and ReduceMin take booleans only from opset 20 on.
    op.result(op.cast(_reduce(op, op_type, op.cast(op.stored(0), ir.DataType.UINT8)), ir.DataType.BOOL))


@each_operator(EXTREMES, "{}; the first of equals, in both.", options="{}Options")
def _extreme(op: Operation, op_type: str) -> None:
    x = op.stored(0) if op.input(0).type in BYTES_ONLY else op.real(0)
    (axis,) = op.integers(1, 1)
    op.result_stored(op.emit(op_type, [x], axis=op.axis(axis, len(dims(x))), keepdims=0))


@operator("CUMSUM", options="CumsumOptions")
def cumsum(op: Operation) -> None:
    """CumSum."""
    x = op.real(0)
    where = op.stored(1)
    if op.is_constant(1):
        (axis,) = op.integers(1, 1)
        place = op.axis(axis, len(dims(x)))
        where = where if place == axis and not dims(where) else op.number(place, where, "axis")
    exclusive, reverse = int(op.options.exclusive), int(op.options.reverse)
    op.result(op.emit("CumSum", [x, where], exclusive=exclusive, reverse=reverse))


@operator("TOPK_V2")
def topk(op: Operation) -> None:
    """TopK of the last axis, largest first."""
    (x,), finish = op.carried(0)
    if op.is_constant(1):
        (count,) = op.integers(1, 1)
        k, extent = op.ints([count], "k"), count
    else:
        k = op.cast(op.emit("Reshape", [op.stored(1), op.ints([1], "shape")]), ir.DataType.INT64)
        extent = None
    values, indices = top_elements(op, x, k, op.out_dims((*dims(x)[:-1], extent)), ("topk", "topk"), axis=-1)
    finish(values)
    op.result_stored(indices, 1)


def top_elements(
    op: Operation, x: ir.Value, k: ir.Value, shape: Dims, names: tuple[str, str], **attributes: Any
) -> Sequence[ir.Value]:
    """TopK: the largest elements along an axis, and their places; both have a shape."""
    kinds = (x.dtype or ir.DataType.FLOAT, ir.DataType.INT64)
    outputs = [(op.hint(name), kind, shape) for name, kind in zip(names, kinds, strict=True)]
    return op.builder.emit("TopK", [x, k], outputs, source=op.source, **attributes)


@operator("RANK")
def rank(op: Operation) -> None:
    """A constant."""
    op.result_stored(op.array("rank", np.asarray(len(dims(op.stored(0))), np.int32)))


@operator("SHAPE", options="ShapeOptions", texts=ANY_OPSET)
def shape(op: Operation) -> None:
    """Shape; a constant where all extents are known."""
    op.result_stored(op.emit("Shape", [op.stored(0)]))


@operator("ZEROS_LIKE")
def zeros_like(op: Operation) -> None:
    """ConstantOfShape of Shape."""
    x = op.stored(0)
    extents = op.emit("Shape", [x])
    zero = ir.tensor([0], dtype=x.dtype)
    op.result_stored(op.emit("ConstantOfShape", [extents], dtype=x.dtype, value=zero))


@operator("WHERE")
def where(op: Operation) -> None:
    """NonZero, transposed: one row for each element that is not zero."""
    x = op.stored(0)
    # How many there are depends on the data: whatever extent the file states is a placeholder.
    rank_, count = len(dims(x)), op.tensors.symbol(op.output(), 0)
    op.result_stored(op.transpose(op.emit("NonZero", [x], (rank_, count), ir.DataType.INT64), (1, 0)))


# Operators that relate an element to its neighbours along the last axis.


@operator("SOFTMAX", options="SoftmaxOptions")
def softmax(op: Operation) -> None:
    """Softmax of beta times x, always over the last axis; of 16 bits by tables; of one integer 1."""
    beta = op.options.beta
    quantization = op.tensors.quantization(op.input(0))
    if op.input(0).type == TensorType.INT16 and quantization is not None:
        from relayout.formats.tflite.importing.operators.tabulated import scale_and_zero_point
        from relayout.formats.tflite.importing.operators.tabulated import softmax as tabulated_softmax

        tabulated_softmax(op, scale_and_zero_point(quantization)[0], beta)
        return
    x = op.real(0)
    if beta != 1:
        x = op.each("Mul", x, op.number(beta, x, "beta"))
    if quantization is not None and dims(x)[-1] == 1:
        # All ones. ONNX Runtime's kernel on integers does not saturate then: 256 steps are 0.
        op.result(op.each("Exp", op.each("Sub", x, x)))
        return
    op.result(op.each("Softmax", x, axis=-1))


@operator("LOG_SOFTMAX")
def log_softmax(op: Operation) -> None:
    """LogSoftmax over the last axis."""
    op.result(op.each("LogSoftmax", op.real(0), axis=-1))


@operator("L2_NORMALIZATION", options="L2NormOptions")
def l2_normalization(op: Operation) -> None:
    """X over its length along the last axis, which counts as 1e-6 at least (LpNormalization has no such floor)."""
    x = op.real(0)
    shape: Dims = (*dims(x)[:-1], 1)
    length = op.emit("ReduceL2", [x, op.ints([-1])], shape, keepdims=1)
    floored = op.each("Max", length, op.number(1e-6, x, "least"))
    op.result(op.each("Div", x, floored), fused=op.options.fused_activation_function)


@operator("LOCAL_RESPONSE_NORMALIZATION", options="LocalResponseNormalizationOptions")
def local_response_normalization(op: Operation) -> None:
    """LRN over a window of `2 * radius + 1` channels; ONNX divides alpha by that size, TFLite does not."""
    op.require_rank(0, 4)
    options, x = op.options, op.real(0, TO_FIRST)
    size = 2 * options.radius + 1
    y: ir.Value = op.each("LRN", x, size=size, alpha=options.alpha * size, beta=options.beta, bias=options.bias)
    op.result(y, perm=TO_LAST)
