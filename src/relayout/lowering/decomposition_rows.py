"""What a target runs as other operators, since it takes longer for the one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relayout import arguments
from relayout.errors import LayoutError
from relayout.light_dataclass import dataclass
from relayout.lowering.conditions import Condition, is_about
from relayout.lowering.table_checks import check_operators
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants

Steps = Callable[[Operator, Constants], Sequence[Step]]
"""The operators that stand for a node, of it and its constants; none where it stays."""


@dataclass(frozen=True)
class Expansion:
    """An operator that is written as others before layouts are chosen.

    Args:
        op_type: the operator, of ONNX's own domain.
        limits: what must hold of its nodes.
        steps: what stands for one.
    """

    op_type: str
    limits: tuple[Condition, ...]
    steps: Steps

    def __post_init__(self) -> None:
        """See that every part is what it is taken for.

        Raises:
            LayoutError: one is not, or ONNX has no such operator.
        """
        kinds = {"op_type": arguments.WORDS, "limits": arguments.several_of(Condition), "steps": arguments.FUNCTION}
        arguments.check_fields(self, "an expansion: ", LayoutError, **kinds)
        check_operators([self.op_type])

    def takes(self, operator: Operator) -> bool:
        """Whether it is about a node."""
        return is_about(operator, self.op_type, self.limits)

    def of(self, operator: Operator, given: Constants) -> Sequence[Step]:
        """What stands for a node; nothing, too, where it is not as its operator is defined."""
        try:
            return self.steps(operator, given)
        except (IndexError, TypeError, ValueError):
            return ()  # an operand or attribute that the operator must have is missing, or of another shape
