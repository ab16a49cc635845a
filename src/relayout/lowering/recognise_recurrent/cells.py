"""The rounds of a loop that are a cell of ONNX's GRU, LSTM or RNN, as that operator.

A GRU is one node for all rounds, where a Scan's body has a dozen that run in each. A body is such a cell if the form of
each state (see `forms`) is that of the operator's own equations, for some matrices, biases and functions in them;
nothing is known here of the order in which it is written. What differs in anything stays a Scan.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.slicing import cut, joined, squeeze, unsqueeze
from relayout.graph.walks import reached
from relayout.lowering.recognise_recurrent.forms import (
    MIDDLE,
    Applied,
    AtomTable,
    Coefficient,
    Columns,
    Formless,
    Function,
    OperandColumns,
    Poly,
    Product,
    Reading,
    Term,
    known_row,
)

FLOAT = ir.DataType.FLOAT
X, H, C = "X", "H", "C"
"""What the equations call a row of the sequence, the state that is the result, and the other one."""
BIAS = "bias "
MOST_STATES = 6

Bound = Mapping[str, Function | str | int | Columns | Coefficient]
"""What stands for the names in the equations: of functions, atoms, matrices and biases."""


class Cell(NamedTuple):
    """An operator of ONNX, as its schema says.

    `gates` are in the order in which W, R and B have them, `functions` in that of `activations`, with the defaults;
    `equations` yield the next value of each state. Biases are `bias Wz` and `bias Rz`; where they are only ever added
    up, the first is the sum.
    """

    op_type: str
    gates: str
    functions: Mapping[str, str]
    equations: "Callable[[_Equations], Mapping[str, Poly]]"
    before: bool | None = None  # of a GRU: whether r meets H before a matrix does
    steady: bool = True
    """Whether gates keep its results near those of rows that are rounded: without, each step adds to the distance."""


IsBetter = Callable[[Cell, Bound, ir.Value], bool]
"""Tells of a cell, what stands for its names, and its first state whether the operator is better than a Scan."""


def always(cell: Cell, bound: Bound, state: ir.Value) -> bool:
    """Say of every cell that one operator is better."""
    return True


class _Equations:
    def __init__(self, table: AtomTable) -> None:
        self.table, self.one = table, table.number(1)
        self.x, self.h, self.c = (table.of(OperandColumns(name)) for name in (X, H, C))

    def apply(self, function: str, poly: Poly) -> Poly:
        return self.table.of(Applied(function, poly))

    def bias(self, matrix: str) -> Poly:
        return self.table.of(OperandColumns(BIAS + matrix))

    def over_x(self, gate: str) -> Poly:
        return self.table.of(Product(self.x, f"W{gate}")) + self.bias(f"W{gate}")

    def over(self, state: Poly, gate: str) -> Poly:
        return self.table.of(Product(state, f"R{gate}"))

    def gate(self, gate: str) -> Poly:
        return self.over_x(gate) + self.over(self.h, gate)


def _gru(e: _Equations, *, before: bool) -> Mapping[str, Poly]:
    """`H' = (1 - z) n + z H`, where r meets H's product with a matrix, or H itself `before` that."""
    z, r = (e.apply("f", e.gate(gate)) for gate in "zr")
    hidden = r * (e.over(e.h, "h") + e.bias("Rh")) if not before else e.over(r * e.h, "h")
    n = e.apply("g", e.over_x("h") + hidden)
    return {H: (e.one - z) * n + z * e.h}


def _rnn(e: _Equations) -> Mapping[str, Poly]:
    """`H' = f(x W + H R)`."""
    return {H: e.apply("f", e.gate("i"))}


def _lstm(e: _Equations) -> Mapping[str, Poly]:
    """`C' = f C + i g(...)`, `H' = o h(C')`."""
    i, o, f = (e.apply("f", e.gate(gate)) for gate in "iof")
    c = f * e.c + i * e.apply("g", e.gate("c"))
    return {C: c, H: o * e.apply("h", c)}


_GATED, _LONG = {"f": "Sigmoid", "g": "Tanh"}, {"f": "Sigmoid", "g": "Tanh", "h": "Tanh"}
CELLS = (
    *(Cell("GRU", "zrh", _GATED, partial(_gru, before=before), before=before) for before in (False, True)),
    Cell("LSTM", "iofc", _LONG, _lstm),
    Cell("RNN", "i", {"f": "Tanh"}, _rnn, steady=False),
)


