"""One registry of operator rules, filled by discovery of this room's modules; a duplicate is an error."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from relayout.rules.operator import Operator
from relayout.rules.signature import Fact

KINDS = ("layout-sensitive", "layout-agnostic", "axis attributes", "regrouping", "opaque")


@dataclass(frozen=True)
class Rule:
    """The rule of one operator.

    Args:
        domain: the operator's domain.
        op_type: its name.
        kind: its class, one of `KINDS`.
        line: what it says, in a line.
        facts: the facts for a node.
        layouts: input -> the standard names of its first two axes, for an operator on images: `NC` for an image, `OI`
            or `IO` for a kernel. Outputs of rank 3 and more are images, too. Empty: no layout has a name here.
    """

    domain: str
    op_type: str
    kind: str
    line: str
    facts: Callable[[Operator], Fact]
    layouts: Mapping[int, str] = field(default_factory=dict)


_registered: dict[tuple[str, str], Rule] = {}


def rule(
    *op_types: str, kind: str, domain: str = "", layouts: Mapping[int, str] | None = None
) -> Callable[[Callable[[Operator], Fact]], Callable[[Operator], Fact]]:
    """Register a function as the rule of operators; its docstring's first line is the row of `relayout ops`.

    Args:
        op_types: names of operators; one string may hold several.
        kind: the class of the operators, one of `KINDS`.
        domain: the operators' domain.
        layouts: input -> the standard names of its first two axes (`Rule.layouts`).
    """

    def register(facts: Callable[[Operator], Fact]) -> Callable[[Operator], Fact]:
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is none of {KINDS}")
        line = (facts.__doc__ or "").strip().partition("\n")[0]
        for op_type in " ".join(op_types).split():
            if (domain, op_type) in _registered:
                raise ValueError(f"two rules for {domain}:{op_type}")
            _registered[domain, op_type] = Rule(domain, op_type, kind, line, facts, layouts or {})
        return facts

    return register


@cache
def registry() -> dict[tuple[str, str], Rule]:
    """(domain, operator) -> rule, in alphabetical order."""
    package = importlib.import_module("relayout.rules")
    for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"relayout.rules.{module}")
    return dict(sorted(_registered.items()))
