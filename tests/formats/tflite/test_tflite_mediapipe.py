"""MediaPipe's custom operators, held against what MediaPipe itself makes of the same models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mediapipe_answers import NETS, answers, followed, mapped
from tflite_running import check_model, read, session
from tflite_writing import Net

import relayout
from relayout.errors import ReadError, UnsupportedError


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("opset", [18, 20])
def test_results_are_those_of_mediapipe(name: str, opset: int) -> None:
    net, given, wanted = dict(zip(NETS, answers(), strict=True))[name]
    for model in (read(net.bytes(), opset=opset), relayout.convert(net.bytes(), opset=opset).model):
        made = session(check_model(model))
        found = made.run(None, {made.get_inputs()[0].name: given})
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got.ravel(), want, rtol=1e-5, atol=1e-5)


def test_the_answers_show_what_they_are_for() -> None:
    found = {name: wanted for name, (_, _, wanted) in zip(NETS, answers(), strict=True)}
    zeros = {name: float(np.mean(wanted[1] == 0)) for name, wanted in found.items() if len(wanted) == 4}
    assert zeros["inside"] == 0, "a crop within the image"
    assert 0.2 < zeros["beyond"] < 1, "and one that is partly not"
    turns = [np.degrees(np.arctan2(wanted[0][4], wanted[0][0])) for wanted in found.values() if len(wanted) == 4]
    assert np.ptp(turns) > 60


def changed(operator: int, **options: Any) -> bytes:
    net = followed((3, 17), [3, 17, 20], (0.4, 0.5), 0.0, (4, 5))
    custom = [op for op in net.graph.operators if op.customOptions is not None]
    custom[operator].customOptions = mapped(options)
    return net.bytes()


GOOD = {
    "left_rotation_idx": 3,
    "right_rotation_idx": 17,
    "subset_idxs": [3, 17],
    "scale_x": 1.0,
    "scale_y": 1.0,
    "output_height": 4,
    "output_width": 5,
}


@pytest.mark.parametrize(
    "options",
    [
        {**GOOD, "left_rotation_idx": 56},
        {**GOOD, "right_rotation_idx": -1},
        {**GOOD, "subset_idxs": [3, 56]},
        {**GOOD, "subset_idxs": [0.5, 1.5]},
        {**GOOD, "output_height": 0},
        {name: value for name, value in GOOD.items() if name != "scale_x"},
    ],
)
def test_options_that_mean_nothing_are_errors(options: dict[str, Any]) -> None:
    read(changed(0, **GOOD))
    with pytest.raises(ReadError, match="operator 2 of subgraph 0"):
        read(changed(0, **options))


def test_the_first_versions_are_refused() -> None:
    """Their points have rank 4; and their options other names."""
    for name, result in (("Landmarks2TransformMatrix", (1, 4, 4)), ("TransformLandmarks", (1, 1, 1, 168))):
        net = Net()
        operands = [net.input((1, 1, 1, 168)), net.input((1, 4, 4))]
        net.op(f"CUSTOM {name}", operands[: 1 + (name[0] == "T")], [net.output(result)])
        net.graph.operators[-1].customOptions = mapped(GOOD)
        with pytest.raises(UnsupportedError, match="points that its kernel does not take"):
            read(net.bytes())
