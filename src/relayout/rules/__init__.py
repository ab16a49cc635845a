"""Axis signatures: one entry per ONNX operator. Facts as rows; what is chosen is the solver's business."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relayout.lazy_exports import loaded_later
from relayout.rules.elementwise import aligned
from relayout.rules.facts import (
    Facts,
    domain_of_version,
    draws,
    facts,
    has_own_layouts,
    in_standard,
    is_known,
    is_on_images,
    is_reshaped,
    is_transposed,
    is_view,
    may_go,
    may_repeat,
    rule_of,
)
from relayout.rules.layouts import OperatorLayouts, is_function, variant_in_layouts
from relayout.rules.operator import WRAPPING, Operator, axis_letters, normalized
from relayout.rules.quantization import undoes
from relayout.rules.registry import FUNCTIONS, KINDS, LayoutVariant, Rule, registry, rule
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
    Step,
    Variant,
    Written,
)

if TYPE_CHECKING:
    from relayout.rules.registration import register, register_variant, scope
    from relayout.rules.shape_functions import outputs_of

__getattr__ = loaded_later(
    __name__,
    {
        "check": "relayout.verification.law",  # it runs models
        "outputs_of": "relayout.rules.shape_functions",
        **dict.fromkeys(("register", "register_variant", "scope"), "relayout.rules.registration"),
    },
)

__all__ = [
    "FUNCTIONS",
    "KINDS",
    "WRAPPING",
    "Attribute",
    "Body",
    "Changes",
    "Fact",
    "Facts",
    "LayoutVariant",
    "Letters",
    "Nested",
    "Operator",
    "OperatorLayouts",
    "Permuted",
    "Placement",
    "Regrouped",
    "Rule",
    "Signature",
    "Step",
    "Variant",
    "Written",
    "aligned",
    "axis_letters",
    "check",
    "domain_of_version",
    "draws",
    "facts",
    "has_own_layouts",
    "in_standard",
    "is_function",
    "is_known",
    "is_on_images",
    "is_reshaped",
    "is_transposed",
    "is_view",
    "may_go",
    "may_repeat",
    "normalized",
    "outputs_of",
    "register",
    "register_variant",
    "registry",
    "rule",
    "rule_of",
    "scope",
    "undoes",
    "variant_in_layouts",
]
