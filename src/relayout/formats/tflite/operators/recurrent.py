"""Recurrent networks."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.activation import clip
from relayout.formats.tflite.builder import Dims, dims
from relayout.formats.tflite.enums import ActivationFunctionType
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.elementwise import one, two
from relayout.formats.tflite.operators.slicing import joined, squeeze, unsqueeze
from relayout.formats.tflite.registry import Unsupported, operator

_ACTIVATIONS = {ActivationFunctionType.TANH: "Tanh", ActivationFunctionType.RELU: "Relu"}

# Operands of UNIDIRECTIONAL_SEQUENCE_LSTM, gates in ONNX's order: input, output, forget, cell.
_KERNELS, _RECURRENT, _BIASES = (1, 4, 2, 3), (5, 8, 6, 7), (12, 15, 13, 14)
_PEEPHOLES = (9, 11, 10)
_PROJECTION, _NORMALIZATION = (16, 17), (20, 21, 22, 23)
_OUTPUT_STATE, _CELL_STATE = 18, 19


def _negated(op: Operation, x: ir.Value) -> ir.Value:
    return op.emit("Neg", [x], dims(x))


def _matrices(op: Operation, operands: Sequence[int], coupled: bool) -> ir.Value:
    """`1 (gate h) i` from one matrix for each gate.

    Where the input gate is left out it is one minus the forget gate, that is, the forget gate of negated sums.
    """
    parts = [op.real(operands[2]) if coupled and k == 0 else op.real(i) for k, i in enumerate(operands)]
    if coupled:
        parts[0] = _negated(op, parts[0])
    return unsqueeze(op, joined(op, parts, 0), [0])


def _bias(op: Operation, units: int, coupled: bool) -> ir.Value | None:
    """`1 (2 gate h)`: TFLite has one bias, ONNX one for the operand and one for the state."""
    given = [op.bias(_BIASES[2] if coupled and k == 0 else i) for k, i in enumerate(_BIASES)]
    if any(part is None for part in given):
        return None
    parts = [part for part in given if part is not None]
    if coupled:
        parts[0] = _negated(op, parts[0])
    zeros = op.emit("Expand", [op.number(0, parts[0], "zero"), op.ints([4 * units], "shape")], (4 * units,))
    return unsqueeze(op, joined(op, [*parts, zeros], 0), [0])


def _state(op: Operation, i: int) -> ir.Value | None:
    """The state before the first step: nothing, which means zeros, where the runtime keeps it between runs."""
    if not op.has(i) or (op.input(i).is_variable and not op.tensors.has_value(op.input(i))):
        return None
    return unsqueeze(op, op.real(i), [0])


@operator("UNIDIRECTIONAL_SEQUENCE_LSTM", options="UnidirectionalSequenceLSTMOptions")
def unidirectional_sequence_lstm(op: Operation) -> None:
    """LSTM, forward, from a state of zeros: each run of the model is a sequence of its own.

    TFLite keeps the state between runs until it is reset; ONNX has no such memory.
    """
    options = op.options
    if any(op.has(i) for i in _NORMALIZATION):
        raise Unsupported("layer normalization")
    activation = _ACTIVATIONS.get(options.fused_activation_function)
    if activation is None:
        raise Unsupported(f"activation {options.fused_activation_function}")
    op.require_rank(0, 3)
    for i in (2, 3, 4, 6, 7, 8):
        op.require_rank(i, 2)
    units = dims(op.stored(_KERNELS[1]))[0]
    if not isinstance(units, int):
        raise ReadError("the number of units is unknown", where=op.place)
    x = op.real(0, None if options.time_major else (1, 0, 2))
    quantized = op.tensors.quantization(op.input(_OUTPUT_STATE)) is not None
    if quantized or options.cell_clip > 0 or op.has(_PROJECTION[0]):
        y = _scan(op, x, units, activation)
    else:
        y = _lstm(op, x, units, activation)
    op.result(y, perm=None if options.time_major else (1, 0, 2))


def _lstm(op: Operation, x: ir.Value, units: int, activation: str) -> ir.Value:
    """ONNX's LSTM, `time batch units`."""
    time, batch, _ = dims(x)
    coupled = not op.has(1)
    peepholes = None
    if op.has(_PEEPHOLES[1]):
        which = [10 if coupled and k == 0 else i for k, i in enumerate(_PEEPHOLES)]
        parts = [op.real(i) for i in which]
        if coupled:
            parts[0] = _negated(op, parts[0])
        peepholes = unsqueeze(op, joined(op, parts, 0), [0])
    y = op.emit(
        "LSTM",
        [
            x,
            _matrices(op, _KERNELS, coupled),
            _matrices(op, _RECURRENT, coupled),
            _bias(op, units, coupled),
            None,
            _state(op, _OUTPUT_STATE),
            _state(op, _CELL_STATE),
            peepholes,
        ],
        (time, 1, batch, units),
        activations=["Sigmoid", activation, activation],
        hidden_size=units,
    )
    return squeeze(op, y, [1])


