"""Operators on the bits of integers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.builder import broadcast, dims
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.elementwise import two
from relayout.formats.tflite.operators.slicing import unsqueeze
from relayout.formats.tflite.registry import Unsupported, operator

_UINT64 = ir.DataType.UINT64


@operator("RIGHT_SHIFT")
def right_shift(op: Operation) -> None:
    """BitShift; of a negative number x, the complement of the shifted complement."""
    x, count = op.raw(0), op.raw(1)
    dtype = x.dtype or ir.DataType.INT32
    wide = _UINT64 if dtype in (ir.DataType.INT64, _UINT64) else ir.DataType.UINT32
    if dtype.is_signed():
        negative = two(op, "Less", x, op.number(0, x, "zero"), ir.DataType.BOOL)
        mask = op.emit("Neg", [op.cast(negative, dtype)], dims(x))  # all bits set where x is negative
        x = two(op, "BitwiseXor", x, mask)
    operands = [op.cast(x, wide), op.cast(count, wide)]
    y = op.emit("BitShift", operands, broadcast(dims(x), dims(count)), direction="RIGHT")
    y = op.cast(y, dtype)
    op.result_stored(two(op, "BitwiseXor", y, mask) if dtype.is_signed() else y)


@operator("BITCAST")
def bitcast(op: Operation) -> None:
    """Cast between integers, which keeps the bits; to narrower ones they are shifted down, to wider ones up.

    A narrower type adds an axis, the lowest bits first; a wider one takes it away.
    """
    x, target = op.raw(0), op.tensors.plain_dtype(op.output())
    source = x.dtype or target
    if source == target:
        op.result_stored(x)
        return
    if not source.is_integer() or not target.is_integer() or min(source.bitwidth, target.bitwidth) < 8:
        raise Unsupported(f"the bits of {source.name} as {target.name}")
    before, after, rank = source.bitwidth, target.bitwidth, len(dims(x))
    if before == after:
        op.result_stored(op.cast(x, target))
        return
    count = max(before, after) // min(before, after)
    steps = op.builder.array(op.hint("steps"), np.arange(count, dtype=np.uint64) * min(before, after))
    narrow = ir.DataType[f"UINT{min(before, after)}"]
    if before > after:
        bits = op.cast(unsqueeze(op, op.cast(x, ir.DataType[f"UINT{before}"]), [rank]), _UINT64)
        y = op.emit("BitShift", [bits, steps], (*dims(x), count), direction="RIGHT")
        mask = op.number((1 << after) - 1, y, "mask")
        op.result_stored(op.cast(op.cast(two(op, "BitwiseAnd", y, mask), narrow), target))
        return
    if rank < 1 or dims(x)[-1] != count:
        raise ReadError(f"{dims(x)} has no axis of {count} for wider integers", where=op.place)
    bits = op.cast(op.cast(x, narrow), _UINT64)
    y = op.emit("BitShift", [bits, steps], dims(x), direction="LEFT")
    total = op.emit("ReduceSum", [op.cast(y, ir.DataType.INT64), op.ints([-1])], dims(x)[:-1], keepdims=0)
    op.result_stored(op.cast(total, target))
