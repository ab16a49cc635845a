"""Softmax and normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

SEVERAL_AXES = 13
"""The version of ONNX before which Softmax runs over all axes from one on."""


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
        dims = known(operand.dims)
        flat: Dims = (int(np.prod(dims[:axis])), int(np.prod(dims[axis:])))
        inner = op.emit(builtin, [op.reshaped(operand, flat)], flat, **options)
        op.give(op.reshaped(inner, operand.dims))
    elif axis == rank - 1:
        op.result(builtin, [operand], **options)
    elif op.quantized:
        raise Unwritable("a quantized Softmax along another axis than the last")
    else:
        _over_axis(op, operand, axis, log=builtin == "LOG_SOFTMAX")


def _over_axis(op: NodeExport, operand: DraftTensor, axis: int, *, log: bool) -> None:
    """`exp(x - max) / sum`, along any axis."""
    dims = operand.dims
    kept: Dims = (*dims[:axis], 1, *dims[axis + 1 :])
    axes = op.ints32([axis], "axis")
    top = op.emit("REDUCE_MAX", [operand, axes], kept, keep_dims=True)
    centered = op.emit("SUB", [operand, top], dims)
    powers = op.emit("EXP", [centered], dims)
    total = op.emit("SUM", [powers, axes], kept, keep_dims=True)
    if log:
        op.result("SUB", [centered, op.emit("LOG", [total], kept)])
    else:
        op.result("DIV", [powers, total])


@exporter("Hardmax")
def hardmax(op: NodeExport) -> None:
    """ARG_MAX and ONE_HOT along the last axis."""
    operand, rank = op.input(0), op.rank()
    if op.version < SEVERAL_AXES or op.axis(-1) != rank - 1:
        raise Unwritable("a Hardmax along another axis than the last")
    depth = known(operand.dims[-1:])[0]
    axis = op.const(np.array(rank - 1, np.int32))
    place = op.emit("ARG_MAX", [operand, axis], operand.dims[:-1], TensorType.INT32, output_type=TensorType.INT32)
    on, off = op.real(1.0), op.real(0.0)
    op.result("ONE_HOT", [place, op.const(np.array(depth, np.int32)), on, off], axis=-1)


@exporter("LayerNormalization")
def layer_normalization(op: NodeExport) -> None:
    """MEAN, SUB, MUL, RSQRT and what scales and shifts."""
    if op.gives(1) or op.gives(2):
        raise Unwritable("the mean or deviation of a normalization is read")
    _normalized(op, centered=True, epsilon=op.number("epsilon", 1e-5), scale=1, bias=2)


@exporter("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(op: NodeExport) -> None:
    """MUL, MEAN, RSQRT and MUL."""
    if op.gives(1):
        raise Unwritable("the deviation of a normalization is read")
    _normalized(op, centered=False, epsilon=op.number("epsilon", 1e-5), scale=1, bias=9)


@exporter("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(op: NodeExport) -> None:
    """ADD, then as LayerNormalization."""
    simplified = op.op_type == "SkipSimplifiedLayerNormalization"
    dims = op.dims()
    total = op.emit("ADD", [op.input(0), op.input(1)], dims)
    extra = 3 if simplified else 4
    if op.has(extra):
        total = op.emit("ADD", [total, op.input(extra)], dims)
    if op.gives(1) or op.gives(2):
        raise Unwritable("the mean or deviation of a normalization is read")
    if op.gives(3):
        op.give(total, 3)
    epsilon = op.number("epsilon", 1e-12)
    _normalized(op, centered=not simplified, epsilon=epsilon, scale=2, bias=9 if simplified else 3, operand=total)


def _normalized(
    op: NodeExport, *, centered: bool, epsilon: float, scale: int, bias: int, operand: DraftTensor | None = None
) -> None:
    operand = op.input(0) if operand is None else operand
    rank, dims = len(operand.dims), operand.dims
    axes = list(range(op.axis(-1), rank))
    kept: Dims = tuple(1 if axis in axes else dim for axis, dim in enumerate(dims))
    over = op.ints32(axes, "axes")
    if centered:
        average = op.emit("MEAN", [operand, over], kept, keep_dims=True)
        operand = op.emit("SUB", [operand, average], dims)
    squares = op.emit("SQUARE", [operand], dims)
    variance = op.emit("MEAN", [squares, over], kept, keep_dims=True)
    raised = op.emit("ADD", [variance, op.real(epsilon, variance)], kept)
    result = op.emit("MUL", [operand, op.emit("RSQRT", [raised], kept)], dims)
    if op.has(scale):
        result = op.emit("MUL", [result, op.input(scale)], dims)
    if op.has(bias):
        result = op.emit("ADD", [result, op.input(bias)], dims)
    op.give(result)


@exporter("BatchNormalization")
def batch_normalization(op: NodeExport) -> None:
    """MUL and ADD, where no convolution before it took it in."""
    if op.integer("training_mode") or len(op.node.outputs) > 1:
        raise Unwritable("a BatchNormalization in training")
    op.require_channels_last()
    parts = [op.required_constant(slot, "a parameter of BatchNormalization").astype(np.float64) for slot in range(1, 5)]
    scale, bias, mean, variance = parts
    factor = scale / np.sqrt(variance + op.number("epsilon", 1e-5))
    operand = op.input(0)
    scaled = op.emit("MUL", [operand, op.real(factor, operand)], operand.dims)
    op.result("ADD", [scaled, op.real(bias - mean * factor, operand)])


@exporter("LRN")
def local_response_normalization(op: NodeExport) -> None:
    """LOCAL_RESPONSE_NORMALIZATION."""
    op.require_channels_last()
    size = op.integer("size")
    if size % 2 == 0 or op.rank() != 4:
        raise Unwritable("a window of an even number of channels")
    op.result(
        "LOCAL_RESPONSE_NORMALIZATION",
        [op.input(0)],
        radius=size // 2,
        bias=op.number("bias", 1.0),
        alpha=op.number("alpha", 1e-4) / size,
        beta=op.number("beta", 0.75),
    )


@exporter("LpNormalization")
def lp_normalization(op: NodeExport) -> None:
    """SUM of SQUARE or ABS, and DIV; 0 where all elements are."""
    operand, axis = op.input(0), op.axis(-1)
    kept: Dims = (*operand.dims[:axis], 1, *operand.dims[axis + 1 :])
    axes = op.ints32([axis])
    squared = op.integer("p", 2) == 2
    sizes = op.emit("SQUARE" if squared else "ABS", [operand], operand.dims)
    total = op.emit("SUM", [sizes, axes], kept, keep_dims=True)
    norm = op.emit("SQRT", [total], kept) if squared else total
    zero = op.emit("EQUAL", [norm, op.real(0.0)], kept, TensorType.BOOL)
    safe = op.emit("SELECT_V2", [zero, op.real(1.0), norm], kept, operand.type)
    op.result("DIV", [operand, safe])


@exporter("MeanVarianceNormalization")
def mean_variance_normalization(op: NodeExport) -> None:
    """MEAN, SUB, SQUARE and DIV."""
    operand = op.input(0)
    rank, dims = op.rank(), op.dims()
    axes = [axis % rank for axis in op.integers("axes", (0, 2, 3))]
    kept: Dims = tuple(1 if axis in axes else dim for axis, dim in enumerate(dims))
    over = op.ints32(axes)
    average = op.emit("MEAN", [operand, over], kept, keep_dims=True)
    centered = op.emit("SUB", [operand, average], dims)
    variance = op.emit("MEAN", [op.emit("SQUARE", [centered], dims), over], kept, keep_dims=True)
    deviation = op.emit("SQRT", [op.emit("ADD", [variance, op.real(1e-9)], kept)], kept)
    op.result("DIV", [centered, deviation])
