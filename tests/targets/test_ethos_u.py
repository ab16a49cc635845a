"""The table of `ethos-u` beside its judge: Vela puts an operator on the NPU exactly where the table claims it."""

from __future__ import annotations

from pathlib import Path

import pytest

import relayout
from relayout.targets import target
from targets.unit_cases import UnitCase, unit_cases
from targets.vela import judge, needs_vela

pytestmark = needs_vela
ETHOS_U = target("ethos-u")


@pytest.mark.slow
@pytest.mark.parametrize("case", unit_cases(), ids=str)
def test_vela_takes_what_the_table_claims(case: UnitCase, tmp_path: Path) -> None:
    model, _ = case.prepared()
    result = relayout.convert(model, target=ETHOS_U, format="tflite")
    result.save(tmp_path / "unit.tflite")
    claims = result.report.claims
    assert claims is not None
    judgement = judge(tmp_path / "unit.tflite", tmp_path)
    assert judgement.on_npu or claims.claimed < claims.total
    assert (claims.claimed == claims.total) == (not judgement.on_cpu), f"{claims.operators} beside {judgement.on_cpu}"
