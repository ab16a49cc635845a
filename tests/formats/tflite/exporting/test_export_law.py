"""Every operator that is exported computes in LiteRT what it computes in ONNX Runtime."""

from __future__ import annotations

import pytest
from export_cases import TOLERANCE, cases
from export_refused import REFUSED
from export_running import agrees

from relayout.errors import UnsupportedError
from relayout.formats.tflite.exporting import attention_definitions, ml_definitions, standard_definitions
from relayout.formats.tflite.exporting.registry import entries
from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.graph.domains import MICROSOFT
from rules.law import Case

UNTRIED = {
    **dict.fromkeys((("", "If"), ("", "Loop")), "held by test_export_control.py"),
    (ml_definitions.DOMAIN, "TreeEnsemble"): "held by test_trees.py",
    **{key: "held by test_there_and_back.py" for key in entries() if key[0] == DOMAIN},
}
"""(Domain, operator) -> the reason why no case exercises it."""


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
    covered = {(case.domain, case.op_type) for case in cases()} | UNTRIED.keys()
    written = [*entries(), *((ml_definitions.DOMAIN, name) for name in ml_definitions.DEFINITIONS)]
    written += [(MICROSOFT, name) for name in attention_definitions.DEFINITIONS]
    written += [("", name) for name in standard_definitions.DEFINITIONS]
    missing = [f"{domain}:{name}".lstrip(":") for domain, name in written if (domain, name) not in covered]
    assert not missing, f"without a case in tests/formats/tflite/exporting/export_cases_*.py: {', '.join(missing)}"
