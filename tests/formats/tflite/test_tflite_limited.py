"""An LSTM whose cell is limited is ONNX's LSTM in pieces, and a Scan where a cell comes near the limit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import tflite_running
from tflite_cases_recurrent import BATCH, COLUMNS, RELU, TIME, UNITS, bidirectional_lstm, lstm, quantized_lstm
from tflite_running import FAST, check_model, interpreter, run_interpreter, session
from tflite_writing import Net, options

from relayout.formats.tflite.container.loading import load
from relayout.pipeline import convert
from relayout.targets.onnxruntime import lstm_in_pieces as limited
from relayout.targets.onnxruntime.lstm_in_pieces import Listed, Pieces, pieces, plan
from relayout.verification import verify

read, agree = (partial(each, target=FAST) for each in (tflite_running.read, tflite_running.agree))
LIMIT = 5
WAYS = {"pieces": ["If", "LSTM", "Scan"], "listed": ["If", "LSTM", "LSTM"]}
"""How the limit is held -> the operators that are seen of it."""
KINDS: list[dict[str, Any]] = [{}, {"time_major": True}, {"peephole": True}, {"hybrid": True}]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Pieces for any number of units, or cells that are listed."""
    monkeypatch.setattr(limited, "SMALL", 0 if request.param == "pieces" else limited.SMALL)
    return str(request.param)


def kinds_of(model: ir.Model) -> list[str]:
    return sorted(node.op_type for node in model.graph if node.op_type in ("If", "LSTM", "Scan"))


def answering(content: bytes) -> Any:
    """A session of a model, whose last outputs are whether each of its Ifs takes pieces."""
    model = read(content)
    conditions = [node.inputs[0] for node in model.graph if node.op_type == "If"]
    model.graph.outputs.extend(value for value in conditions if value is not None)
    return session(check_model(model))


@pytest.mark.parametrize(
    ("time", "limit", "coupled", "begun", "cut_up"),
    [
        (10, 10.0, False, False, Pieces(10)),
        (11, 10.0, False, False, Pieces(7, 4, 1, 6.0)),
        (48, 10.0, False, False, Pieces(8, 4, 10, 6.0)),
        (48, 10.0, False, True, Pieces(0, 4, 12, 6.0)),
        (50, 10.0, False, True, Pieces(2, 4, 12, 6.0)),
        (9, 1e9, False, True, Pieces(0, 9, 1, 1e9 - 9)),
        (7, 10.0, False, True, None),
        (48, 4.9, False, False, None),
        (None, 10.0, False, False, None),
        ("t", 1.0, True, False, Pieces("t")),
        ("t", 3.0, True, True, Pieces("t", most=3.0)),
        ("t", 0.9, True, False, None),
    ],
)
def test_how_a_sequence_is_cut(time: Any, limit: float, coupled: bool, begun: bool, cut_up: Pieces | None) -> None:
    found = pieces(time, limit, coupled=coupled, begun=begun)
    assert found == cut_up
    if found is not None and found.count and isinstance(found.head, int):
        assert found.head + found.count * found.steps == time
        assert begun or found.head <= limit


@pytest.mark.parametrize("time", [8, 19, 22, 23])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_and_steps_are_what_litert_computes(way: str, kind: dict[str, Any], time: int) -> None:
    net = lstm(time=time, clip=LIMIT, **kind)
    assert kinds_of(read(net.bytes())) == WAYS[way]
    if net.slack:
        assert verify(net.bytes(), convert(read(net.bytes())).model).ok
        return
    for given in ([(-0.3, 0.3)], [(1.0, 6.0)]):
        agree(net.bytes(), given)
        tflite_running.agree(net.bytes(), given)


@pytest.mark.parametrize("kind", [{}, {"auxiliary": "both"}, {"auxiliary": "backward"}, {"peephole": True}])
def test_both_directions(way: str, kind: dict[str, Any]) -> None:
    content = bidirectional_lstm(time=21, clip=LIMIT, **kind).bytes()
    assert kinds_of(read(content)) == sorted(2 * WAYS[way])
    ranges = [(-0.3, 0.3), (1.0, 6.0)]
    for given in ranges:
        agree(content, [given] * (2 if kind.get("auxiliary") else 1))


