"""Recurrent operators of many steps as a WHILE: the numbers of the steps one by one, bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from export_running import agrees

import relayout
from litert_runs import KERNELS, operators, results_of_runs
from relayout.formats.tflite.exporting.operators import recurrent_loop
from small import build
from text_form import floats

CELLS = {
    "GRU": "y, h = GRU<hidden_size=4, direction={way}>({operands})",
    "GRU reset behind": "y, h = GRU<hidden_size=4, direction={way}, linear_before_reset=1>({operands})",
    "RNN": "y, h = RNN<hidden_size=4, direction={way}>({operands})",
    "LSTM": "y, h, c = LSTM<hidden_size=4, direction={way}, clip=0.6>({operands})",
    "peepholes": "y, h, c = LSTM<hidden_size=4, direction={way}, clip=0.6>(x, w, r, b, , , , p)",
}
EXTRA = {"plain": "x, w, r, b", "no biases": "x, w, r", "states": "x, w, r, b, , s", "lengths": "x, w, r, b, l"}
EXTRA |= {"computed": "x, w, computed, b"}
GATES = {"GRU": 3, "GRU reset behind": 3, "RNN": 1, "LSTM": 4, "peepholes": 4}
STEPS, ROWS = 19, 2  # two rounds, and three steps behind them


def recurrence(cell: str, extra: str, way: str, steps: int = STEPS) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of one recurrent operator, and what it reads."""
    directions, gates = 2 if way == "bidirectional" else 1, GATES[cell]
    recurrent = (directions, gates * 4, 4)
    constants = {"w": (directions, gates * 4, 3), "r": recurrent, "b": (directions, gates * 8), "p": (directions, 12)}
    inputs, feed = f"float[{steps},{ROWS},3] x", {"x": floats(steps, ROWS, 3)}
    if extra == "states":
        inputs += f", float[{directions},{ROWS},4] s"
        feed["s"] = floats(directions, ROWS, 4)
    elif extra == "lengths":
        inputs += f", int32[{ROWS}] l"
        feed["l"] = np.array([steps, steps // 2], np.int32)
    elif extra == "computed":
        inputs += f", float[{','.join(map(str, recurrent))}] computed"
        feed["computed"] = floats(*recurrent)
    text = CELLS[cell].format(way=f'"{way}"', operands=EXTRA[extra])
    read = {name: shape for name, shape in constants.items() if f" {name}" in text}
    return build(inputs, text, read), feed


@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.sampled(every=2)
def test_a_loop_computes_what_the_steps_do(cell: str, extra: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, feed = recurrence(cell, extra, way)
    by_steps = relayout.convert(model, format="tflite").tflite
    assert "WHILE" not in operators(by_steps)
    monkeypatch.setattr(recurrent_loop, "MANY_STEPS", 2)
    by_loop = relayout.convert(model, format="tflite").tflite
    assert operators(by_loop).count("WHILE") == (2 if way == "bidirectional" else 1)
    agrees(model, feed, tolerance=100)  # what the steps round differs more and more
    if len(feed) == 1:
        for kernels in KERNELS:
            first, second = (results_of_runs(each, [feed["x"]] * 2, kernels) for each in (by_steps, by_loop))
            assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_last_state_alone_is_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_loop, "MANY_STEPS", 2)
    shapes = {"w": (1, 12, 3), "r": (1, 12, 4)}
    model = build("float[19,1,3] x", ", h = GRU<hidden_size=4>(x, w, r)", shapes)
    names = operators(relayout.convert(model, format="tflite").tflite)
    assert "WHILE" in names
    assert "DYNAMIC_UPDATE_SLICE" not in names
    agrees(model, {"x": floats(19, 1, 3)})


def test_many_steps_or_large_weights_are_a_loop() -> None:
    """By the table in `recurrent_loop`: 300 steps, or 8 MB of weights of all steps."""

    def loops(steps: int, hidden: int, **request: str) -> int:
        shapes = {"w": (1, 3 * hidden, 3), "r": (1, 3 * hidden, hidden)}
        model = build(f"float[{steps},1,3] x", f"y, h = GRU<hidden_size={hidden}>(x, w, r)", shapes)
        return operators(relayout.convert(model, format="tflite", **request).tflite).count("WHILE")

    assert [loops(20, 4), loops(300, 4), loops(20, 256), loops(2000, 4)] == [0, 1, 1, 1]
    assert loops(300, 4, runtime="2.8") == 0
    assert loops(300, 4, target="ethos-u") == 0
