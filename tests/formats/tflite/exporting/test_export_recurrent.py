"""LSTM as one builtin a direction, which begins each run anew."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import OpResolverType
from export_cases_recurrent import lstm as lstm_case
from export_running import agrees, assert_close

import relayout
from litert_runs import FUSED, KERNELS, operators, results_of_runs
from relayout.errors import UnsupportedError
from rules.law import Array, Case, with_runtime
from small import build
from text_form import floats

CASES = [
    (lstm_case(outputs=("y",)), 1),
    (lstm_case("bidirectional", outputs=("y",)), 2),
    (lstm_case(states=True, outputs=("y",)), 1),
    (lstm_case("reverse", outputs=("y",), input_forget=1), 1),
]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(("case", "count"), CASES, ids=str)
def test_an_lstm_is_one_builtin_a_direction_and_begins_each_run_anew(
    case: Case, count: int, kernels: OpResolverType
) -> None:
    constants = tuple(case.arrays)[1:]  # so that there is one input
    model, feed = Case(case.op_type, case.inputs, constants, case.attributes, case.outputs).prepared()
    content = relayout.convert(model, format="tflite").tflite
    names = operators(content)
    assert names.count(FUSED) == count
    assert "FULLY_CONNECTED" not in names
    wanted = with_runtime(model, feed)[0]
    for result in results_of_runs(content, [feed["x"]] * 3, kernels):
        assert_close(result, wanted, "a run")


def test_other_cells_are_written_step_by_step() -> None:
    for case in (lstm_case(clip=0.4), lstm_case(activations=["Sigmoid", "Tanh", "Relu"])):
        assert FUSED not in operators(relayout.convert(case.prepared()[0], format="tflite").tflite)


def test_a_sequence_may_be_long_or_open() -> None:
    text = "y, h, c = LSTM<hidden_size=4>(x, w, r)"
    constants = {"w": (1, 16, 3), "r": (1, 16, 4)}
    agrees(build("float[1500,2,3] x", text, constants), {"x": floats(1500, 2, 3)})
    model = build("float[n,2,3] x", text, constants)
    for length in (1, 7):
        agrees(model, {"x": floats(length, 2, 3)})


OPEN = {
    "GRU": "y, h = GRU<hidden_size=4, direction={way}>(x, w, r, b)",
    "GRU reset first": "y, h = GRU<hidden_size=4, direction={way}, linear_before_reset=1>(x, w, r, b)",
    "RNN": "y, h = RNN<hidden_size=4, direction={way}>(x, w, r, b)",
    "LSTM": "y, h, c = LSTM<hidden_size=4, direction={way}, clip=0.6>(x, w, r, b)",
    "LSTM fused": "y, h, c = LSTM<hidden_size=4, direction={way}>(x, w, r, b)",
    "states": "y, h = GRU<hidden_size=4, direction={way}>(x, w, r, b, , s)",
    "lengths": "y, h, c = LSTM<hidden_size=4, direction={way}>(x, w, r, b, l)",
}
EXTENTS = {"t,2": [(1, 2), (6, 2)], "5,n": [(5, 1), (5, 3)], "t,n": [(1, 1), (6, 3)]}
"""Open extents of time and batch -> times and batches to run."""


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("opened", EXTENTS)
@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", OPEN)
@pytest.mark.sampled(every=3)
def test_a_recurrence_of_open_extents_agrees(name: str, way: str, opened: str, version: int) -> None:
    directions = 2 if way == "bidirectional" else 1
    gates = 3 if "GRU" in OPEN[name] else 1 if "RNN" in OPEN[name] else 4
    batch, text = opened[2:], OPEN[name].format(way=f'"{way}"')
    inputs = f"float[{opened},3] x"
    inputs += f", float[{directions},{batch},4] s" if name == "states" else ""
    inputs += f", int32[{batch}] l" if name == "lengths" else ""
    shapes = {"w": (directions, gates * 4, 3), "r": (directions, gates * 4, 4), "b": (directions, gates * 8)}
    model = build(inputs, text, shapes, opset=version)
    names = operators(relayout.convert(model, format="tflite").tflite)
    fused = directions if name == "LSTM fused" and batch == "2" else 0  # the variables of an open batch would be short
    if name == "LSTM fused" or batch == "n":
        assert names.count(FUSED) == fused
    assert names.count("WHILE") == (directions - fused if opened[0] == "t" else 0)
    for time, rows in EXTENTS[opened]:
        feed: dict[str, Array] = {"x": floats(time, rows, 3)}
        feed |= {"s": floats(directions, rows, 4)} if name == "states" else {}
        feed |= {"l": (1 + np.arange(rows) % time).astype(np.int32)} if name == "lengths" else {}
        agrees(model, feed)


@pytest.mark.parametrize("kernels", KERNELS)
def test_wide_states_of_an_open_batch(kernels: OpResolverType) -> None:
    """LiteRT wrote behind the end of variables whose file states a batch of 1, which small states survive."""
    constants = {"w": (1, 192, 5), "r": (1, 192, 48)}
    model = build("float[6,n,5] x", "y = LSTM<hidden_size=48>(x, w, r)", constants)
    content = relayout.convert(model, format="tflite").tflite
    feeds = [floats(6, rows, 5, seed=rows) for rows in (9, 33)]
    for feed, result in zip(feeds, results_of_runs(content, feeds, kernels), strict=True):
        assert_close(result, with_runtime(model, {"x": feed})[0], "a run")


@pytest.mark.parametrize("name", ["GRU", "RNN", "lengths"])
def test_an_open_length_before_version_9_is_refused_by_its_name(name: str) -> None:
    gates = {"GRU": 3, "RNN": 1, "lengths": 4}[name]
    inputs = "float[t,2,3] x, int32[2] l" if name == "lengths" else "float[t,2,3] x"
    shapes = {"w": (1, gates * 4, 3), "r": (1, gates * 4, 4), "b": (1, gates * 8)}
    model = build(inputs, OPEN[name].format(way='"forward"'), shapes, opset=8)
    with pytest.raises(UnsupportedError, match=r"open length in version 8 of ONNX's operators; version 9"):
        relayout.convert(model, format="tflite")


@pytest.mark.parametrize("kernels", KERNELS)
def test_one_interpreter_runs_several_batches(kernels: OpResolverType) -> None:
    model = build("float[5,n,3] x", "y = LSTM<hidden_size=4>(x, w, r)", {"w": (1, 16, 3), "r": (1, 16, 4)})
    feeds = [floats(5, rows, 3, seed=rows) for rows in (2, 4, 4, 1)]
    content = relayout.convert(model, format="tflite").tflite
    for feed, result in zip(feeds, results_of_runs(content, feeds, kernels), strict=True):
        assert_close(result, with_runtime(model, {"x": feed})[0], "a run")


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_a_recurrence_of_open_extents_with_the_batch_first(name: str) -> None:
    """ONNX Runtime has no kernel for `layout` 1, so it runs the same operator with time first."""
    constants = {"w": (2, {"GRU": 12, "LSTM": 16}[name], 3), "r": (2, {"GRU": 12, "LSTM": 16}[name], 4)}
    text = OPEN[name].format(way='"bidirectional"').replace(", b)", ")")
    first = build("float[n,t,3] x", text.replace("<", "<layout=1, "), constants)
    time = build("float[t,n,3] x", text, constants)
    x = floats(3, 5, 3)
    y, *states = with_runtime(time, {"x": x.transpose(1, 0, 2)})
    wanted = [y.transpose(2, 0, 1, 3), *(state.transpose(1, 0, 2) for state in states)]
    agrees(first, {"x": x}, expected=wanted)


def test_a_gru_of_many_steps_is_a_while() -> None:
    model = build("float[1100,2,3] x", "y = GRU<hidden_size=4>(x, w, r)", {"w": (1, 12, 3), "r": (1, 12, 4)})
    assert "WHILE" in operators(relayout.convert(model, format="tflite").tflite)
    agrees(model, {"x": floats(1100, 2, 3)})


def test_no_transpose_stays_where_the_batch_comes_first() -> None:
    text = """
    t = Transpose<perm=[1,0,2]>(x)
    y = LSTM<hidden_size=4>(t, w, r)
    s = Squeeze(y, one)
    z = Transpose<perm=[1,0,2]>(s)
    """
    model = build("float[2,5,3] x", text, {"w": (1, 16, 3), "r": (1, 16, 4), "one": np.array([1])})
    result = relayout.convert(model, format="tflite")
    assert result.report.transposes == 0
    assert operators(result.tflite) == ["UNPACK", FUSED]
    agrees(model, {"x": floats(2, 5, 3)})


@pytest.mark.parametrize("opened", ["t", "5"])
def test_a_refusal_names_a_node_without_a_name_by_its_result(opened: str) -> None:
    text = 'out, h = GRU<hidden_size=4, activations=["Sigmoid", "Unheard"]>(x, w, r)'
    model = build(f"float[{opened},2,3] x", text, {"w": (1, 12, 3), "r": (1, 12, 4)})
    with pytest.raises(UnsupportedError, match=r"GRU \(the activation Unheard\) ×1 \(first: out[/)]"):
        relayout.convert(model, format="tflite")


def test_a_report_names_a_recurrence_as_the_source_does() -> None:
    text = "a = Transpose<perm=[1,0,2]>(x)  out, h = GRU<hidden_size=4>(a, w, r)  z = Transpose<perm=[2,1,0,3]>(out)"
    model = build("float[2,t,3] x", text, {"w": (1, 12, 3), "r": (1, 12, 4)}, outputs=("z",))
    report = str(relayout.convert(model, format="tflite").report)
    assert "Loop out is" in " ".join(report.split())
