"""One registry of operator rules, filled by discovery of this room's modules; a duplicate is an error."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from relayout.rules.operator import Operator
from relayout.rules.signature import Fact, Permuted, Signature

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
    """Register a function as the rule of operators; its docstring's first line is the row of `relayout ops`.

    Args:
        op_types: names of operators; one string may hold several.
        kind: the class of the operators, one of `KINDS`.
        domain: the operators' domain.
    """

    def register(facts: Callable[[Operator], Fact]) -> Callable[[Operator], Fact]:
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is none of {KINDS}")
        line = (facts.__doc__ or "").strip().partition("\n")[0]
        for op_type in " ".join(op_types).split():
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
    """What is known of a node; None where there is no rule for it, or the node is not as its operator is defined."""
    domain = "" if operator.node.domain == "ai.onnx" else operator.node.domain
    found = registry().get((domain, operator.name))
    if found is None:
        return None
    try:
        fact = found.facts(operator)
    except (IndexError, TypeError, ValueError):
        return None  # an input, output or attribute that the operator must have is missing or of another type
    return _fitted(fact, operator)


def _fitted(fact: Fact, operator: Operator) -> Fact:
    """The fact, if it names as many axes as the operands have; outputs that nobody asked for have none."""
    if isinstance(fact, Permuted):
        return fact if sorted(fact.perm) == list(range(operator.rank() or 0)) else None
    if not isinstance(fact, Signature):
        return fact
    if len(fact.inputs) != len(operator.inputs) or len(fact.outputs) != len(operator.outputs):
        return None
    outputs = tuple(letters if operator.gives(slot) else None for slot, letters in enumerate(fact.outputs))
    pairs = [*zip(fact.inputs, operator.inputs, strict=True), *zip(outputs, operator.outputs, strict=True)]
    fits = all(letters is None or (shape is not None and len(shape) == len(letters)) for letters, shape in pairs)
    return replace(fact, outputs=outputs) if fits else None
