"""Recurrent networks without gates."""

from typing import NamedTuple

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.recurrent import (
    SWAPPED,
    activated,
    grid,
    hand_over_both,
    keep,
    loop_of,
    mark,
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
from relayout.formats.tflite.importing.registry import Unsupported, operator

# A network that remembers what its filters saw.

_STATE = 4  # the operand that is the state


@operator("SVDF", options="SVDFOptions")
def svdf(op: Operation) -> None:
    """Filter outputs of the last steps, weighted by age; `rank` filters make a unit.

    The state is `batch (filter age)`, the oldest first. Each run is a step: it drops the oldest, adds the newest.
    """
    integers = op.input(0).type == TensorType.INT8
    if integers and TensorType.INT8 in (op.input(2).type, op.input(4).type):
        raise Unsupported("weights over time or a state of 8 bits, for which there is no sound kernel")
    x, features, times = op.real(0), weights(op, 1, 0), weights(op, 2, 0)
    op.require_rank(0, 2)
    filters, (_, memory), rank = units_of(op, 1), dims(times), op.options.rank
    if not isinstance(memory, int) or rank < 1 or filters % rank or dims(times)[0] != filters:
        raise ReadError(f"{filters} filters of rank {rank}", where=op.place)
    batch, units = dims(x)[0], filters // rank
    newest = op.emit("Gemm", [x, features], transB=1)
    mark(op, newest.producer(), (_STATE,))
    shape: Dims = (batch, filters * memory)
    first = start(op, _STATE, shape)
    state = op.reshape(_saturated(op, _STATE, newest), (batch, filters, 1))
    if memory > 1:
        seen: Dims = (batch, filters, memory - 1)
        if first is None:
            older = zeros(op, seen, x, 0)
        else:
            bounds = [op.ints([v], name) for v, name in ((1, "starts"), (memory, "ends"), (2, "axes"))]
            older = op.emit("Slice", [op.reshape(first, (batch, filters, memory)), *bounds])
        state = joined(op, [older, state], 2)
    keep(op, _STATE, op.reshape(state, shape))
    weighted = op.emit("Mul", [state, unsqueeze(op, times, [0])])
    each: Dims = (batch, units, rank * memory)
    y = op.emit("ReduceSum", [op.reshape(weighted, each), op.ints([2])], keepdims=0)
    bias = op.bias(3, 4, 2)
    y = y if bias is None else op.each("Add", y, bias)
    # The integer kernel demands RELU and does not apply it: results end at the zero point because that is -128.
    op.result(y if integers else activated(op, y, op.options.fused_activation_function))


def _saturated(op: Operation, i: int, value: ir.Value) -> ir.Value:
    """A value as operand i can hold it: rounded to its scale, and no further than its type reaches."""
    if (quantization := op.tensors.quantization(op.input(i))) is None:
        return value
    return grid(op, value, float(quantization.scale[0]), int(quantization.zero_point[0]), 16)


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
        empty = op.emit("Expand", [op.number(0, bias, "zero"), op.ints([units], "shape")])
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
        own = op.emit("Gemm", [x_t, kernel, bias], transB=1)
        h = activated(op, op.emit("Gemm", [states[0], recurrent, own], transB=1), fused)
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
