"""Rows of a length of 0: their last states are zeros in ONNX Runtime, whatever they begin with, and so in LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees
from onnx import numpy_helper

import relayout
from litert_runs import operators
from relayout.formats.tflite.exporting.operators import recurrent_loop
from small import build
from text_form import floats

CELLS = {
    "GRU": ("y, h = GRU<hidden_size=4, direction={way}>(x, w, r, , l, s)", 3),
    "RNN": ("y, h = RNN<hidden_size=4, direction={way}>(x, w, r, , l, s)", 1),
    "LSTM": ("y, h, c = LSTM<hidden_size=4, direction={way}>(x, w, r, , l, s, m)", 4),
}
FORMS = {"steps": 0, "loop": 1, "open": 2}
"""How a sequence is written -> its WHILEs for each direction."""


@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_row_without_steps_ends_with_zeros(cell: str, form: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if form == "loop":
        monkeypatch.setattr(recurrent_loop, "CACHES", 0)
    (text, gates), directions = CELLS[cell], 2 if way == "bidirectional" else 1
    state, steps = f"float[{directions},3,4]", 19 if form == "loop" else 5
    inputs = f"float[{'t' if form == 'open' else steps},3,2] x, int32[3] l, {state} s"
    inputs += f", {state} m" if cell == "LSTM" else ""
    weights = {"w": (directions, gates * 4, 2), "r": (directions, gates * 4, 4)}
    model = build(inputs, text.format(way=f'"{way}"'), weights)
    assert operators(relayout.convert(model, format="tflite").tflite).count("WHILE") == directions * FORMS[form]
    feed = {"x": floats(steps, 3, 2), "s": floats(directions, 3, 4)}
    feed |= {"m": floats(directions, 3, 4, seed=1)} if cell == "LSTM" else {}
    for lengths in ([0, 2, 5], [3, 0, 0]):
        agrees(model, feed | {"l": np.array(lengths, np.int32)})


@pytest.mark.parametrize(("lengths", "products"), [([2, 1, 5], 0), ([2, 0, 5], 1)])
def test_lengths_that_are_known_to_be_above_0_change_nothing(lengths: list[int], products: int) -> None:
    constants = {"w": (1, 12, 2), "r": (1, 12, 4), "l": (3,)}
    model = build("float[5,3,2] x, float[1,3,4] s", CELLS["GRU"][0].format(way='"forward"'), constants)
    (known,) = (tensor for tensor in model.graph.initializer if tensor.name == "l")
    known.CopyFrom(numpy_helper.from_array(np.array(lengths, np.int32), "l"))
    agrees(model, {"x": floats(5, 3, 2), "s": floats(1, 3, 4)})
    written = operators(relayout.convert(model, format="tflite").tflite)
    known.CopyFrom(numpy_helper.from_array(np.array([2, 1, 5], np.int32), "l"))
    assert written.count("MUL") - operators(relayout.convert(model, format="tflite").tflite).count("MUL") == products
