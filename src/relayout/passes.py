"""relayout as a pass of onnx-ir, for use in a pass manager."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from relayout.pipeline import relayout_in_place


class OptimizeLayouts(InPlacePass):
    """Store every value so that the fewest bytes are transposed, interface and meaning kept.

    ```python
    onnx_ir.passes.Sequential(relayout.passes.OptimizeLayouts())(model)
    ```

    Values should have types and shapes (run shape inference before): one of unknown rank is a barrier.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Rewrite `model` in place; `modified` says whether a Transpose was saved."""
        before, after = relayout_in_place(model)
        return PassResult(model, modified=before != after)
