"""Recurrent networks without gates."""

from typing import NamedTuple

import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.marking import mark
from relayout.formats.tflite.importing.operators.recurrent import (
    SWAPPED,
    activated,
    hand_over_both,
    keep,
    loop_of,
    named,
    one_step,
    only_floats,
    paired,
    scan,
    sequence,
    start,
    units_of,
    zeros,
)
from relayout.formats.tflite.importing.operators.slicing import joined, squeeze, unsqueeze
from relayout.formats.tflite.importing.operators.weights import weights
from relayout.formats.tflite.importing.registry import operator


class _Operands(NamedTuple):
    """Which operand is what."""

    kernel: int
    recurrent: int
    bias: int
    state: int
    auxiliary: int | None = None


def _rnn(op: Operation, which: _Operands, x: ir.Value, *, auxiliary: bool = False, reverse: bool = False) -> ir.Value:
    """RNN over `time batch c`, or a Scan where the activation is not one of ONNX's."""
    only_floats(op)
    fused, units = op.options.fused_activation_function, units_of(op, which.kernel)
    time, batch, _ = dims(x)
    kernel, recurrent, bias = weights(op, which.kernel, 0), weights(op, which.recurrent, 0), op.real(which.bias)
    if auxiliary and which.auxiliary is not None:
        kernel = joined(op, [kernel, weights(op, which.auxiliary, 0)], 1)
    shape: Dims = (batch, units)
    first = start(op, which.state, shape)
    if (name := named(fused)) is not None:
        empty = op.emit("Expand", [op.number(0, bias, "zero"), op.ints([units], "shape")], (units,))
        operands = [kernel, recurrent, joined(op, [bias, empty], 0)]
        w, r, b = (unsqueeze(op, part, [0]) for part in operands)
        h = None if first is None else unsqueeze(op, first, [0])
        y, last = op.emit_all(
            "RNN",
            [x, w, r, b, None, h],
            [(time, 1, batch, units), (1, batch, units)],
            activations=[name],
            hidden_size=units,
            direction="reverse" if reverse else "forward",
        )
        keep(op, which.state, squeeze(op, last, [0]))
        return squeeze(op, y, [1])

    def step(x_t: ir.Value, states: list[ir.Value]) -> tuple[list[ir.Value], ir.Value]:
        own = op.emit("Gemm", [x_t, kernel, bias], shape, transB=1)
        h = activated(op, op.emit("Gemm", [states[0], recurrent, own], shape, transB=1), fused)
        return [h], h

    (end,), ys = scan(op, x, [first if first is not None else zeros(op, shape, x)], step, reverse=reverse)
    keep(op, which.state, end)
    return ys


_FORWARD = _Operands(1, 2, 3, 4)
_FIRST_HALF = _Operands(1, 2, 3, 4, 10)
_SECOND_HALF = _Operands(5, 6, 7, 8, 11)


@operator("RNN", options="RNNOptions")
def rnn(op: Operation) -> None:
    """RNN of one step."""
    y = _rnn(op, _FORWARD, one_step(op))
    mark(op, loop_of(y), (_FORWARD.state,))
    op.result(squeeze(op, y, [0]))


@operator("UNIDIRECTIONAL_SEQUENCE_RNN", options="SequenceRNNOptions")
def unidirectional_sequence_rnn(op: Operation) -> None:
    """RNN, forward."""
    time_major = op.options.time_major
    y = _rnn(op, _FORWARD, sequence(op, 0, time_major=time_major))
    mark(op, loop_of(y), (_FORWARD.state,))
    op.result(y, perm=None if time_major else SWAPPED)


@operator("BIDIRECTIONAL_SEQUENCE_RNN", options="BidirectionalSequenceRNNOptions")
def bidirectional_sequence_rnn(op: Operation) -> None:
    """RNN forward, RNN in reverse."""
    options = op.options
    ours, theirs, both = paired(op, 9, 10, time_major=options.time_major)
    forward = _rnn(op, _FIRST_HALF, ours, auxiliary=both)
    backward = _rnn(op, _SECOND_HALF, theirs, auxiliary=both, reverse=True)
    mark(op, loop_of(forward), (_FIRST_HALF.state, _SECOND_HALF.state))
    hand_over_both(op, forward, backward, merge=options.merge_outputs, time_major=options.time_major)
