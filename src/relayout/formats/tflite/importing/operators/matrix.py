"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import FullyConnectedOptionsWeightsFormat, TensorType
from relayout.formats.tflite.importing.builder import Dim, Dims, broadcast, dims
from relayout.formats.tflite.importing.extents import divided, product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators import hybrid
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.weights import block_size, weights
from relayout.formats.tflite.importing.registry import Unsupported, operator


def _rows(shape: Sequence[Dim], columns: int) -> Dim:
    """How many rows of so many columns a tensor holds; a single named dimension in front of them passes through."""
    return divided(product(shape), columns)


@operator("FULLY_CONNECTED", options="FullyConnectedOptions")
def fully_connected(op: Operation) -> None:
    """Gemm with the weights as they are, `units columns`, between the Reshapes that other ranks need.

    Weights with a scale for each block are a MatMul's: for these ONNX Runtime has a kernel. Real rows and integer
    weights are multiplied as integers, see `hybrid`. The rows are what the operand's elements make, whatever its rank;
    with `keep_num_dims` its leading axes come back. Data of 16 bits is never a MatMul's: ONNX Runtime 1.32 takes 8 bits
    of it beside weights of 8 bits whose columns lie innermost.
    """
    options = op.options
    if options.weights_format != FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise Unsupported("shuffled weights")
    op.require_rank(1, 2)
    x, (units, columns) = op.stored(0), op.extents(1)
    shape = dims(x)
    if not isinstance(columns, int) or columns == 0 or not isinstance(units, int):
        raise ReadError(f"{columns} columns", where=op.place)
    fixed = [d for d in shape if isinstance(d, int)]
    if len(fixed) == len(shape) and math.prod(fixed) % columns:
        raise ReadError(f"shape {list(shape)} does not make rows of {columns}", where=op.place)
    rows = shape[0] if len(shape) == 2 and shape[1] == columns else _rows(shape, columns)
    on_integers = hybrid.is_hybrid(op, rows)
    by_blocks = not on_integers and block_size(op, 1, 0) > 0
    several = sum(not isinstance(d, int) for d in shape) > 1 and op.input(0).type != TensorType.INT16
    if options.keep_num_dims and shape[-1] == columns and (several or by_blocks):
        _product(op, units)
        return
    if (rows, columns) != shape:
        x = op.reshape(x, (rows, columns))
    bias = op.bias(2, 0, 1)
    if on_integers:
        y = hybrid.product(op, x)
    elif by_blocks:
        y = op.emit("MatMul", [op.dequantize(0, x), weights(op, 1, 0, (1, 0))], (rows, units))
    else:
        y = op.emit("Gemm", [op.dequantize(0, x), weights(op, 1, 0), bias], (rows, units), transB=1)
    if bias is not None and (on_integers or by_blocks):
        y = two(op, "Add", y, bias)
    y = op.quantize(y, fused=options.fused_activation_function)
    final = op.out_dims((*shape[:-1], units) if options.keep_num_dims else (rows, units))
    if sum(not isinstance(d, int) for d in final) > 1:
        op.result_stored(_unflattened(op, y, final))
        return
    op.result_stored(y if final == dims(y) else op.reshape(y, final))


def _unflattened(op: Operation, y: ir.Value, final: Dims) -> ir.Value:
    """A Reshape to the operand's leading extents, several of which are known only at run time."""
    leading = len(final) - 1
    shape = op.emit("Shape", [op.stored(0)], (leading,), ir.DataType.INT64, start=0, end=leading)
    target = op.emit(
        "Concat", [shape, op.ints([d for d in final[-1:] if isinstance(d, int)], "units")], (leading + 1,), axis=0
    )
    return op.emit("Reshape", [y, target], final, allowzero=1)


def _product(op: Operation, units: int) -> None:
    """MatMul with the weights transposed, where a Reshape would have to know several dimensions, or be in the way.

    Of rank 2, ONNX Runtime makes a Gemm of a MatMul and the Add of a residual behind it, which takes no blocks.
    """
    x, kernel, bias = op.real(0), weights(op, 1, 0, (1, 0)), op.bias(2, 0, 1)
    y = op.emit("MatMul", [x, kernel], (*dims(x)[:-1], units))
    op.result(y if bias is None else two(op, "Add", y, bias), fused=op.options.fused_activation_function)


@operator("BATCH_MATMUL", options="BatchMatMulOptions")
def batch_matmul(op: Operation) -> None:
    """MatMul; an adjoint operand is transposed first."""
    plain = op.output().type == TensorType.INT32  # of bytes: the sums of products as they are

    def operand(i: int, adjoint: bool) -> ir.Value:
        rank = len(dims(op.stored(i)))
        if rank < 2:
            raise ReadError(f"operand {i} is no matrix", where=op.place)
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        if plain:
            return op.transpose(op.whole(i), swapped) if adjoint else op.whole(i)
        return op.real(i, swapped if adjoint else None)

    a, b = operand(0, op.options.adj_x), operand(1, op.options.adj_y)
    shape = (*broadcast(dims(a)[:-2], dims(b)[:-2]), dims(a)[-2], dims(b)[-1])
    op.result(op.emit("MatMul", [a, b], op.out_dims(shape)))
