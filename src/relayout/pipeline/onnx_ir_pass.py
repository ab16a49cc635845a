"""relayout as a pass of onnx-ir, for use in a pass manager."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from relayout.apply.apply import apply
from relayout.arguments import BYTES, FLAG, checked
from relayout.graph.facts import facts_of
from relayout.graph.passes import Stage
from relayout.graph.source_names import forget
from relayout.lowering.passes import lower
from relayout.pipeline.planning import planned
from relayout.pipeline.request import OPTIONS, LayoutRequest, Request, SolverOptions
from relayout.rules import is_known, outputs_of
from relayout.targets import DesiredLayouts, Target

# Optimize an onnx-ir model in place, for passes of others.


def relayout_in_place(model: ir.Model, request: Request) -> tuple[tuple[int, int], tuple[int, int]]:
    """Optimize a model in place, as `optimize` does.

    Where nothing is to be won the model is not touched.

    Returns:
        (Transposes, bytes) before and after.
    """
    from relayout.formats.onnx.calls import restore_calls
    from relayout.formats.onnx.completing import complete
    from relayout.formats.onnx.spelling import lift_constants, spell_out

    lift_constants(model)
    spell_out(model, is_known)
    if facts_of(model).calls is not None:
        complete(model, outputs_of)  # nothing is known of what is inside
    lowered = lower(model, request.target, Stage.GRAPH)
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
    for stage in (Stage.PLACED, Stage.FINAL):
        lower(model, target, stage)
    return before, after


class OptimizeLayouts(InPlacePass):
    """Store every value so that the fewest bytes are transposed, interface and meaning kept.

    ```python
    onnx_ir.passes.Sequential(relayout.OptimizeLayouts())(model)
    ```

    Values should have types and shapes (run shape inference before): one of unknown rank is a barrier.

    Args:
        per_transpose: bytes that each Transpose costs besides those that it moves; by default nothing, but there are no
            more of them than before, and no more that copy single elements.
        exchange: let a MatMul or Gemm run with its operands exchanged, where that saves bytes.
        target: what the model is for, as `relayout.convert` takes it: a name, a file, or a `Target`.
        to: the layout of all layout-sensitive operators that the target runs: `NHWC`.
    """

    @checked(per_transpose=BYTES, exchange=FLAG, target=OPTIONS["target"], to=OPTIONS["to"])
    def __init__(
        self,
        *,
        per_transpose: int | None = None,
        exchange: bool = False,
        target: str | Target | None = None,
        to: str | None = None,
    ) -> None:
        super().__init__()
        self.solver = SolverOptions(per_transpose, exchange=exchange)
        self.target, self.to = target, to
        self._layouts()  # a wrong name is an error here, not when the pass runs

    def _layouts(self) -> LayoutRequest:
        return LayoutRequest(desired=DesiredLayouts.of(self.to, self.target))

    def call(self, model: ir.Model) -> PassResult:
        """Rewrite `model` in place; `modified` says whether a Transpose was saved, or the model is for a target now."""
        layouts = self._layouts()
        before, after = relayout_in_place(model, Request(layout=layouts, solver=self.solver))
        return PassResult(model, modified=before != after or bool(layouts))
