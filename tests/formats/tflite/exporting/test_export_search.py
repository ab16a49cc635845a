"""Random graphs as `.tflite` models: LiteRT agrees with ONNX Runtime, or one error says what cannot be written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SEARCH = Path(__file__).resolve().parents[4] / "bench/export_properties.py"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["windows", "quantized", "moving"])
def test_random_graphs_agree_or_are_refused(family: str) -> None:
    command = [sys.executable, str(SEARCH), "--graphs", "15", "--of", family]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
