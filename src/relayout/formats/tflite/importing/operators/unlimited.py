"""ONNX's LSTM, made of the weights of single gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.extents import total
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.recurrent import zeros
from relayout.formats.tflite.importing.operators.slicing import LAST, cut, joined, squeeze, unsqueeze

INPUT, OUTPUT, FORGET, CELL = range(4)
"""The gates, in ONNX's order."""
_OPEN = 40.0
"""A sum of which the sigmoid is 1."""


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
    """

    op: Operation
    kernels: Sequence[ir.Value | None]
    recurrent: Sequence[ir.Value | None]
    biases: Sequence[ir.Value | None]
    peepholes: Sequence[ir.Value | None] | None
    activations: tuple[str, str, str]
    reverse: bool
    _stacked: list[ir.Value | None] = field(default_factory=list)

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

    def cells(self, x: ir.Value, first: Sequence[ir.Value | None], y: ir.Value) -> ir.Value:
        """All cells, `time batch units`, of an LSTM whose results are these.

        They are what another one yields, whose gate OUTPUT is open. Of the state that it computes itself nothing is
        left: what is meant lies beside the operand.
        """
        op, (time, batch, units) = self.op, dims(y)
        h = unsqueeze(op, zeros(op, (batch, units), x), [0]) if first[0] is None else first[0]
        rest = cut(op, y, [1], [LAST], [0]) if self.reverse else cut(op, y, [0], [-1], [0])
        before = op.emit("Concat", [rest, h] if self.reverse else [h, rest], (time, batch, units), axis=0)
        both = op.emit("Concat", [x, before], (time, batch, total([dims(x)[2], units])), axis=2)
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
        """The same with a number for the gate OUTPUT."""
        made, output = list(parts), parts[OUTPUT]
        made[OUTPUT] = None if output is None else self._filled(output, number)
        return made

    def _filled(self, like: ir.Value, number: float) -> ir.Value:
        shape = [d for d in dims(like) if isinstance(d, int)]
        return self.op.emit("Expand", [self.op.number(number, like), self.op.ints(shape, "shape")], dims(like))

    def _gates(self, parts: Sequence[ir.Value | None]) -> ir.Value:
        """`1 (gate ...)`. A gate left out is one minus the forget gate: the forget gate of negated sums."""
        op, forget = self.op, parts[FORGET]
        given = [op.emit("Neg", [forget], dims(forget)) if p is None and forget is not None else p for p in parts]
        return unsqueeze(op, joined(op, [p for p in given if p is not None], 0), [0])
