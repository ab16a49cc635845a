"""Tiny Keras networks in five number formats (`bench/make_keras.py --tiny`): converted, proved, run beside LiteRT."""

from __future__ import annotations

from pathlib import Path

import pytest

import relayout
from conftest import KERAS

QUICK = ("unet.float32", "detection.int8", "keywords.int16x8", "group_norm.float16", "lstm_fused.int8", "unet.dynamic")
"""One of each format; the others are slow together."""

MODELS = [
    pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow, id=path.stem)
    for path in sorted(KERAS.glob("*.tflite"))
]


@pytest.mark.parametrize("io", ["keep", "convert"])
@pytest.mark.parametrize("path", MODELS)
def test_a_network_is_proved_and_agrees(path: Path, io: str, tmp_path: Path) -> None:
    result = relayout.convert(path, io=io)
    assert result.report.proved
    result.save(tmp_path / "model.onnx")
    verified = relayout.verify(path, tmp_path / "model.onnx")
    assert verified.ok, verified.verdict


def test_every_format_is_there() -> None:
    formats = {path.stem.partition(".")[2] for path in KERAS.glob("*.tflite")}
    assert formats == {"float32", "float16", "dynamic", "int8", "int16x8"}
    assert sum(path.stat().st_size for path in KERAS.iterdir()) < 1_000_000
