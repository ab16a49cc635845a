"""Every operator that is exported computes in LiteRT what it computes in ONNX Runtime."""

from __future__ import annotations

import pytest
from export_cases import TOLERANCE, cases
from export_running import agrees

from relayout.errors import UnsupportedError
from relayout.formats.tflite.exporting.registry import entries
from rules.law import Case

REFUSED: dict[str, str] = {
    "Inverse-21-2x3x6x4x4-": "inverses of more than three rows",
    "Pad-21-2x3x4x6_8-modeedge": "the amount of padding by edge is computed",
    "Pad-21-2x3x4x6_8-modewrap": "the amount of padding by wrap is computed",
    "Resize-13-2x6x9x8_8_4-modelinear_coordinate_transformation_modetf_crop_and_resize-constants": "tf_crop_and_resize",
    "RoiAlign-10-2x6x9x8_4x4_4-output_height3_output_width2": "as many samples as a region is large",
    "RoiAlign-16-2x6x9x8_4x4_4-output_height3_output_width2": "as many samples as a region is large",
    "Unique-21-2x6x4-axis-2_sorted0": "rows that are compared as a whole",
}
"""Case -> the reason for which it is refused."""
UNTRIED = dict.fromkeys(("If", "Loop"), "held by test_export_control.py")
"""Operator -> the reason why no case exercises it."""


@pytest.mark.parametrize("case", cases(), ids=str)
def test_litert_computes_what_onnx_runtime_computes(case: Case) -> None:
    reason = next((reason for name, reason in REFUSED.items() if str(case) == name), None)
    model, feed = case.prepared()
    try:
        agrees(model, feed, tolerance=TOLERANCE.get(case.op_type, 1.0))
    except UnsupportedError as error:
        assert reason is not None, f"refused: {error}"  # noqa: PT017 - either is right
        assert reason in str(error)  # noqa: PT017
    else:
        assert reason is None, "it is not refused any more: take it from REFUSED"


def test_every_operator_has_a_case() -> None:
    covered = {(case.domain, case.op_type) for case in cases()} | {("", name) for name in UNTRIED}
    missing = [f"{domain}:{name}".lstrip(":") for domain, name in entries() if (domain, name) not in covered]
    assert not missing, f"without a case in tests/formats/tflite/exporting/export_cases_*.py: {', '.join(missing)}"
