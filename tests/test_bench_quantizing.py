"""`bench/quantizing.py`: a network by both ways, and the page."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import onnx
import pytest

from small import build

BENCH = Path(__file__).parents[1] / "bench" / "quantizing.py"


@pytest.mark.slow
def test_a_network_by_both_ways(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_quantizer")
    spec = spec_from_file_location("bench_quantizing", BENCH)  # tests/targets has a module of the same name
    assert spec is not None
    assert spec.loader is not None
    quantizing = module_from_spec(spec)
    spec.loader.exec_module(quantizing)
    onnx.save(build("float[1,3,8,10] x", "c = Conv(x, w) y = Relu(c)", {"w": (8, 3, 3, 3)}), tmp_path / "small.onnx")
    row = quantizing.measured(tmp_path / "small.onnx", tmp_path)
    assert all(row["ways"][way]["snr"] > 25 for way in quantizing.WAYS)
    assert "| small | `--quantize int8` |" in quantizing.page([row])
