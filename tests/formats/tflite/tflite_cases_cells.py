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
    """One round: operators on rows of a batch, with random weights.

    Args:
        net: where they are written.
        batch: rows.
        form: how weights are stored; of "bytes" products round their data around zero, of "around any number" not.
        signature: whether the batch is open.
        gate: how gates' activations are spelled, one after the other, the last one for all others.
    """

    def __init__(
        self,
        net: Net,
        batch: int,
        form: str = "real",
        signature: tuple[int, ...] | None = None,
        gate: str = "",
    ) -> None:
        self.net, self.batch, self.form, self.kind, self.gates = net, batch, form, gate, 0
        self.open, self.rng = signature is not None, np.random.default_rng(7)

    def tensor(self, columns: int) -> int:
        return self.net.tensor((self.batch, columns), signature=(-1, columns) if self.open else None)

    def numbers(self, *shape: int) -> Any:
        return self.rng.normal(size=shape)

    def product(self, x: int, rows: int, columns: int, *, bias: bool = True) -> int:
        kernel, net = self.numbers(columns, rows), self.net
        if self.form in ("bytes", "around any number"):
            weights = net.const(np.rint(kernel * 50).clip(-127, 127), "int8", q=Scale(0.02))
        elif self.form == "halves":
            weights = net.tensor(kernel.shape)
            net.op("DEQUANTIZE", [net.const(kernel, "float16")], [weights], version=3)
        else:
            weights = net.const(kernel)
        operands = [x, weights, net.const(self.numbers(columns)) if bias else -1]
        table = options("FullyConnectedOptions", asymmetricQuantizeInputs=self.form == "around any number")
        net.op("FULLY_CONNECTED", operands, [y := self.tensor(columns)], table, version=9)
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

    def sigmoid(self, x: int, columns: int = UNITS) -> int:
        kinds = self.kind.split("/")
        kind = kinds[min(self.gates, len(kinds) - 1)]
        self.gates += 1
        return (SIGMOIDS | OTHERS)[kind](self, x, columns) if kind else self.one("LOGISTIC", x, columns)

    def with_number(self, name: str, x: int, number: float, columns: int, fused: int = 0) -> int:
        """The operands of a difference are exchanged: a number less x."""
        table = {"ADD": "AddOptions", "MUL": "MulOptions", "SUB": "SubOptions"}.get(name, "MaximumMinimumOptions")
        operands = [x, constant(self.net, number)][:: -1 if name == "SUB" else 1]
        fields = {"fusedActivationFunction": fused} if name in ("ADD", "MUL", "SUB") else {}
        self.net.op(name, operands, [y := self.tensor(columns)], options(table, **fields))
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


RELU, RELU6 = 1, 3


def _relu6(s: Step, x: int, columns: int, shift: float = 3, part: float = 6) -> int:
    """`relu6(x + 3) / 6`, as Keras 3 writes it."""
    return s.with_number("MUL", s.with_number("ADD", x, shift, columns, RELU6), 1 / part, columns)


def _clamped(s: Step, x: int, columns: int, low: float = 0, high: float = 1, slope: float = 0.2) -> int:
    """`max(min(0.2 x + 0.5, 1), 0)`, as Keras 2 writes it."""
    x = s.with_number("ADD", s.with_number("MUL", x, slope, columns), 0.5, columns)
    x = s.with_number("MINIMUM", x, high, columns)
    return s.one("RELU", x, columns) if low == 0 else s.with_number("MAXIMUM", x, low, columns)


def _relu_first(s: Step, x: int, columns: int) -> int:
    """`min(relu(0.3 x + 0.4), 1)`."""
    x = s.with_number("ADD", s.with_number("MUL", x, 0.3, columns), 0.4, columns, RELU)
    return s.with_number("MINIMUM", x, 1, columns)


def _mirrored(s: Step, x: int, columns: int) -> int:
    """`1 - min(relu(0.5 - 0.25 x), 1)`."""
    x = s.with_number("SUB", s.with_number("MUL", x, 0.25, columns), 0.5, columns, RELU)
    return s.with_number("SUB", s.with_number("MINIMUM", x, 1, columns), 1, columns)


def _scaled(s: Step, x: int, columns: int) -> int:
    """`(max(min(x, 2), -2) + 2) / 4`."""
    x = s.with_number("MAXIMUM", s.with_number("MINIMUM", x, 2, columns), -2, columns)
    return s.with_number("MUL", s.with_number("ADD", x, 2, columns), 0.25, columns)


SIGMOIDS: dict[str, Callable[[Step, int, int], int]] = {
    "relu6": _relu6,
    "shifted": lambda s, x, columns: _relu6(s, x, columns, shift=4),
    "clamped": _clamped,
    "relu first": _relu_first,
    "mirrored": _mirrored,
    "scaled": _scaled,
}
"""Spellings of a HardSigmoid."""
OTHERS: dict[str, Callable[[Step, int, int], int]] = {
    "wide": lambda s, x, columns: _relu6(s, x, columns, part=5),
    "nearly as wide": lambda s, x, columns: _relu6(s, x, columns, part=6.0001),
    "nearly 1": lambda s, x, columns: _clamped(s, x, columns, high=1.0001),
    "above": lambda s, x, columns: _clamped(s, x, columns, low=0.1),
    "below": lambda s, x, columns: _clamped(s, x, columns, high=0.9),
    "one end": lambda s, x, columns: _clamped(s, x, columns, high=50),
}
"""What is none."""
SLOPES = {"": 0, "relu6": 6, "shifted": 6, "clamped": 5, "relu first": 3, "mirrored": 4, "scaled": 4}
"""What tells a HardSigmoid from another one; 0: it is none."""


