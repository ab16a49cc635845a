"""The table of `ethos-u` beside its judge: Vela puts an operator on the NPU exactly where the table claims it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relayout
from relayout.rules import Operator, Placement, Signature
from relayout.targets import Target, target
from relayout.targets.ethos_u.table import MOST, mean_form, price
from rules.cases.making import f
from rules.law import Case
from targets.quantized_nets import spatial_attention
from targets.unit_cases import UnitCase, unit_cases
from targets.vela import judge, needs_vela

ETHOS_U = target("ethos-u")
FEWEST_BYTES = replace(ETHOS_U, price=None, per_transpose=0, per_scattered=0)


@needs_vela
@pytest.mark.sampled(every=41)
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


@needs_vela
@pytest.mark.sampled(every=41)
@pytest.mark.parametrize("case", unit_cases(), ids=str)
def test_vela_takes_for_an_ethos_u85_what_its_table_claims(case: UnitCase, tmp_path: Path) -> None:
    """It takes more than the table has: Pads of edges, comparisons, divisions, Casts."""
    model, _ = case.prepared()
    result = relayout.convert(model, target="ethos-u85", format="tflite")
    result.save(tmp_path / "unit.tflite")
    claims = result.report.claims
    assert claims is not None
    if claims.claimed < claims.total and case.case.op_type not in MORE_ON_U85:
        return
    judgement = judge(tmp_path / "unit.tflite", tmp_path, "--accelerator-config", "ethos-u85-256")
    assert (claims.claimed == claims.total) == (not judgement.on_cpu), f"{claims.operators} beside {judgement.on_cpu}"


@needs_vela
@pytest.mark.parametrize("accelerator", ["ethos-u", "ethos-u85"])
def test_an_lstm_of_real_numbers_does_not_end_vela(accelerator: str, tmp_path: Path) -> None:
    """Vela refuses the fused kernel of real numbers together with the whole file; steps run on the CPU."""
    case = Case("LSTM", {"x": f(4, 1, 3), "w": f(1, 20, 3), "r": f(1, 20, 5)}, ("w", "r"), {"hidden_size": 5})
    model, _ = case.prepared()
    result = relayout.convert(model, target=accelerator, format="tflite")
    result.save(tmp_path / "lstm.tflite")
    assert judge(tmp_path / "lstm.tflite", tmp_path).on_cpu["FULLY_CONNECTED"]
    assert relayout.verify(model, result).ok


MORE_ON_U85 = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize", "ReduceMean", "MatMul")
"""Operators whose rows say exactly what an Ethos-U85 runs."""


def test_an_ethos_u85_runs_a_long_stride() -> None:
    given = {"kernel_shape": [5, 5], "strides": [4, 4], "auto_pad": "SAME_UPPER"}
    case, claimed = UnitCase(Case("MaxPool", {"x": f(1, 6, 20, 20)}, (), given)), {}
    for name in ("ethos-u", "ethos-u85"):
        claims = relayout.convert(case.prepared()[0], target=name, format="tflite").report.claims
        assert claims is not None
        claimed[name] = claims.claimed
    assert claimed == {"ethos-u": 0, "ethos-u85": 1}


def attention(chosen: Target) -> relayout.Result:
    return relayout.convert(spatial_attention(), target=chosen, format="tflite", io="convert")


def test_the_cheapest_plan_moves_more_bytes_than_the_one_with_the_fewest() -> None:
    """Two maps of one channel are joined in fewer cycles where channels are not the last axis, and then transposed."""
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


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMean", "Pad"])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_an_operator_along_the_last_axis_has_its_price(op_type: str, axis: int) -> None:
    """Of a unit of 48 bytes each costs what Vela's cycles say, where the axis is the last; else nothing."""
    along = np.array([axis], np.int64) if op_type != "Pad" else np.eye(1, 8, axis, dtype=np.int64)[0]
    case = UnitCase(Case(op_type, {"x": f(2, 2, 3, 4), "a": along}, ("a",)))
    found: list[int] = []

    def spy(operator: Operator, signature: Signature, placement: Placement) -> int:
        if operator.name == op_type:
            found.append(price(operator, signature, placement))
        return 0

    relayout.convert(case.prepared()[0], target=replace(ETHOS_U, price=spy))
    expected = MOST[op_type] * 48 if axis == 3 else 0
    assert found
    assert found[0] == expected, "in the source's order"


@pytest.mark.parametrize(
    ("shape", "axes", "form"),
    [
        ((1, 6, 9, 8), (1, 2), ((1, 6, 9, 8), (1, 2))),
        ((2, 6, 9, 8), (1, 2), ((2, 54, 8), (1,))),
        ((2, 6, 9, 8), (3,), ((108, 8, 1), (1,))),
        ((2, 6, 9, 8), (0,), ((1, 2, 432), (1,))),
        ((2, 6, 9), (2,), ((12, 9, 1), (1,))),
        ((2, 3, 4, 5, 6), (2, 3), ((6, 20, 6), (1,))),
        ((1, 5000, 3), (1,), ((1, 2, 2500, 3), (1, 2))),
        (("N", 6, 9, 8), (1, 2), ((1, 6, 9, 8), (1, 2))),
    ],
)
def test_the_axes_of_a_mean_are_joined_where_vela_takes_it_only_so(
    shape: tuple[int | str, ...], axes: tuple[int, ...], form: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    assert mean_form(shape, axes) == form
    assert mean_form(shape, axes).is_taken


@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 6, 9, 8), (0, 2)), ((1, 4099, 3), (1,)), ((2, 70, 60, 3), (1, 2)), (("N", 6, 9, 8), (3,))]
)
def test_a_mean_that_vela_takes_in_no_form_stays(shape: tuple[int | str, ...], axes: tuple[int, ...]) -> None:
    """Axes that are no neighbours, those of a batch that are too long, a prime number of elements, an open batch."""
    form = mean_form(shape, axes)
    assert not form.is_taken
    assert form.axes == axes
