"""Small recurrent operators that do not wait for each other are one: the numbers stay, and operators are fewer."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees

import relayout
from litert_runs import operators
from small import build
from text_form import floats

CELLS = {
    "GRU": ("y, h = GRU<hidden_size=4, {way}>({operands})", 3),
    "GRU reset behind": ("y, h = GRU<hidden_size=4, {way}, linear_before_reset=1>({operands})", 3),
    "RNN": ("y, h = RNN<hidden_size=4, {way}>({operands})", 1),
    "LSTM": ("y, h, c = LSTM<hidden_size=4, {way}>({operands})", 4),
    "clipped": ("y, h, c = LSTM<hidden_size=4, {way}, clip=0.6, input_forget=1>({operands})", 4),
    "activations": (
        'y, h = GRU<hidden_size=4, {way}, activations=["Tanh","Sigmoid","Tanh","Sigmoid"]>({operands})',
        3,
    ),
}
BOTH = 'direction="bidirectional"'


def tanhs(model: object, **request: object) -> int:
    """Return how many times a file computes a state or a candidate: once a step of each recurrent operator."""
    names = operators(relayout.convert(model, format="tflite", **request).tflite)
    return names.count("TANH")


@pytest.mark.parametrize("operands", ["x, w, r, b", "x, w, r"])
@pytest.mark.parametrize("extents", ["5,2", "5,n"])
@pytest.mark.parametrize("cell", CELLS)
def test_both_directions_are_one(cell: str, extents: str, operands: str) -> None:
    text, gates = CELLS[cell]
    shapes = {"w": (2, gates * 4, 3), "r": (2, gates * 4, 4), "b": (2, gates * 8)}
    read = {name: shape for name, shape in shapes.items() if name in operands.split(", ")}
    model = build(f"float[{extents},3] x", text.format(way=BOTH, operands=operands), read)
    assert tanhs(model) == (10 if text.startswith("y, h, c") else 5)
    agrees(model, {"x": floats(5, 2, 3)})


def test_operators_of_other_sequences_join() -> None:
    """One goes backward, one has other extents and no biases; what waits for both is not one with them."""
    text = """a, ah = GRU<hidden_size=4, direction="reverse">(x, w, r, b)
        c, ch = GRU<hidden_size=2>(z, v, s)
        l = Concat<axis=-1>(a, c) k = Squeeze(l, axes)
        y, h = GRU<hidden_size=2>(k, u, s)"""
    shapes = {"w": (1, 12, 3), "r": (1, 12, 4), "b": (1, 24), "v": (1, 6, 5), "s": (1, 6, 2), "u": (1, 6, 6)}
    inputs, outputs = "float[5,2,3] x, float[5,2,5] z", ("y", "h", "ah", "ch", "c")
    model = build(inputs, text, {**shapes, "axes": np.array([1])}, outputs=outputs)
    assert tanhs(model) == 10
    agrees(model, {"x": floats(5, 2, 3), "z": floats(5, 2, 5, seed=1)})


APART = {
    "one waits for the other": ("t, th = RNN<hidden_size=3>(x, v, s) y, h = RNN<hidden_size=4>(u, w, r)", 10),
    "other activations": (
        'y, h = RNN<hidden_size=4, activations=["Tanh"], clip=9.0>(x, w, r) t, th = RNN<hidden_size=3>(x, v, s)',
        10,
    ),
    "a state to begin with": ("y, h = RNN<hidden_size=4>(x, w, r, , , i) t, th = RNN<hidden_size=3>(x, v, s)", 10),
    "as many steps": ("y, h = RNN<hidden_size=4>(x, w, r) t, th = RNN<hidden_size=3>(x, v, s)", 5),
}


@pytest.mark.parametrize("kind", APART)
def test_what_waits_or_differs_stays_apart(kind: str) -> None:
    text, count = APART[kind]
    text = text.replace(" y, h =", " u = Squeeze(t, axes) y, h =") if "(u," in text else text
    shapes = {"w": (1, 4, 3), "r": (1, 4, 4), "v": (1, 3, 3), "s": (1, 3, 3), "axes": np.array([1])}
    read = {
        name: shape
        for name, shape in shapes.items()
        if name in text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    }
    state = ", float[1,2,4] i" if ", i)" in text else ""
    model = build(f"float[5,2,3] x{state}", text, read, outputs=("y", "h", "t", "th"))
    assert tanhs(model) == count
    agrees(model, {"x": floats(5, 2, 3)} | ({"i": floats(1, 2, 4)} if state else {}))


def test_large_states_and_integers_stay_apart() -> None:
    def steps(hidden: int, **request: object) -> int:
        shapes = {"w": (2, 3 * hidden, 3), "r": (2, 3 * hidden, hidden)}
        model = build("float[3,1,3] x", f"y, h = GRU<hidden_size={hidden}, {BOTH}>(x, w, r)", shapes)
        return tanhs(model, **request)

    assert [steps(18), steps(19), steps(4, target="ethos-u")] == [3, 6, 6]
    shapes = {"w": (2, 12, 3), "r": (2, 12, 4)}
    model = build("float[3,1,3] x", f"y, h = GRU<hidden_size=4, {BOTH}>(x, w, r)", shapes)
    assert tanhs(model, quantize="int8", calibrate=[{"x": floats(3, 1, 3)}]) == 6
