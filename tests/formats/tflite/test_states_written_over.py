"""A recurrent operator of a `.tflite` writes its last state over the tensor that it begins with, which others read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import relayout

HIDDEN, INPUTS, STEPS, BATCH = 3, 2, 7, 2


def network(direction: str, states: bool) -> onnx.ModelProto:
    """An LSTM whose last states are outputs, as the graph reads them behind UNIDIRECTIONAL_SEQUENCE_LSTM."""
    rng = np.random.default_rng(3)
    count = 2 if direction == "bidirectional" else 1
    shapes = {"w": (count, 4 * HIDDEN, INPUTS), "r": (count, 4 * HIDDEN, HIDDEN), "h": (count, BATCH, HIDDEN)}
    shapes["c"] = shapes["h"]
    constants = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in shapes.items()]
    given = ["x", "w", "r", "", "", *(("h", "c") if states else ())]
    node = helper.make_node("LSTM", given, ["y", "yh", "yc"], hidden_size=HIDDEN, direction=direction)
    ends = {"y": (STEPS, count, BATCH, HIDDEN), "yh": shapes["h"], "yc": shapes["h"]}
    graph = helper.make_graph(
        [node],
        "states",
        [helper.make_tensor_value_info("x", 1, (STEPS, BATCH, INPUTS))],
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in ends.items()],
        [each for each in constants if each.name in given],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_who_reads_a_state_behind_its_operator_reads_the_last_one(direction: str, states: bool, tmp_path: Path) -> None:
    model = network(direction, states)
    file = tmp_path / "model.tflite"
    made = relayout.convert(model, format="tflite", target="tflite-micro")  # which gets the kernel
    made.save(file)
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in str(made)
    x = np.random.default_rng(4).standard_normal((STEPS, BATCH, INPUTS)).astype(np.float32)
    wanted = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    back = relayout.convert(file).proto
    found = ort.InferenceSession(back.SerializeToString()).run(None, {"x": x})
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert relayout.verify(file, back).ok
