"""An LSTM whose cell is limited, by LSTMs without a limit.

A cell is `c' = f c + i g`, with sigmoids f and i and a tanh g: `|c'| <= |c| + 1`, whatever the weights. So a piece of k
steps that begins with cells of `limit - k` at most never reaches the limit, and ONNX's LSTM computes it: one node, and
not a dozen for every step as in a Scan. The sequence is cut into pieces, each of which begins with the states that the
one before ends with. If all began so, an If takes their results, and else those of a Scan of limited steps. Where gates
are coupled, `i = 1 - f`, and `|c'| <= max(|c|, 1)`: all steps are one piece.

The pieces are the rounds of a Scan, so that a long sequence makes no large graph, and weights are packed once.

A round takes some microseconds, which is more than a small LSTM takes for its steps. There, and where nothing bounds a
cell's growth or the number of steps is open, all cells are listed instead, and if none is beyond the limit, none was
limited. A second LSTM lists them: it reads the first one's results, one step later, beside the sequence, and what it
yields is its cell.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import onnx_ir as ir

from relayout.formats.tflite.container.enums import ActivationFunctionType
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.control import NodeBody
from relayout.formats.tflite.importing.operators.lstm import Lstm, bidirectional, single_step, unidirectional
from relayout.formats.tflite.importing.operators.recurrent import zeros
from relayout.formats.tflite.importing.operators.shape import OUTPUT, Unlimited
from relayout.formats.tflite.importing.operators.slicing import LAST, cut, joined, squeeze, unsqueeze
from relayout.light_dataclass import dataclass

FLOAT = ir.DataType.FLOAT
PART, LEAST = 0.4, 2
"""Of the limit, how many steps a piece has: more take less time, and fewer leave more room for the cell. At least so
many: shorter pieces take as long as a Scan's steps."""
SHORTEST = 8  # steps of a sequence, from which on pieces and the test of their cells take less time than a Scan

_OPEN = 40.0  # a sum of which the sigmoid is 1
SMALL, LARGE = 40, 96  # rows of the batch times units: up to which listing takes less time than pieces, and than a Scan


class Listing(Unlimited):
    """An LSTM without a limit, of which all cells can be listed."""

    def cells(self, x: ir.Value, first: Sequence[ir.Value | None], y: ir.Value) -> ir.Value:
        """Return all cells, `time batch units`, of an LSTM whose results are these.

        They are what another one yields, whose gate OUTPUT is open. Of the state that it computes itself nothing is
        left: what is meant lies beside the operand.
        """
        op, (_, batch, units) = self.op, dims(y)
        h = unsqueeze(op, zeros(op, (batch, units), x), [0]) if first[0] is None else first[0]
        rest = cut(op, y, [1], [LAST], [0]) if self.reverse else cut(op, y, [0], [-1], [0])
        before = op.emit("Concat", [rest, h] if self.reverse else [h, rest], axis=0)
        both = op.emit("Concat", [x, before], axis=2)
        kernels = [
            None if kernel is None or recurrent is None else joined(op, [kernel, recurrent], 1)
            for kernel, recurrent in zip(self.kernels, self.recurrent, strict=True)
        ]
        listing = replace(
            self,
            kernels=self._with_output(kernels, 0),
            recurrent=[None if part is None else self._filled(part, 0) for part in self.recurrent],
            biases=self._with_output(self.biases, _OPEN),
            peepholes=None if self.peepholes is None else self._with_output(self.peepholes, 0),
            activations=(*self.activations[:2], "Affine"),
            _stacked=[],
        )
        return squeeze(op, listing.run(both, first)[0], [1])

    def _with_output(self, parts: Sequence[ir.Value | None], number: float) -> list[ir.Value | None]:
        """Return the copy that has a number for the gate OUTPUT."""
        copy, output = list(parts), parts[OUTPUT]
        copy[OUTPUT] = None if output is None else self._filled(output, number)
        return copy


