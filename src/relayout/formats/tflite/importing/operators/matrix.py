"""Matrix products."""

import math
from typing import NamedTuple

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import FullyConnectedOptionsWeightsFormat, TensorType
from relayout.formats.tflite.importing.builder import Dim, broadcast, dims
from relayout.formats.tflite.importing.extents import divided, product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.weights import weights
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.spelled_out import ASYMMETRIC, ROUNDED, SYMMETRIC


class Rows(NamedTuple):
    """The data of a FULLY_CONNECTED: so many rows of so many columns, times weights `units columns`."""

    data: ir.Value
    rows: Dim
    columns: int
    units: int

    def matrix(self, op: Operation) -> ir.Value:
        """Return the data as `rows columns`."""
        wanted = (self.rows, self.columns)
        return self.data if dims(self.data) == wanted else op.reshape(self.data, wanted)

    def keeps_rank(self, op: Operation) -> bool:
        """Tell whether the result has the data's leading axes and the data is rows along its last one."""
        return bool(op.options.keep_num_dims) and dims(self.data)[-1] == self.columns

    def several_are_open(self, op: Operation) -> bool:
        """Tell whether no Reshape can name the data's extents. (A MatMul takes no data of 16 bits.)"""
        open_ = sum(not isinstance(d, int) for d in dims(self.data))
        return open_ > 1 and op.input(0).type != TensorType.INT16


def fully_connected_rows(op: Operation) -> Rows:
    """Return the rows of a FULLY_CONNECTED: what the operand's elements make, whatever its rank."""
    if op.options.weights_format != FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise Unsupported("shuffled weights")
    op.require_rank(1, 2)
    x, (units, columns) = op.stored(0), op.extents(1)
    shape = dims(x)
    if not isinstance(columns, int) or columns == 0 or not isinstance(units, int):
        raise ReadError(f"{columns} columns", where=op.place)
    fixed = [d for d in shape if isinstance(d, int)]
    if len(fixed) == len(shape) and math.prod(fixed) % columns:
        raise ReadError(f"shape {list(shape)} does not make rows of {columns}", where=op.place)
    rows = shape[0] if len(shape) == 2 and shape[1] == columns else divided(product(shape), columns)
    return Rows(x, rows, columns, units)


@operator("FULLY_CONNECTED", options="FullyConnectedOptions")
def fully_connected(op: Operation) -> None:
    """Gemm with the weights as they are, `units columns`, between the Reshapes that other ranks need.

    Weights with a scale for each block are a MatMul's. With `keep_num_dims` the data's leading axes come back. Data of
    16 bits is never a MatMul's: ONNX Runtime 1.32 takes 8 bits of it beside weights of 8 bits whose columns lie
    innermost.
    """
    found, by_blocks = fully_connected_rows(op), op.input(1).blocks is not None
    if found.keeps_rank(op) and (found.several_are_open(op) or by_blocks):
        matrix_product(op, op.real(0), weights(op, 1, 0, (1, 0)), found.units)
        return
    x, bias = found.matrix(op), op.bias(2, 0, 1)
    if by_blocks:
        y = op.emit("MatMul", [op.dequantize(0, x), weights(op, 1, 0, (1, 0))])
        y = y if bias is None else op.each("Add", y, bias)
    else:
        kernel = weights(op, 1, 0)
        node, is_rounded = (
            kernel.producer(),
            (op.input(0).type, op.input(1).type) == (TensorType.FLOAT32, TensorType.INT8),
        )
        if op.program.multiplies_reals and is_rounded and node is not None and node.op_type == "DequantizeLinear":
            # The product rounds its data, and does not stay one by itself.
            node.metadata_props[ROUNDED] = ASYMMETRIC if op.options.asymmetric_quantize_inputs else SYMMETRIC
        y = op.emit("Gemm", [op.dequantize(0, x), kernel, bias], transB=1)
    hand_over_rows(op, found, y)


def hand_over_rows(op: Operation, found: Rows, y: ir.Value) -> None:
    """Hand over the real numbers `rows units` as the result, in its shape."""
    options, shape = op.options, dims(found.data)
    y = op.quantize(y, fused=options.fused_activation_function)
    final = op.out_dims((*shape[:-1], found.units) if options.keep_num_dims else (found.rows, found.units))
    if sum(not isinstance(d, int) for d in final) > 1:  # the operand's leading extents
        leading = op.emit("Shape", [op.stored(0)], start=0, end=len(final) - 1)
        target = op.emit("Concat", [leading, op.ints([d for d in final[-1:] if isinstance(d, int)], "units")], axis=0)
        op.result_stored(op.emit("Reshape", [y, target], final, allowzero=1))
        return
    op.result_stored(y if final == dims(y) else op.reshape(y, final))


def matrix_product(op: Operation, x: ir.Value, kernel: ir.Value, units: int) -> None:
    """Hand over a MatMul with weights `columns units`, where a Reshape would have to know several dimensions."""
    bias = op.bias(2, 0, 1)
    y = op.emit("MatMul", [x, kernel])
    op.result(y if bias is None else op.each("Add", y, bias), fused=op.options.fused_activation_function)


@operator("BATCH_MATMUL", options="BatchMatMulOptions")
def batch_matmul(op: Operation) -> None:
    """MatMul; an adjoint operand is transposed first. Of two adjoint matrices Gemm is the product as they lie."""
    plain = op.output().type == TensorType.INT32  # of bytes: the sums of products as they are
    ranks = [len(dims(op.stored(place))) for place in (0, 1)]
    if op.options.adj_x and op.options.adj_y and ranks == [2, 2] and not plain:
        a, b = op.real(0), op.real(1)
        op.result(op.emit("Gemm", [a, b], op.out_dims((dims(a)[1], dims(b)[0])), transA=1, transB=1))
        return

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
