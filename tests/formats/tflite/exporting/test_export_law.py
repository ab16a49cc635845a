"""Every operator that is exported computes in LiteRT what it computes in ONNX Runtime."""

from __future__ import annotations

import pytest
from export_cases import TOLERANCE, cases
from export_running import agrees

from relayout.errors import UnsupportedError
from relayout.formats.tflite.exporting.registry import entries
from rules.law import Case

REFUSED: dict[str, str] = {}
"""Case, or a part of its name -> the reason for which LiteRT cannot run it."""


@pytest.mark.parametrize("case", cases(), ids=str)
def test_litert_computes_what_onnx_runtime_computes(case: Case) -> None:
    reason = next((reason for part, reason in REFUSED.items() if part in str(case)), None)
    model, feed = case.prepared()
    try:
        agrees(model, feed, tolerance=TOLERANCE.get(case.op_type, 1.0))
    except UnsupportedError as error:
        assert reason is not None and reason in str(error), f"refused: {error}"  # noqa: PT017 - either is right
