"""`bench/quantizing.py`: a network by all ways, and the page."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import onnx
import pytest

import relayout
from small import build

BENCH = Path(__file__).parents[1] / "bench" / "quantizing.py"


@pytest.mark.slow
def test_a_network_by_all_ways(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_quantizer")
    spec = spec_from_file_location("bench_quantizing", BENCH)  # tests/targets has a module of the same name
    assert spec is not None
    assert spec.loader is not None
    quantizing = module_from_spec(spec)
    spec.loader.exec_module(quantizing)
    source = tmp_path / "small.onnx"
    onnx.save(build("float[1,3,8,10] x", "c = Conv(x, w) y = Relu(c)", {"w": (8, 3, 3, 3)}), source)
    np.savez(tmp_path / "small.npz", x=np.random.default_rng(0).normal(size=(9, 1, 3, 8, 10)).astype(np.float32))
    relayout.convert(source, format="tflite").save(tmp_path / "small.litert.tflite")
    (tmp_path / "small.litert.tflite").rename(tmp_path / "small.litert")  # stands for litert-torch's
    row = quantizing.measured(source, tmp_path)
    assert all(row["ways"][way]["snr"] > 25 for way in quantizing.WAYS)
    assert "| small | " in quantizing.page([row])
