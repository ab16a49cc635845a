"""A quantized division by one number as a product, for which LiteRT has a kernel on integers.

    x / c  =  x · 1/c

The integer of 1/c is 1 or -1, and its scale all the rest, so nothing is rounded but the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE, Quantization, unit_of
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


def _divisor(operator: Operator) -> float | None:
    """Return the one number that bytes are divided by; None where there is none, or where it is 0."""
    real = operator.constant(1)
    if real is not None:
        return float(real.reshape(-1)[0]) or None if real.size == 1 and _is_between_bytes(operator.node) else None
    unit = unit_of(operator.node)
    operand = None if unit is None else unit.operands[1]
    if unit is None or operand is None or any(each.dtype not in BYTES for each in unit.activations):
        return None
    return _number(operand) or None


def _is_between_bytes(node: ir.Node) -> bool:
    """Tell whether a node reads dequantized bytes and is quantized to bytes: quantizers leave its divisor real."""
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    behind = [use.node for use in node.outputs[0].uses()]
    if before is None or before.op_type != DEQUANTIZE or not behind or node.outputs[0].is_graph_output():
        return False
    stored = before.inputs[0]
    return (
        stored is not None
        and stored.dtype in BYTES
        and all(each.op_type == QUANTIZE and each.outputs[0].dtype in BYTES for each in behind)
    )


def _number(operand: Quantization) -> float:
    """Return the number that an operand is; 0 where it is not one, or computed."""
    stored, scale, zero = operand.node.inputs[0], operand.scale, operand.zero_point
    constant = stored.const_value if stored is not None and operand.is_constant else None
    if constant is None or scale is None or constant.size != 1 or scale.size != 1:
        return 0
    if operand.has_zero_point and zero is None:
        return 0
    least = 0.0 if zero is None else float(zero.numpy().reshape(-1)[0])
    return (float(constant.numpy().reshape(-1)[0]) - least) * float(scale.numpy().reshape(-1)[0])


def _as_product(operator: Operator, _: Constants) -> Sequence[Step]:
    divisor, dtype = _divisor(operator), operator.node.outputs[0].dtype
    x, y = operator.shape(), operator.outputs[0]
    if divisor is None or x is None or y is None or len(x) != len(y):
        return ()
    real = np.float32 if dtype is None else dtype.numpy()
    one, none, scale = np.array(np.sign(divisor), np.int8), np.array(0, np.int8), np.array(1 / abs(divisor), real)
    return (
        Step("DequantizeLinear", (one, scale, none), "inverse"),
        Step("Mul", (0, "inverse"), "quotient"),
    )


BY_ONE_NUMBER = Condition(
    "in a quantized unit of bytes, by one number", lambda operator: _divisor(operator) is not None
)
DIVISION_UNIT = Expansion("Div", (BY_ONE_NUMBER,), _as_product)
