"""What a target runs as other operators, since it takes longer for the one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from relayout import arguments
from relayout.errors import LayoutError, shortened
from relayout.light_dataclass import dataclass
from relayout.lowering.conditions import Condition, is_about
from relayout.lowering.table_checks import check_operators
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants

MOST_SHOWN = 200
"""Characters of an answer in a message."""
_STEP = {
    "op_type": arguments.WORDS,
    "inputs": arguments.instance(tuple, "a tuple of operands, such as (0, 'half')"),
    "name": arguments.TEXT,
    "attributes": arguments.mapping("{'axis': 1}", lambda value: True),
}
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
            # This package's own steps: a stranger's node lacks an operand or attribute that its operator must have. A
            # user's steps are a `UsersFunction`, which raises nothing of these kinds.
            return ()


def why_not_written(operator: Operator, steps: Any) -> str:
    """Say why steps cannot be written; empty where they can."""
    if not isinstance(steps, Sequence) or not all(isinstance(step, Step) for step in steps):
        return f"it returns {shortened(repr(steps), MOST_SHOWN)}, not a tuple of Step"
    known: set[object] = set(range(len(operator.node.inputs)))
    for step in steps:
        try:
            arguments.check(step._asdict(), _STEP, where=f"step {step.op_type!r}: ", error=LayoutError)
            check_operators([step.op_type])
            for name, value in step.attributes.items():
                ir.convenience.convert_attribute(name, value)
        except (LayoutError, TypeError) as error:
            return str(error)
        unknown = [each for each in step.inputs if isinstance(each, int | str) and each not in known]
        if unknown:
            return f"{step.op_type} reads {unknown[0]!r}, which nothing gives"
        known.add(step.name)
    return ""
