"""A quantized unit, DequantizeLinear -> operator -> QuantizeLinear, that one operator on integers computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import onnx_ir as ir


class QuantizedUnit(NamedTuple):
    """What an operator on integers takes the place of.

    Args:
        node: the operator between real numbers.
        quantize: output of the node, or of its activation -> the equal QuantizeLinear nodes that read it.
        activation: a Relu or Clip between the two; None: there is none.
        requantize: output -> the (scale, zero point) that the operator's kernel gives, where another is asked for: a
            QUANTIZE follows it.
    """

    node: ir.Node
    quantize: Mapping[ir.Value, tuple[ir.Node, ...]]
    activation: ir.Node | None = None
    requantize: tuple[float, int] | None = None


QuantizedUnits = Mapping[ir.Node, QuantizedUnit]
"""Operator -> its unit, for the operators that run on integers."""
