"""Optimize an onnx-ir model in place, for passes of others."""

from __future__ import annotations

import onnx_ir as ir

from relayout.apply.apply import apply
from relayout.graph.facts import facts_of
from relayout.graph.source_names import forget
from relayout.pipeline.planning import planned
from relayout.pipeline.request import Request
from relayout.pipeline.target_passes import as_kernels, as_transposes, avoid_saturation, state_blocks
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
    lowered = () if request.target is None else as_kernels(model, request.target)
    no_regression = request.solver.per_transpose is None and not request.layout
    plan = planned(model, request, no_regression=no_regression)
    before = plan.plan.source_count, plan.plan.source_size
    after = len(plan.plan.crossings), plan.plan.size
    target = request.target
    if lowered or not plan.saves_nothing:
        blocks, single = (None, None) if target is None else (target.blocks, target.single_consumers)
        apply(model, plan.plan, blocks, single)
    plan.merge_duplicates()
    forget(model.graph)
    if target is None:
        restore_calls(model)
    if target is not None:
        for lowering in (as_transposes, avoid_saturation, state_blocks):
            lowering(model, target)
    return before, after
