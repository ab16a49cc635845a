"""Loops whose rounds are a cell of ONNX's GRU, LSTM or RNN are that operator; what differs in anything is a Scan."""

from __future__ import annotations

import numpy as np
import pytest
import tflite_cases_cells
from tflite_cases_cells import (
    CELLS,
    OTHERS,
    SIGMOIDS,
    SLOPES,
    TIME,
    UNITS,
    WIDTH,
    Cell,
    Step,
    gru_after,
    gru_before,
    looped,
    lstm,
    rnn,
)
from tflite_cases_control import constant
from tflite_cases_lists import ROW, at_counter, writing
from tflite_running import FAST, agree, check_model, read, session
from tflite_writing import Net

from relayout.pipeline import convert
from relayout.verification import verify


def kinds_of(content: bytes, target: str | None = None) -> set[str]:
    return {node.op_type for node in read(content, target=target).graph}


LOOPS = {"Scan", "Loop"}


@pytest.mark.parametrize(
    ("cell", "form"), [(c, f) for c in CELLS for f in ("real", "halves", "bytes") if (c, f) != (rnn, "bytes")]
)
def test_a_cell_of_onnx_is_one_operator(cell: Cell, form: str) -> None:
    content = looped(cell, form=form).bytes()
    found = kinds_of(content)
    assert cell.__name__.partition("_")[0].upper() in found
    assert not (LOOPS | {"DynamicQuantizeLinear", "MatMulInteger"}) & found
    if form != "bytes":
        agree(content)
    assert verify(content, convert(content).model).ok


@pytest.mark.parametrize("form", ["real", "halves", "bytes"])
@pytest.mark.parametrize("gate", SIGMOIDS)
@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell is not rnn])
@pytest.mark.sampled(every=4)
def test_gates_of_two_clamps_are_hard_sigmoids(cell: Cell, gate: str, form: str) -> None:
    net = looped(cell, form=form, gate=gate)
    content = net.bytes()
    (node,) = [n for n in read(content).graph if n.op_type in ("GRU", "LSTM")]
    assert not LOOPS & kinds_of(content)
    assert node.attributes.get_strings("activations")[0] == "HardSigmoid"
    if form != "bytes":
        agree(content, net.ranges)
        agree(content, [*net.ranges[:-1], (-9, 9)])
        assert verify(content, convert(content).model).ok


@pytest.mark.parametrize("gate", OTHERS)
@pytest.mark.parametrize("cell", [gru_after, gru_before, lstm])
def test_other_clamps_stay_a_scan(cell: Cell, gate: str) -> None:
    content = looped(cell, gate=gate).bytes()
    assert "Scan" in kinds_of(content)
    assert not {"GRU", "LSTM", "RNN"} & kinds_of(content)
    agree(content)


@pytest.mark.parametrize("seed", range(60))
def test_gates_are_all_alike_or_stay_a_scan(seed: int) -> None:
    """Spelled in any ways; in half of the cells one gate is another function, or none."""
    rng = np.random.default_rng(seed)
    cell, gates = (gru_after, 2) if seed % 3 == 0 else (gru_before, 2) if seed % 3 == 1 else (lstm, 3)
    slope = SLOPES[str(rng.choice(list(SLOPES)))]
    alike = [name for name, other in SLOPES.items() if other == slope]
    kinds = [str(rng.choice(alike)) for _ in range(gates)]
    if wrong := bool(rng.integers(2)):
        kinds[rng.integers(gates)] = str(rng.choice([*OTHERS, *(name for name in SLOPES if name not in alike)]))
    net = looped(cell, gate="/".join(kinds))
    assert ("Scan" in kinds_of(net.bytes())) == wrong
    agree(net.bytes(), [*net.ranges[:-1], (-9, 9)])


@pytest.mark.parametrize("cell", CELLS)
def test_zeros_to_begin_with_and_a_single_row(cell: Cell) -> None:
    content = looped(cell, batch=1, zeros=True).bytes()
    (node,) = [n for n in read(content).graph if n.op_type in ("GRU", "LSTM", "RNN")]
    assert len([value for value in node.inputs if value is not None]) == 4
    agree(content)


