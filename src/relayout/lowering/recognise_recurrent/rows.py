"""A WHILE whose rounds take one row of a tensor each, all of them: a Scan, in which nothing is counted.

Keras writes its recurrent layers so. A round picks row t of what the layer reads, and puts a row into a list of
results: the rows before t, the new one and the rows behind put together, so that a Loop copies the list in every round;
or one row of a list of tensors (see `lists`).

1. A counter begins with 0 and grows by 1. The condition says that counters are less than numbers, the least of which is
   how many rounds there are, or less than one extent that is known when the model runs.
2. What is picked by a counter, of as many rows as rounds, is an operand of the Scan; a list of as many rows, of which
   every round writes the one that a counter tells, and which nothing else reads, is a result of it.
3. Counters that nothing else reads are no states: after the loop they are the number of rounds.
4. What computes a cell of ONNX's GRU, LSTM or RNN is that operator (see `cells`).
5. Else a matrix product of picked rows and constants is computed for all rows at once, before the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import field, replace

import onnx_ir as ir

from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Operator, Tensor
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.bodies import NodeBody, carried_operands, discard, hand_over
from relayout.formats.tflite.importing.operators.lists import padded
from relayout.formats.tflite.importing.operators.slicing import squeeze
from relayout.formats.tflite.importing.program import Given
from relayout.light_dataclass import dataclass
from relayout.lowering.recognise_recurrent import cells
from relayout.lowering.recognise_recurrent.cells import IsBetter, Round, always
from relayout.lowering.recognise_recurrent.rounds import GET_ITEM, SET_ITEM, Rounds

_PURE = frozenset(
    ("ADD", "CONCATENATION", "DYNAMIC_UPDATE_SLICE", "GATHER", "PACK", "RESHAPE", "SLICE", SET_ITEM, GET_ITEM)
)
"""Operators that go where nothing reads them."""


def by_rows(op: Operation, is_better: IsBetter = always) -> bool:
    """Hand over the results of a WHILE as those of a Scan, or of a GRU, LSTM or RNN, if its rounds take rows.

    Args:
        op: the WHILE.
        is_better: tells whether one operator for all rounds is better than a Scan of them.
    """
    condition, body = op.options.cond_subgraph_index, op.options.body_subgraph_index
    given = [value for value in carried_operands(op) if isinstance(value, ir.Value)]
    inner, test = op.program.subgraph(body, op.place), op.program.subgraph(condition, op.place)
    if not len(op.operator.inputs) == len(given) == len(inner.inputs) == len(inner.outputs) == len(test.inputs):
        return False
    rounds = Rounds(op, test, inner, given)
    if rounds.count in (0, None) or not rounds.picked or not rounds.is_plain:
        return False
    return _Writing(op, rounds, body, is_better).run()


@dataclass
class _Writing:
    """The Scan of a loop's rounds."""

    op: Operation
    rounds: Rounds
    index: int
    is_better: IsBetter
    fixed: dict[int, ir.Value] = field(default_factory=dict)
    wider: bool = False

    def run(self) -> bool:
        """Write it; False, and nothing is written, if the states or rows are not of one shape."""
        op, rounds, body = self.op, self.rounds, self.rounds.body
        states, kept = self._kept()
        read = {i for operator in kept for i in operator.inputs} | {body.outputs[p] for p in states}
        read |= set(rounds.written.values())
        with op.builder.body() as outside:
            picked = {row: rounds.given[p] for row, p in rounds.picked.items() if row in read}
            kept, self.fixed = self._widened(kept)
        if self._is_cell(states, picked, kept, read, outside):
            return True
        with op.builder.body() as more:
            kept, products = self._hoisted(kept, picked)
        outside += more
        still = {i for operator in kept for i in operator.inputs} | set(rounds.written.values())
        still |= {body.outputs[p] for p in states}
        picked = {row: whole for row, whole in (picked | products).items() if row in still or row in products}
        if not picked:
            discard(outside)
            return False
        if self._written_with(states, picked, kept, still, outside):
            return True
        discard(outside)
        return False

    def _is_cell(
        self,
        states: Sequence[int],
        picked: Mapping[int, ir.Value],
        kept: Sequence[Operator],
        still: Set[int],
        outside: list[ir.Node],
    ) -> bool:
        """Write one operator for all rounds, if ONNX has it; its products are of real numbers."""
        op, program = self.op, self.op.program
        program.multiplies_reals = True
        try:
            found = self._round(states, picked, kept, still)
        finally:
            program.multiplies_reals = False
        if found is None:
            return False
        before = len(op.builder.nodes)
        op.builder.nodes += outside
        values = cells.written(op, found, self.is_better)
        if values is None:
            del op.builder.nodes[before:]
            discard(found.nodes)
            return False
        self._hand_over(states, picked, values)
        return True

    def _round(
        self, states: Sequence[int], picked: Mapping[int, ir.Value], kept: Sequence[Operator], still: Set[int]
    ) -> Round | None:
        """Write the body of the loop; None, and it is not written, if it gives other than values and rows."""
        op, rounds, body = self.op, self.rounds, self.rounds.body
        firsts = [rounds.given[p] for p in states]
        now = [self._inside(first, "state", dims(first)) for first in firsts]
        rows = [self._inside(whole, "row", dims(whole)[1:]) for whole in picked.values()]
        lent: dict[int, Given] = dict(zip((body.inputs[p] for p in states), now, strict=True))
        lent |= dict(zip(picked, rows, strict=True))
        lent |= {i: value for i, value in self.fixed.items() if i in still and i not in lent}
        part = body._replace(
            inputs=tuple(lent),
            outputs=(*(body.outputs[p] for p in states), *rounds.written.values()),
            operators=tuple(kept),
        )
        variables = op.program.variables
        with variables.apart() as before, op.builder.body() as nodes:
            results = op.program.write(part, self.index, list(lent.values()), op.place)
            values = [value for value in results if isinstance(value, ir.Value)]
            lasts, new = values[: len(states)], values[len(states) :]
            known = not variables.assigned(before) and len(values) == len(results)
            fits = known and all(map(self._is_row, rounds.written, new))
            pairs = zip(rounds.written, new, strict=True) if fits else ()
            new = [value if self._is_bare(p) else squeeze(op, value, [0]) for p, value in pairs]
        if not fits:
            discard(nodes)
            return None
        return Round(nodes, now, rows, lasts, new, firsts, list(picked.values()))

    def _written_with(
        self,
        states: Sequence[int],
        picked: Mapping[int, ir.Value],
        kept: Sequence[Operator],
        still: Set[int],
        outside: list[ir.Node],
    ) -> bool:
        """Write the Scan, if states and rows keep their shapes; once more if lists can be given those of their rows."""
        op = self.op
        found = self._round(states, picked, kept, still)
        if found is None:
            return False
        pairs = zip(found.states, found.lasts, strict=True)
        if not all((a.dtype, dims(a)) == (b.dtype, dims(b)) for a, b in pairs):
            discard(found.nodes)
            wider = self._gives_wider(states, found.lasts, outside)
            return wider and self._written_with(states, picked, kept, still, outside)
        op.builder.nodes += outside
        body = NodeBody(op, found.nodes).graph([*found.states, *found.rows], [*found.lasts, *found.results], "rows")
        self._emit(states, picked, body, found)
        return True

    def _gives_wider(self, states: Sequence[int], lasts: Sequence[ir.Value], outside: list[ir.Node]) -> bool:
        """Begin with lists of rows that are as large as those that are written; whether there are such, and it can be.

        Their extents are those of what the loop is given, by their names.
        """
        op, rounds = self.op, self.rounds
        if self.wider:  # rows that grow with the list
            return False
        self.wider = True
        known: dict[Dim, tuple[ir.Value, int]] = {}
        for value in rounds.given:
            known |= {d: (value, axis) for axis, d in enumerate(dims(value)) if isinstance(d, str)}
        wider: dict[int, Dims] = {}
        for position, last in zip(states, lasts, strict=True):
            if dims(rounds.given[position]) != dims(last):
                listed = rounds.body.tensors[rounds.body.inputs[position]].listed
                if not listed or not all(isinstance(d, int) or d in known for d in dims(last)):
                    return False
                wider[position] = dims(last)
        with op.builder.body() as nodes:
            given = list(rounds.given)
            for position, shape in wider.items():
                given[position] = padded(op, given[position], self._extents(shape, known), shape)
        rounds.given = given
        outside += nodes
        return bool(wider)

    def _extents(self, shape: Dims, known: Mapping[Dim, tuple[ir.Value, int]]) -> ir.Value:
        """A shape as a tensor of integers."""
        op, parts = self.op, list[ir.Value]()
        for extent in shape:
            if isinstance(extent, int):
                parts.append(op.ints([extent], "extent"))
            else:
                value, axis = known[extent]
                parts.append(op.emit("Shape", [value], (1,), ir.DataType.INT64, start=axis, end=axis + 1))
        return op.emit("Concat", parts, (len(parts),), axis=0)

    def _is_bare(self, position: int) -> bool:
        """Whether a list is one of tensors, each of which is a row without an axis for itself."""
        maker = self.rounds.flow.producer(self.rounds.body.outputs[position])
        return maker is not None and maker.name == SET_ITEM

    def _is_row(self, position: int, new: ir.Value) -> bool:
        """Whether what a round writes has a row's shape, as far as the list has one before its first row."""
        whole = dims(self.rounds.given[position])[1:]
        if not self._is_bare(position):
            return dims(new) == (1, *whole)
        return len(dims(new)) == len(whole) and all(
            a == b or not isinstance(b, int) for a, b in zip(dims(new), whole, strict=True)
        )

    def _emit(self, states: Sequence[int], picked: Mapping[int, ir.Value], body: ir.Graph, found: Round) -> None:
        op, count = self.op, self.rounds.count
        shapes: list[Dims] = [*map(dims, found.lasts), *((count, *dims(v)) for v in found.results)]
        types = [v.dtype or ir.DataType.FLOAT for v in (*found.lasts, *found.results)]
        values = op.builder.emit(
            "Scan",
            [*found.firsts, *picked.values()],
            [(op.hint("scan"), dtype, shape) for dtype, shape in zip(types, shapes, strict=True)],
            source=op.source,
            body=body,
            num_scan_inputs=len(picked),
        )
        self._hand_over(states, picked, values)

    def _hand_over(self, states: Sequence[int], picked: Mapping[int, ir.Value], values: Sequence[ir.Value]) -> None:
        """Hand over last states and lists of rows, and how many rounds there were."""
        op, rounds = self.op, self.rounds
        final = list(rounds.given)
        for position in rounds.counters:
            final[position] = self._rounds(rounds.given[position], picked)
        for position, value in zip((*states, *rounds.written), values, strict=True):
            final[position] = value
        for position in rounds.written:  # what they began with is overwritten
            maker = op.tensors.flow.producer(op.operator.inputs[position])
            if maker is not None:
                op.spare(maker)
        hand_over(op, final)

    def _rounds(self, like: ir.Value, picked: Mapping[int, ir.Value]) -> ir.Value:
        """How many rounds there were, in a counter's type and shape."""
        op, count = self.op, self.rounds.count
        if isinstance(count, int):
            return op.number(count, like, "rounds")
        whole = next(iter(picked.values()))
        counted = op.emit("Shape", [whole], (1,), ir.DataType.INT64, start=0, end=1)
        return op.cast(op.reshape(counted, dims(like)), like.dtype or ir.DataType.INT32)

    def _kept(self) -> tuple[list[int], list[Operator]]:
        """The positions of the states, and the operators that a round needs for them and for its rows."""
        body, rounds = self.rounds.body, self.rounds
        pairs = enumerate(zip(body.inputs, body.outputs, strict=True))
        carried = [p for p, (a, b) in pairs if a != b and p not in rounds.written and p not in rounds.counters]
        while True:
            needed = {body.outputs[p] for p in carried} | set(rounds.written.values())
            kept: list[Operator] = []
            for operator in reversed(body.operators):
                wanted = needed.intersection(operator.outputs) or operator.name not in _PURE
                if wanted and not rounds.picked.keys() & set(operator.outputs):
                    needed.update(operator.inputs)
                    kept.append(operator)
            more = [p for p in rounds.counters if body.inputs[p] in needed and p not in carried]
            more += [p for p, i in rounds.counters.items() if i in needed and p not in carried and p not in more]
            if not more:
                return sorted(carried), kept[::-1]
            carried += more

    def _inside(self, like: ir.Value, name: str, shape: Dims) -> ir.Value:
        """An operand of the body. Its extents are those outside: a Scan's states keep theirs."""
        return self.op.builder.value(
            self.op.builder.names.unique(self.op.hint(name)), like.dtype or ir.DataType.FLOAT, shape
        )

    def _hoisted(
        self, kept: Sequence[Operator], picked: Mapping[int, ir.Value]
    ) -> tuple[list[Operator], dict[int, ir.Value]]:
        """The operators but products of picked rows and constants, and what those are for all rows."""
        rest, products = [], {}
        for operator in kept:
            whole = picked.get(operator.inputs[0]) if operator.inputs else None
            if whole is not None and self._multiplies(operator, whole):
                products[operator.outputs[0]] = self._product(operator, whole)
            else:
                rest.append(operator)
        return rest, products

    def _multiplies(self, operator: Operator, whole: ir.Value) -> bool:
        tensors = self.rounds.body.tensors
        if operator.name != "FULLY_CONNECTED" or len(dims(whole)) != 3 or len(operator.outputs) != 1:
            return False
        factors = [i for i in operator.inputs[1:] if i >= 0]
        row, result = tensors[operator.inputs[0]], tensors[operator.outputs[0]]
        return (
            row.type == result.type == TensorType.FLOAT32
            and bool(factors)
            and all(tensors[i].data is not None or i in self.fixed for i in factors)
            and len(tensors[factors[0]].shape) == len(row.shape) == len(result.shape) == 2
            and tensors[factors[0]].shape[1] == dims(whole)[2]
        )

    def _product(self, operator: Operator, whole: ir.Value) -> ir.Value:
        """A product for all rows."""
        body, count = self.rounds.body, self.rounds.count
        now, stated = (count, count) if isinstance(count, int) else (1, -1)
        first = len(body.tensors)
        row, result = body.tensors[operator.inputs[0]], body.tensors[operator.outputs[0]]
        rows = tuple(
            replace(t, index=first + k, name=f"{t.name}/rows", shape=(now, *t.shape), signature=(stated, *t.signature))
            for k, t in enumerate((row, result))
        )
        options = options_of(operator)
        every = operator._replace(
            inputs=(first, *operator.inputs[1:]),
            outputs=(first + 1,),
            options=Table(options.kind, options.byte, {**options.fields, "keep_num_dims": True}),
        )
        return self._written((every,), first + 1, {first: whole}, (*body.tensors, *rows))

    def _widened(self, kept: Sequence[Operator]) -> tuple[list[Operator], dict[int, ir.Value]]:
        """The operators but those that only widen constants; and all tensors that no round changes."""
        body, rest = self.rounds.body, []
        pairs = zip(body.inputs, body.outputs, self.rounds.given, strict=True)
        fixed = {a: value for a, b, value in pairs if a == b}
        for operator in kept:
            constant = operator.name == "DEQUANTIZE" and body.tensors[operator.inputs[0]].data is not None
            if constant and len(operator.outputs) == 1:
                fixed[operator.outputs[0]] = self._written((operator,), operator.outputs[0], {}, body.tensors)
            else:
                rest.append(operator)
        return rest, fixed

    def _written(
        self, operators: tuple[Operator, ...], result: int, given: Mapping[int, ir.Value], tensors: tuple[Tensor, ...]
    ) -> ir.Value:
        """A tensor that operators outside the loop compute."""
        read = {i for operator in operators for i in operator.inputs}
        given = {**given, **{i: value for i, value in self.fixed.items() if i in read}}
        part = self.rounds.body._replace(tensors=tensors, inputs=tuple(given), outputs=(result,), operators=operators)
        (value,) = self.op.program.write(part, self.index, list(given.values()), self.op.place)
        if not isinstance(value, ir.Value):
            raise TypeError(f"{tensors[result].name} is no value")
        return value
