"""Products of real rows and weights of 8 or 4 bits, computed with integers as LiteRT does.

Each row is quantized at run time: divided into 255 steps from its least to its greatest element, 0 among them. With q
the row's integers, z the one that means 0, s its step, w the weights' integers and t their steps, `y = (q w - z sum(w))
s t`.

That is LiteRT's result but for the order of float additions, as long as the operands are LiteRT's. Convolutions of real
numbers stay float (ONNX Runtime has no fast kernel that yields real numbers from integers), and rows behind one of
them are not LiteRT's: rounded as there, the results are no nearer, and many rows take time to round. Such models
multiply real numbers, but for a single row, such as a classifier has: one kernel, and more often than not the result
is nearer.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.operators.convolution import (
    fully_connected_rows,
    hand_over_rows,
    matrix_product,
    weights_in_blocks,
)
from relayout.formats.tflite.importing.program import Program
from relayout.formats.tflite.importing.tensors import FEW_BITS, array

# Weights of few bits as blocks that share a scale: ONNX Runtime makes one kernel of such a matrix and its MatMul.

LONG_BLOCKS = 256, 128  # columns that a kernel takes at once


def product_by_blocks(op: Operation) -> bool:
    """Hand over a FULLY_CONNECTED as a MatMul with weights by blocks, if these are of few bits, in long rows.

    The result is between Reshapes of as few dimensions as can be: of rank 2, ONNX Runtime makes a Gemm of a MatMul and
    the Add of a residual behind it, which takes no blocks.
    """
    found, size = fully_connected_rows(op), block_size(op)
    if not size:
        return False
    if found.keeps_rank(op):
        matrix_product(op, op.real(0), weights_in_blocks(op, op.input(1), size, (1, 0), zeros=False), found.units)
        return True
    x, bias = found.matrix(op), op.bias(2, 0, 1)
    kernel = weights_in_blocks(op, op.input(1), size, (1, 0), zeros=False)
    y = op.emit("MatMul", [op.dequantize(0, x), kernel], (found.rows, found.units))
    hand_over_rows(op, found, y if bias is None else op.each("Add", y, bias))
    return True


def block_size(op: Operation) -> int:
    """Return how many columns of the weights share a scale; 0: all of a row.

    Rows with one scale have blocks whose scales are equal: with 2048 columns the kernel multiplies one row of data in a
    tenth of the time of real numbers, and 128 rows in a third. In short rows it takes longer.
    """
    tensor = op.input(1)
    if tensor.blocks is not None:
        return tensor.blocks.size
    meaning = op.tensors.quantization(tensor)
    if meaning is None or tensor.data is None or tensor.type not in FEW_BITS:
        return 0
    by_rows = not meaning.per_channel or meaning.axis == 0
    if op.input(0).type != TensorType.FLOAT32 or len(tensor.shape) != 2 or not by_rows or meaning.zero_point.any():
        return 0
    return next((size for size in LONG_BLOCKS if tensor.shape[1] % size == 0), 0)


LEVELS = 255
LEAST_STEP = 1e-30  # of a row of zeros


def integer_product(op: Operation) -> bool:
    """Hand over a FULLY_CONNECTED as a product of integers, if its weights are integers beside real rows."""
    found = fully_connected_rows(op)
    if not is_hybrid(op, found.rows) or (found.keeps_rank(op) and found.several_are_open(op)):
        return False
    x, bias = found.matrix(op), op.bias(2, 0, 1)
    y = product(op, x)
    hand_over_rows(op, found, y if bias is None else op.each("Add", y, bias))
    return True


def multiplies_alone(program: Program) -> bool:
    """Tell whether no operators but matrix products have real operands and weights of 8 or 4 bits."""
    for subgraph in program.model.subgraphs:
        for operator in subgraph.operators:
            operands = [subgraph.tensors[i] for i in operator.inputs if i >= 0]
            weights = any(t.type in (*BYTES_ONLY, TensorType.INT4) and t.data is not None for t in operands)
            real = any(t.type == TensorType.FLOAT32 and t.data is None for t in operands)
            if operator.name != "FULLY_CONNECTED" and weights and real:
                return False
    return True


def is_hybrid(op: Operation, rows: Dim) -> bool:
    """Whether a product is computed with integers.

    The model has no hybrid operators but products, or there is a single row, outside of loops; and what is written is
    not looked at for a cell of real numbers (see `lowering.recognise_recurrent`).
    """
    if op.program.multiplies_reals:
        return False
    alone = op.program.once(multiplies_alone)
    known = op.input(1).blocks is None and op.is_constant(1)
    return (alone or (rows == 1 and not op.program.nested)) and known and has_centred_weights(op, TensorType.INT4)


def has_centred_weights(op: Operation, *more: TensorType) -> bool:
    """Whether operand 0 and the result are real, and operand 1 constants of int8, or of `more` types, around 0."""
    weights = op.input(1)
    quantization = op.tensors.quantization(weights)
    return (
        op.input(0).type == op.output().type == TensorType.FLOAT32
        and (weights.type == TensorType.INT8 or weights.type in more)
        and weights.data is not None
        and quantization is not None
        and not np.any(quantization.zero_point)
        and (quantization.axis == 0 or not quantization.per_channel)
    )


def product(op: Operation, x: ir.Value) -> ir.Value:
    """Rows `r k` times weights `n k`, without the bias: `r n`."""
    weights = op.input(1)
    quantization = weights.quantization
    if quantization is None:
        raise ValueError(f"{weights.name} is not quantized")
    op.tensors.need_opset(weights)
    kernel = op.transpose(op.cast(op.stored(1), ir.DataType.INT8), (1, 0))
    shape = (dims(x)[0], dims(kernel)[1])
    steps = op.builder.array(op.tensors.hint(weights, "scale"), quantization.scale)
    q, step, zero = quantized(op, x)
    if dims(x)[0] == 1:  # the form that ONNX Runtime makes one kernel of
        integers = multiplied(op, q, kernel, zero, shape)
        return op.each("Mul", op.cast(integers, ir.DataType.FLOAT), op.each("Mul", step, steps))
    step, zero = (op.reshape(value, (shape[0], 1)) for value in (step, op.cast(zero, ir.DataType.FLOAT)))
    integers = multiplied(op, q, kernel, None, shape)
    offset = op.each("Mul", zero, _sums(op, weights))
    centred = op.each("Sub", op.cast(integers, ir.DataType.FLOAT), offset)
    return op.each("Mul", op.each("Mul", centred, step), steps)


def multiplied(op: Operation, q: ir.Value, kernel: ir.Value, zero: ir.Value | None, shape: Dims) -> ir.Value:
    """Integers times a kernel of int8, whose zero point is named: ONNX Runtime reads that of every MatMulInteger, there
    or not, where it is told to multiply in full (`session.x64quantprecision`), and 1.23 ends the process over one that
    is not.
    """
    named = op.builder.array(op.hint("kernel_zero"), np.zeros((), np.int8))
    return op.emit("MatMulInteger", [q, kernel, zero, named], shape, ir.DataType.INT32)


def quantized(op: Operation, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Integers, step and zero point: scalars if the first axis is a single element, else one pair for each of it."""
    byte, real, count = ir.DataType.UINT8, ir.DataType.FLOAT, dims(x)[0]
    if count == 1:
        outputs = [(op.hint("quantized"), byte, dims(x)), (op.hint("step"), real, ()), (op.hint("zero"), byte, ())]
        q, step, zero = op.builder.emit("DynamicQuantizeLinear", [x], outputs, source=op.source)
        return q, step, zero
    nothing, ends = op.number(0, x, "nothing"), []
    for reduction, bound in (("ReduceMin", "Min"), ("ReduceMax", "Max")):
        end = op.emit(reduction, [x, op.ints(list(range(1, len(dims(x)))))], keepdims=0)
        ends.append(op.each(bound, end, nothing))
    step = op.each("Div", op.each("Sub", ends[1], ends[0]), op.number(LEVELS, x, "levels"))
    step = op.each("Max", step, op.number(LEAST_STEP, x, "least"))
    zero = op.cast(op.each("Round", op.each("Neg", op.each("Div", ends[0], step))), byte)
    return op.emit("QuantizeLinear", [x, step, zero], axis=0), step, zero


def _sums(op: Operation, weights: Tensor) -> ir.Value:
    """What each unit's integers add up to: `n`."""

    def added_up() -> ir.TensorProtocol:
        rows = array(weights).astype(np.int8).reshape(weights.shape[0], -1)
        return ir.Tensor(rows.sum(axis=1, dtype=np.int64).astype(np.float32))

    sums = ir.LazyTensor(added_up, ir.DataType.FLOAT, ir.Shape([weights.shape[0]]))
    return op.builder.initializer(op.tensors.hint(weights, "sums"), sums)