class _Matching:
    """The ways in which atoms of one polynomial can stand for the names in another."""

    def __init__(self, table: AtomTable) -> None:
        self.table = table

    def polys(self, pattern: Poly, subject: Poly, bound: Bound) -> Iterator[Bound]:
        """Yield all ways; biases are what may be missing, and come last."""
        ordered = sorted(pattern.terms, key=lambda term: (self._bias(term) is not None, term[0]))
        yield from self._terms(ordered, sorted(subject.terms, key=lambda term: term[0]), bound)

    def _terms(self, pattern: Sequence[Term], subject: Sequence[Term], bound: Bound) -> Iterator[Bound]:
        if not pattern:
            if not subject:
                yield bound
            return
        (atoms, coefficient), bias = pattern[0], self._bias(pattern[0])
        if bias is not None:
            atoms = tuple(number for number in atoms if self.table.atoms[number] != OperandColumns(bias))
            yield from self._terms(pattern[1:], subject, {**bound, bias: 0.0})
        for k, (others, number) in enumerate(subject):
            if bias is not None or number == coefficient:
                so_far = bound if bias is None else {**bound, bias: number}
                for more in self._factors(atoms, others, so_far):
                    yield from self._terms(pattern[1:], [*subject[:k], *subject[k + 1 :]], more)

    def _bias(self, term: Term) -> str | None:
        names = [atom.name for number in term[0] if isinstance(atom := self.table.atoms[number], OperandColumns)]
        return next((name for name in names if name.startswith(BIAS)), None)

    def _factors(self, pattern: Sequence[int], subject: Sequence[int], bound: Bound) -> Iterator[Bound]:
        if not pattern:
            if not subject:
                yield bound
            return
        for k, other in enumerate(subject):
            for more in self._atom(pattern[0], other, bound):
                yield from self._factors(pattern[1:], [*subject[:k], *subject[k + 1 :]], more)

    def _atom(self, pattern: int, subject: int, bound: Bound) -> Iterator[Bound]:
        one, other = self.table.atoms[pattern], self.table.atoms[subject]
        if isinstance(one, OperandColumns) and isinstance(other, OperandColumns):
            yield from _with(bound, one.name, subject)
        elif isinstance(one, Applied) and isinstance(other, Applied):
            for more in _with(bound, str(one.function), other.function):
                yield from self.polys(one.of, other.of, more)
        elif isinstance(one, Product) and isinstance(other, Product):
            for more in _with(bound, str(one.matrix), other.matrix):
                yield from self.polys(one.of, other.of, more)


def _with(bound: Bound, name: str, value: Function | str | int | Columns) -> Iterator[Bound]:
    if bound.get(name, value) == value:
        yield {**bound, name: value}


class Round(NamedTuple):
    """The computation of one round of a loop: its nodes; for states, rows and results, the values in its body.

    Of states and rows also what the loop is given: first states, and all rows.
    """

    nodes: list[ir.Node]
    states: Sequence[ir.Value]
    rows: Sequence[ir.Value]
    lasts: Sequence[ir.Value]
    results: Sequence[ir.Value]
    firsts: Sequence[ir.Value]
    wholes: Sequence[ir.Value]


def written(op: Operation, rounds: Round, is_better: IsBetter = always) -> list[ir.Value] | None:
    """Return the last states and the lists of results, from one operator; None, if there is none."""
    reading = Reading(
        rounds.nodes,
        {f"state {k}": v for k, v in enumerate(rounds.states)} | {f"row {k}": v for k, v in enumerate(rounds.rows)},
    )
    try:
        lasts, results = ([reading.poly(v) for v in values] for values in (rounds.lasts, rounds.results))
    except Formless:
        return None
    for cell in CELLS:
        for match in _fits(cell, reading, lasts, rounds, is_better):
            if all(poly == match.of[H] for poly in results) and all(poly in match.of.values() for poly in lasts):
                outputs = _Writing(op, cell, reading, rounds, match).run(lasts)
                remaining_ids = {id(node) for node in op.builder.nodes}
                op.builder.discard([node for node in rounds.nodes if id(node) not in remaining_ids])
                return outputs
    return None


class _Match(NamedTuple):
    """A cell in a body: what stands for its names, which state and row are meant, and the states' polynomials."""

    bound: Bound
    places: Mapping[str, int]
    of: Mapping[str, Poly]


def _fits(cell: Cell, reading: Reading, lasts: Sequence[Poly], rounds: Round, is_better: IsBetter) -> Iterator[_Match]:
    """Yield the ways in which a body is a cell, with states and rows of shapes that fit."""
    table = reading.table
    equations, matching = cell.equations(_Equations(table)), _Matching(table)
    for chosen in permutations(range(min(len(lasts), MOST_STATES)), len(equations)):
        places = dict(zip(equations, chosen, strict=True))
        ways: list[Bound] = [{}]
        for name, poly in equations.items():
            ways = [more for bound in ways for more in matching.polys(poly, lasts[places[name]], bound)]
        for bound in ways:
            row = next((k for k, v in enumerate(rounds.rows) if _is_whole(reading, bound, X, v)), None)
            whole = all(_is_whole(reading, bound, name, rounds.states[k]) for name, k in places.items())
            if row is None or not whole or not is_better(cell, bound, rounds.states[chosen[0]]):
                continue
            if _is_even(rounds, [rounds.states[k] for k in chosen], rounds.rows[row]):
                yield _Match(bound, {**places, X: row}, {name: lasts[k] for name, k in places.items()})


