"""Products by weights of a few bits, with a scale for each block of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import TensorContent
from relayout.formats.tflite.exporting.blocks import BITS, Blocks, signed_content
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps

PACKED, SCALES, ZEROS, ORDER, BIAS = range(1, 6)
"""Operands of MatMulNBits."""
MATRIX = 2
STORED = {bits: kind for kind, bits in BITS.items()}
"""Bits of an integer -> the type that holds it in the file."""


@exporter("MatMulNBits", domain="com.microsoft")
def matmul_nbits(op: NodeExport) -> None:
    """FULLY_CONNECTED by the real numbers that DEQUANTIZE makes of the weights, which stay integers in the file."""
    if op.has(ORDER):
        raise Unwritable("weights whose columns have groups of their own")
    if op.type() != TensorType.FLOAT32 or not op.dims():
        raise Unwritable(f"a product of {op.type().name}")
    weights = _weights(op)
    steps, operand = Steps(op), op.input()
    if len(operand.dims) == 1:
        operand = steps.reshape(operand, (1, *operand.dims))
    inputs = [operand, weights, *([op.input(BIAS)] if op.has(BIAS) else [])]
    dims = (*operand.dims[:-1], op.integer("N"))
    made = op.emit("FULLY_CONNECTED", inputs, dims, keep_num_dims=len(operand.dims) > MATRIX)
    steps.give(steps.reshape(made, op.out_dims()) if len(op.dims()) == 1 else made)


def _weights(op: NodeExport) -> DraftTensor:
    """Return the real numbers that weights mean, `rows columns`."""
    rows, columns, bits, block = (op.integer(name) for name in ("N", "K", "bits", "block_size"))
    bits = bits or 4
    if bits not in (2, 4, 8):
        raise Unwritable(f"weights of {bits} bits")
    if min(rows, columns, block) < 1:
        raise Unwritable(f"weights of N {rows}, K {columns} and block_size {block}")
    packed, scales = (op.required_constant(slot, "weights of a few bits") for slot in (PACKED, SCALES))
    zeros = op.required_constant(ZEROS, "the zero point of weights") if op.has(ZEROS) else None
    count = -(-columns // block)
    zero_bytes = rows * -(-count * bits // 8)
    fits = 8 * packed.size == rows * count * block * bits and scales.size == rows * count
    if not fits or (zeros is not None and zeros.size != (zero_bytes if zeros.dtype == np.uint8 else rows * count)):
        raise Unwritable("weights, scales or zero points of other sizes than N, K and block_size say")
    centres = _centres(rows, count, bits, zeros)
    is_exact = np.isin(centres, range(1 << bits)).all()
    if columns == count * block and bits in STORED and is_exact:
        tensor = op.value(PACKED).const_value
        assert tensor is not None
        content = signed_content(TensorContent(tensor), bits)
        steps = scales.astype(np.float32).reshape(-1)
        zero_points = centres.astype(np.int64).reshape(-1) - (1 << bits - 1)
        blocks = Blocks(content, STORED[bits], (rows, columns), block, steps, zero_points)
        if blocks.is_small:
            return blocks.real_numbers(op.graph.draft, f"{op.name}/weights")
    dims = (rows, columns)
    lazy = ir.LazyTensor(
        lambda: ir.Tensor(_meant(dims, bits, block, packed, scales, centres)),
        dtype=ir.DataType.FLOAT,
        shape=ir.Shape(dims),
        name=op.name,
    )
    return DraftTensor(op.graph.draft.unique(f"{op.name}/weights"), TensorType.FLOAT32, dims, TensorContent(lazy))


def _centres(rows: int, count: int, bits: int, zeros: NDArray[Any] | None) -> NDArray[np.float32]:
    """Return the zero points of unsigned integers, `rows count`."""
    if zeros is None:
        return np.full((rows, count), 1 << (bits - 1), np.float32)
    if zeros.dtype == np.uint8:
        return _unpacked(zeros.reshape(rows, -1), bits)[:, :count].astype(np.float32)
    centres: NDArray[np.float32] = zeros.reshape(rows, count).astype(np.float32)
    return centres


def _meant(
    dims: tuple[int, int],
    bits: int,
    block: int,
    packed: NDArray[Any],
    scales: NDArray[Any],
    centres: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the real numbers of weights, `rows columns`."""
    rows, columns = dims
    integers = _unpacked(packed.reshape(rows, -1), bits)[:, :columns].astype(np.float32)
    steps = scales.reshape(rows, -1).astype(np.float32)
    numbers: NDArray[np.float32] = (integers - _spread(centres, block, columns)) * _spread(steps, block, columns)
    return numbers


def _unpacked(array: NDArray[Any], bits: int) -> NDArray[Any]:
    """Return the numbers of a few bits that bytes hold, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    found: NDArray[Any] = ((array[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*array.shape[:-1], -1)
    return found


def _spread(array: NDArray[np.float32], block: int, columns: int) -> NDArray[np.float32]:
    """Return one number for each column, of those for each block."""
    found: NDArray[np.float32] = np.repeat(array, block, axis=1)[:, :columns]
    return found
