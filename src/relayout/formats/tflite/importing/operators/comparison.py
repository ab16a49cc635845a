"""Comparisons as LiteRT's kernels make them: of quantized operands seldom by what they mean.

Bytes are brought to a fixed point of 1/256 first, so that numbers nearer than that are equal; so are 16 bits before
EQUAL and NOT_EQUAL, and the other comparisons of 16 bits take the integers as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.tabulated import looked_up
from relayout.formats.tflite.importing.registry import each_operator, operator
from relayout.formats.tflite.importing.tensors import fixed_point
from relayout.formats.tflite.same_operators import COMPARISONS

TEXTS_FROM = 19  # the opset from which on Equal compares texts

STEPS = 256  # of the kernels' fixed point: so many to 1

_LIMITS = {TensorType.INT8: (-128, 127), TensorType.UINT8: (0, 255), TensorType.INT16: (-32768, 32767)}


def compared(
    op: Operation,
    op_type: str,  # ONNX's operator
    number: Callable[[int], ir.Value],  # an operand as what it means, where that is what the kernel compares
) -> ir.Value:
    """Both operands under a comparison of ONNX, as the kernel has it."""
    both = [op.tensors.quantization(op.input(i)) for i in (0, 1)]
    kind = op.input(0).type
    if None not in both and kind == TensorType.INT16 and op_type != "Equal":
        return op.each(op_type, op.whole(0), op.whole(1))
    tables = [_table(kind, quantization) for quantization in both]
    first, second = tables
    # Where no two integers become one, integers of equal parameters are compared as they are.
    if first is None or second is None or (np.all(np.diff(first) > 0) and both[0] and both[0].equals(both[1])):
        return op.each(op_type, number(0), number(1))
    a, b = (_in_steps(op, i, table) for i, table in enumerate((first, second)))
    return op.each(op_type, a, b)


def _table(kind: TensorType, quantization: Quantization | None) -> npt.NDArray[np.int32] | None:
    """Return what the kernel makes of each integer, from the least on; None where it takes no steps.

    None, too, for a scale of 1 or above, which the kernel's arithmetic does not hold: its answers are arbitrary.
    """
    if kind not in _LIMITS or quantization is None or quantization.per_channel or float(quantization.scale[0]) >= 1:
        return None
    least, greatest = _LIMITS[kind]
    integers = np.arange(least, greatest + 1, dtype=np.int64) - int(quantization.zero_point[0])
    return in_fixed_point(integers * STEPS, float(quantization.scale[0])).astype(np.int32)


def in_fixed_point(integers: npt.NDArray[np.int64], factor: float) -> npt.NDArray[np.int64]:
    """Integers times a factor below 1 in 31 bits, rounded twice as the kernels do: halves up, then away from zero."""
    multiplier, exponent = fixed_point(factor)
    product = integers * multiplier
    high, bits = product + (1 << 30) >> 31, min(-exponent, 62)
    found: npt.NDArray[np.int64] = np.sign(high) * (np.abs(high) + (1 << bits >> 1) >> bits)
    return found


def _in_steps(op: Operation, i: int, table: npt.NDArray[np.int32]) -> ir.Value:
    """Operand i in steps."""
    least, _ = _LIMITS[op.input(i).type]
    if op.is_constant(i):
        return op.builder.array(op.hint("steps"), table[op.constant(i).astype(np.int64) - least])
    return looked_up(op, op.stored(i), table, "steps", least=least)


_ORDERS = {name: op_type for name, op_type in COMPARISONS.items() if op_type != "Equal"}
_SUMMARY = "{} of what the operands mean; of quantized ones as the kernel has it: in 256ths, by a table."


@each_operator(_ORDERS, _SUMMARY)
@each_operator({"EQUAL": "Equal"}, _SUMMARY, texts=TEXTS_FROM)
def _comparison(op: Operation, op_type: str) -> None:
    op.result(compared(op, op_type, op.plain))


@operator("NOT_EQUAL", texts=TEXTS_FROM)
def not_equal(op: Operation) -> None:
    """Not of Equal of what the operands mean; of quantized ones as the kernel has it: in 256ths, by a table."""
    # Narrow integers without a scale are all equal to its kernel, and refused by `real`.
    op.result(op.each("Not", compared(op, "Equal", op.real)))
