"""What is known of a node."""

from __future__ import annotations

from dataclasses import replace

from relayout.errors import LayoutError
from relayout.rules.layouts import Laid, is_function, laid, stored, unlaid
from relayout.rules.operator import Operator
from relayout.rules.registry import Rule, registry
from relayout.rules.signature import Fact, Permuted, Signature


def rule_of(operator: Operator) -> Rule | None:
    """The rule of a node, or of the operator in the body of a function that is named for its layouts."""
    domain = "" if operator.node.domain == "ai.onnx" else operator.node.domain
    if is_function(operator):
        return next((rule for (_, op_type), rule in registry().items() if op_type == operator.name), None)
    return registry().get((domain, operator.name))


def facts(operator: Operator) -> Fact:
    """What is known of a node; None where there is no rule for it, or the node is not as its operator is defined."""
    rule = rule_of(operator)
    if rule is None:
        return None
    try:
        fact = _of_function(operator, rule) if is_function(operator) else rule.facts(operator)
    except (IndexError, TypeError, ValueError, LayoutError):
        return None  # an input, output or attribute that the operator must have is missing or of another type
    return _fitted(fact, operator)


def in_standard(operator: Operator) -> tuple[Operator, Signature] | None:
    """A node, or the one in a function's body, with its signature in the standard's order; None: not known."""
    rule = rule_of(operator)
    if rule is None:
        return None
    try:
        inner = unlaid(operator, rule) if is_function(operator) else operator
        fact = _fitted(rule.facts(inner), inner)
    except (IndexError, TypeError, ValueError, LayoutError):
        return None
    return (inner, fact) if isinstance(fact, Signature) else None


def _of_function(operator: Operator, rule: Rule) -> Fact:
    """A function's call: the standard's signature, in the function's layouts only."""
    inner = unlaid(operator, rule)
    fact = _fitted(rule.facts(inner), inner)
    if not isinstance(fact, Signature):
        return None
    return stored(fact, laid(rule, inner, fact, Laid.of_domain(operator.node.domain)))


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
