"""A target for tests: it claims what a test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from relayout.lowering.conditions import Condition
from relayout.rules import Operator
from relayout.targets.target_table import Kernel, Target


def claiming(
    claims: Mapping[str, Sequence[str]],
    *,
    name: str = "testing",
    joins: bool = False,
    unless: Callable[[Operator], str] = lambda _: "",
) -> Target:
    """Return a target that runs operators in layouts, on all types and ranks.

    >>> claiming({"Conv": ["NHWC OHWI"], "Relu": []}).name
    'testing'

    Args:
        claims: operator, `com.microsoft:FusedConv` outside ONNX's own domain -> its layouts, best first; none: any
            order of axes.
        name: its name.
        joins: whether it also runs the operators in the standard's order.
        unless: why it does not run a node, or an empty string.
    """
    refused = Condition("what the test says", lambda operator: not unless(operator))
    rows = []
    for operator, layouts in claims.items():
        domain, _, op_type = operator.rpartition(":")
        rows.append(Kernel(op_type, tuple(layouts), limits=(refused,), domain=domain))
    return Target(name, "what a test claims", tuple(rows), joins)
