"""Barriers: operators of which no axis is known, and Reshapes that mix elements."""

from __future__ import annotations

import numpy as np

from relayout.infer.sites import View
from relayout.layout import segments
from relayout.rules import Changes, Operator, Permuted, Placement, Regrouped, Signature, is_known, rule_of


def why_barrier(operator: Operator) -> str:
    """Why an operator that has no signature is a barrier."""
    given = zip(operator.node.inputs, operator.inputs, strict=True)
    if is_known(operator.node) and any(value is not None and shape is None for value, shape in given):
        return f"the rank of what {operator.name} reads is not known"
    rule = rule_of(operator)
    if rule is not None and rule.kind == "opaque" and rule.line:
        return f"{operator.name} {rule.line[0].lower()}{rule.line[1:].rstrip('.')}"
    return f"what {operator.name} does with axes is not known here"


def barrier_signature(fact: Permuted | Regrouped, view: View) -> Signature | None:
    """A Reshape that mixes elements: every segment keeps its own order, but segments may change places."""
    parts = segments(view.extents, fact.shape) if isinstance(fact, Regrouped) else None
    if parts is None or not isinstance(fact, Regrouped) or sum(isinstance(dim, str) for dim in fact.shape) > 1:
        return None
    inputs, outputs = [""] * len(view.dims), [""] * len(fact.shape)
    for number, part in enumerate(parts):
        for axis in part.source:
            inputs[axis] = f"g{number}"
        for axis in part.target:
            outputs[axis] = f"g{number}"
    whole = frozenset(inputs) | frozenset(outputs)
    return Signature((tuple(inputs), None), (tuple(outputs),), whole=whole, changes=_reshape)


def _reshape(placement: Placement) -> Changes:
    """A Reshape to the stored shape of its output, whatever operator it was."""
    extents = placement.extents(output=True)
    shape = [extent.number if extent.is_static else -1 for extent in extents]
    removed = dict.fromkeys(("axis", "axes", "allowzero"))
    return Changes(removed, {1: np.array(shape, np.int64)}, op_type="Reshape")