def _is_even(rounds: Round, states: Sequence[ir.Value], row: ir.Value) -> bool:
    """Tell whether states are `batch units`, the row `batch c`, and yields `batch units`, perhaps behind a 1."""
    shape = dims(states[0])
    yielded = {dims(value) for value in (*rounds.lasts, *rounds.results)}
    alike = all(dims(state) == shape for state in states) and yielded <= {shape, (1, *shape)}
    return alike and len(shape) == 2 and dims(row)[:-1] == shape[:-1]


def _is_whole(reading: Reading, bound: Bound, name: str, value: ir.Value) -> bool:
    """Tell whether a name stands for all columns of an operand of the body."""
    form = reading.forms.get(id(value))
    return form is not None and [(bound.get(name),)] == [atoms for atoms, _ in form[0][1].terms]


class _Writing:
    """One operator for all rounds."""

    def __init__(self, op: Operation, cell: Cell, reading: Reading, rounds: Round, match: _Match) -> None:
        self.op, self.cell, self.reading, self.rounds, self.match = op, cell, reading, rounds, match
        self.first = rounds.firsts[match.places[H]]
        self.x = rounds.wholes[match.places[X]]

    def run(self, lasts: Sequence[Poly]) -> list[ir.Value]:
        op, cell, match, rounds = self.op, self.cell, self.match, self.rounds
        (batch, units), count = dims(self.first), dims(self.x)[0]
        if not isinstance(units, int):
            raise TypeError("a state of no known width")
        w, r = (unsqueeze(op, self._matrices(kind), [0]) for kind in "WR")
        begun = [self._begun(rounds.firsts[match.places[name]]) for name in (H, C) if name in match.places]
        functions = [self._function(name) for name in cell.functions]
        slopes = [slope for _, slope in functions if slope is not None]
        y, *ends = op.emit_all(
            cell.op_type,
            [self.x, w, r, self._biases(units), None, *begun],
            [(count, 1, batch, units), *((1, batch, units) for _ in begun)],
            FLOAT,
            hidden_size=units,
            activations=names if (names := [name for name, _ in functions]) != list(cell.functions.values()) else None,
            activation_alpha=slopes or None,
            activation_beta=[MIDDLE] * len(slopes) or None,
            linear_before_reset=None if cell.before is None else int(not cell.before),
        )
        after = {match.of[name]: end for name, end in zip((H, C), ends, strict=False)}
        last_states = [self._shaped(after[poly], 0, dims(v)) for poly, v in zip(lasts, rounds.lasts, strict=True)]
        return last_states + [self._shaped(y, 1, (count, *dims(v))) for v in rounds.results]

    def _function(self, name: str) -> Function:
        match self.match.bound[name]:
            case (str(function), (float() | None) as slope):
                return function, slope
            case other:
                raise TypeError(f"{name} is {other}")

    def _begun(self, first: ir.Value) -> ir.Value | None:
        """Return the state before the first round, None for zeros."""
        row = known_row(first)
        return None if row is not None and not row.any() else unsqueeze(self.op, first, [0])

    def _matrices(self, kind: str) -> ir.Value:
        """Return the columns of all gates as rows, one after the other; neighbours are cut out together."""
        parts: list[Columns] = []
        for gate in self.cell.gates:
            part = self.match.bound[f"{kind}{gate}"]
            if not isinstance(part, Columns):
                raise TypeError(f"{kind}{gate} is no matrix")
            before = parts[-1] if parts else part
            if parts and replace(part, columns=before.columns) == before and before.columns[1] == part.columns[0]:
                parts[-1] = replace(before, columns=(before.columns[0], part.columns[1]))
            else:
                parts.append(part)
        values = [self._cut(part) for part in parts]
        return joined(self.op, values, 0) if len(values) > 1 else values[0]

    def _cut(self, part: Columns) -> ir.Value:
        op, value = self.op, part.matrix
        self._bring_out(value)
        value = value if part.turned else op.transpose(value, (1, 0))
        for axis, (start, end) in enumerate((part.columns, part.rows)):
            if (start, end) != (0, dims(value)[axis]):
                value = cut(op, value, [start], [end], [axis])
        return value

    def _bring_out(self, value: ir.Value) -> None:
        """Take along the nodes of the body that compute a matrix."""
        settled, there = self.reading.settled, {id(node) for node in self.op.builder.nodes}
        needed = reached(
            [settled[id(value)]] if id(value) in settled else [],
            lambda node: [settled[id(operand)] for operand in node.inputs if id(operand) in settled],
        )
        self.op.builder.nodes += [n for n in self.rounds.nodes if n in needed and id(n) not in there]

    def _biases(self, units: int) -> ir.Value | None:
        names = [f"{BIAS}{kind}{gate}" for kind in "WR" for gate in self.cell.gates]
        rows = [np.broadcast_to(np.asarray(self.match.bound.get(name, 0.0), np.float32), (units,)) for name in names]
        biases = np.concatenate(rows)[None]
        return self.op.builder.array(self.op.hint("biases"), biases) if biases.any() else None

    def _shaped(self, value: ir.Value, axis: int, shape: Dims) -> ir.Value:
        return value if dims(value) == shape else squeeze(self.op, value, [axis])
