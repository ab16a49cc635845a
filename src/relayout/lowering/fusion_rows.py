"""What a target runs as a part of a kernel: a sum and an activation after a convolution."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from relayout.lowering.conditions import Condition, is_about
from relayout.rules import Operator

Parameters = Callable[[Operator], tuple[float, ...] | None]
"""The parameters of an activation, as the kernel wants them; None where it cannot run it."""


class Fusion(NamedTuple):
    """An operator that takes in what alone reads it: a sum with another operand, then an activation.

    Args:
        op_type: the operator, of ONNX's own domain.
        limits: what must hold of its nodes.
        domain: the domain of the node that runs it all.
        written: its operator.
        sums: operators whose other operand it takes in.
        slot: the input that takes that operand.
        activations: operator -> its parameters, for the attributes `activation` and `activation_params`.
    """

    op_type: str
    limits: tuple[Condition, ...]
    domain: str
    written: str
    sums: tuple[str, ...]
    slot: int
    activations: Mapping[str, Parameters]

    def takes(self, operator: Operator) -> bool:
        """Whether it is about a node."""
        return is_about(operator, self.op_type, self.limits)