def test_weights_of_bytes_are_what_they_mean() -> None:
    """The result is that of the real numbers that they stand for; LiteRT also rounds the rows."""
    content = looped(gru_after, form="bytes").bytes()
    made = session(check_model(read(content)))
    rng, given = np.random.default_rng(7), np.random.default_rng(1)
    w = np.rint(rng.normal(size=(3 * UNITS, WIDTH)) * 50).clip(-127, 127) * 0.02
    b = rng.normal(size=3 * UNITS)
    r = np.rint(rng.normal(size=(3 * UNITS, UNITS)) * 50).clip(-127, 127) * 0.02
    c = rng.normal(size=3 * UNITS)
    h, x = given.normal(size=(2, UNITS)), given.normal(size=(TIME, 2, WIDTH))
    names = [value.name for value in made.get_inputs()]
    got = made.run(None, dict(zip(names, (v.astype(np.float32) for v in (h, x)), strict=True)))
    for row in x:
        of_x, of_h = (np.split(v, 3, axis=1) for v in (row @ w.T + b, h @ r.T + c))
        update, reset = (1 / (1 + np.exp(-of_x[k] - of_h[k])) for k in (0, 1))
        h = update * h + (1 - update) * np.tanh(of_x[2] + reset * of_h[2])
    np.testing.assert_allclose(got[2], h, atol=1e-5)
    np.testing.assert_allclose(got[1][-1], h, atol=1e-5)


@pytest.mark.parametrize(
    ("cell", "other"),
    [
        *((gru_after, other) for other in ("exchanged", "tanh", "two", "turned", "clip", "another list")),
        *((gru_before, other) for other in ("forgotten", "another list")),
        *((lstm, other) for other in ("peephole", "clip", "before", "another list")),
        (rnn, "leak"),
        (rnn, "bytes"),
    ],
)
def test_what_differs_stays_a_scan(cell: Cell, other: str) -> None:
    """With the target `bytes` without gates do, too: what LiteRT rounds in a step, the next ones make more of."""
    content = looped(cell, other, "bytes" if other == "bytes" else "real").bytes()
    target = FAST if other == "bytes" else None
    found = kinds_of(content, target)
    assert "Scan" in found
    assert not {"GRU", "LSTM", "RNN"} & found
    agree(content, target=target)


def test_many_bytes_stay_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As real numbers they are four times as long to read, in each round."""
    for units, wanted in ((220, {"GRU"}), (230, {"Scan"})):
        monkeypatch.setattr(tflite_cases_cells, "UNITS", units)
        content = looped(gru_after, form="bytes").bytes()
        assert {"GRU", "Scan"} & kinds_of(content, FAST) == wanted
        assert {"GRU", "Scan"} & kinds_of(content) == {"GRU"}
        assert "GRU" in kinds_of(looped(gru_after).bytes())


@pytest.mark.parametrize(("time", "batch"), [(1, 2), (5, 1), (9, 3)])
def test_open_batch_and_length(time: int, batch: int) -> None:
    """Over lists, which LiteRT does not run: beside numpy."""
    weights = []

    def step(net: Net, row: int, h: int) -> int:
        s = Step(net, ROW[0], signature=(-1, -1))
        of_x, of_h = (s.split(s.product(v, UNITS, 3 * UNITS), 3) for v in (row, h))
        z, r = (s.one("LOGISTIC", s.add(a, b)) for a, b in zip(of_x[:2], of_h[:2], strict=True))
        n = s.one("TANH", s.add(of_x[2], s.mul(r, of_h[2])))
        rng = np.random.default_rng(7)
        weights[:] = [(rng.normal(size=(3 * UNITS, UNITS)), rng.normal(size=3 * UNITS)) for _ in range(2)]
        return s.add(s.mul(z, h), s.mul(s.sub(constant(net, 1.0), z), n))

    content = writing((-1, ROW[1]), at_counter, opened=True, step=step).bytes()
    assert "GRU" in kinds_of(content)
    assert not LOOPS & kinds_of(content)
    made = session(check_model(read(content)))
    x = np.random.default_rng(time).normal(size=(time, batch, ROW[1])).astype(np.float32)
    last, rows, counter = made.run(None, {made.get_inputs()[0].name: x})
    h, found = np.zeros((batch, UNITS)), []
    for row in x:
        of_x, of_h = (np.split(v @ w.T + b, 3, axis=1) for v, (w, b) in zip((row, h), weights, strict=True))
        z, r = (1 / (1 + np.exp(-of_x[k] - of_h[k])) for k in (0, 1))
        h = z * h + (1 - z) * np.tanh(of_x[2] + r * of_h[2])
        found.append(h)
    assert counter == time
    np.testing.assert_allclose(last, h, atol=1e-5)
    np.testing.assert_allclose(rows, found, atol=1e-5)
