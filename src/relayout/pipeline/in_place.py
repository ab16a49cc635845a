"""Optimize an onnx-ir model in place, for passes of others."""

from __future__ import annotations

import onnx_ir as ir

from relayout.apply.apply import apply
from relayout.graph.facts import facts_of
from relayout.graph.source_names import forget
from relayout.pipeline.planning import planned
from relayout.pipeline.request import Request
from relayout.rules import is_known, outputs_of


def relayout_in_place(model: ir.Model, request: Request) -> tuple[tuple[int, int], tuple[int, int]]:
    """Optimize a model in place, as `optimize` does.

    Where nothing is to be won the model is not touched.

    Returns:
        (Transposes, bytes) before and after.
    """
    from relayout.formats.onnx import complete, lift_constants, restore_calls, spell_out

    lift_constants(model)
    spell_out(model, is_known)
    if facts_of(model).calls is not None:
        complete(model, outputs_of)  # nothing is known of what is inside
    plan = planned(model, request, no_regression=request.solver.per_transpose is None)
    before = plan.plan.source_count, plan.plan.source_size
    after = len(plan.plan.crossings), plan.plan.size
    if not plan.saves_nothing:
        apply(model, plan.plan)
    plan.merge_duplicates()
    forget(model.graph)
    restore_calls(model)
    return before, after
