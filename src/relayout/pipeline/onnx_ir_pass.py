"""relayout as a pass of onnx-ir, for use in a pass manager."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from relayout.arguments import BYTES, FLAG, checked
from relayout.pipeline.in_place import relayout_in_place
from relayout.pipeline.request import OPTIONS, LayoutRequest, Request, SolverOptions
from relayout.targets import Target, Wishes


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
        return LayoutRequest(wishes=Wishes.of(self.to, self.target))

    def call(self, model: ir.Model) -> PassResult:
        """Rewrite `model` in place; `modified` says whether a Transpose was saved, or the model is for a target now."""
        layouts = self._layouts()
        before, after = relayout_in_place(model, Request(layout=layouts, solver=self.solver))
        return PassResult(model, modified=before != after or bool(layouts))
