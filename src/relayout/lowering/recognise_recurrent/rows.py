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

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import MAX_RANK, Operator, Subgraph, Tensor
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.extents import element
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.control import NodeBody, carried_operands, hand_over
from relayout.formats.tflite.importing.operators.slicing import squeeze
from relayout.formats.tflite.importing.operators.tensorflow import padded
from relayout.formats.tflite.importing.program import Given
from relayout.formats.tflite.importing.tensors import Flow, array
from relayout.light_dataclass import dataclass
from relayout.lowering.recognise_recurrent import cells
from relayout.lowering.recognise_recurrent.cells import IsBetter, Round, always

# What the rounds of a WHILE count, pick, and write: read from its condition and its body, before a node is written.
#
# See `rows`, which writes a Scan of them.

NOW, NEXT = "now", "next"  # a counter in this round, and in the next one

SET_ITEM, GET_ITEM = (f"CUSTOM FlexTensorList{name}Item" for name in ("Set", "Get"))
"""How TensorFlow writes and reads a row of a list (see `lists`)."""

UPDATE = "DYNAMIC_UPDATE_SLICE"
_INDICES = (TensorType.INT32, TensorType.INT64)


@dataclass
class Rounds:
    """The work of the rounds of a loop. Positions are those of the operands."""

    op: Operation
    test: Subgraph
    body: Subgraph
    operands: Sequence[ir.Value]
    flow: Flow = field(init=False)

    def __post_init__(self) -> None:
        self.flow = Flow(self.body)

    @cached_property
    def is_plain(self) -> bool:
        """Return whether no result is another operand, which the runtime would copy in an order of its own."""
        operands = set(self.body.inputs)
        return all(a == b or b not in operands for a, b in zip(self.body.inputs, self.body.outputs, strict=True))

    @cached_property
    def counters(self) -> dict[int, int]:
        """Position of each counter -> the tensor of its next value."""
        next_value_of = {}
        for position, (now, after) in enumerate(zip(self.body.inputs, self.body.outputs, strict=True)):
            producer = self.flow.producer(after)
            if producer is None or producer.name != "ADD" or len(producer.inputs) != 2 or self._is_fused(producer):
                continue
            other = [i for i in producer.inputs if i != now]
            starts = self.op.is_constant(position) and self.op.input(position).type in _INDICES
            if len(other) == 1 and _number(self.body.tensors[other[0]]) == 1 and starts:
                start = self.op.constant(position)
                if start.size == 1 and not start.any():
                    next_value_of[position] = after
        return next_value_of

    @cached_property
    def count(self) -> Dim:
        """Return the number of rounds: a number, or an extent that is known when it runs; None if that is not known."""
        flow = Flow(self.test)
        limits: list[Dim] = []
        waiting = [*self.test.outputs]
        while waiting:
            producer = flow.producer(waiting.pop())
            if producer is None or len(producer.inputs) != 2 or len(limits) > len(self.test.operators):
                return None
            if producer.name == "LOGICAL_AND":
                waiting += producer.inputs
                continue
            counter, limit = producer.inputs
            counts = counter in self.test.inputs and self.test.inputs.index(counter) in self.counters
            if producer.name != "LESS" or not counts:
                return None
            limits.append(self._limit(limit))
        numbers = [limit for limit in limits if isinstance(limit, int)]
        if len(numbers) == len(limits):
            return max(min(numbers, default=0), 0)
        return limits[0] if len(set(limits)) == 1 else None

    def _limit(self, index: int) -> Dim:
        """Return a number that the condition compares with, if known: a constant, or an operand no round changes."""
        if index in self.test.inputs:
            position = self.test.inputs.index(index)
            return (
                element(self.operands[position]) if self.body.inputs[position] == self.body.outputs[position] else None
            )
        return _number(self.test.tensors[index]) if index >= 0 else None

    @cached_property
    def picked(self) -> dict[int, int]:
        """Tensor of a row that a round picks -> the position of what it is a row of."""
        position_of_row = {}
        for operator in self.body.operators:
            if len(operator.inputs) < 2 or not _picks_a_row(operator):
                continue
            whole, index = operator.inputs[:2]
            body, tensors = self.body, self.body.tensors
            # What it is a row of is an operand that is the same in every round.
            position = body.inputs.index(whole) if whole in body.inputs else -1
            if self._meaning(index) == [NOW] and position >= 0 and body.outputs[position] == whole:
                alike = tensors[whole].quantization is None and tensors[operator.outputs[0]].quantization is None
                if alike and not tensors[index].shape and dims(self.operands[position])[:1] == (self.count,):
                    position_of_row[operator.outputs[0]] = position
        return position_of_row

    @cached_property
    def written(self) -> dict[int, int]:
        """Position of a list -> the tensor of the row that a round writes, `1 ...`, or `...` into a list of tensors."""
        row_of_list = {}
        for position, (now, after) in enumerate(zip(self.body.inputs, self.body.outputs, strict=True)):
            row = self._row(now, after)
            if row is not None and dims(self.operands[position])[:1] == (self.count,):
                row_of_list[position] = row
        return row_of_list

    def _row(self, whole: int, after: int) -> int | None:
        """Return the value that is written into a list at the place of a counter, if nothing else reads that list."""
        producer = self.flow.producer(after)
        if producer is None or self.flow.readers(after) or self.body.outputs.count(after) != 1:
            return None
        if len(producer.inputs) != 3:
            return None
        if producer.name == "CONCATENATION":
            return self._row_between(producer, whole)
        listed, *rest = producer.inputs
        if producer.name not in (SET_ITEM, UPDATE) or listed != whole or list(self.flow.readers(whole)) != [producer]:
            return None
        row, begin = rest if producer.name == UPDATE else rest[::-1]
        place = self._meaning(begin)
        return row if place is not None and place[0] == NOW and not any(place[1:]) else None

    def _row_between(self, producer: Operator, whole: int) -> int | None:
        """Return the row between the slices of a list that come before and behind it."""
        if self._is_fused(producer) or options_of(producer).axis != 0:
            return None
        before, row, behind = producer.inputs
        parts, readers = [self.flow.producer(before), self.flow.producer(behind)], self.flow.readers(whole)
        if len(readers) != 2 or not all(any(part is reader for reader in readers) for part in parts):
            return None
        bounds = [self._bounds(part, whole) for part in parts]
        ends = [(bound[0][0], bound[1][0]) if bound else None for bound in bounds]
        fits = ends == [(0, NOW), (NEXT, -1)] and parts[0] is not parts[1]
        return row if fits and all(self.flow.sole_reader(i) is producer for i in (before, behind)) else None

    def _bounds(self, part: Operator | None, whole: int) -> tuple[list[int | str], list[int | str]] | None:
        """Begin and size of a SLICE that takes all of every axis but the first."""
        if part is None or part.name != "SLICE" or len(part.inputs) != 3 or part.inputs[0] != whole:
            return None
        begin, size = (self._meaning(i) for i in part.inputs[1:])
        extents = self.body.tensors[whole].shape
        if not begin or not size or not len(begin) == len(size) == len(extents):
            return None
        takes_all = all(b == 0 and s in (-1, e) for b, s, e in zip(begin[1:], size[1:], extents[1:], strict=True))
        return (begin, size) if takes_all else None

    def _meaning(self, index: int, depth: int = 4) -> list[int | str] | None:
        """Return the elements of a short tensor of integers, as far as they are numbers or a counter."""
        tensor, producer = self.body.tensors[index], self.flow.producer(index)
        counting = {self.body.inputs[p]: NOW for p in self.counters} | dict.fromkeys(self.counters.values(), NEXT)
        if index in counting:
            return [counting[index]]
        if tensor.data is not None and tensor.type in _INDICES and tensor.sparsity is None:
            return [int(v) for v in array(tensor).reshape(-1)[:9]]
        if producer is None or depth == 0:
            return None
        if producer.name == "RESHAPE":
            return self._meaning(producer.inputs[0], depth - 1)
        if producer.name not in ("CONCATENATION", "PACK") or len(producer.inputs) > MAX_RANK:
            return None
        parts = [self._meaning(i, depth - 1) for i in producer.inputs]
        known = [part for part in parts if part is not None]
        return [v for part in known for v in part] if len(known) == len(parts) and len(tensor.shape) == 1 else None

    def _is_fused(self, operator: Operator) -> bool:
        return bool(options_of(operator).fused_activation_function)


