"""Recurrent operators of many steps as a WHILE: the numbers of the steps one by one, bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from export_running import agrees

import relayout
from litert_runs import KERNELS, operators, results_of_runs
from relayout.formats.tflite.exporting import joined_recurrences
from relayout.formats.tflite.exporting.operators import recurrent_loop
from small import build
from text_form import floats

CELLS = {
    "GRU": "y, h = GRU<hidden_size=4, direction={way}>({operands})",
    "GRU reset behind": "y, h = GRU<hidden_size=4, direction={way}, linear_before_reset=1>({operands})",
    "RNN": "y, h = RNN<hidden_size=4, direction={way}>({operands})",
    "LSTM": "y, h, c = LSTM<hidden_size=4, direction={way}>({operands})",
    "clipped": "y, h, c = LSTM<hidden_size=4, direction={way}, clip=0.6>({operands})",
    "batch first": "t = Transpose<perm=[1,0,2]>(x)  z, h = GRU<hidden_size=4, direction={way}>({operands})",
    "batch first LSTM": "t = Transpose<perm=[1,0,2]>(x)  z, h, c = LSTM<hidden_size=4, direction={way}>({operands})",
    "peepholes": "y, h, c = LSTM<hidden_size=4, direction={way}, clip=0.6>(x, w, r, b, , , , p)",
}
EXTRA = {"plain": "x, w, r, b", "no biases": "x, w, r", "states": "x, w, r, b, , s", "lengths": "x, w, r, b, l"}
EXTRA |= {"computed": "x, w, computed, b"}
GATES = {"GRU": 3, "GRU reset behind": 3, "RNN": 1, "batch first": 3}
STEPS, ROWS = 19, 2
FORMS = {
    "three rounds of six steps, and one step": ({}, 1),
    "four loops of five steps, of which the last one begins at its second step": ({"LIGHT": 0, "COPIES": 722}, 4),
    "two loops of two rounds of six steps, of which the last one begins at its second round": ({"COPIES": 456}, 2),
}


def set_loops(monkeypatch: pytest.MonkeyPatch, **numbers: int) -> None:
    """Let all recurrent operators be loops, with other numbers than measured ones."""
    for name, number in {"CACHES": 0, **numbers}.items():
        monkeypatch.setattr(recurrent_loop, name, number)


def recurrence(cell: str, extra: str, way: str, steps: int = STEPS) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of one recurrent operator, and what it reads."""
    directions, gates = 2 if way == "bidirectional" else 1, GATES.get(cell, 4)
    is_first = cell.startswith("batch first")
    recurrent = (directions, gates * 4, 4)
    constants = {"w": (directions, gates * 4, 3), "r": recurrent, "b": (directions, gates * 8), "p": (directions, 12)}
    shape = (ROWS, steps, 3) if is_first else (steps, ROWS, 3)
    inputs, feed = f"float[{','.join(map(str, shape))}] x", {"x": floats(*shape)}
    if extra == "states":
        inputs += f", float[{directions},{ROWS},4] s"
        feed["s"] = floats(directions, ROWS, 4)
    elif extra == "lengths":
        inputs += f", int32[{ROWS}] l"
        feed["l"] = np.array([steps, steps // 2], np.int32)
    elif extra == "computed":
        inputs += f", float[{','.join(map(str, recurrent))}] computed"
        feed["computed"] = floats(*recurrent)
    operands = EXTRA[extra].replace("x", "t") if is_first else EXTRA[extra]
    text = CELLS[cell].format(way=f'"{way}"', operands=operands)
    text += "  y = Transpose<perm=[2,0,1,3]>(z)" if is_first else ""
    read = {name: shape for name, shape in constants.items() if f" {name}" in text}
    return build(inputs, text, read), feed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.sampled(every=7)
def test_a_loop_computes_what_the_steps_do(
    cell: str, extra: str, way: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined_recurrences, "MOST_BYTES", 0)
    model, feed = recurrence(cell, extra, way)
    by_steps = relayout.convert(model, format="tflite").tflite
    assert not {"WHILE", "UNIDIRECTIONAL_SEQUENCE_LSTM"} & set(operators(by_steps))
    assert "TRANSPOSE" not in operators(by_steps) or way == "bidirectional"  # of the last states
    numbers, loops = FORMS[form]
    set_loops(monkeypatch, **numbers)
    by_loop = relayout.convert(model, format="tflite").tflite
    assert operators(by_loop).count("WHILE") == (2 * loops if way == "bidirectional" else loops)
    agrees(model, feed, tolerance=100)  # what the steps round differs more and more
    if len(feed) == 1:
        for kernels in KERNELS:
            first, second = (results_of_runs(each, [feed["x"]] * 2, kernels) for each in (by_steps, by_loop))
            assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_last_state_alone_is_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    set_loops(monkeypatch)
    shapes = {"w": (1, 12, 3), "r": (1, 12, 4)}
    model = build("float[19,1,3] x", ", h = GRU<hidden_size=4>(x, w, r)", shapes)
    names = operators(relayout.convert(model, format="tflite").tflite)
    assert names.count("WHILE") == 1
    assert "DYNAMIC_UPDATE_SLICE" not in names
    agrees(model, {"x": floats(19, 1, 3)})


def loops(steps: int, hidden: int, results: str = "y, h", **request: str) -> int:
    """Return how many loops a GRU is."""
    shapes = {"w": (1, 3 * hidden, 3), "r": (1, 3 * hidden, hidden)}
    model = build(f"float[{steps},1,3] x", f"{results} = GRU<hidden_size={hidden}>(x, w, r)", shapes)
    return operators(relayout.convert(model, format="tflite", **request).tflite).count("WHILE")


def test_many_steps_or_large_weights_are_a_loop() -> None:
    """Steps of more than 1.5 MB, operators and weights; a long list takes several loops."""
    assert [loops(20, 4), loops(140, 4), loops(150, 4), loops(2000, 4)] == [0, 0, 1, 6]
    assert [loops(7, 128), loops(8, 128), loops(8, 128, ", h"), loops(100, 128)] == [0, 1, 1, 5]
    assert loops(150, 4, runtime="2.8") == 0
    assert loops(150, 4, target="ethos-u") == 0


def test_bytes_as_weights_take_less_of_the_caches() -> None:
    assert [loops(20, 128), loops(20, 128, quantize="dynamic")] == [1, 0]


PICKS = {
    "last": ("h = Gather<axis=0>(y, last)", {}, True),
    "list": ("h = Gather<axis=0>(y, place)", {"place": [18]}, True),
    "views": ("s = Squeeze(y, axes) t = Transpose<perm=[1,0,2]>(s) h = Gather<axis=1>(t, last)", {"axes": [1]}, True),
    "reshaped": (
        "s = Reshape(y, shape) u = Unsqueeze(s, axes) h = Gather<axis=1>(u, last)",
        {"shape": [19, 2, 4], "axes": [0]},
        True,
    ),
    "first": ("h = Gather<axis=0>(y, place)", {"place": [0]}, False),
    "rows": ("s = Squeeze(y, axes) h = Gather<axis=1>(s, last)", {"axes": [1]}, False),
    "joined": ("s = Reshape(y, shape) h = Gather<axis=0>(s, last)", {"shape": [38, 4]}, False),
}
LAST = np.array(-1)


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("cell", ["GRU", "LSTM"])
def test_who_reads_the_last_step_reads_the_last_state(cell: str, pick: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_loops(monkeypatch)
    (text, given, is_read), rows = PICKS[pick], GATES.get(cell, 4) * 4
    constants = {"w": (1, rows, 3), "r": (1, rows, 4), "last": LAST, **given}
    model = build("float[19,2,3] x", f"y = {cell}<hidden_size=4>(x, w, r) {text}", constants, outputs=("h",))
    names = operators(relayout.convert(model, format="tflite").tflite)
    assert names.count("WHILE") == 1
    assert ("DYNAMIC_UPDATE_SLICE" in names) != is_read
    agrees(model, {"x": floats(19, 2, 3)})


@pytest.mark.parametrize("opened", ["19,n", "t,2", "t,n"])
@pytest.mark.parametrize("pick", ["last", "views", "first", "rows"])
@pytest.mark.parametrize("cell", ["GRU", "LSTM"])
def test_who_reads_the_last_step_of_open_extents(
    cell: str, pick: str, opened: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_loops(monkeypatch)
    (text, given, is_read), rows = PICKS[pick], GATES.get(cell, 4) * 4
    constants = {"w": (1, rows, 3), "r": (1, rows, 4), **({"last": LAST} if pick != "first" else {}), **given}
    model = build(f"float[{opened},3] x", f"y = {cell}<hidden_size=4>(x, w, r) {text}", constants, outputs=("h",))
    names = operators(relayout.convert(model, format="tflite").tflite)
    assert ("DYNAMIC_UPDATE_SLICE" in names) != is_read
    for length, batch in ((19, 2), (19, 3), (1, 2)):
        if opened.split(",")[0] in ("t", str(length)) and opened.split(",")[1] in ("n", str(batch)):
            agrees(model, {"x": floats(length, batch, 3)})


@pytest.mark.parametrize("extra", ["direction='reverse'", "direction='bidirectional'", "lengths", "two readers"])
def test_a_last_step_that_is_no_last_state_stays(extra: str) -> None:
    directions = 2 if "bidirectional" in extra else 1
    way = f"{extra.replace(chr(39), chr(34))}, " if "=" in extra else ""
    lengths = ", , l" if extra == "lengths" else ""
    text = f"y = GRU<{way}hidden_size=4>(x, w, r{lengths}) h = Gather<axis=0>(y, last)"
    constants = {"w": (directions, 12, 3), "r": (directions, 12, 4), "last": LAST}
    constants |= {"l": np.array([3, 5], np.int32)} if lengths else {}
    text, outputs = (f"{text} n = Neg(y)", ("h", "n")) if extra == "two readers" else (text, ("h",))
    agrees(build("float[5,2,3] x", text, constants, outputs=outputs), {"x": floats(5, 2, 3)})
