"""A quantized HardSigmoid as a sum and a product on integers, for which LiteRT has kernels.

    clip(α x + β, 0, 1)  =  α · clip(x + β/α, 0, 1/α)

The integers between the two have 255 steps from 0 to 1/α, so their range is the clip. A result whose range ends below 1
has that range: its integers then are those between the two, and the product rounds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relayout.graph.quantized_unit import unit_of
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants
from relayout.targets.litert.integer_scales import BYTES, Scale, scale_of

STEPS, LEAST, MOST = 255, -128, 127


def _results(operator: Operator) -> list[Scale] | None:
    """Return the scales of the results of a unit of bytes; None where a node is in none, or falls."""
    unit = unit_of(operator.node)
    if unit is None or unit.dtype not in BYTES or operator.node.attributes.get_float("alpha", 0.2) <= 0:
        return None
    scales = [scale_of(result.node) for result in unit.results]
    known = [scale for scale in scales if scale is not None and scale.is_one and scale.dtype in BYTES]
    return known if len(known) == len(scales) else None


def _as_sum_and_product(operator: Operator, _: Constants) -> Sequence[Step]:
    dtype = operator.node.outputs[0].dtype
    real = np.float32 if dtype is None else dtype.numpy()
    attributes = operator.node.attributes
    alpha, beta = attributes.get_float("alpha", 0.2), attributes.get_float("beta", 0.5)
    if not beta:
        return ()
    tops = [(MOST - int(scale.zero[0])) * float(scale.scale[0]) for scale in _results(operator) or ()]
    top = min(1.0, max(tops, default=1.0))
    most, none, least = (np.array(number, np.int8) for number in (np.sign(beta) * MOST, 0, LEAST))
    shift, factor, step = (
        np.array(number, real) for number in (abs(beta) / alpha / MOST, alpha, top / (STEPS * alpha))
    )
    return (
        Step("DequantizeLinear", (most, shift, none), "shift"),
        Step("Add", (0, "shift"), "moved"),
        Step("QuantizeLinear", ("moved", step, least), "integers"),
        Step("DequantizeLinear", ("integers", step, least), "clipped"),
        Step("DequantizeLinear", (np.array(1, np.int8), factor, none), "factor"),
        Step("Mul", ("clipped", "factor"), "scaled"),
    )


QUANTIZED = Condition("in a quantized unit of bytes", lambda operator: bool(_results(operator)))
HARD_SIGMOID_UNIT = Expansion("HardSigmoid", (QUANTIZED,), _as_sum_and_product)
