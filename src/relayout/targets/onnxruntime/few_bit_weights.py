"""Weights of few bits as blocks that share a scale: ONNX Runtime makes one kernel of such a matrix and its MatMul."""

from __future__ import annotations

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.matrix import fully_connected_rows, hand_over_rows, matrix_product
from relayout.formats.tflite.importing.operators.weights import weights_in_blocks
from relayout.formats.tflite.importing.tensors import FEW_BITS

LONG_BLOCKS = 256, 128
"""Columns that a kernel takes at once."""


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
    hand_over_rows(op, found, y if bias is None else two(op, "Add", y, bias))
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
