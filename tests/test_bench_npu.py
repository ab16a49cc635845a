"""`bench/npu.py` quantizes, converts, asks Vela, and writes its page; with Vela absent the page of an earlier run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import npu
import numpy as np
import onnx
import pytest
from by_vela import PROGRAM

ROOT = Path(__file__).parents[1]
NETWORK = """<ir_version: 8, opset_import: ["" : 17]> small (float[1, 3, 12, 10] x) => (float[1, 8, 6, 5] y) {
    a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w)
    y = Relu(a)
}"""


def run(found: dict[str, int], cycles: int) -> dict[str, object]:
    return {"operators": {"CONV_2D": 3, "TRANSPOSE": 2}, "on_cpu": found, "on_npu": 3, "cycles": cycles}


def test_the_page_names_what_stays_on_the_cpu_and_counts_no_worse_files() -> None:
    rows = [
        {"model": "net", "source": ".onnx", "by": {npu.RELAYOUT: run({}, 1000), npu.PEER: {"why": "a | b"}}},
        {"model": "k", "source": npu.FLOAT, "by": {npu.RELAYOUT: run({}, 1010), npu.CONVERTER: run({}, 1000)}},
        {"model": "same", "source": ".tflite", "by": {npu.RELAYOUT: run({}, 1000), npu.ITSELF: run({}, 995)}},
        {"model": "slow", "source": ".tflite", "by": {npu.RELAYOUT: run({}, 1100), npu.ITSELF: run({}, 1000)}},
        {"model": "cpu", "source": ".tflite", "by": {npu.RELAYOUT: run({"DIV": 2}, 9), npu.ITSELF: run({"DIV": 1}, 9)}},
    ]
    page = npu.page({"rows": rows, "date": "2026-01-02", "versions": {"ethos-u-vela": "5.2.0", "onnx2tf": "2.6.9"}})
    assert "Of 5 files of relayout 4 run" in " ".join(page.split())
    assert "| net | relayout | 3 | none | 2 | 1,000 | – |" in page
    assert "|  | onnx2tf | refused | a / b | – | – |  |" in page
    assert "| k | relayout | 3 | none | 2 | 1,010 | 1.010 |" in page
    assert "|  | TensorFlow | 3 | none | 2 | 1,000 |  |" in page
    assert "| cpu | relayout | 3 | 2 DIV | 2 | 9 | – |" in page
    assert "Of 3 files 1 have no more operators on the CPU" in page
    absent = npu.page({"rows": rows[:1], "date": "", "versions": {"ethos-u-vela": "5.2.0"}})
    assert npu.ABSENT in absent


def test_what_the_converter_made_of_a_float_network_is_no_model_of_its_own(tmp_path: Path) -> None:
    for name in ("a.float32.tflite", "a.int8.tflite", "b.int8.tflite", "c.onnx"):
        (tmp_path / name).touch()
    assert [path.name for path in npu.files(tmp_path)] == ["a.float32.tflite", "b.int8.tflite", "c.onnx"]


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no vela: pip install '.[judges]'")
def test_a_float_network_arrives_on_the_npu(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(NETWORK)
    kernel = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "w"))
    onnx.save(model, tmp_path / "small.onnx")
    command = [sys.executable, "bench/npu.py", "--out", str(tmp_path / "out"), str(tmp_path / "small.onnx")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "out" / "npu.json").read_text(encoding="utf-8"))["rows"]
    assert row["by"]["relayout"]["on_cpu"] == {}
    assert row["by"]["relayout"]["on_npu"] > 0
