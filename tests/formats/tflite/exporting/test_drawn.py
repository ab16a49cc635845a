"""Random numbers in LiteRT: ranges and moments are ONNX Runtime's, and each run draws others unless a seed is given."""

from __future__ import annotations

import numpy as np
import pytest
from export_drawn import DRAWN
from export_running import agrees
from node_tests import run
from onnx import helper

import relayout
from relayout.errors import UnsupportedError
from small import build


@pytest.mark.parametrize("name", DRAWN)
def test_moments_are_those_of_onnx_runtime(name: str) -> None:
    agrees(*DRAWN[name]())


@pytest.mark.parametrize("seed", [True, False])
def test_each_run_draws_others_unless_there_is_a_seed(seed: bool) -> None:
    model = build("float[4,5] x", f"y = RandomNormalLike{'<seed=7.0>' if seed else ''}(x)", {})
    content = relayout.convert(model, format="tflite").tflite
    first, second = (run(content, {"x": np.zeros((4, 5), np.float32)})[0] for _ in range(2))
    assert np.array_equal(first, second) == seed


def test_a_dropout_that_a_switch_puts_into_training_is_refused() -> None:
    model = build("float[4,5] x, bool on", "y = Dropout (x, ratio, on)", {"ratio": np.array(0.25, np.float32)})
    with pytest.raises(UnsupportedError, match="a switch"):
        relayout.convert(model, format="tflite")


def test_random_numbers_of_another_type_are_refused() -> None:
    model = build("float[4,5] x", "r = RandomNormalLike<dtype=11>(x) y = Cast<to=1>(r)", {})
    with pytest.raises(UnsupportedError, match="FLOAT64"):
        relayout.convert(model, format="tflite")


@pytest.mark.parametrize("ratio", [1.0, -0.5, float("nan"), [0.1, 0.2]], ids=str)
def test_a_ratio_that_leaves_nothing_or_is_none_is_refused(ratio: object) -> None:
    constants = {"ratio": np.array(ratio, np.float32), "on": np.array(True)}
    model = build("float[4,5] x", "y = Dropout (x, ratio, on)", constants)
    with pytest.raises(UnsupportedError, match="ratio"):
        relayout.convert(model, format="tflite")


@pytest.mark.parametrize("seed", [float("nan"), float("inf"), -3.0, 1e30])
def test_any_seed_is_written(seed: float) -> None:
    model = build("float[4,5] x", "y = RandomNormalLike (x)", {})
    model.graph.node[0].attribute.append(helper.make_attribute("seed", seed))
    assert run(relayout.convert(model, format="tflite").tflite, {"x": np.zeros((4, 5), np.float32)})[0].std() > 0


def test_an_extent_that_no_file_can_state_is_refused() -> None:
    model = build("float[3] x", "r = RandomNormal<shape=[2000000000000]>() m = ReduceMean (r) y = Add (x, m)", {})
    with pytest.raises(UnsupportedError, match="a tensor of 2,000,000,000,000 elements"):
        relayout.convert(model, format="tflite")
