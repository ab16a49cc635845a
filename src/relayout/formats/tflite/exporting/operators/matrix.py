"""Products of matrices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.stored import nbytes
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization, TensorContent
from relayout.formats.tflite.exporting.blocks import blocks_of
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.few_axes import MATRIX, MOST, batched_product
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.operators.convolution import bias_of
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.scales import dequantizer_of

WEIGHTS_RANK = 2


@exporter("MatMul")
def matmul(op: NodeExport) -> None:
    """FULLY_CONNECTED where the second operand is a constant matrix, else BATCH_MATMUL."""
    left = op.input(0)
    weights = fully_connected_weights(op, transposed=False)
    if weights is not None and left.dims:
        bias = bias_of(op, 9, left, weights, int(weights.dims[0])) if op.quantized else None
        _fully_connected(op, left, weights, bias)
        return
    right = op.input(1)
    if len(left.dims) == 0 or len(right.dims) == 0:
        raise Unwritable("a product of scalars")
    if op.quantized and right.data is not None:
        raise Unwritable("a quantized product by constant matrices")
    _batch_matmul(op, left, right)


def fully_connected_weights(op: NodeExport, *, transposed: bool) -> DraftTensor | None:
    """Return the second operand as the weights `n k` of FULLY_CONNECTED; None where it is `k n` and computed.

    Args:
        op: the node.
        transposed: whether the node has them as `n k`.
    """
    if len(op.dims(1)) != WEIGHTS_RANK:
        return None
    if not transposed and (numbers := _blocks_of_columns(op)) is not None:
        return numbers
    integers = op.dequantized_constant(1)
    matrix = op.input(1) if integers is None else integers
    if matrix.data is None:
        is_read = transposed and matrix.type == TensorType.FLOAT32 and not op.integer("transA")
        return matrix if is_read else None
    matrix = matrix if transposed else transposed_weights(op, 1, matrix)
    return matrix if integers is None else op.emit("DEQUANTIZE", [matrix], matrix.dims, TensorType.FLOAT32)


def _blocks_of_columns(op: NodeExport) -> DraftTensor | None:
    """Return weights `k n` with a scale for each block of a column as real numbers `n k`; None where they have none."""
    value = op.value(1)
    transposed = op.graph.transposed_blocks
    if value not in transposed:
        node = dequantizer_of(value)
        blocks = None if node is None else blocks_of(node, transposed=True)
        if blocks is None or not blocks.is_small:
            return None
        transposed[value] = blocks.real_numbers(op.graph.draft, value.name or "weights")
    return transposed[value]


def _fully_connected(op: NodeExport, left: DraftTensor, weights: DraftTensor, bias: DraftTensor | None) -> None:
    result = op.output(0)
    inputs = [left, weights, *([] if bias is None else [bias])]
    if len(left.dims) == 1:
        row = op.reshaped(left, (1, left.dims[0]))
        made = op.emit("FULLY_CONNECTED", [row, *inputs[1:]], (1, *result.dims), result.type, result.quantization)
        op.give(op.reshaped(made, result.dims))
        return
    op.result("FULLY_CONNECTED", inputs, keep_num_dims=len(left.dims) > WEIGHTS_RANK)


def _batch_matmul(op: NodeExport, left: DraftTensor, right: DraftTensor) -> None:
    if left.type not in (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16):
        raise Unwritable(f"a product of {left.type.name}")
    first = op.reshaped(left, (1, left.dims[0])) if len(left.dims) == 1 else left
    second = op.reshaped(right, (right.dims[0], 1)) if len(right.dims) == 1 else right
    if first is left and second is right and len(op.output(0).dims) <= MOST + MATRIX:
        op.result("BATCH_MATMUL", [first, second], adj_x=False, adj_y=False)
        return
    result = op.output(0)
    dims: Dims = result.dims
    if len(right.dims) == 1:
        dims = (*dims, 1)
    if len(left.dims) == 1:
        dims = (*dims[:-1], 1, dims[-1])
    made = batched_product(op, (first, second), dims, result.type, result.quantization)
    op.give(op.reshaped(made, result.dims))


def transposed_weights(op: NodeExport, slot: int, weights: DraftTensor) -> DraftTensor:
    """Return a constant matrix `k n` as `n k`, transposed when it is written."""
    dims = (weights.dims[1], weights.dims[0])
    quantization = weights.quantization
    if quantization is not None:
        quantization = Quantization(quantization.scale, quantization.zero_point, 1 - quantization.axis)
    if weights.array is not None:
        return op.const(np.ascontiguousarray(weights.array.T), quantization, "weights")
    content = weights.data
    if not isinstance(content, TensorContent):
        raise Unwritable("a large constant that cannot be transposed")
    if quantization is None and weights in op.graph.draft.transposed:
        return op.graph.draft.transposed[weights]
    source = content.tensor
    lazy = ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(source.numpy().T)),
        dtype=source.dtype,
        shape=ir.Shape([int(dim) for dim in dims]),
        name=weights.name,
    )
    assert nbytes(source.dtype, tuple(int(dim) for dim in dims)) == content.nbytes
    name = op.graph.draft.unique(f"{weights.name}/transposed")
    made = op.graph.draft.transposed[weights] = DraftTensor(
        name, weights.type, dims, TensorContent(lazy), None, quantization
    )
    return made


@exporter("Gemm")
def gemm(op: NodeExport) -> None:
    """FULLY_CONNECTED where the second operand is constant, else BATCH_MATMUL, MUL and ADD."""
    left = op.input(0)
    alpha, beta = op.number("alpha", 1.0), op.number("beta", 1.0)
    adjoint, transposed = bool(op.integer("transA")), bool(op.integer("transB"))
    result = op.output(0)
    weights = fully_connected_weights(op, transposed=transposed)
    if adjoint and weights is not None:
        left, adjoint = op.transposed(left, (1, 0)), False
    if weights is not None and not (op.quantized and alpha != 1.0):
        count = weights.dims[0]
        row = op.has(2) and op.constant(2) is not None and _is_row(op, count)
        if op.quantized or (alpha == 1.0 and beta == 1.0 and (row or not op.has(2))):
            bias = bias_of(op, 2, left, weights, *known((count,))) if op.quantized or op.has(2) else None
            op.result("FULLY_CONNECTED", [left, weights, *([] if bias is None else [bias])])
            return
        product = op.emit("FULLY_CONNECTED", [left, weights], result.dims)
    else:
        product = op.emit("BATCH_MATMUL", [left, op.input(1)], result.dims, adj_x=adjoint, adj_y=transposed)
    if alpha != 1.0:
        product = op.emit("MUL", [product, op.real(alpha, product)], result.dims)
    if op.has(2):
        addend = op.input(2)
        if beta != 1.0:
            addend = op.emit("MUL", [addend, op.real(beta, addend)], addend.dims)
        product = op.emit("ADD", [product, addend], result.dims)
    op.give(product)


def _is_row(op: NodeExport, count: int | str) -> bool:
    dims = op.dims(2)
    return bool(dims) and dims[-1] == count and all(dim == 1 for dim in dims[:-1])
