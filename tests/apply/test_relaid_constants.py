"""Constants in another order of axes are copied a piece at a time, when they are written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import relayout
from running import run

CHANNELS, SIDE, ROWS = 64, 16, 128
SIZE = ROWS * CHANNELS * SIDE * SIDE * 4


def network() -> onnx.ModelProto:
    """A product behind an image: channels last, its weights are re-laid, 8 MB of them."""
    source = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[1, {CHANNELS}, {SIDE}, {SIDE}] x) => (float[1, {ROWS}] y) {{
            c = MaxPool<kernel_shape = [1, 1]>(x)
            f = Flatten(c)
            y = Gemm<transB = 1>(f, w)
        }}""")
    weights = np.random.default_rng(0).normal(size=(ROWS, CHANNELS * SIDE * SIDE)).astype(np.float32)
    source.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return source


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_no_second_copy_of_a_weight_is_made(tmp_path: Path, suffix: str) -> None:
    source = network()
    onnx.save(source, tmp_path / "source.onnx")
    result = relayout.convert(tmp_path / "source.onnx", format=suffix, to="NHWC" if suffix == "onnx" else None)  # type: ignore[arg-type]
    tracemalloc.start()
    result.save(tmp_path / f"result.{suffix}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.6 * SIZE, "the source's array is one copy; another order of it is a second"
    if suffix == "onnx":
        x = np.random.default_rng(1).normal(size=(1, CHANNELS, SIDE, SIDE)).astype(np.float32)
        (expected,) = run(source, {"x": x})
        (given,) = run(onnx.load(tmp_path / "result.onnx"), {"x": x})
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-3)
