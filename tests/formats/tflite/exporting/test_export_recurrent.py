"""LSTM as one builtin a direction, which begins each run anew."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from export_cases_recurrent import lstm as lstm_case
from export_running import agrees, assert_close, run_close

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
    content = relayout.convert(model, format="tflite", target="coral").tflite
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
EXTENTS = {"t,2": [(1, 2), (6, 2), (70, 2)], "5,n": [(5, 1), (5, 3)], "t,n": [(1, 1), (64, 3)]}
"""Open extents of time and batch -> times and batches to run."""


OLDER = {"runtime": "2.8"}
"""A runtime that has no builtin to write a result into a list: results are added to a list of zeros."""


@pytest.mark.parametrize("options", [{}, OLDER], ids=["newest", "older"])
@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("opened", EXTENTS)
@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", OPEN)
@pytest.mark.sampled(every=5)
def test_a_recurrence_of_open_extents_agrees(
    name: str, way: str, opened: str, version: int, options: dict[str, str]
) -> None:
    directions = 2 if way == "bidirectional" else 1
    gates = 3 if "GRU" in OPEN[name] else 1 if "RNN" in OPEN[name] else 4
    batch, text = opened[2:], OPEN[name].format(way=f'"{way}"')
    inputs = f"float[{opened},3] x"
    inputs += f", float[{directions},{batch},4] s" if name == "states" else ""
    inputs += f", int32[{batch}] l" if name == "lengths" else ""
    shapes = {"w": (directions, gates * 4, 3), "r": (directions, gates * 4, 4), "b": (directions, gates * 8)}
    model = build(inputs, text, shapes, opset=version)
    names = operators(relayout.convert(model, format="tflite", **options).tflite)
    fused = directions if name == "LSTM fused" and options and opened[0] == "t" else 0
    assert names.count(FUSED) == fused
    # One goes from block to block, one from step to step.
    assert names.count("WHILE") == (2 * (directions - fused) if opened[0] == "t" else 0)
    assert "DYNAMIC_UPDATE_SLICE" not in names or not options
    for time, rows in EXTENTS[opened]:
        feed: dict[str, Array] = {"x": floats(time, rows, 3)}
        feed |= {"s": floats(directions, rows, 4)} if name == "states" else {}
        feed |= {"l": (1 + np.arange(rows) % time).astype(np.int32)} if name == "lengths" else {}
        agrees(model, feed, tolerance=100 if time > 50 else 1, **options)


@pytest.mark.parametrize(
    ("batch", "hidden", "result", "is_kernel"),
    [(1, 4, "y", True), (1, 64, "y", False), (2, 4, "y", False), (1, 4, ", h", False)],
)
def test_one_row_of_few_elements_and_open_length_keeps_the_kernel(
    batch: int, hidden: int, result: str, is_kernel: bool
) -> None:
    constants = {"w": (1, 4 * hidden, 3), "r": (1, 4 * hidden, hidden)}
    model = build(f"float[t,{batch},3] x", f"{result} = LSTM<hidden_size={hidden}>(x, w, r)", constants)
    assert (FUSED in operators(relayout.convert(model, format="tflite").tflite)) == is_kernel
    agrees(model, {"x": floats(7, batch, 3)})


@pytest.mark.parametrize(
    ("activations", "parameters"),
    [
        ('["Sigmoid", "ScaledTanh", "Sigmoid", "Tanh"]', "activation_alpha=[0.9], activation_beta=[1.1]"),
        ('["Affine", "Tanh", "LeakyRelu", "HardSigmoid"]', "activation_alpha=[0.7,0.3,0.4], activation_beta=[0.1,0.3]"),
    ],
)
def test_each_direction_of_an_open_length_has_the_parameters_of_its_own_activations(
    activations: str, parameters: str
) -> None:
    options = f'hidden_size=4, direction="bidirectional", activations={activations}, {parameters}'
    model = build("float[t,2,3] x", f"y = GRU<{options}>(x, w, r)", {"w": (2, 12, 3), "r": (2, 12, 4)})
    agrees(model, {"x": floats(5, 2, 3)})


TARGETS = pytest.mark.parametrize("target", [None, "coral"])
"""LiteRT itself runs steps in less time than the kernel, which files for others have."""


@TARGETS
@pytest.mark.parametrize("kernels", KERNELS)
def test_wide_states_of_an_open_batch(kernels: OpResolverType, target: str | None) -> None:
    """LiteRT would write behind the end of variables allocated for the batch of the file; small states survive it."""
    constants = {"w": (1, 192, 5), "r": (1, 192, 48)}
    model = build("float[6,n,5] x", "y = LSTM<hidden_size=48>(x, w, r)", constants)
    content = relayout.convert(model, format="tflite", target=target).tflite
    feeds = [floats(6, rows, 5, seed=rows) for rows in (9, 33)]
    for feed, result in zip(feeds, results_of_runs(content, feeds, kernels), strict=True):
        assert_close(result, with_runtime(model, {"x": feed})[0], "a run")


WIDE = {"w": (1, 192, 6), "r": (1, 192, 48)}
TWO = {"w": (2, 192, 6), "r": (2, 192, 48), "v": (1, 96, 96), "q": (1, 96, 24)}
COMPUTED = "n = Shape<start=1, end=2>(x)  sides = Concat<axis=0>(one, n, wide)"
OPEN_BATCHES = {
    "behind extents that LiteRT computes": (
        "cut = Slice(x, zero, four, zero)  y = LSTM<hidden_size=48>(cut, w, r)",
        WIDE,
        1,
    ),
    "two directions, stacked": (
        """
        both = LSTM<hidden_size=48, direction="bidirectional">(x, w, r)
        rows = Transpose<perm=[0,2,1,3]>(both)
        flat = Reshape(rows, flat_shape)
        y = LSTM<hidden_size=24>(flat, v, q)
        """,
        TWO,
        3,
    ),
    "zeros that the graph computes": (
        COMPUTED + " h = ConstantOfShape(sides)  y = LSTM<hidden_size=48>(x, w, r, , , h, h)",
        WIDE,
        1,
    ),
    "zeros that are stretched": (
        COMPUTED + " h = Expand(zeros, sides)  y = LSTM<hidden_size=48>(x, w, r, , , h, h)",
        WIDE,
        1,
    ),
    "states that are computed": (
        COMPUTED + " h = Expand(halves, sides)  y = LSTM<hidden_size=48>(x, w, r, , , h, h)",
        WIDE,
        0,
    ),
}
"""Name -> nodes from `x` to `y`, constants, and how many builtins they become."""
NUMBERS = {"zero": [0], "one": [1], "four": [4], "wide": [48], "flat_shape": [0, 0, 96]}


@TARGETS
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", OPEN_BATCHES)
def test_an_open_batch_is_one_builtin_a_direction_whatever_stands_before(
    name: str, kernels: OpResolverType, target: str | None
) -> None:
    text, shapes, count = OPEN_BATCHES[name]
    constants = {key: np.array(each) for key, each in NUMBERS.items()}
    constants |= {"zeros": np.zeros((1, 1, 1), np.float32), "halves": np.full((1, 1, 1), 0.5, np.float32)}
    used = {key: each for key, each in (constants | shapes).items() if key in re.split(r"\W+", text)}
    model = build("float[6,n,6] x", text, used, opset=17, outputs=("y",))
    content = relayout.convert(model, format="tflite", target=target).tflite
    assert operators(content).count(FUSED) == (count if target else 0)
    feeds = [floats(6, rows, 6, seed=rows) for rows in (1, 9, 33, 2)]
    for feed, result in zip(feeds, results_of_runs(content, feeds, kernels), strict=True):
        assert_close(result, with_runtime(model, {"x": feed})[0], "a run")


def test_states_of_an_open_batch_may_be_inputs() -> None:
    text = "y, h, c = LSTM<hidden_size=4>(x, w, r, , , s, m)"
    model = build("float[5,n,3] x, float[1,n,4] s, float[1,n,4] m", text, {"w": (1, 16, 3), "r": (1, 16, 4)})
    for options in ({}, {"target": "coral"}):
        assert operators(relayout.convert(model, format="tflite", **options).tflite).count(FUSED) == len(options)
        for rows in (1, 3):
            feed = {"x": floats(5, rows, 3), "s": floats(1, rows, 4), "m": floats(1, rows, 4, seed=1)}
            agrees(model, feed, **options)


def test_a_batch_of_words_sizes_the_variables() -> None:
    text = "e = Gather(table, x)  s = Transpose<perm=[1,0,2]>(e)  y, h, c = LSTM<hidden_size=4>(s, w, r)"
    model = build("int64[n,t] x", text, {"table": (9, 3), "w": (1, 16, 3), "r": (1, 16, 4)}, outputs=("h", "c"))
    for options in ({}, {"target": "coral"}):
        assert operators(relayout.convert(model, format="tflite", **options).tflite).count(FUSED) == len(options)
        for rows in (1, 3):
            agrees(model, {"x": np.arange(5 * rows).reshape(rows, 5) % 9}, **options)


@pytest.mark.parametrize("name", ["GRU", "RNN", "lengths"])
def test_an_open_length_before_version_9(name: str) -> None:
    gates = {"GRU": 3, "RNN": 1, "lengths": 4}[name]
    inputs = "float[t,2,3] x, int32[2] l" if name == "lengths" else "float[t,2,3] x"
    shapes = {"w": (1, gates * 4, 3), "r": (1, gates * 4, 4), "b": (1, gates * 8)}
    model = build(inputs, OPEN[name].format(way='"forward"'), shapes, opset=8)
    feed: dict[str, Array] = {"x": floats(6, 2, 3)} | ({"l": np.array([6, 2], np.int32)} if name == "lengths" else {})
    for options in ({}, OLDER):
        agrees(model, feed, **options)


@TARGETS
@pytest.mark.parametrize("steps", ["5", "300", "t"])
@pytest.mark.parametrize("kernels", KERNELS)
def test_one_interpreter_runs_several_batches(kernels: OpResolverType, steps: str, target: str | None) -> None:
    model = build(f"float[{steps},n,3] x", "y = LSTM<hidden_size=4>(x, w, r)", {"w": (1, 16, 3), "r": (1, 16, 4)})
    lengths = [40, 7, 7, 65] if steps == "t" else [int(steps)] * 4
    feeds = [floats(length, rows, 3, seed=rows) for length, rows in zip(lengths, (2, 4, 4, 1), strict=True)]
    content = relayout.convert(model, format="tflite", target=target).tflite
    for feed, result in zip(feeds, results_of_runs(content, feeds, kernels), strict=True):
        assert_close(result, with_runtime(model, {"x": feed})[0], "a run")


@pytest.mark.parametrize("cell", ["RNN", "GRU"])
def test_a_later_run_reads_its_own_sequence(cell: str) -> None:
    """LiteRT moved the input in the first run, since it planned no memory ahead behind a SLICE of open extents.

    XNNPACK read it where it was, through the Reshape. What stood there depended on the rest of the process.
    """
    rows = {"RNN": 4, "GRU": 12}[cell]
    text = f'u = Reshape(x, s) y = {cell}<hidden_size=4, direction="bidirectional">(u, w, r)'
    model = build("float[n,48] x", text, {"s": [16, -1, 3], "w": (2, rows, 3), "r": (2, rows, 4)})
    content = relayout.convert(model, format="tflite").tflite
    feeds = [floats(1, 48, seed=seed) for seed in range(3)]
    wanted = [with_runtime(model, {"x": feed})[0] for feed in feeds]
    for _ in range(6):
        interpreter = Interpreter(model_content=content)
        (place,), (end,) = interpreter.get_input_details(), interpreter.get_output_details()
        interpreter.allocate_tensors()
        before = interpreter.tensor(place["index"])().ctypes.data
        for feed, result in zip(feeds, wanted, strict=True):
            interpreter.set_tensor(place["index"], feed)
            interpreter.invoke()
            assert_close(interpreter.get_tensor(end["index"]), result, "a run")
        assert interpreter.tensor(place["index"])().ctypes.data == before


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
    for target, others in ((None, ["RESHAPE", "FULLY_CONNECTED"]), ("coral", ["UNPACK", FUSED])):
        result = relayout.convert(model, format="tflite", target=target)
        assert result.report.transposes == 0
        assert operators(result.tflite)[:2] == others
    agrees(model, {"x": floats(2, 5, 3)})


@pytest.mark.parametrize("opened", ["t", "5"])
def test_a_refusal_names_a_node_without_a_name_by_its_result(opened: str) -> None:
    text = 'out, h = GRU<hidden_size=4, activations=["Sigmoid", "Unheard"]>(x, w, r)'
    model = build(f"float[{opened},2,3] x", text, {"w": (1, 12, 3), "r": (1, 12, 4)})
    with pytest.raises(UnsupportedError, match=r"GRU \(the activation Unheard\) ×1 \(first: out[/)]"):
        relayout.convert(model, format="tflite")


def test_a_gpu_takes_one_place_of_the_last_of_five_axes() -> None:
    """The place is one number, so the result has an axis less than what it is taken from."""
    model = build("float[2,3,4,5,6] v", "g = Gather<axis=4>(v, last)", {"last": np.array(-1)})
    feed = {"v": floats(2, 3, 4, 5, 6)}
    run_close(relayout.convert(model, format="tflite", target="gpu").tflite, feed, with_runtime(model, feed))


@pytest.mark.parametrize(
    ("shapes", "named"),
    [
        ({"w": (2, 9, 3), "r": (2, 12, 4)}, "'w' of 2 × 9 × 3 elements, where 2 × 12 × 3 fit"),
        ({"w": (1, 12, 3), "r": (1, 12, 4)}, "'w' of 1 × 12 × 3 elements, where 2 × 12 × 3 fit"),
        ({"w": (2, 12, 7), "r": (2, 12, 4)}, "'w' of 2 × 12 × 7 elements, where 2 × 12 × 3 fit"),
        ({"w": (2, 12, 3), "r": (2, 0, 4)}, "'r' of 2 × 0 × 4 elements, where 2 × 12 × 4 fit"),
        ({"w": (2, 12, 3), "r": (2, 12, 4), "b": (2, 12)}, "'b' of 2 × 12 elements, where 2 × 24 fit"),
    ],
    ids=lambda each: "" if isinstance(each, dict) else each[1],
)
def test_weights_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, ...]], named: str) -> None:
    """The operator would give other numbers, or end in an internal error."""
    operands = ", ".join(["x", *shapes])
    text = f'y = GRU<hidden_size=4, direction="bidirectional">({operands})'
    model = build("float[5,2,3] x", text, shapes, outputs=("y",))
    with pytest.raises(UnsupportedError, match=re.escape(f"weights {named}")):
        relayout.convert(model, format="tflite")
