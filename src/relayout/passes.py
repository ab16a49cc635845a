"""The old home of `relayout.OptimizeLayouts`, kept for one release."""

import warnings

from relayout.pipeline.onnx_ir_pass import OptimizeLayouts

__all__ = ["OptimizeLayouts"]

warnings.warn("relayout.passes is now relayout.OptimizeLayouts", DeprecationWarning, stacklevel=2)
