"""Axis signatures: one entry per ONNX operator. Facts as rows; what is chosen is the solver's business."""

from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import KINDS, Rule, facts, registry, rule
from relayout.rules.signature import (
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
)

__all__ = [
    "KINDS",
    "Body",
    "Changes",
    "Fact",
    "Letters",
    "Nested",
    "Operator",
    "Permuted",
    "Placement",
    "Regrouped",
    "Rule",
    "Signature",
    "Variant",
    "axis_letters",
    "facts",
    "normalized",
    "registry",
    "rule",
]
