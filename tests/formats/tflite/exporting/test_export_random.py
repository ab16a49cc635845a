"""Random graphs with everything at once: If, Loop, Scan, shuffles, quantization, open extents."""

from __future__ import annotations

import numpy as np
import pytest
from node_tests import run

import relayout
from infer.mixed import mixed_model
from rules.law import with_runtime

STEPS = 12
APART = 1e-4
"""How far a result may lie from ONNX Runtime's, as a part of its largest element."""


@pytest.mark.parametrize("seed", [0, 2, 4, 16, 30, 79])
def test_random_graphs_are_right(seed: int) -> None:
    made = mixed_model(seed, STEPS)
    content = relayout.convert(made.model, format="tflite").tflite
    for got, wanted in zip(run(content, made.feed), with_runtime(made.model, made.feed), strict=True):
        assert got.shape == wanted.shape
        largest = float(np.abs(wanted.astype(np.float64)).max(initial=0.0)) or 1.0
        assert np.abs(got.astype(np.float64) - wanted).max(initial=0.0) <= APART * largest
