"""A quantized unit, DequantizeLinear -> operator -> QuantizeLinear, that one operator on integers computes."""

from collections.abc import Mapping
from typing import NamedTuple

import onnx_ir as ir

from relayout.formats.tflite.container.enums import ActivationFunctionType


class UnitNodes(NamedTuple):
    """The nodes that an operator on integers replaces.

    Args:
        node: the operator between real numbers.
        quantize: output of the node, or of its activation -> the equal QuantizeLinear nodes that read it.
        activation: a Relu or Clip between the two; None: there is none.
        fused: the activation that the kernel applies, where the range of the integers does not imply it.
        kernel: the (scale, zero point) of signed integers that the kernel gives, where another is asked for: a QUANTIZE
            follows it. None: as asked for.
    """

    node: ir.Node
    quantize: Mapping[ir.Value, tuple[ir.Node, ...]]
    activation: ir.Node | None = None
    fused: ActivationFunctionType = ActivationFunctionType.NONE
    kernel: tuple[float, int] | None = None


QuantizedUnits = Mapping[ir.Node, UnitNodes]
"""Operator -> its unit, for the operators that run on integers."""
