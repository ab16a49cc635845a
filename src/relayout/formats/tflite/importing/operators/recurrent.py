"""Recurrent networks: how state comes in and goes out, steps in a row, and networks without gates."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import onnx_ir as ir

from relayout.formats.tflite.container.enums import ActivationFunctionType, TensorType
from relayout.formats.tflite.importing import activation
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation, options_to_say
from relayout.formats.tflite.importing.operators.convolution import weights, widened_from
from relayout.formats.tflite.importing.operators.slicing import joined, squeeze, unsqueeze
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.spelled_out import BUILTIN, Builtin, Operand

FLOAT = ir.DataType.FLOAT
SWAPPED = (1, 0, 2)  # `batch time c -> time batch c`, and back

LOOPS = ("LSTM", "RNN", "Scan")  # operators of ONNX that run all steps
_NAMED = {ActivationFunctionType.TANH: "Tanh", ActivationFunctionType.RELU: "Relu"}
"""The activations that ONNX's own recurrent operators are used with."""


def named(fused: int) -> str | None:
    """Return the activation as ONNX's recurrent operators spell it, None where a Scan has to do."""
    return _NAMED.get(ActivationFunctionType(fused)) if fused in list(ActivationFunctionType) else None


def activated(op: Operation, value: ir.Value, fused: int) -> ir.Value:
    """Return an activation of real numbers; TANH is one here."""
    if fused == ActivationFunctionType.TANH:
        return op.each("Tanh", value)
    low, high = activation.clamp(fused)
    return value if low == -high else activation.clip(op, value, low, high)


# State.


def _is_kept(op: Operation, i: int) -> bool:
    """Tell whether operand i is memory that the runtime keeps between runs."""
    return op.input(i).is_variable and not op.tensors.has_value(op.input(i))


def _key(op: Operation, i: int) -> str:
    return f"tensor {op.input(i).place}"


def start(op: Operation, i: int, shape: Dims) -> ir.Value | None:
    """Return the state before the first step, None for zeros."""
    if not op.has(i):
        return None
    if not _is_kept(op, i):
        return op.real(i)
    tensor = op.input(i)
    quantization = op.tensors.quantization(tensor)
    zero = 0 if quantization is None else int(quantization.zero_point[0])
    op.program.variables.initial[_key(op, i)] = str(zero)
    value = op.program.variables.load(_key(op, i), op.tensors.names[tensor.index], op.tensors.dtype(tensor), shape)
    return None if value is None else op.dequantize(i, value)


def keep(op: Operation, i: int, value: ir.Value) -> None:
    """Leave the state after the last step to the next run, or to whoever else uses it in this one.

    A state that another operator has computed is written over, too, and those behind this operator read the last one.
    """
    if not op.has(i) or is_forgotten(op, i):
        return
    tensor, program, is_kept = op.input(i), op.program, _is_kept(op, i)
    if not is_kept:
        operators = op.tensors.subgraph.operators
        place = next(place for place, other in enumerate(operators) if other is op.operator)
        if not any(tensor.index in other.inputs for other in operators[place + 1 :]):
            return
    if op.tensors.quantization(tensor) is not None:
        value = op.emit("QuantizeLinear", [value, *op.tensors.parameters(tensor)])
    if is_kept:
        program.variables.store(_key(op, i), op.tensors.names[tensor.index], value)
    else:
        op.tensors.overwrite(tensor, value)


def is_forgotten(op: Operation, i: int) -> bool:
    """Return whether operand i is memory of this operator alone, and each run here begins with zeros in it."""
    tensor, program = op.input(i), op.program
    readers = sum(1 for other in op.tensors.subgraph.operators if tensor.index in other.inputs)
    return _is_kept(op, i) and program.choices.state == "zero" and not program.nested and readers < 2


def zeros(op: Operation, shape: Dims, like: ir.Value, axis: int = 1) -> ir.Value:
    """Return a state of zeros; an unknown batch is that axis of `like`, which for sequences is `time batch c`."""
    batch, *rest = shape
    units = [d for d in rest if isinstance(d, int)]
    if len(units) != len(rest):
        raise op.damaged("the number of units is unknown")
    zero = op.number(0, like, "zero")
    if isinstance(batch, int):
        return op.emit("Expand", [zero, op.ints([batch, *units], "shape")])
    rows = op.emit("Shape", [like], start=axis, end=axis + 1)
    return op.emit("Expand", [zero, joined(op, [rows, op.ints(units, "units")], 0)])


def grid(op: Operation, value: ir.Value, scale: float, zero: int, bits: int, limit: float | None = None) -> ir.Value:
    """Round to the integers of a type, by arithmetic: QuantizeLinear takes 16 bits only from opset 21 on."""
    steps = op.each("Round", op.each("Div", value, op.number(scale, value, "scale")))
    low, high = -(2.0 ** (bits - 1)) - zero, 2.0 ** (bits - 1) - 1 - zero
    if limit is not None:
        low, high = max(low, -limit / scale), min(high, limit / scale)
    return op.each("Mul", activation.clip(op, steps, low, high), op.number(scale, value, "scale"))


Step = Callable[[ir.Value, list[ir.Value]], tuple[list[ir.Value], ir.Value]]
"""(operand, states) of one step -> (next states, result)."""


