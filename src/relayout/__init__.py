"""relayout converts models between ONNX and TensorFlow Lite with the fewest transposed bytes, proved.

```python
import relayout

result = relayout.convert("model.tflite", io="keep")
print(result.report.transposes, result.report.bytes, result.report.verdict)
result.save("model.onnx")
```
"""

from __future__ import annotations

from relayout.lazy_exports import loaded_later

TYPE_CHECKING = False  # as typing has it, which takes longer to load than this: Ctrl-C ends a command while it loads
if TYPE_CHECKING:
    from relayout.errors import (
        LayoutError,
        MissingRuntimeError,
        NamesError,
        ReadError,
        RelayoutError,
        UnsupportedError,
        WriteError,
    )
    from relayout.pipeline import convert, explain, optimize
    from relayout.pipeline.onnx_ir_pass import OptimizeLayouts
    from relayout.pipeline.result import Result
    from relayout.reports.report import Report
    from relayout.verification import VerifyReport, verify

__version__ = "0.3.0"

__all__ = [
    "LayoutError",
    "MissingRuntimeError",
    "NamesError",
    "OptimizeLayouts",
    "ReadError",
    "RelayoutError",
    "Report",
    "Result",
    "UnsupportedError",
    "VerifyReport",
    "WriteError",
    "convert",
    "explain",
    "optimize",
    "verify",
]


def __dir__() -> list[str]:
    """Return the public names: what completion shows, before they are loaded."""
    return sorted([*__all__, "__version__"])


_ERRORS = (
    "LayoutError",
    "MissingRuntimeError",
    "NamesError",
    "ReadError",
    "RelayoutError",
    "UnsupportedError",
    "WriteError",
)

__getattr__ = loaded_later(  # `relayout --help` needs none of them
    __name__,
    {
        **dict.fromkeys(_ERRORS, "relayout.errors"),
        "OptimizeLayouts": "relayout.pipeline.onnx_ir_pass",
        "Report": "relayout.reports.report",
        "Result": "relayout.pipeline.result",
        "VerifyReport": "relayout.verification",
        "convert": "relayout.pipeline",
        "explain": "relayout.pipeline",
        "optimize": "relayout.pipeline",
        "verify": "relayout.verification",
    },
    "relayout.foreign_options",
)
