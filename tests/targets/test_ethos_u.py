"""The table of `ethos-u` beside its judge: Vela puts an operator on the NPU exactly where the table claims it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import relayout
from relayout.targets import Target, target
from targets.quantized_nets import spatial_attention
from targets.unit_cases import UnitCase, unit_cases
from targets.vela import judge, needs_vela

ETHOS_U = target("ethos-u")
FEWEST_BYTES = replace(ETHOS_U, price=None, per_transpose=0, per_scattered=0)


@needs_vela
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


def attention(chosen: Target) -> relayout.Result:
    return relayout.convert(spatial_attention(), target=chosen, format="tflite", io="convert")


def test_the_cheapest_plan_moves_more_bytes_than_the_one_with_the_fewest() -> None:
    """Channels are transposed in fewer cycles than their greatest is found along the last axis."""
    priced, fewest = attention(ETHOS_U), attention(FEWEST_BYTES)
    assert priced.report.bytes > fewest.report.bytes
    for result in (priced, fewest):
        claims = result.report.claims
        assert claims is not None
        assert claims.claimed == claims.total, "a mean over channels runs on the NPU where another axis comes last"


@needs_vela
@pytest.mark.slow
def test_vela_counts_fewer_cycles_for_the_cheapest_plan(tmp_path: Path) -> None:
    cycles = []
    for name, chosen in (("priced", ETHOS_U), ("fewest", FEWEST_BYTES)):
        attention(chosen).save(tmp_path / f"{name}.tflite")
        judgement = judge(tmp_path / f"{name}.tflite", tmp_path)
        assert not judgement.on_cpu
        cycles.append(judgement.cycles)
    assert cycles[0] < cycles[1]
