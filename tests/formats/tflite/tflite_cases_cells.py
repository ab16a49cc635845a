"""Loops over rows whose rounds are recurrent cells, as Keras and the first TensorFlow write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_cases_control import binary, constant, loop, subgraph
from tflite_writing import Net, Scale, options

TIME, WIDTH, UNITS = 5, 3, 4


class Step:
    """One round: operators on rows of a batch, with random weights; `form`: how those are stored."""

    def __init__(self, net: Net, batch: int, form: str = "real", signature: tuple[int, ...] | None = None) -> None:
        self.net, self.batch, self.form = net, batch, form
        self.open, self.rng = signature is not None, np.random.default_rng(7)

    def tensor(self, columns: int) -> int:
        return self.net.tensor((self.batch, columns), signature=(-1, columns) if self.open else None)

    def numbers(self, *shape: int) -> Any:
        return self.rng.normal(size=shape)

    def product(self, x: int, rows: int, columns: int, *, bias: bool = True) -> int:
        kernel, net = self.numbers(columns, rows), self.net
        if self.form == "bytes":
            weights = net.const(np.rint(kernel * 50).clip(-127, 127), "int8", q=Scale(0.02))
        elif self.form == "halves":
            weights = net.tensor(kernel.shape)
            net.op("DEQUANTIZE", [net.const(kernel, "float16")], [weights], version=3)
        else:
            weights = net.const(kernel)
        operands = [x, weights, net.const(self.numbers(columns)) if bias else -1]
        net.op("FULLY_CONNECTED", operands, [y := self.tensor(columns)], options("FullyConnectedOptions"), version=9)
        return y

    def both(self, name: str, a: int, b: int, columns: int = UNITS) -> int:
        table = {"ADD": "AddOptions", "MUL": "MulOptions", "SUB": "SubOptions"}[name]
        self.net.op(name, [a, b], [y := self.tensor(columns)], options(table))
        return y

    def add(self, a: int, b: int, columns: int = UNITS) -> int:
        return self.both("ADD", a, b, columns)

    def mul(self, a: int, b: int) -> int:
        return self.both("MUL", a, b)

    def sub(self, a: int, b: int) -> int:
        return self.both("SUB", a, b)

    def one(self, name: str, x: int, columns: int = UNITS) -> int:
        self.net.op(name, [x], [y := self.tensor(columns)])
        return y

    def split(self, x: int, parts: int) -> list[int]:
        made = [self.tensor(UNITS) for _ in range(parts)]
        self.net.op("SPLIT", [self.net.const(1, "int32"), x], made, options("SplitOptions", numSplits=parts))
        return made

    def slices(self, x: int, parts: int) -> list[int]:
        made = [self.tensor(UNITS) for _ in range(parts)]
        for k, y in enumerate(made):
            bounds = [self.net.const([0, k * UNITS], "int32"), self.net.const([-1, UNITS], "int32")]
            self.net.op("SLICE", [x, *bounds], [y], options("SliceOptions"))
        return made

    def beside(self, a: int, b: int) -> int:
        self.net.op("CONCATENATION", [a, b], [y := self.tensor(WIDTH + UNITS)], options("ConcatenationOptions", axis=1))
        return y


def gru_after(s: Step, x: int, h: int, other: str = "") -> tuple[int, ...]:
    """As Keras writes it by default: r meets h's product. Gates z, r, h."""
    of_x, of_h = s.split(s.product(x, WIDTH, 3 * UNITS), 3), s.slices(s.product(h, UNITS, 3 * UNITS), 3)
    z = s.one("LOGISTIC", s.add(of_x[0], of_h[0]))
    r = s.one("TANH" if other == "tanh" else "LOGISTIC", s.add(of_h[1], of_x[1]))
    total = s.add(of_x[2], s.mul(r, of_h[2]))
    n = s.one("RELU6" if other == "clip" else "TANH", total)
    left, right = (r, z) if other == "exchanged" else (z, z)
    rest = s.sub(constant(s.net, 2.0 if other == "two" else 1.0), left)
    if other == "turned":
        return (s.add(s.mul(z, n), s.mul(rest, h)), n)
    return (s.add(s.mul(right, h), s.mul(rest, n)), n)


def gru_before(s: Step, x: int, h: int, other: str = "") -> tuple[int, ...]:
    """Without `reset_after`: r meets h; `n + z (h - n)`."""
    z, r = (s.one("LOGISTIC", s.add(s.product(x, WIDTH, UNITS), s.product(h, UNITS, UNITS))) for _ in range(2))
    met = h if other == "forgotten" else s.mul(h, r)
    n = s.one("TANH", s.add(s.product(met, UNITS, UNITS, bias=False), s.product(x, WIDTH, UNITS)))
    return (s.add(n, s.mul(z, s.sub(h, n))), n)


def gru_joined(s: Step, x: int, h: int, other: str = "") -> tuple[int, ...]:
    """As the first TensorFlow wrote it: row and state side by side, gates r, z."""
    r, z = s.split(s.one("LOGISTIC", s.product(s.beside(x, h), WIDTH + UNITS, 2 * UNITS), 2 * UNITS), 2)
    n = s.one("TANH", s.product(s.beside(x, s.mul(r, h)), WIDTH + UNITS, UNITS))
    return (s.add(s.mul(z, h), s.mul(s.sub(constant(s.net, 1.0), z), n)), n)


