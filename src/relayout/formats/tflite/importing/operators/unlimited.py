"""ONNX's LSTM, made of the weights of single gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import onnx_ir as ir

from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.slicing import joined, squeeze, unsqueeze
from relayout.formats.tflite.states import KEPT, STATES
from relayout.light_dataclass import dataclass

INPUT, OUTPUT, FORGET, CELL = range(4)
"""The gates, in ONNX's order."""


@dataclass
class Unlimited:
    """An LSTM of one direction whose cell has no limit.

    Args:
        op: the operator.
        kernels: for each gate `units c`; None for INPUT means that it is coupled, one minus FORGET.
        recurrent: for each gate `units units`.
        biases: for each gate `units`.
        peepholes: for each gate but CELL `units`; None: there are none.
        activations: of the gates, of the candidate, of the cell.
        reverse: whether the last step is computed first.
        kept: whether the file keeps the states from run to run.
    """

    op: Operation
    kernels: Sequence[ir.Value | None]
    recurrent: Sequence[ir.Value | None]
    biases: Sequence[ir.Value | None]
    peepholes: Sequence[ir.Value | None] | None
    activations: tuple[str, str, str]
    reverse: bool
    kept: bool = False
    _stacked: list[ir.Value | None] = field(default_factory=list)

    def over(self, x: ir.Value, first: Sequence[ir.Value | None]) -> list[ir.Value]:
        """Return results `time batch units` and last states, of `time batch c` and states `batch units`."""
        op = self.op
        y, *ends = self.run(x, [None if state is None else unsqueeze(op, state, [0]) for state in first])
        return [squeeze(op, y, [1]), *(squeeze(op, state, [0]) for state in ends)]

    def run(self, x: ir.Value, first: Sequence[ir.Value | None]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The results `time 1 batch units` and the last states, of `time batch c` and states `1 batch units`."""
        op, (time, batch, _) = self.op, dims(x)
        kernel, recurrent, bias, peephole = self.matrices()
        units = dims(recurrent)[2] if recurrent is not None else None
        affine = "Affine" in self.activations
        y, h, c = op.emit_all(
            "LSTM",
            [x, kernel, recurrent, bias, None, *first, peephole],
            [(time, 1, batch, units), (1, batch, units), (1, batch, units)],
            activations=list(self.activations),
            activation_alpha=[1.0] if affine else None,
            activation_beta=[0.0] if affine else None,
            hidden_size=units,
            direction="reverse" if self.reverse else "forward",
        )
        node = y.producer()
        if self.kept and node is not None:
            node.metadata_props[STATES] = KEPT
        return y, h, c

    def matrices(self) -> list[ir.Value | None]:
        """The operands W, R, B and P, written once; B has one bias for the operand and one for the state."""
        if not self._stacked:
            op, bias = self.op, self._gates(self.biases)
            empty = self._filled(bias, 0)
            peepholes = None if self.peepholes is None else self._gates(self.peepholes)
            self._stacked = [
                self._gates(self.kernels),
                self._gates(self.recurrent),
                joined(op, [bias, empty], 1),
                peepholes,
            ]
        return self._stacked

    def _filled(self, like: ir.Value, number: float) -> ir.Value:
        shape = [d for d in dims(like) if isinstance(d, int)]
        return self.op.emit("Expand", [self.op.number(number, like), self.op.ints(shape, "shape")], dims(like))

    def _gates(self, parts: Sequence[ir.Value | None]) -> ir.Value:
        """`1 (gate ...)`. A gate left out is one minus the forget gate: the forget gate of negated sums."""
        op, forget = self.op, parts[FORGET]
        given = [op.emit("Neg", [forget], dims(forget)) if p is None and forget is not None else p for p in parts]
        return unsqueeze(op, joined(op, [p for p in given if p is not None], 0), [0])
