"""Axis signatures: one entry per ONNX operator. Facts as rows; what is chosen is the solver's business."""

from relayout.rules.facts import facts, in_standard, rule_of
from relayout.rules.layouts import DOMAIN as FUNCTIONS
from relayout.rules.layouts import Laid, is_function, laid
from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import KINDS, Rule, registry, rule
from relayout.rules.signature import (
    Attribute,
    Body,
    Changes,
    Fact,
    Letters,
    Nested,
    Permuted,
    Placement,
    Regrouped,
    Signature,
    Variant,
    Written,
)

__all__ = [
    "FUNCTIONS",
    "KINDS",
    "Attribute",
    "Body",
    "Changes",
    "Fact",
    "Laid",
    "Letters",
    "Nested",
    "Operator",
    "Permuted",
    "Placement",
    "Regrouped",
    "Rule",
    "Signature",
    "Variant",
    "Written",
    "axis_letters",
    "facts",
    "in_standard",
    "is_function",
    "laid",
    "normalized",
    "registry",
    "rule",
    "rule_of",
]
