"""Products by weights of a few bits, with a scale for each block of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.container.contents import TensorContent
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps

PACKED, SCALES, ZEROS, ORDER, BIAS = range(1, 6)
"""Operands of MatMulNBits."""
MATRIX = 2


@exporter("MatMulNBits", domain="com.microsoft")
def matmul_nbits(op: NodeExport) -> None:
    """FULLY_CONNECTED by the real numbers that the weights mean."""
    if op.has(ORDER):
        raise Unwritable("weights whose columns have groups of their own")
    if op.type() != TensorType.FLOAT32 or not op.dims():
        raise Unwritable(f"a product of {op.type().name}")
    rows, columns, bits = op.integer("N"), op.integer("K"), op.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise Unwritable(f"weights of {bits} bits")
    packed, scales = (op.required_constant(slot, "weights of a few bits") for slot in (PACKED, SCALES))
    zeros = op.required_constant(ZEROS, "the zero point of weights") if op.has(ZEROS) else None
    block = op.integer("block_size")
    weights = _constant(op, (rows, columns), lambda: _meant((rows, columns), bits, block, packed, scales, zeros))
    steps, operand = Steps(op), op.input()
    if len(operand.dims) == 1:
        operand = steps.reshape(operand, (1, *operand.dims))
    inputs = [operand, weights, *([op.input(BIAS)] if op.has(BIAS) else [])]
    dims = (*operand.dims[:-1], rows)
    made = op.emit("FULLY_CONNECTED", inputs, dims, keep_num_dims=len(operand.dims) > MATRIX)
    steps.give(steps.reshape(made, op.out_dims()) if len(op.dims()) == 1 else made)


def _constant(op: NodeExport, dims: tuple[int, int], array: Callable[[], NDArray[np.float32]]) -> DraftTensor:
    """Return a constant that is computed when it is written."""
    lazy = ir.LazyTensor(lambda: ir.Tensor(array()), dtype=ir.DataType.FLOAT, shape=ir.Shape(dims), name=op.name)
    name = op.graph.draft.unique(f"{op.name}/weights")
    return DraftTensor(name, TensorType.FLOAT32, dims, TensorContent(lazy))


def _meant(
    dims: tuple[int, int],
    bits: int,
    block: int,
    packed: NDArray[Any],
    scales: NDArray[Any],
    zeros: NDArray[Any] | None,
) -> NDArray[np.float32]:
    """Return the real numbers of weights, `rows columns`."""
    rows, columns = dims
    count = -(-columns // block)
    integers = _unpacked(packed.reshape(rows, -1), bits)[:, :columns].astype(np.float32)
    if zeros is None:
        centres = np.full((rows, count), 1 << (bits - 1), np.float32)
    elif zeros.dtype == np.uint8:
        centres = _unpacked(zeros.reshape(rows, -1), bits)[:, :count].astype(np.float32)
    else:
        centres = zeros.reshape(rows, count).astype(np.float32)
    found: NDArray[np.float32] = (integers - _spread(centres, block, columns)) * _spread(
        scales.reshape(rows, count).astype(np.float32), block, columns
    )
    return found


def _unpacked(array: NDArray[Any], bits: int) -> NDArray[Any]:
    """Return the numbers of a few bits that bytes hold, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    found: NDArray[Any] = ((array[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*array.shape[:-1], -1)
    return found


def _spread(array: NDArray[np.float32], block: int, columns: int) -> NDArray[np.float32]:
    """Return one number for each column, of those for each block."""
    found: NDArray[np.float32] = np.repeat(array, block, axis=1)[:, :columns]
    return found