def _scan(op: Operation, x: ir.Value, units: int, activation: str) -> ir.Value:
    """A Scan over the steps, for what ONNX's LSTM has no word for.

    1. The cell's state is clipped, and rounded to its own scale where it is quantized.
    2. The output's state is rounded to its own scale where it is quantized, at every step.
    3. The output may be a projection of the state, clipped in its turn.
    """
    time, batch, columns = dims(x)
    float_, projected = ir.DataType.FLOAT, op.has(_PROJECTION[0])
    outputs = dims(op.stored(_PROJECTION[0]))[0] if projected else units
    if projected and op.tensors.quantization(op.input(_PROJECTION[0])) is not None:
        raise Unsupported("quantized projection")
    if op.has(_PEEPHOLES[1]):
        raise Unsupported("peepholes beside a clipped, quantized or projected state")
    coupled = not op.has(1)
    gates = [(None if coupled and k == 0 else (_KERNELS[k], _RECURRENT[k], _BIASES[k])) for k in range(4)]
    weights = [None if g is None else (op.real(g[0]), op.real(g[1]), op.bias(g[2])) for g in gates]
    starts = [_start(op, _OUTPUT_STATE, (batch, outputs), x), _start(op, _CELL_STATE, (batch, units), x)]
    projection = (op.real(_PROJECTION[0]), op.bias(_PROJECTION[1])) if projected else None

    unique, builder = op.builder.names.unique, op.builder
    h = builder.value(unique(op.hint("h")), float_, (batch, outputs))
    c = builder.value(unique(op.hint("c")), float_, (batch, units))
    x_t = builder.value(unique(op.hint("x")), float_, (batch, columns))
    with builder.body() as nodes:
        sums = [None if w is None else _gate(op, x_t, h, w, (batch, units)) for w in weights]
        _, out, forget, cell = [None if s is None else one(op, "Sigmoid", s) for s in sums[:3]] + [sums[3]]
        inp = None if sums[0] is None else one(op, "Sigmoid", sums[0])
        if out is None or forget is None or cell is None:
            raise ReadError("a gate is missing", where=op.place)
        inp = two(op, "Sub", op.number(1, forget, "one"), forget) if inp is None else inp
        fresh = two(op, "Mul", inp, one(op, activation, cell))
        c_next = _rounded(op, _CELL_STATE, two(op, "Add", two(op, "Mul", forget, c), fresh), op.options.cell_clip)
        h_next = two(op, "Mul", out, one(op, activation, c_next))
        if projection is not None:
            h_next = op.emit("Gemm", [h_next, *projection], (batch, outputs), transB=1)
            if op.options.proj_clip > 0:
                h_next = clip(op, h_next, -op.options.proj_clip, op.options.proj_clip)
        h_next = _requantized(op, _OUTPUT_STATE, h_next)
        y_t = one(op, "Identity", h_next)
    body = ir.Graph([h, c, x_t], [h_next, c_next, y_t], nodes=nodes, name=op.hint("step"))
    shapes = [(batch, outputs), (batch, units), (time, batch, outputs)]
    return op.emit_all("Scan", [*starts, x], shapes, float_, body=body, num_scan_inputs=1)[2]


def _gate(
    op: Operation, x: ir.Value, h: ir.Value, weights: tuple[ir.Value, ir.Value, ir.Value | None], shape: Dims
) -> ir.Value:
    kernel, recurrent, bias = weights
    own = op.emit("Gemm", [x, kernel, bias], shape, transB=1)
    return op.emit("Gemm", [h, recurrent, own], shape, transB=1)


def _start(op: Operation, i: int, shape: Dims, like: ir.Value) -> ir.Value:
    if op.has(i) and not (op.input(i).is_variable and not op.tensors.has_value(op.input(i))):
        return op.real(i)
    batch, units = shape
    if not isinstance(units, int):
        raise ReadError("the number of units is unknown", where=op.place)
    zero = op.number(0, like, "zero")
    if isinstance(batch, int):
        return op.emit("Expand", [zero, op.ints([batch, units], "shape")], shape)
    axis = 1  # of the data, which is `time batch columns` here
    rows = op.emit("Shape", [like], (1,), ir.DataType.INT64, start=axis, end=axis + 1)
    return op.emit("Expand", [zero, joined(op, [rows, op.ints([units], "units")], 0)], shape)


def _requantized(op: Operation, i: int, value: ir.Value) -> ir.Value:
    """A value rounded to what operand i can hold."""
    tensor = op.input(i)
    if op.tensors.quantization(tensor) is None:
        return value
    scale, zero_point = op.tensors.parameters(tensor)
    stored = op.emit("QuantizeLinear", [value, scale, zero_point], dims(value), zero_point.dtype)
    return op.dequantize(i, stored)


def _rounded(op: Operation, i: int, value: ir.Value, limit: float) -> ir.Value:
    """A cell state rounded to its 16-bit scale, by arithmetic: QuantizeLinear takes 16 bits only from opset 21 on."""
    quantization = op.tensors.quantization(op.input(i))
    if quantization is None:
        return clip(op, value, -limit, limit) if limit > 0 else value
    scale = float(quantization.scale[0])
    steps = one(op, "Round", two(op, "Div", value, op.number(scale, value, "scale")))
    most = min(32767.0, limit / scale) if limit > 0 else 32767.0
    return two(op, "Mul", clip(op, steps, -most, most), op.number(scale, value, "scale"))
