"""What a target runs as other operators, since it takes longer for the one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relayout.rules import Operator
from relayout.rules.signature import Constants, Step
from relayout.targets.conditions import Condition

Steps = Callable[[Operator, Constants], Sequence[Step]]
"""The operators that stand for a node, of it and its constants; none where it stays."""


@dataclass(frozen=True)
class Expansion:
    """An operator that is written as others before layouts are chosen.

    Args:
        op_type: the operator, of ONNX's own domain.
        limits: what must hold of its nodes.
        steps: what stands for one. Each gives what it reads first in shape, or is a Transpose of it.
    """

    op_type: str
    limits: tuple[Condition, ...]
    steps: Steps

    def takes(self, operator: Operator) -> bool:
        """Whether it is about a node."""
        named = operator.node.domain in ("", "ai.onnx") and operator.name == self.op_type
        return named and all(limit.holds(operator) for limit in self.limits)
