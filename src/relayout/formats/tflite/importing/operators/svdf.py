"""A network that remembers what its filters saw."""

from __future__ import annotations

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.marking import mark
from relayout.formats.tflite.importing.operators.recurrent import activated, grid, keep, start, units_of, zeros
from relayout.formats.tflite.importing.operators.slicing import joined, unsqueeze
from relayout.formats.tflite.importing.operators.weights import weights
from relayout.formats.tflite.importing.registry import Unsupported, operator

_STATE = 4
"""The operand that is the state."""


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
    newest = op.emit("Gemm", [x, features], (batch, filters), transB=1)
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
            older = op.emit("Slice", [op.reshape(first, (batch, filters, memory)), *bounds], seen)
        state = joined(op, [older, state], 2)
    keep(op, _STATE, op.reshape(state, shape))
    weighted = op.emit("Mul", [state, unsqueeze(op, times, [0])], dims(state))
    each: Dims = (batch, units, rank * memory)
    y = op.emit("ReduceSum", [op.reshape(weighted, each), op.ints([2])], (batch, units), keepdims=0)
    bias = op.bias(3, 4, 2)
    y = y if bias is None else two(op, "Add", y, bias)
    # The integer kernel demands RELU and does not apply it: results end at the zero point because that is -128.
    op.result(y if integers else activated(op, y, op.options.fused_activation_function))


def _saturated(op: Operation, i: int, value: ir.Value) -> ir.Value:
    """A value as operand i can hold it: rounded to its scale, and no further than its type reaches."""
    quantization = op.tensors.quantization(op.input(i))
    if quantization is None:
        return value
    return grid(op, value, float(quantization.scale[0]), int(quantization.zero_point[0]), 16)
