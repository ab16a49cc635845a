"""One registry of operator rules, filled by discovery of this room's modules; a duplicate is an error."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from relayout.rules.operator import Operator
from relayout.rules.signature import Fact

KINDS = ("layout-sensitive", "layout-agnostic", "axis attributes", "regrouping", "opaque")


@dataclass(frozen=True)
class Rule:
    """The rule of one operator: its class, what it says in a line, and the facts for a node."""

    domain: str
    op_type: str
    kind: str
    line: str
    facts: Callable[[Operator], Fact]


_registered: dict[tuple[str, str], Rule] = {}


def rule(
    *op_types: str, kind: str, domain: str = ""
) -> Callable[[Callable[[Operator], Fact]], Callable[[Operator], Fact]]:
    """Register a function as the rule of operators; its docstring's first line is the row of `relayout ops`."""

    def register(facts: Callable[[Operator], Fact]) -> Callable[[Operator], Fact]:
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is none of {KINDS}")
        line = (facts.__doc__ or "").strip().partition("\n")[0]
        for op_type in op_types:
            if (domain, op_type) in _registered:
                raise ValueError(f"two rules for {domain}:{op_type}")
            _registered[domain, op_type] = Rule(domain, op_type, kind, line, facts)
        return facts

    return register


@cache
def registry() -> dict[tuple[str, str], Rule]:
    """(domain, operator) -> rule, in alphabetical order."""
    package = importlib.import_module("relayout.rules")
    for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"relayout.rules.{module}")
    return dict(sorted(_registered.items()))


def facts(operator: Operator) -> Fact:
    """What is known of a node; None where there is no rule for it."""
    domain = "" if operator.node.domain == "ai.onnx" else operator.node.domain
    found = registry().get((domain, operator.name))
    return None if found is None else found.facts(operator)