@dataclass(frozen=True)
class Pieces:
    """The cut of a sequence: `head` steps, and `count` times `steps`; `most`: of a cell where a piece begins.

    Where `count` is 0 all steps are the head, how many there may be. Where `most` is None no limit can be reached.
    """

    head: Dim
    steps: int = 0
    count: int = 0
    most: float | None = None


class Listed(NamedTuple):
    """All cells are listed, and held against a limit."""

    most: float


def plan(
    time: Dim,  # its steps
    size: int,  # rows of the batch times units
    limit: float,  # of the cell
    *,
    coupled: bool = False,  # whether the gates INPUT and FORGET are
    begun: bool = False,  # whether the first cells are given; else they are 0, so that the limit is as many steps away
    bounded: bool = True,  # whether a cell grows by 1 a step at most
) -> Pieces | Listed | None:
    """Return the steps that compute a sequence, None if it is better left to a Scan."""
    piece_plan = pieces(time, limit, coupled=coupled, begun=begun) if bounded else None
    if piece_plan is not None and (size > SMALL or not piece_plan.count):
        return piece_plan
    return Listed(limit) if size <= LARGE and not (isinstance(time, int) and time < SHORTEST) else piece_plan


def pieces(time: Dim, limit: float, *, coupled: bool, begun: bool) -> Pieces | None:
    """Return the cut of a sequence; None if it is better not cut. See `plan`."""
    if coupled:
        return Pieces(time, most=limit if begun else None) if limit >= 1 else None
    if not isinstance(time, int):
        return None
    if not begun and time <= limit:
        return Pieces(time)
    steps = int(min(limit * PART, time))
    if steps < LEAST or time < SHORTEST:
        return None
    head = time % steps
    if not begun:
        head += (int(limit) - head) // steps * steps
    return Pieces(head, steps, (time - head) // steps, limit - steps)


@dataclass
class Limited:
    """An LSTM of limited cells, as nodes."""

    op: Operation  # the operator
    free: Listing  # the LSTM without a limit
    otherwise: Callable[[], list[ir.Value]]  # results and last states from a Scan of limited steps

    def over(self, x: ir.Value, first: Sequence[ir.Value | None], how: Pieces | Listed) -> list[ir.Value]:
        """Results `time batch units`, and last states `batch units`."""
        op = self.op
        states = [None if state is None else unsqueeze(op, state, [0]) for state in first]
        if isinstance(how, Listed):
            y, *ends = self.free.run(x, states)
            y = squeeze(op, y, [1])
            limited_cells = [self.free.cells(x, states, y)]
        else:
            y, ends, limited_cells = self._in_pieces(x, states, how)
        values = [y, *(squeeze(op, state, [0]) for state in ends)]
        if how.most is None or not limited_cells:
            return values
        largest = [op.emit("ReduceMax", [op.each("Abs", value)], keepdims=0) for value in limited_cells]
        within = [op.each("LessOrEqual", value, op.number(how.most, value, "most")) for value in largest]
        return self._chosen(within[0] if len(within) == 1 else op.each("And", within[0], within[1]), values)

    def _in_pieces(
        self, x: ir.Value, states: Sequence[ir.Value | None], how: Pieces
    ) -> tuple[ir.Value, list[ir.Value], list[ir.Value]]:
        """Results, last states, and the cells that pieces begin with, as far as they are not 0."""
        op, outputs = self.op, list[ir.Value]()
        limited_cells = [state for state in states[1:] if state is not None]
        ends = [state for state in states if state is not None]
        if how.head != 0:
            y, *ends = self.free.run(self._steps(x, how, head=True), states)
            outputs.append(squeeze(op, y, [1]))
        if how.count:
            y, ends, cells = self._rounds(self._steps(x, how, head=False), ends, how)
            outputs.append(y)
            limited_cells.append(cells)
        return (
            joined(op, outputs[::-1] if self.free.reverse else outputs, 0) if len(outputs) > 1 else outputs[0],
            ends,
            limited_cells,
        )

    def _steps(self, x: ir.Value, how: Pieces, *, head: bool) -> ir.Value:
        """Return the steps of the head, which are read first, or all other steps."""
        time, size = dims(x)[0], how.head
        if time == size or not isinstance(time, int) or not isinstance(size, int):
            return x
        place = time - size if self.free.reverse else size
        start, end = (0, place) if head is not self.free.reverse else (place, time)
        return x if (start, end) == (0, time) else cut(self.op, x, [start], [end], [0])

    def _rounds(
        self, x: ir.Value, states: Sequence[ir.Value], how: Pieces
    ) -> tuple[ir.Value, list[ir.Value], ir.Value]:
        """Results, last states, and the cells that pieces begin with, of a Scan over pieces."""
        op, count, steps = self.op, how.count, how.steps
        _, batch, columns = dims(x)
        unique, value = op.builder.names.unique, op.builder.value
        before = [value(unique(op.hint("state")), FLOAT, dims(state)) for state in states]
        piece = value(unique(op.hint("piece")), FLOAT, (steps, batch, columns))
        with op.builder.body() as nodes:
            y, *after = self.free.run(piece, before)
        body = NodeBody(op, nodes).graph([*before, piece], [*after, y, before[1]], "piece")
        shapes: list[Dims] = [*map(dims, states), (count, *dims(y)), (count, *dims(states[1]))]
        way: dict[str, Any] = (
            {"scan_input_directions": [1], "scan_output_directions": [1, 1]} if self.free.reverse else {}
        )
        whole = op.reshape(x, (count, steps, batch, columns))
        *ends, ys, cells = op.emit_all("Scan", [*states, whole], shapes, FLOAT, body=body, num_scan_inputs=1, **way)
        return op.reshape(ys, (count * steps, batch, dims(y)[-1])), list(ends), cells

    def _chosen(self, near: ir.Value, values: Sequence[ir.Value]) -> list[ir.Value]:
        """These values, or others."""
        op = self.op
        steps = NodeBody(op)
        with op.builder.body() as steps.nodes:
            others = self.otherwise()
        branches = [NodeBody(op).graph([], values, "free"), steps.graph([], others, "limited")]
        return list(
            op.emit_all("If", [near], [*map(dims, values)], FLOAT, then_branch=branches[0], else_branch=branches[1])
        )


class LimitedLstm(Lstm):
    """One direction of an LSTM, in pieces of which no cell can reach its limit."""

    def of_cells(
        self, name: str, x: ir.Value, first: Sequence[ir.Value | None], step_by_step: Callable[[], list[ir.Value]]
    ) -> list[ir.Value]:
        """Return results and last states of plain cells; a Scan of them is taken where one reaches its limit."""
        time, batch, columns = dims(x)
        time = time if isinstance(columns, int) else None
        how: Pieces | Listed | None = Pieces(time)
        if self.op.options.cell_clip > 0:
            size = self.units * batch if isinstance(batch, int) else LARGE
            bounded, begun = self.fused == ActivationFunctionType.TANH, first[1] is not None
            how = plan(time, size, self.limits()[1], coupled=self.coupled, begun=begun, bounded=bounded)
        if how is None:
            return step_by_step()
        return Limited(self.op, Listing(self.op, *self.matrices(name)), step_by_step).over(x, first, how)


def lstm_in_pieces(op: Operation) -> bool:
    """Hand over an LSTM, one step of it, or both directions; a limited cell in pieces."""
    if op.operator.name == "LSTM" and op.options.kernel_type == 1:
        return False
    written = {"LSTM": single_step, "UNIDIRECTIONAL_SEQUENCE_LSTM": unidirectional}
    written.get(op.operator.name, bidirectional)(op, LimitedLstm)
    return True
