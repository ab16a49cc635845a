"""There and back: real models come back equal bit for bit, with no more operators and no more transposed bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import judge_back
import numpy as np
import pytest
from comparing_runs import compared

import relayout
from conftest import KERAS, shared_models

WAYS = ("through ONNX", "at once")
ROUNDED = {"conv-transpose_relu.float32", "conv-reshape-multiple-conv.float32"}
"""Models whose floats LiteRT adds up in another order when they come back."""
MORE = {
    "conv-transpose_relu.float32": "the batch is open, so the extents of its result are computed",
    "conv-reshape-multiple-conv.float32": "through ONNX it exchanges height and width, and does not find back",
    "encoder.int8": "RESHAPEs, which move nothing, stand at other places",
    "group_norm.float32": "RESHAPEs, which move nothing, stand at other places",
}
"""Model -> why it comes back with more operators."""
NETWORKS = ("unet.int8", "encoder.int8", "detection.int8", "group_norm.float32", "keywords_1d.int16x8")
MODELS = [
    *(path for path in shared_models("tflite2onnx") if path.stat().st_size < 100_000),
    *(KERAS / f"{name}.tflite" for name in NETWORKS),
]


def back(source: Path, folder: Path, way: str) -> Path:
    result = folder / "back.tflite"
    if way == "through ONNX":
        relayout.convert(source).save(folder / "there.onnx")
        relayout.convert(folder / "there.onnx", format="tflite").save(result)
    else:
        relayout.convert(source, format="tflite").save(result)
    return result


def runs(source: Path, path: Path, folder: Path) -> dict[str, Any]:
    judge_back.run(str(source), str(path), "default", 0, str(folder / "outputs.npz"))
    with np.load(folder / "outputs.npz") as arrays:
        return dict(arrays)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", MODELS, ids=lambda path: path.stem)
def test_a_model_comes_back_as_it_was(source: Path, way: str, tmp_path: Path) -> None:
    result = back(source, tmp_path, way)
    found = compared(runs(source, source, tmp_path), runs(source, result, tmp_path))
    assert found["verdict"] == "exact" or (source.stem in ROUNDED and found["verdict"] == "right"), found
    before, after = (judge_back.facts(str(path), str(path)) for path in (source, result))
    for kind, texts in before["names"].items():
        assert kind == "tensor names" or set(texts) <= set(after["names"][kind]), kind
    added = Counter(after["operators"]) - Counter(before["operators"])
    if source.stem not in MORE:
        assert sum(after["operators"].values()) <= sum(before["operators"].values())
    if source.stem not in MORE or "move nothing" in MORE[source.stem]:
        assert after["bytes"] <= before["bytes"]
        assert set(added) <= {"RESHAPE", "SQUARED_DIFFERENCE"} or source.stem not in MORE