def counting(time: int, limit: float, *, both: bool = False, peephole: bool = False) -> Net:
    """An LSTM that adds up: gates are open, the candidate is the tanh of thirty times the operand.

    The last column closes the forget gate. With `peephole` the gate OUTPUT tells how far the cell is from the limit.
    """
    net, open_, shut = Net(), np.full(UNITS, 30.0), np.zeros((UNITS, COLUMNS))
    x = net.input((1, time, COLUMNS))
    candidate = np.zeros((UNITS, COLUMNS))
    candidate[np.arange(UNITS), np.arange(UNITS) % COLUMNS] = 30.0

    forget = np.tile([0.0, 0.0, -60.0], (UNITS, 1))

    def direction() -> list[int]:
        kernels = [net.const(kernel) for kernel in (shut, forget, candidate, shut)]
        recurrent = [net.const(np.zeros((UNITS, UNITS))) for _ in range(4)]
        last = np.full(UNITS, -limit) if peephole else open_
        biases = [net.const(bias) for bias in (open_, open_, open_ * 0, last)]
        peepholes = [net.const(np.full(UNITS, slope)) if peephole else -1 for slope in (0, 0, 1)]
        return [*kernels, *recurrent, *peepholes, *biases, -1, -1]

    def states() -> list[int]:
        return [net.tensor((1, UNITS), variable=True) for _ in range(2)]

    fields = {"fusedActivationFunction": 4, "cellClip": limit}
    if both:
        table = options("BidirectionalSequenceLSTMOptions", timeMajor=False, **fields)
        operands = [x, *direction(), *direction(), *states(), *states(), -1, *[-1] * 8]
        return net.op("BIDIRECTIONAL_SEQUENCE_LSTM", operands, [net.output((1, time, UNITS)) for _ in range(2)], table)
    table = options("UnidirectionalSequenceLSTMOptions", **fields)
    operands = [x, *direction(), *states(), *[-1] * 4]
    return net.op("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [net.output((1, time, UNITS))], table)


@pytest.mark.parametrize("both", [False, True])
def test_a_cell_that_reaches_the_limit_is_limited(way: str, both: bool) -> None:
    """It grows by 1 for some steps, then it falls, slowly: which tells what it was."""
    time, seen = 21, set[bool]()
    content = counting(time, LIMIT, both=both).bytes()
    made, results = answering(content), 2 if both else 1
    for before in range(0, 12, 3):
        for grown in range(10):
            x = np.zeros((1, time, COLUMNS), np.float32)
            for column, sign in enumerate((1, -1)):
                x[:, before : before + grown, column] = sign
                x[:, before + grown :, column] = -0.003 * sign
            got = made.run(None, {made.get_inputs()[0].name: x})
            for y, wanted in zip(got[:results], run_interpreter(interpreter(content), [x]), strict=True):
                np.testing.assert_allclose(y, wanted, atol=1e-5)
            assert grown > (1 if way == "pieces" else LIMIT - 1) or all(got[results:])
            assert grown < LIMIT + 1 or not got[results]
            seen.update(map(bool, got[results:]))
    assert seen == {False, True}


def begun(content: bytes, x: Any, cell: float) -> list[str]:
    """Hold a model that is given its cells against LiteRT, which is given them as those that it keeps."""
    model = read(content, state="io")
    made, theirs = session(check_model(model)), interpreter(content)
    c = np.full((x.shape[0], UNITS), cell, np.float32)
    states = [d["index"] for d in theirs.get_tensor_details() if d["shape"].tolist() == list(c.shape)][-2:]
    kept = load(content).subgraphs[0].tensors
    assert [kept[i].is_variable for i in states] == [True, True]
    for index, value in zip(states, (np.zeros_like(c), c), strict=True):
        theirs.set_tensor(index, value)
    given = dict(zip([i.name for i in made.get_inputs()], (x, np.zeros_like(c), c), strict=True))
    wanted = [*run_interpreter(theirs, [x]), *(theirs.get_tensor(index) for index in states)]
    for got, value in zip(made.run(None, given), wanted, strict=True):
        np.testing.assert_allclose(got, value, atol=1e-5)
    return kinds_of(model)


@pytest.mark.parametrize("cell", [0.0, 2.0, 3.5, 4.9, 7.0])
def test_cells_that_are_given_are_asked_too(way: str, cell: float) -> None:
    x = np.zeros((1, 13, COLUMNS), np.float32)
    x[:, :4, 0], x[:, 4:, 0] = 1, -0.01
    assert begun(counting(13, LIMIT).bytes(), x, cell) == WAYS[way]


def test_cells_that_are_given_reach_the_limit_before_the_first_piece(way: str) -> None:
    """And are forgotten there."""
    x = np.zeros((1, 11, COLUMNS), np.float32)
    x[:, 0, 0], x[:, 1, 2] = 1, 1
    for cell in (1.0, 7.9):
        assert begun(counting(11, 8, peephole=True).bytes(), x, cell) == WAYS[way]


@pytest.mark.parametrize("cell", [0.5, 1.9, 4.0])
def test_coupled_gates_keep_a_cell_within_what_it_begins_with(cell: float) -> None:
    content = lstm(cifg=True, clip=2).bytes()
    x = np.random.default_rng(3).normal(size=(BATCH, TIME, COLUMNS))
    assert begun(content, x.astype(np.float32), cell) == ["If", "LSTM"]
    assert kinds_of(read(content)) == ["LSTM"]


UNBOUNDED: list[dict[str, Any]] = [
    {"clip": 0.3},
    {"clip": 0.9, "cifg": True},
    {"clip": 0.5, "cifg": True, "peephole": True},
    {"clip": 3, "activation": RELU},
]


@pytest.mark.parametrize("kind", UNBOUNDED)
def test_cells_of_which_no_step_tells_the_next_are_listed(kind: dict[str, Any]) -> None:
    content = lstm(time=19, **kind).bytes()
    made = answering(content)
    assert kinds_of(read(content)) == WAYS["listed"]
    seen = set[bool]()
    for scale in (0.0, 0.1, 0.5, 3.0):
        x = np.random.default_rng(1).normal(size=(BATCH, 19, COLUMNS)).astype(np.float32) * np.float32(scale)
        y, near = made.run(None, {made.get_inputs()[0].name: x})
        np.testing.assert_allclose(y, run_interpreter(interpreter(content), [x])[0], atol=1e-5)
        seen.add(bool(near))
    assert False in seen


@pytest.mark.parametrize("state", ["zero", "io"])
@pytest.mark.parametrize(
    "kind", [{}, {"peephole": True}, {"cifg": True}, {"activation": RELU, "peephole": True}, {"both": True}]
)
def test_the_last_cell_that_is_listed_is_the_last_cell(kind: dict[str, Any], state: Any) -> None:
    """In the order of computation: each follows from the results of the step before. Sums are far from 0."""
    both = kind.get("both")
    model = read(
        (bidirectional_lstm if both else lstm)(time=19, **({} if both else kind), clip=0.9).bytes(), state=state
    )
    free, listing = ([node for node in model.graph if node.op_type == "LSTM"][k::2] for k in (0, 1))
    model.graph.outputs.extend([*(node.outputs[2] for node in free), *(node.outputs[0] for node in listing)])
    made, rng = session(check_model(model)), np.random.default_rng(0)
    inputs = made.get_inputs()
    got = made.run(None, {i.name: rng.normal(size=i.shape).astype(np.float32) * 100 for i in inputs})
    lasts, lists = got[-2 * len(free) : -len(free)], got[-len(free) :]
    assert len(free) == len(listing) == (2 if both else 1)
    for node, last, cells in zip(free, lasts, lists, strict=True):
        reverse = node.attributes.get_string("direction") == "reverse"
        np.testing.assert_allclose(cells[0 if reverse else -1], last, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("time", [1, 5, 19])
def test_an_open_number_of_steps(time: int) -> None:
    net = counting(1, LIMIT)
    for tensor in (net.graph.tensors[net.graph.inputs[0]], net.graph.tensors[net.graph.outputs[0]]):
        tensor.shapeSignature = [1, -1, tensor.shape[2]]
    content = net.bytes()
    model = read(content)
    assert kinds_of(model) == WAYS["listed"]
    made = session(check_model(model))
    for x in (np.ones((1, time, COLUMNS), np.float32), np.full((1, time, COLUMNS), 0.001, np.float32)):
        x[..., 2] = 0
        wanted = run_interpreter(interpreter(content, resize={0: x.shape}), [x])
        np.testing.assert_allclose(made.run(None, {made.get_inputs()[0].name: x})[0], wanted[0], atol=1e-5)


@pytest.mark.parametrize("kind", [*UNBOUNDED, {"projection": 3}, {"normalized": True}])
def test_other_cells_stay_a_scan(monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any]) -> None:
    """Those of many units that are limited sooner or grow faster, and those whose step is another."""
    if kind in UNBOUNDED:
        monkeypatch.setattr(limited, "LARGE", 0)
    content = lstm(**{"time": 19, "clip": LIMIT, **kind}).bytes()
    assert kinds_of(read(content)) == ["Scan"]
    agree(content, [(1.0, 6.0)])


@pytest.mark.parametrize(
    ("time", "size", "found"),
    [(48, 40, Listed), (48, 41, Pieces), (None, 96, Listed), (None, 97, type(None)), (7, 4, Pieces), (48, 999, Pieces)],
)
def test_which_way_takes_less_time(time: int | None, size: int, found: type) -> None:
    assert isinstance(plan(time, size, 10.0), found)
    assert isinstance(plan(time, size, 10.0, bounded=False), Listed | None)


def test_a_float_model_of_integers_limits_cells_as_these_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end at 8, before the limit: so do pieces."""
    monkeypatch.setattr(limited, "SMALL", 0)
    content = quantized_lstm(time=23, clip=20).bytes()
    model = read(content, quant="float")
    assert kinds_of(model) == WAYS["pieces"]
    (condition,) = (node.inputs[0] for node in model.graph if node.op_type == "If")
    asked = condition.producer() if condition is not None else None
    assert asked is not None
    most = asked.inputs[1]
    assert most is not None
    assert most.const_value is not None
    assert most.const_value.numpy() == pytest.approx(8 - 3, abs=1e-3)


@pytest.mark.parametrize("limit", [np.inf, np.nan, 1e30])
def test_limits_that_are_none(limit: float) -> None:
    content = lstm(time=19, clip=limit).bytes()
    assert kinds_of(read(content)) == ["LSTM"]
    read(content, state="io")


def test_a_long_sequence_makes_no_larger_graph() -> None:
    short, long = (len(list(read(lstm(time=n, clip=LIMIT).bytes()).graph.all_nodes())) for n in (19, 1901))
    assert short == long