def lstm(s: Step, x: int, h: int, c: int, other: str = "") -> tuple[int, ...]:
    """As Keras writes it: gates i, f, c, o, one bias."""
    total = s.add(s.product(x, WIDTH, 4 * UNITS, bias=False), s.product(h, UNITS, 4 * UNITS), 4 * UNITS)
    i, f, g, o = s.split(total, 4)
    if other == "peephole":
        f = s.add(f, s.mul(c, s.net.const(s.numbers(UNITS))))
    i, f, o = (s.one("LOGISTIC", gate) for gate in (i, f, o))
    after = s.add(s.mul(f, c), s.mul(i, s.one("TANH", g)))
    if other == "clip":
        s.net.op("MINIMUM", [after, constant(s.net, 0.5)], [after := s.tensor(UNITS)], options("MaximumMinimumOptions"))
    cell = c if other == "before" else after
    return (s.mul(o, s.one("TANH", cell)), after)


def lstm_joined(s: Step, x: int, h: int, c: int, other: str = "") -> tuple[int, ...]:
    """As the first TensorFlow wrote it: gates i, c, f, o, the forget gate 1 higher."""
    i, g, f, o = s.split(s.product(s.beside(x, h), WIDTH + UNITS, 4 * UNITS), 4)
    f = s.one("LOGISTIC", s.add(f, constant(s.net, 1.0)))
    after = s.add(s.mul(c, f), s.mul(s.one("LOGISTIC", i), s.one("TANH", g)))
    return (s.mul(s.one("TANH", after), s.one("LOGISTIC", o)), after)


def lstm_relu(s: Step, x: int, h: int, c: int, other: str = "") -> tuple[int, ...]:
    """With RELU for the cell."""
    i, f, g, o = s.split(s.add(s.product(x, WIDTH, 4 * UNITS), s.product(h, UNITS, 4 * UNITS), 4 * UNITS), 4)
    after = s.add(s.mul(s.one("LOGISTIC", f), c), s.mul(s.one("LOGISTIC", i), s.one("RELU", g)))
    return (s.mul(s.one("LOGISTIC", o), s.one("RELU", after)), after)


def rnn(s: Step, x: int, h: int, other: str = "") -> tuple[int, ...]:
    total = s.add(s.product(x, WIDTH, UNITS), s.product(h, UNITS, UNITS))
    return (s.one("TANH", s.add(total, h) if other == "leak" else total),)


Cell = Callable[..., tuple[int, ...]]


def looped(cell: Cell, other: str = "", form: str = "real", *, batch: int = 2, zeros: bool = False) -> Net:
    """A cell over the rows of x, all h in a list. With `other` something differs."""
    net, states = Net(), 2 if cell.__name__.startswith("lstm") else 1
    scalar, state, rows, sequence = (), (batch, UNITS), (TIME, batch, UNITS), (TIME, batch, WIDTH)
    kinds = [(scalar, "int32"), (rows, "float32"), *[(state, "float32")] * states, (sequence, "float32")]

    def test(n: Net, t: list[int]) -> list[int]:
        return [binary(n, "LESS", t[0], constant(n, TIME, "int32"), (), "bool")]

    def step(n: Net, t: list[int]) -> list[int]:
        s = Step(n, batch, form)
        n.op("GATHER", [t[-1], t[0]], [row := s.tensor(WIDTH)], options("GatherOptions"))
        found = cell(s, row, *t[2 : 2 + states], other)
        yielded = found[1] if other == "another list" else found[0]
        n.op(
            "RESHAPE",
            [yielded, n.const((1, *state), "int32")],
            [new := n.tensor((1, *state))],
            options("ReshapeOptions"),
        )
        n.op("RESHAPE", [t[0], n.const([1], "int32")], [head := n.tensor((1,), "int32")], options("ReshapeOptions"))
        place = [head, n.const([0, 0], "int32")]
        n.op("CONCATENATION", place, [start := n.tensor((3,), "int32")], options("ConcatenationOptions", axis=0))
        n.op("DYNAMIC_UPDATE_SLICE", [t[1], new, start], [whole := n.tensor(rows)])
        return [binary(n, "ADD", t[0], constant(n, 1, "int32"), (), "int32"), whole, *found[:states], t[-1]]

    first = [net.const(np.zeros(state)) if zeros else net.input(state) for _ in range(states)]
    operands = [net.const(0, "int32"), net.const(np.zeros(rows)), *first, net.input(sequence)]
    results = [net.output(shape, kind) for shape, kind in kinds]
    return loop(net, operands, results, (subgraph(net, kinds, test), subgraph(net, kinds, step)))


CELLS = [gru_after, gru_before, gru_joined, lstm, lstm_joined, lstm_relu, rnn]


@cases("WHILE")
def recurrent_cells() -> Iterator[Net]:
    for cell in CELLS:
        yield looped(cell)