def gru_after(s: Step, x: int, h: int, other: str = "") -> tuple[int, ...]:
    """As Keras writes it by default: r meets h's product. Gates z, r, h."""
    of_x, of_h = s.split(s.product(x, WIDTH, 3 * UNITS), 3), s.slices(s.product(h, UNITS, 3 * UNITS), 3)
    z = s.sigmoid(s.add(of_x[0], of_h[0]))
    total = s.add(of_h[1], of_x[1])
    r = s.one("TANH", total) if other == "tanh" else s.sigmoid(total)
    total = s.add(of_x[2], s.mul(r, of_h[2]))
    n = s.one("RELU6" if other == "clip" else "TANH", total)
    left, right = (r, z) if other == "exchanged" else (z, z)
    rest = s.sub(constant(s.net, 2.0 if other == "two" else 1.0), left)
    if other == "turned":
        return (s.add(s.mul(z, n), s.mul(rest, h)), n)
    return (s.add(s.mul(right, h), s.mul(rest, n)), n)


def gru_before(s: Step, x: int, h: int, other: str = "") -> tuple[int, ...]:
    """Without `reset_after`: r meets h; `n + z (h - n)`."""
    z, r = (s.sigmoid(s.add(s.product(x, WIDTH, UNITS), s.product(h, UNITS, UNITS))) for _ in range(2))
    met = h if other == "forgotten" else s.mul(h, r)
    n = s.one("TANH", s.add(s.product(met, UNITS, UNITS, bias=False), s.product(x, WIDTH, UNITS)))
    return (s.add(n, s.mul(z, s.sub(h, n))), n)


def gru_joined(s: Step, x: int, h: int, other: str = "") -> tuple[int, ...]:
    """As the first TensorFlow wrote it: row and state side by side, gates r, z."""
    r, z = s.split(s.sigmoid(s.product(s.beside(x, h), WIDTH + UNITS, 2 * UNITS), 2 * UNITS), 2)
    n = s.one("TANH", s.product(s.beside(x, s.mul(r, h)), WIDTH + UNITS, UNITS))
    return (s.add(s.mul(z, h), s.mul(s.sub(constant(s.net, 1.0), z), n)), n)


def lstm(s: Step, x: int, h: int, c: int, other: str = "") -> tuple[int, ...]:
    """As Keras writes it: gates i, f, c, o, one bias."""
    total = s.add(s.product(x, WIDTH, 4 * UNITS, bias=False), s.product(h, UNITS, 4 * UNITS), 4 * UNITS)
    i, f, g, o = s.split(total, 4)
    if other == "peephole":
        f = s.add(f, s.mul(c, s.net.const(s.numbers(UNITS))))
    i, f, o = (s.sigmoid(gate) for gate in (i, f, o))
    after = s.add(s.mul(f, c), s.mul(i, s.one("TANH", g)))
    if other == "clip":
        s.net.op("MINIMUM", [after, constant(s.net, 0.5)], [after := s.tensor(UNITS)], options("MaximumMinimumOptions"))
    cell = c if other == "before" else after
    return (s.mul(o, s.one("TANH", cell)), after)


def lstm_joined(s: Step, x: int, h: int, c: int, other: str = "") -> tuple[int, ...]:
    """As the first TensorFlow wrote it: gates i, c, f, o, the forget gate 1 higher."""
    i, g, f, o = s.split(s.product(s.beside(x, h), WIDTH + UNITS, 4 * UNITS), 4)
    f = s.sigmoid(s.add(f, constant(s.net, 1.0)))
    after = s.add(s.mul(c, f), s.mul(s.sigmoid(i), s.one("TANH", g)))
    return (s.mul(s.one("TANH", after), s.sigmoid(o)), after)


def lstm_relu(s: Step, x: int, h: int, c: int, other: str = "") -> tuple[int, ...]:
    """With RELU for the cell."""
    i, f, g, o = s.split(s.add(s.product(x, WIDTH, 4 * UNITS), s.product(h, UNITS, 4 * UNITS), 4 * UNITS), 4)
    after = s.add(s.mul(s.sigmoid(f), c), s.mul(s.sigmoid(i), s.one("RELU", g)))
    return (s.mul(s.sigmoid(o), s.one("RELU", after)), after)


def rnn(s: Step, x: int, h: int, other: str = "") -> tuple[int, ...]:
    total = s.add(s.product(x, WIDTH, UNITS), s.product(h, UNITS, UNITS))
    return (s.one("TANH", s.add(total, h) if other == "leak" else total),)


Cell = Callable[..., tuple[int, ...]]


def looped(
    cell: Cell, other: str = "", form: str = "real", *, batch: int = 2, zeros: bool = False, gate: str = ""
) -> Net:
    """A cell over the rows of x, all h in a list. With `other` something differs."""
    net, states = Net(), 2 if cell.__name__.startswith("lstm") else 1
    scalar, state, rows, sequence = (), (batch, UNITS), (TIME, batch, UNITS), (TIME, batch, WIDTH)
    kinds = [(scalar, "int32"), (rows, "float32"), *[(state, "float32")] * states, (sequence, "float32")]

    def test(n: Net, t: list[int]) -> list[int]:
        return [binary(n, "LESS", t[0], constant(n, TIME, "int32"), (), "bool")]

    def step(n: Net, t: list[int]) -> list[int]:
        s = Step(n, batch, form, gate=gate)
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
    for gate in SIGMOIDS:
        yield looped(gru_after, gate=gate)
