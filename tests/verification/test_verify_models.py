"""Real models against what relayout makes of them: the whole path, from .tflite to both runtimes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relayout
from relayout.verification import Verdict, VerifyReport, verify

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "models" / "tflite"
TINY = ROOT / "models"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the models of ../shared are not here")


def verified(path: Path, io: str, **options: object) -> VerifyReport:
    return verify(path, relayout.convert(path, io=io).model, **options)


@pytest.mark.parametrize("io", ["keep", "convert"])
@pytest.mark.parametrize("precision", ["float", "float16"])
def test_float_models_agree_everywhere(precision: str, io: str) -> None:
    report = verified(TINY / f"tinynet_{precision}.tflite", io, runs=3)
    assert report.ok
    assert report.first is None
    assert set(report.counts) <= {"equal", "close"}
    assert len(report.interiors) >= 10
    assert all(row.difference.max_rel < 1e-5 for row in report.rows if row.difference)
    assert all(row.spread is None for row in report.rows)


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_quantized_models_agree_in_steps(io: str) -> None:
    report = verified(TINY / "tinynet_int8.tflite", io)
    assert report.ok
    assert all(row.lsb is not None and row.lsb <= 1 for row in report.interiors)


def test_steps_before_a_softmax_are_within_what_the_source_makes_of_a_step_at_its_input() -> None:
    whole = verified(TINY / "tinynet_int8.tflite", "keep", runs=2, seed=1, tensors=False)
    assert [row.verdict for row in whole.outputs] == [Verdict.SPREAD]
    by_operator = verified(TINY / "tinynet_int8.tflite", "keep", runs=2, seed=1)
    assert [row.verdict for row in by_operator.outputs] == [Verdict.SPREAD]
    assert by_operator.outputs[0].alone is not None


def test_hybrid_models_agree_within_what_the_runtime_rounds_off() -> None:
    report = verified(TINY / "tinynet_dynamic.tflite", "keep", runs=2)
    assert report.ok
    hybrid = [row for row in report.rows if row.verdict is Verdict.SPREAD]
    assert hybrid
    assert all(row.spread.max_rel < 0.05 for row in hybrid)


@needs_shared
@pytest.mark.parametrize(
    "name",
    [
        "mobilenet_v1_0.25_128_quant",
        "mobilenet_v2_1.0_224_inat_bird_quant",
        "tf2_mobilenet_v2_1.0_224_ptq",
        "movenet_single_pose_lightning_ptq",
        "keras_lstm_mnist_ptq",
        "split_concat",
    ],
)
@pytest.mark.sampled(every=3)
def test_deployed_models_agree(name: str) -> None:
    report = verified(SHARED / "coral" / f"{name}.tflite", "keep")
    assert report.ok, report.verdict


@needs_shared
@pytest.mark.slow
def test_every_small_model_agrees() -> None:
    for path in sorted((SHARED / "tflite2onnx").glob("*.tflite")):
        for io in ("keep", "convert"):
            report = verified(path, io)
            assert report.ok, f"{path.name} {io}: {report.verdict}"


@needs_shared
def test_a_dynamic_batch_is_two() -> None:
    path = SHARED / "tflite2onnx" / "sub.float32.tflite"
    report = verified(path, "keep")
    assert [fed.shape for fed in report.inputs] == [(2, 16, 32, 64)] * 2
    assert report.ok
    array = np.random.default_rng(0).normal(size=(3, 16, 32, 64))
    report = verified(path, "keep", inputs={"term1": array, "term2": array[::-1]})
    assert [fed.shape for fed in report.inputs] == [(3, 16, 32, 64)] * 2
    assert {fed.how for fed in report.inputs} == {"given"}
    assert report.ok
