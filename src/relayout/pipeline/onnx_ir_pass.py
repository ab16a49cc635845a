"""relayout as a pass of onnx-ir, for use in a pass manager."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from relayout.arguments import BYTES, FLAG, checked
from relayout.pipeline.in_place import relayout_in_place
from relayout.pipeline.request import Request, SolverOptions


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
    """

    @checked(per_transpose=BYTES, exchange=FLAG)
    def __init__(self, *, per_transpose: int | None = None, exchange: bool = False) -> None:
        super().__init__()
        self.per_transpose, self.exchange = per_transpose, exchange

    def call(self, model: ir.Model) -> PassResult:
        """Rewrite `model` in place; `modified` says whether a Transpose was saved."""
        before, after = relayout_in_place(
            model, Request(solver=SolverOptions(self.per_transpose, exchange=self.exchange))
        )
        return PassResult(model, modified=before != after)
