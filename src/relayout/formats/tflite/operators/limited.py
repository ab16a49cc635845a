"""An LSTM whose cell is limited, by LSTMs without a limit.

A cell is `c' = f c + i g`, with sigmoids f and i and a tanh g: `|c'| <= |c| + 1`, whatever the weights. So a piece of k
steps that begins with cells of `limit - k` at most never reaches the limit, and ONNX's LSTM computes it: one node, and
not a dozen for every step as in a Scan. The sequence is cut into pieces, each of which begins with the states that the
one before ends with. If all began so, an If takes their results, and else those of a Scan of limited steps. Where gates
are coupled, `i = 1 - f`, and `|c'| <= max(|c|, 1)`: all steps are one piece.

The pieces are the rounds of a Scan, so that a long sequence makes no large graph, and weights are packed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from relayout.formats.tflite.builder import Dim, Dims, dims
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.bodies import BOOL, Body
from relayout.formats.tflite.operators.elementwise import one, two
from relayout.formats.tflite.operators.slicing import cut, joined, squeeze, unsqueeze

FLOAT = ir.DataType.FLOAT
PART, LEAST = 0.4, 2
"""Of the limit, how many steps a piece has: more take less time, and fewer leave more room for the cell. At least so
many: shorter pieces take as long as a Scan's steps."""
SHORTEST = 8
"""Steps of a sequence, from which on pieces and the test of their cells take less time than a Scan."""

Run = Callable[[ir.Value, Sequence[ir.Value | None]], tuple[ir.Value, ir.Value, ir.Value]]
"""(rows `time batch c`, first states `1 batch units`) -> results `time 1 batch units`, last states."""


@dataclass(frozen=True)
class Pieces:
    """How a sequence is cut: into `head` steps, and `count` times `steps`; `most`: of a cell where a piece begins.

    Where `count` is 0 all steps are the head, how many there may be. Where `most` is None no limit can be reached.
    """

    head: Dim
    steps: int = 0
    count: int = 0
    most: float | None = None


def pieces(time: Dim, limit: float, *, coupled: bool, begun: bool) -> Pieces | None:
    """How to cut a sequence, None if it is better left to a Scan.

    Args:
        time: its steps.
        limit: of the cell.
        coupled: whether the gates INPUT and FORGET are.
        begun: whether the first cells are given; else they are 0, so that the limit is as many steps away.
    """
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
    """The pieces of a sequence, as nodes."""

    op: Operation
    pieces: Pieces
    run: Run
    reverse: bool

    def over(
        self, x: ir.Value, first: Sequence[ir.Value | None], otherwise: Callable[[], list[ir.Value]]
    ) -> list[ir.Value]:
        """Results `time batch units`, and last states `batch units`.

        Args:
            x: the sequence, `time batch c`.
            first: the first states, None for zeros.
            otherwise: the same from limited steps.
        """
        op, cut_up = self.op, self.pieces
        states = [None if state is None else unsqueeze(op, state, [0]) for state in first]
        asked = [] if states[1] is None else [states[1]]
        found = []
        if cut_up.head != 0:
            y, *ends = self.run(self._steps(x, head=True), states)
            found, states = [squeeze(op, y, [1])], list(ends)
        if cut_up.count:
            y, states, cells = self._rounds(self._steps(x, head=False), states)
            found.append(y)
            asked.append(cells)
        y = joined(op, found[::-1] if self.reverse else found, 0) if len(found) > 1 else found[0]
        values = [y, *(squeeze(op, state, [0]) for state in states if state is not None)]
        if cut_up.most is None or not asked:
            return values
        return self._chosen(self._all_within(asked, cut_up.most), values, otherwise)

    def _steps(self, x: ir.Value, *, head: bool) -> ir.Value:
        """Those of the head, which is what is first read, or all others."""
        time, size = dims(x)[0], self.pieces.head
        if time == size or not isinstance(time, int) or not isinstance(size, int):
            return x
        place = time - size if self.reverse else size
        start, end = (0, place) if head is not self.reverse else (place, time)
        return x if (start, end) == (0, time) else cut(self.op, x, [start], [end], [0])

    def _rounds(
        self, x: ir.Value, states: Sequence[ir.Value | None]
    ) -> tuple[ir.Value, list[ir.Value | None], ir.Value]:
        """Results, last states, and the cells that pieces begin with, of a Scan over pieces."""
        op, (count, steps) = self.op, (self.pieces.count, self.pieces.steps)
        _, batch, columns = dims(x)
        unique, value = op.builder.names.unique, op.builder.value
        given = [state for state in states if state is not None]
        before = [value(unique(op.hint("state")), FLOAT, dims(state)) for state in given]
        piece = value(unique(op.hint("piece")), FLOAT, (steps, batch, columns))
        with op.builder.body() as nodes:
            y, *after = self.run(piece, before)
        body = Body(op, nodes).graph([*before, piece], [*after, y, before[1]], "piece")
        shapes: list[Dims] = [*map(dims, given), (count, *dims(y)), (count, *dims(given[1]))]
        way: dict[str, Any] = {"scan_input_directions": [1], "scan_output_directions": [1, 1]} if self.reverse else {}
        whole = op.reshape(x, (count, steps, batch, columns))
        *ends, ys, cells = op.emit_all("Scan", [*given, whole], shapes, FLOAT, body=body, num_scan_inputs=1, **way)
        return op.reshape(ys, (count * steps, batch, dims(y)[-1])), list(ends), cells

    def _all_within(self, cells: Sequence[ir.Value], most: float) -> ir.Value:
        """Whether no cell is greater."""
        op = self.op
        largest = [op.emit("ReduceMax", [one(op, "Abs", value)], (), keepdims=0) for value in cells]
        within = [op.emit("LessOrEqual", [value, op.number(most, value, "most")], (), BOOL) for value in largest]
        return within[0] if len(within) == 1 else two(op, "And", within[0], within[1])

    def _chosen(
        self, near: ir.Value, values: Sequence[ir.Value], otherwise: Callable[[], list[ir.Value]]
    ) -> list[ir.Value]:
        op = self.op
        steps = Body(op)
        with op.builder.body() as steps.nodes:
            others = otherwise()
        branches = [Body(op).graph([], values, "pieces"), steps.graph([], others, "steps")]
        return list(
            op.emit_all("If", [near], [*map(dims, values)], FLOAT, then_branch=branches[0], else_branch=branches[1])
        )