def _picks_a_row(operator: Operator) -> bool:
    if operator.name == GET_ITEM:
        return True
    options = options_of(operator) if operator.name == "GATHER" else None
    return options is not None and (options.axis, options.batch_dims) == (0, 0)


def _number(tensor: Tensor) -> int | None:
    """Return the one integer of a constant."""
    known = tensor.data is not None and tensor.type in _INDICES and tensor.sparsity is None
    values = array(tensor).reshape(-1) if known else np.empty(0)
    return int(values[0]) if values.size == 1 else None


_PURE = frozenset(  # operators that go where nothing reads them
    ("ADD", "CONCATENATION", UPDATE, "GATHER", "PACK", "RESHAPE", "SLICE", SET_ITEM, GET_ITEM)
)


def by_rows(
    op: Operation,  # the WHILE
    is_better: IsBetter = always,  # tells whether one operator for all rounds is better than a Scan of them
) -> bool:
    """Hand over the results of a WHILE as those of a Scan, or of a GRU, LSTM or RNN, if its rounds take rows."""
    condition, body = op.options.cond_subgraph_index, op.options.body_subgraph_index
    operands = [value for value in carried_operands(op) if isinstance(value, ir.Value)]
    inner, test = op.program.subgraph(body, op.place), op.program.subgraph(condition, op.place)
    if not len(op.operator.inputs) == len(operands) == len(inner.inputs) == len(inner.outputs) == len(test.inputs):
        return False
    rounds = Rounds(op, test, inner, operands)
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
    fixed: dict[int, ir.Value] = field(default_factory=dict)  # tensors that no round changes
    states: list[int] = field(default_factory=list)  # positions of operands
    operators: list[Operator] = field(default_factory=list)  # what a round needs
    picked: dict[int, ir.Value] = field(default_factory=dict)  # tensor of a row -> what it is a row of
    outside: list[ir.Node] = field(default_factory=list)  # nodes before the loop
    wider: bool = False

    def run(self) -> bool:
        """Write it; False, and nothing is written, if the states or rows are not of one shape."""
        op, rounds = self.op, self.rounds
        self.states, self.operators = self._needed_operators()
        read = self._read()
        with op.builder.body() as self.outside:
            self.picked = {row: rounds.operands[p] for row, p in rounds.picked.items() if row in read}
            self.operators, self.fixed = self._widened()
        if self._is_cell():
            return True
        with op.builder.body() as more:
            self.operators, products = self._hoisted()
        self.outside += more
        read = self._read() | products.keys()
        self.picked = {row: whole for row, whole in (self.picked | products).items() if row in read}
        if self.picked and self._written_with():
            return True
        op.builder.discard(self.outside)
        return False

    def _read(self) -> set[int]:
        """Return the tensors that a round reads, or gives."""
        round_outputs = {*self.rounds.written.values(), *(self.rounds.body.outputs[p] for p in self.states)}
        return round_outputs | {i for operator in self.operators for i in operator.inputs}

    def _is_cell(self) -> bool:
        """Write one operator for all rounds, if ONNX has it; its products are of real numbers."""
        op, program = self.op, self.op.program
        program.multiplies_reals = True
        try:
            one_round = self._round()
        finally:
            program.multiplies_reals = False
        if one_round is None:
            return False
        before = len(op.builder.nodes)
        op.builder.nodes += self.outside
        values = cells.written(op, one_round, self.is_better)
        if values is None:
            del op.builder.nodes[before:]
            op.builder.discard(one_round.nodes)
            return False
        self._hand_over(values)
        return True

    def _round(self) -> Round | None:
        """Write the body of the loop; None, and it is not written, if it gives other than values and rows."""
        op, rounds, body, states, picked = self.op, self.rounds, self.rounds.body, self.states, self.picked
        read = self._read()
        firsts = [rounds.operands[p] for p in states]
        now = [self._inside(first, "state", dims(first)) for first in firsts]
        rows = [self._inside(whole, "row", dims(whole)[1:]) for whole in picked.values()]
        lent: dict[int, Given] = dict(zip((body.inputs[p] for p in states), now, strict=True))
        lent |= dict(zip(picked, rows, strict=True))
        lent |= {i: value for i, value in self.fixed.items() if i in read and i not in lent}
        part = body._replace(
            inputs=tuple(lent),
            outputs=(*(body.outputs[p] for p in states), *rounds.written.values()),
            operators=tuple(self.operators),
        )
        variables = op.program.variables
        with variables.forgetting() as before, op.builder.body() as nodes:
            results = op.program.write(part, self.index, list(lent.values()), op.place)
            values = [value for value in results if isinstance(value, ir.Value)]
            lasts, new = values[: len(states)], values[len(states) :]
            known = not variables.assigned(before) and len(values) == len(results)
            fits = known and all(map(self._is_row, rounds.written, new))
            pairs = zip(rounds.written, new, strict=True) if fits else ()
            new = [value if self._is_bare(p) else squeeze(op, value, [0]) for p, value in pairs]
        if not fits:
            op.builder.discard(nodes)
            return None
        return Round(nodes, now, rows, lasts, new, firsts, list(picked.values()))

    def _written_with(self) -> bool:
        """Write the Scan, if states and rows keep their shapes; once more if lists can be given those of their rows."""
        op = self.op
        one_round = self._round()
        if one_round is None:
            return False
        pairs = zip(one_round.states, one_round.lasts, strict=True)
        if not all((a.dtype, dims(a)) == (b.dtype, dims(b)) for a, b in pairs):
            op.builder.discard(one_round.nodes)
            return self._gives_wider(one_round.lasts) and self._written_with()
        op.builder.nodes += self.outside
        body = NodeBody(op, one_round.nodes).graph(
            [*one_round.states, *one_round.rows], [*one_round.lasts, *one_round.results], "rows"
        )
        shapes: list[Dims] = [*map(dims, one_round.lasts), *((self.rounds.count, *dims(v)) for v in one_round.results)]
        types = [v.dtype or ir.DataType.FLOAT for v in (*one_round.lasts, *one_round.results)]
        values = op.builder.emit(
            "Scan",
            [*one_round.firsts, *one_round.wholes],
            [(op.hint("scan"), dtype, shape) for dtype, shape in zip(types, shapes, strict=True)],
            source=op.source,
            body=body,
            num_scan_inputs=len(self.picked),
        )
        self._hand_over(values)
        return True

    def _gives_wider(self, lasts: Sequence[ir.Value]) -> bool:
        """Begin with lists of rows that are as large as those that are written; whether there are such, and it can be.

        Their extents are those of what the loop is given, by their names.
        """
        op, rounds = self.op, self.rounds
        if self.wider:  # rows that grow with the list
            return False
        self.wider = True
        known: dict[Dim, tuple[ir.Value, int]] = {}
        for value in rounds.operands:
            known |= {d: (value, axis) for axis, d in enumerate(dims(value)) if isinstance(d, str)}
        wider: dict[int, Dims] = {}
        for position, last in zip(self.states, lasts, strict=True):
            if dims(rounds.operands[position]) != dims(last):
                listed = rounds.body.tensors[rounds.body.inputs[position]].listed
                if not listed or not all(isinstance(d, int) or d in known for d in dims(last)):
                    return False
                wider[position] = dims(last)
        with op.builder.body() as nodes:
            operands = list(rounds.operands)
            for position, shape in wider.items():
                operands[position] = padded(op, operands[position], self._extents(shape, known), shape)
        rounds.operands = operands
        self.outside += nodes
        return bool(wider)

    def _extents(self, shape: Dims, known: Mapping[Dim, tuple[ir.Value, int]]) -> ir.Value:
        """Return a shape as a tensor of integers."""
        op, parts = self.op, list[ir.Value]()
        for extent in shape:
            if isinstance(extent, int):
                parts.append(op.ints([extent], "extent"))
            else:
                value, axis = known[extent]
                parts.append(op.emit("Shape", [value], (1,), ir.DataType.INT64, start=axis, end=axis + 1))
        return op.emit("Concat", parts, (len(parts),), axis=0)

    def _is_bare(self, position: int) -> bool:
        """Tell whether a list is one of tensors, each of them a row without an axis for itself."""
        producer = self.rounds.flow.producer(self.rounds.body.outputs[position])
        return producer is not None and producer.name == SET_ITEM

    def _is_row(self, position: int, new: ir.Value) -> bool:
        """Tell whether a written value has a row's shape, as far as the list has one before its first row."""
        whole = dims(self.rounds.operands[position])[1:]
        if not self._is_bare(position):
            return dims(new) == (1, *whole)
        return len(dims(new)) == len(whole) and all(
            a == b or not isinstance(b, int) for a, b in zip(dims(new), whole, strict=True)
        )

    def _hand_over(self, values: Sequence[ir.Value]) -> None:
        """Hand over last states and lists of rows, and how many rounds there were."""
        op, rounds = self.op, self.rounds
        final = list(rounds.operands)
        for position in rounds.counters:
            final[position] = self._rounds(rounds.operands[position])
        for position, value in zip((*self.states, *rounds.written), values, strict=True):
            final[position] = value
        for position in rounds.written:  # what they began with is overwritten
            producer = op.tensors.flow.producer(op.operator.inputs[position])
            if producer is not None:
                op.spare(producer)
        hand_over(op, final)

    def _rounds(self, like: ir.Value) -> ir.Value:
        """Return the number of rounds, in a counter's type and shape."""
        op, count = self.op, self.rounds.count
        if isinstance(count, int):
            return op.number(count, like, "rounds")
        whole = next(iter(self.picked.values()))
        counted = op.emit("Shape", [whole], (1,), ir.DataType.INT64, start=0, end=1)
        return op.cast(op.reshape(counted, dims(like)), like.dtype or ir.DataType.INT32)

    def _needed_operators(self) -> tuple[list[int], list[Operator]]:
        """Return the positions of the states, and the operators that a round needs for them and for its rows."""
        body, rounds = self.rounds.body, self.rounds
        pairs = enumerate(zip(body.inputs, body.outputs, strict=True))
        carried = [p for p, (a, b) in pairs if a != b and p not in rounds.written and p not in rounds.counters]
        while True:
            needed = {body.outputs[p] for p in carried} | set(rounds.written.values())
            needed_operators: list[Operator] = []
            for operator in reversed(body.operators):
                is_needed = needed.intersection(operator.outputs) or operator.name not in _PURE
                if is_needed and not rounds.picked.keys() & set(operator.outputs):
                    needed.update(operator.inputs)
                    needed_operators.append(operator)
            more = [p for p in rounds.counters if body.inputs[p] in needed and p not in carried]
            more += [p for p, i in rounds.counters.items() if i in needed and p not in carried and p not in more]
            if not more:
                return sorted(carried), needed_operators[::-1]
            carried += more

    def _inside(self, like: ir.Value, name: str, shape: Dims) -> ir.Value:
        """Return an operand of the body. Its extents are those outside: a Scan's states keep theirs."""
        return self.op.builder.value(
            self.op.builder.names.unique(self.op.hint(name)), like.dtype or ir.DataType.FLOAT, shape
        )

    def _hoisted(self) -> tuple[list[Operator], dict[int, ir.Value]]:
        """Return the operators but products of picked rows and constants, and what those are for all rows."""
        rest, products = [], {}
        for operator in self.operators:
            whole = self.picked.get(operator.inputs[0]) if operator.inputs else None
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
        """Return a product for all rows."""
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

    def _widened(self) -> tuple[list[Operator], dict[int, ir.Value]]:
        """Return the operators but those that only widen constants; and all tensors that no round changes."""
        body, rest = self.rounds.body, []
        pairs = zip(body.inputs, body.outputs, self.rounds.operands, strict=True)
        fixed = {a: value for a, b, value in pairs if a == b}
        for operator in self.operators:
            constant = operator.name == "DEQUANTIZE" and body.tensors[operator.inputs[0]].data is not None
            if constant and len(operator.outputs) == 1:
                fixed[operator.outputs[0]] = self._written((operator,), operator.outputs[0], {}, body.tensors)
            else:
                rest.append(operator)
        return rest, fixed

    def _written(
        self,
        operators: tuple[Operator, ...],
        result: int,
        value_of: Mapping[int, ir.Value],
        tensors: tuple[Tensor, ...],
    ) -> ir.Value:
        """Return a tensor that operators outside the loop compute."""
        read = {i for operator in operators for i in operator.inputs}
        value_of = {**value_of, **{i: value for i, value in self.fixed.items() if i in read}}
        part = self.rounds.body._replace(
            tensors=tensors, inputs=tuple(value_of), outputs=(result,), operators=operators
        )
        (value,) = self.op.program.write(part, self.index, list(value_of.values()), self.op.place)
        if not isinstance(value, ir.Value):
            raise TypeError(f"{tensors[result].name} is no value")
        return value
