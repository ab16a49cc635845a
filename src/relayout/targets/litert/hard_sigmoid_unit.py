"""A quantized HardSigmoid as a sum and a product on integers, for which LiteRT has kernels.

    clip(α x + β, 0, 1)  =  α · clip(x + β/α, 0, 1/α)

The integers between the two have 255 steps from 0 to 1/α, so their range is the clip.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.graph.quantized_unit import unit_of
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
STEPS, LEAST = 255, -128
FINE = 0.6
"""How much finer than 1/255 a result's steps may be: both roundings together stay below one step and a half."""


def _is_quantized(operator: Operator) -> bool:
    """Tell whether a node is in a unit of bytes whose result has steps no finer than those that lie between."""
    unit = unit_of(operator.node)
    if unit is None or unit.dtype not in BYTES or operator.node.attributes.get_float("alpha", 0.2) <= 0:
        return False
    scales = [result.scale for result in unit.results]
    kinds = all(result.dtype in BYTES for result in unit.results)
    return kinds and all(
        scale is not None and scale.size == 1 and float(scale.numpy().reshape(-1)[0]) >= FINE / STEPS
        for scale in scales
    )


def _as_sum_and_product(operator: Operator, _: Constants) -> Sequence[Step]:
    dtype = operator.node.outputs[0].dtype
    real = np.float32 if dtype is None else dtype.numpy()
    attributes = operator.node.attributes
    alpha, beta = attributes.get_float("alpha", 0.2), attributes.get_float("beta", 0.5)
    if not beta:
        return ()
    one, none, least = (np.array(number, np.int8) for number in (np.sign(beta), 0, LEAST))
    shift, factor, step = (np.array(number, real) for number in (abs(beta) / alpha, alpha, 1 / (STEPS * alpha)))
    return (
        Step("DequantizeLinear", (one, shift, none), "shift"),
        Step("Add", (0, "shift"), "moved"),
        Step("QuantizeLinear", ("moved", step, least), "integers"),
        Step("DequantizeLinear", ("integers", step, least), "clipped"),
        Step("DequantizeLinear", (np.array(1, np.int8), factor, none), "factor"),
        Step("Mul", ("clipped", "factor"), "scaled"),
    )


QUANTIZED = Condition("in a quantized unit of bytes, with steps of at least 0.6/255", _is_quantized)
HARD_SIGMOID_UNIT = Expansion("HardSigmoid", (QUANTIZED,), _as_sum_and_product)