def scan(
    op: Operation, x: ir.Value, states: Sequence[ir.Value], step: Step, *, reverse: bool = False
) -> tuple[list[ir.Value], ir.Value]:
    """A Scan over the first axis, for what ONNX's own recurrent operators have no word for: last states, results."""
    time, *rest = dims(x)
    unique, builder = op.builder.names.unique, op.builder
    inner = [builder.value(unique(op.hint("state")), FLOAT, dims(state)) for state in states]
    x_t = builder.value(unique(op.hint("x")), FLOAT, tuple(rest))
    with builder.body() as nodes:
        after, y = step(x_t, inner)
        y = op.each("Identity", y)
    body = ir.Graph([*inner, x_t], [*after, y], nodes=nodes, name=op.hint("step"))
    way: dict[str, Any] = {"scan_input_directions": [1], "scan_output_directions": [1]} if reverse else {}
    shapes: list[Dims] = [*(dims(state) for state in states), (time, *dims(y))]
    *last, ys = op.emit_all("Scan", [*states, x], shapes, FLOAT, body=body, num_scan_inputs=1, **way)
    return last, ys


def loop_of(y: ir.Value) -> ir.Node | None:
    """Return the node that runs all steps, of a sequence that it yields."""
    node = y.producer()
    if node is not None and node.op_type == "Squeeze" and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node if node is not None and node.op_type in LOOPS else None


# Sequences of either direction.


def sequence(op: Operation, i: int, *, time_major: bool) -> ir.Value:
    """Operand i as `time batch c`."""
    op.require_rank(i, 3)
    return op.real(i, None if time_major else SWAPPED)


def one_step(op: Operation) -> ir.Value:
    """Operand 0, `batch c`, as a sequence of one. ONNX Runtime mishandles an Unsqueeze behind a DequantizeLinear."""
    op.require_rank(0, 2)
    return op.dequantize(0, unsqueeze(op, op.stored(0), [0]))


def paired(op: Operation, auxiliary: int, kernel: int, *, time_major: bool) -> tuple[ir.Value, ir.Value, bool]:
    """Return what the forward and the backward half read, and whether both read the auxiliary operand too.

    Without weights for it the auxiliary operand is what the backward half reads instead of the first.
    """
    x = sequence(op, 0, time_major=time_major)
    if not op.has(auxiliary):
        return x, x, False
    other = sequence(op, auxiliary, time_major=time_major)
    if op.has(kernel):
        both = joined(op, [x, other], 2)
        return both, both, True
    return x, other, False


def hand_over_both(op: Operation, forward: ir.Value, backward: ir.Value, *, merge: bool, time_major: bool) -> None:
    """The results of the two halves, side by side or each by itself."""
    perm = None if time_major else SWAPPED
    if merge:
        op.result(joined(op, [forward, backward], 2), perm=perm)
        return
    op.result(forward, 0, perm=perm)
    op.result(backward, 1, perm=perm)


def only_floats(op: Operation) -> None:
    """Refuse a quantized operand 0, for which there is no kernel."""
    if op.input(0).type != TensorType.FLOAT32:
        raise Unsupported(f"an operand of {op.input(0).type.name}")


def units_of(op: Operation, i: int) -> int:
    """Return how many rows a matrix of weights has."""
    op.require_rank(i, 2)
    units = dims(op.stored(i))[0]
    if not isinstance(units, int):
        raise op.damaged("the number of units is unknown")
    return units


# Nodes say of which builtin they are made, where ONNX has no operator for it.


def mark(
    op: Operation,  # the operator
    node: ir.Node | None,  # the node in the middle
    states: tuple[int, ...] = (),  # its operands that are variables
) -> None:
    """Write the description of an operator into the metadata of a node that it is made of."""
    tensors = op.tensors.subgraph.tensors
    used = [tensors[i] for i in (*op.operator.inputs, *op.operator.outputs, *op.operator.intermediates) if i >= 0]
    if node is None or op.tensors.dequantize or any(tensor.shifted for tensor in used):
        return
    nameless_states = [i for i in states if is_forgotten(op, i) or _is_set_once(op, i)]
    if not all(i in nameless_states or (op.input(i).is_variable and op.tensors.has_value(op.input(i))) for i in states):
        return
    description = _description(op, nameless_states)
    if len(description.intermediates) == len(op.operator.intermediates):
        node.metadata_props[BUILTIN] = description.dump()


def _description(op: Operation, nameless_states: list[int]) -> Builtin:
    """Describe an operator; a state in `nameless_states` has no name, since nothing is read from it."""
    inputs = [
        None if not op.has(i) else Operand.of(op.input(i), "" if i in nameless_states else op.stored(i).name or "")
        for i in range(len(op.operator.inputs))
    ]
    results = [op.output(i) for i in range(len(op.operator.outputs))]
    outputs = [Operand.of(tensor, op.tensors.names[tensor.index]) for tensor in results]
    between = [Operand.of(op.tensors.subgraph.tensors[i]) for i in op.operator.intermediates if i >= 0]
    return Builtin(op.operator.name, options_to_say(op), tuple(inputs), tuple(outputs), tuple(between))


def _is_set_once(op: Operation, i: int) -> bool:
    """Return whether a DEQUANTIZE of constant zeros writes a variable, which LiteRT runs in the first run only."""
    tensor = op.input(i)
    source = widened_from(op, tensor)
    once = tensor.is_variable and source is not tensor and op.program.choices.state == "zero" and not op.program.nested
    return once and not source.content.any()


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
        raise op.damaged(f"{filters} filters of rank {rank}")
    batch, units = dims(x)[0], filters // rank
    newest = op.emit("Gemm", [x, features], transB=1)
    mark(op, newest.producer(), (_STATE,))
    shape: Dims = (batch, filters * memory)
    first = start(op, _STATE, shape)
    # As the state can hold it: rounded to its scale, and no further than its type reaches.
    quantization = op.tensors.quantization(op.input(_STATE))
    stored = (
        newest
        if quantization is None
        else grid(op, newest, float(quantization.scale[0]), int(quantization.zero_point[0]), 16)
    )
    state = op.reshape(stored, (batch, filters, 1))
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


class _Operands(NamedTuple):
    """The numbers of the operands, by role."""

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
