"""Operators on bits."""

from __future__ import annotations

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import BITS
from relayout.formats.tflite.exporting.builder import stretched
from relayout.formats.tflite.exporting.draft import DraftTensor, known
from relayout.formats.tflite.exporting.kernel_types import stored_type
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

WIDE = (TensorType.INT64, TensorType.UINT64)  # integers of which LiteRT has BITWISE_XOR and shifts for halves only


def _alike(op: NodeExport, *tensors: DraftTensor) -> list[DraftTensor]:
    """Return tensors stretched to each other, which STABLEHLO_AND does not do by itself."""
    dims = stretched(*(tensor.dims for tensor in tensors))
    return [tensor if tensor.dims == dims else op.stretch(tensor, known(dims)) for tensor in tensors]


def bitcast(op: NodeExport, tensor: DraftTensor, kind: TensorType) -> DraftTensor:
    """Return the same bits as elements of another type of the same width."""
    if tensor.type == kind:
        return tensor
    return op.emit("BITCAST", [tensor], tensor.dims, kind)


def _halves(op: NodeExport, tensor: DraftTensor) -> DraftTensor:
    """Return integers of 64 bits as two of 32 each, along a new last axis."""
    return op.emit("BITCAST", [tensor], (*tensor.dims, 2), TensorType.INT32)


def _whole(op: NodeExport, halves: DraftTensor, kind: TensorType) -> DraftTensor:
    return op.emit("BITCAST", [halves], halves.dims[:-1], kind)


@exporter("BitwiseAnd")
def bitwise_and(op: NodeExport) -> None:
    """STABLEHLO_AND."""
    op.give(op.each("STABLEHLO_AND", *_alike(op, op.input(0), op.input(1))))


@exporter("BitwiseXor")
def bitwise_xor(op: NodeExport) -> None:
    """BITWISE_XOR; of 64 bits by halves."""
    op.give(_xor(op, op.input(0), op.input(1)))


def _xor(op: NodeExport, first: DraftTensor, second: DraftTensor) -> DraftTensor:
    if first.type not in WIDE:
        return op.each("BITWISE_XOR", first, second)
    first, second = _alike(op, first, second)
    return _whole(op, op.each("BITWISE_XOR", _halves(op, first), _halves(op, second)), first.type)


@exporter("BitwiseOr")
def bitwise_or(op: NodeExport) -> None:
    """BITWISE_XOR of both and of what they have in common."""
    first, second = _alike(op, op.input(0), op.input(1))
    op.give(_xor(op, _xor(op, first, second), op.each("STABLEHLO_AND", first, second)))


@exporter("BitwiseNot")
def bitwise_not(op: NodeExport) -> None:
    """BITWISE_XOR with all bits."""
    operand = op.input(0)
    numpy_type = np.dtype(operand.type.name.lower())
    ones = op.const(np.array(-1 if numpy_type.kind == "i" else np.iinfo(numpy_type).max, numpy_type))
    if operand.type in WIDE:
        halves = op.each("BITWISE_XOR", _halves(op, operand), -1)
        op.give(_whole(op, halves, operand.type))
        return
    op.give(op.each("BITWISE_XOR", operand, ones))


@exporter("BitShift")
def bit_shift(op: NodeExport) -> None:
    """RIGHT_SHIFT, of 64 bits by halves, or STABLEHLO_SHIFT_LEFT, of 64 bits MUL with a power of 2.

    No bit is left of many.
    """
    operand, amount = op.input(0), op.input(1)
    kind, left = operand.type, op.text("direction") == "LEFT"
    fits = None
    if amount.array is None or (amount.array < 0).any() or (amount.array >= BITS[kind]).any():
        alike = bitcast(op, amount, TensorType.INT64) if kind == TensorType.UINT64 else amount
        fits = op.both(op.compare("GREATER_EQUAL", alike, 0), op.compare("LESS", alike, BITS[kind]))
        signed = not left and kind.name.startswith("INT")
        amount = op.select(fits, amount, BITS[kind] - 1 if signed else 0)
        fits = None if signed else fits
    found = _shifted_left(op, operand, amount) if left else _shifted_right(op, operand, amount)
    op.give(found if fits is None else op.select(fits, found, 0))


def _shifted_left(op: NodeExport, operand: DraftTensor, amount: DraftTensor) -> DraftTensor:
    kind = operand.type
    if kind in WIDE:
        powers = op.const(np.int64(1) << np.arange(64, dtype=np.int64))
        factor = op.gather(powers, op.cast(bitcast(op, amount, TensorType.INT64), TensorType.INT32), 0)
        return bitcast(op, op.mul(bitcast(op, operand, TensorType.INT64), factor), kind)
    if BITS[kind] == 32:
        words = [bitcast(op, tensor, TensorType.INT32) for tensor in (operand, amount)]
        return bitcast(op, op.each("STABLEHLO_SHIFT_LEFT", *_alike(op, *words)), kind)
    words = [op.cast(tensor, TensorType.INT32) for tensor in (operand, amount)]
    return op.cast(op.each("STABLEHLO_SHIFT_LEFT", *_alike(op, *words)), kind)


def _shifted_right(op: NodeExport, operand: DraftTensor, amount: DraftTensor) -> DraftTensor:
    """Return integers shifted by fewer bits than they have.

    Of 64 bits, `high low`: by n < 32 they are `high >> n` and `low >> n | high << 32 - n`; by more, `high >> 31` or 0,
    and `high >> n - 32`.
    """
    kind = operand.type
    if kind not in WIDE:
        return op.each("RIGHT_SHIFT", operand, amount)
    operand, amount = _alike(op, operand, amount)
    halves, half = _halves(op, operand), TensorType.INT32 if kind == TensorType.INT64 else TensorType.UINT32
    low, high = (op.at(halves, -1, place) for place in (0, 1))
    count = op.cast(bitcast(op, amount, TensorType.INT64), TensorType.INT32)
    is_near, few, more = op.compare("LESS", count, 32), op.minimum(count, 31), op.maximum(op.sub(count, 32), 0)

    def shifted(tensor: DraftTensor, bits: DraftTensor, kind: TensorType) -> DraftTensor:
        made = op.each("RIGHT_SHIFT", bitcast(op, tensor, kind), bitcast(op, bits, kind))
        return bitcast(op, made, TensorType.INT32)

    carried = op.each("STABLEHLO_SHIFT_LEFT", op.add(high, high), op.sub(31, few))
    below = op.select(is_near, op.add(shifted(low, few, TensorType.UINT32), carried), shifted(high, more, half))
    signs = shifted(high, op.ints([31]), half) if half == TensorType.INT32 else 0
    above = op.select(is_near, shifted(high, few, half), signs)
    return _whole(op, op.stack([below, above], -1), kind)


@exporter("BitCast")
def bit_cast(op: NodeExport) -> None:
    """BITCAST."""
    operand, kind = op.input(0), op.stored_type()
    if TensorType.FLOAT16 in (kind, stored_type(op.value(0))):
        raise Unwritable("bits of half precision")
    op.result("BITCAST", [operand])
