"""LSTM, GRU and RNN, step by step.

The product with the inputs' weights is one for all steps. Gates with one activation are one tensor. Many steps are a
loop (`recurrent_loop.py`). For another runtime than LiteRT's CPU an LSTM is one operator (`sequence_lstm.py`), whose
kernel takes longer.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.matrix import RoundedWeights, rounded_weights_of
from relayout.formats.tflite.exporting.operators.recurrent_loop import (
    LOOP,
    MOST_STEPS,
    LoopStep,
    Step,
    constant_behind,
    time_axis,
    write_loop,
    write_steps,
)
from relayout.formats.tflite.exporting.operators.sequence_lstm import (
    ParameterRows,
    has_kernel,
    is_backward,
    reversed_steps,
    write_sequence_lstm,
)
from relayout.formats.tflite.exporting.recurrent_operands import (
    BIAS,
    GATES,
    KERNEL,
    LENGTHS,
    PARAMETERS,
    PEEPHOLE,
    RECURRENT,
    activations_of,
    directions_of,
    misfit_of,
)
from relayout.formats.tflite.exporting.registry import Unwritable, each_exporter

Activation = Callable[[DraftTensor], DraftTensor]
Results = tuple[DraftTensor | None, list[DraftTensor]]
"""The results of all steps, as the inputs lie, where anybody reads them; the last states, `batch hidden` each."""


class Gates(NamedTuple):
    """Gates of a recurrent node that one activation takes as one tensor, `number·hidden` rows of its parameters."""

    first: int
    number: int


SIGMOID_TANH = (Gates(0, 3), Gates(3, 1))  # the gates of an LSTM by their activations


class Direction(NamedTuple):
    """One direction of a recurrent node."""

    op: NodeExport  # the node
    number: int  # which direction
    hidden: int  # elements of the state
    activations: Sequence[Activation]  # functions of the gates
    # weights of a state, `gates·hidden hidden`, if they are bytes; None: they are real numbers
    recurrent: RoundedWeights | None
    has_bias: bool  # whether the product with a state has a bias of its own; if not, it is in the inputs' product
    peepholes: DraftTensor | None  # `3·hidden`; None: there are none
    # operand, first row and number of rows -> these rows, once for all steps
    parameters: dict[tuple[int, int, int], DraftTensor]

    @property
    def gates(self) -> tuple[Gates, ...]:
        """The gates of a step, in ONNX's order. A forget gate that follows from the input gate is none."""
        if self.op.op_type == "LSTM":
            read = 2 if self.op.integer("input_forget") else 3
            is_whole = self.peepholes is not None or (self.op.graph.runtime.for_integers and read == 3)
            return (Gates(0, 4),) if is_whole else (Gates(0, read), SIGMOID_TANH[1])
        return (Gates(0, 2), Gates(2, 1)) if self.op.op_type == "GRU" else (Gates(0, 1),)

    def split(self, tensor: DraftTensor, count: int) -> list[DraftTensor]:
        """Return the parts of a tensor for so many gates."""
        axis = self.op.ints(np.array(len(tensor.dims) - 1))
        kinds = [(tensor.type, (*tensor.dims[:-1], self.hidden))] * count
        return self.op.outputs("SPLIT", [axis, tensor], kinds, num_splits=count)

    def rows(self, slot: int, first: int, size: int) -> DraftTensor:
        """Return some rows of a parameter."""
        if (slot, first, size) not in self.parameters:
            self.parameters[slot, first, size] = _rows(self.op, slot, self.number, first, size)
        return self.parameters[slot, first, size]

    def product(self, state: DraftTensor, gates: Gates) -> DraftTensor:
        """Return the product of a state, `batch hidden`, with the weights of some gates, `batch number·hidden`.

        That of a constant state is a constant: a quantizer takes the state for weights, and no kernel multiplies those.
        """
        first, size = gates.first * self.hidden, gates.number * self.hidden
        bias = self.rows(BIAS, GATES[self.op.op_type] * self.hidden + first, size) if self.has_bias else None
        constant = self._constant_product(state, first, size)
        if constant is not None:
            return constant if bias is None else self.op.add(constant, bias)
        if self.recurrent is not None:
            return self.recurrent.product(state, first, first + size, bias)
        return self.op.fully_connected(state, self.rows(RECURRENT, first, size), bias)

    def _constant_product(self, state: DraftTensor, first: int, size: int) -> DraftTensor | None:
        """Return the product of a constant state with constant weights; None of any other."""
        array = self.op.constant_array(state)
        if array is None:
            return None
        product = np.zeros((len(array), size), np.float32)
        if array.any():
            value = constant_behind(self.op.value(RECURRENT))
            if value is None or value.const_value is None:
                return None
            product += array @ value.const_value.numpy()[self.number, first : first + size].astype(np.float32).T
        return self.op.const(product)

    def total(self, inputs: Sequence[DraftTensor], state: DraftTensor, place: int) -> DraftTensor:
        """Return what an activation takes: the products of a step's inputs and of a state."""
        return self.added(inputs[place], self.product(state, self.gates[place]))

    def gates_and_candidate(self, inputs: Sequence[DraftTensor], state: DraftTensor) -> list[DraftTensor]:
        """Return the totals of an LSTM's gates and of its candidate: of integers one product takes less time."""
        totals = [self.total(inputs, state, place) for place in range(len(self.gates))]
        if len(totals) > 1:
            return totals
        return [
            self.op.part(totals[0], 1, gate.first * self.hidden, gate.number * self.hidden) for gate in SIGMOID_TANH
        ]

    def added(self, first: DraftTensor, second: DraftTensor) -> DraftTensor:
        """Return a sum: the other operand where one is nothing."""
        if self._is_nothing(second):
            return first
        return second if self._is_nothing(first) else self.op.add(first, second)

    def scaled(self, gate: DraftTensor, state: DraftTensor) -> DraftTensor:
        """Return the product of a gate and a state: nothing where the state is nothing."""
        return state if self._is_nothing(state) else self.op.mul(gate, state)

    def _is_nothing(self, tensor: DraftTensor) -> bool:
        """Return whether a tensor is constant zeros before a quantizer, which gives them a scale that kernels lack."""
        array = self.op.constant_array(tensor) if self.op.graph.runtime.for_integers else None
        return array is not None and not array.any()


Cell = Callable[[Direction, Sequence[DraftTensor], list[DraftTensor]], list[DraftTensor]]
"""The inputs' products and the states before -> the states after; the first is what the node gives."""


def _lstm_cell(cell: Direction, inputs: Sequence[DraftTensor], states: list[DraftTensor]) -> list[DraftTensor]:
    op, (hidden, memory) = cell.op, states
    f, g, h = cell.activations
    if cell.peepholes is None:
        gates, candidate = cell.gates_and_candidate(inputs, hidden)
        enters, gives, *rest = cell.split(f(gates), 2 if op.integer("input_forget") else 3)
        candidate = g(candidate)
    else:
        i, o, forget, c = cell.split(cell.total(inputs, hidden, 0), 4)
        for_i, for_o, for_forget = cell.split(cell.peepholes, 3)
        enters, candidate = f(op.add(i, op.mul(memory, for_i))), g(c)
        rest = [] if op.integer("input_forget") else [f(op.add(forget, op.mul(memory, for_forget)))]
    stays = rest[0] if rest else op.sub(1.0, enters)
    after = cell.added(cell.scaled(stays, memory), op.mul(enters, candidate))
    if cell.peepholes is not None:
        gives = f(op.add(o, op.mul(after, for_o)))
    return [op.mul(gives, h(after)), after]


def _gru_cell(cell: Direction, inputs: Sequence[DraftTensor], states: list[DraftTensor]) -> list[DraftTensor]:
    """Write `candidate + z (hidden - candidate)`, or for integers `(1 - z) candidate + z hidden`.

    The first takes less time. On integers it loses 8 dB more.
    """
    op, (hidden,) = cell.op, states
    f, g = cell.activations
    z, r = cell.split(f(cell.total(inputs, hidden, 0)), 2)
    if op.integer("linear_before_reset"):
        last = op.mul(r, cell.product(hidden, cell.gates[1]))
    else:
        last = cell.product(cell.scaled(r, hidden), cell.gates[1])
    candidate = g(cell.added(inputs[1], last))
    if op.graph.runtime.for_integers:
        return [cell.added(op.mul(op.sub(1.0, z), candidate), cell.scaled(z, hidden))]
    return [op.add(candidate, op.mul(z, op.sub(hidden, candidate)))]


CELLS: Mapping[str, tuple[str, Cell]] = {  # operator -> what it becomes, what computes a step
    "GRU": ("FULLY_CONNECTED, LOGISTIC and TANH for each step.", _gru_cell),
    "LSTM": ("FULLY_CONNECTED, LOGISTIC and TANH for each step, or UNIDIRECTIONAL_SEQUENCE_LSTM.", _lstm_cell),
    "RNN": (
        "FULLY_CONNECTED and TANH for each step.",
        lambda cell, inputs, states: [cell.activations[0](cell.total(inputs, states[0], 0))],
    ),
}


@each_exporter(CELLS, "{[0]}")
def _recurrent(op: NodeExport, row: tuple[str, Cell]) -> None:
    if misfit := misfit_of(op.node):
        raise Unwritable(misfit)
    if op.op_type == "LSTM" and has_kernel(op):
        write_sequence_lstm(op)
        return
    sequence, time = op.input(0), time_axis(op)
    if not _is_looped(op) and known(sequence.dims[time : time + 1])[0] > MOST_STEPS:
        raise Unwritable(f"a sequence of more than {MOST_STEPS} steps")
    runs = [_one_direction(op, sequence, number, row[1]) for number in range(directions_of(op.node))]
    if op.gives(0):
        op.give(op.stack([every for every, _ in runs if every is not None], 1 + time), 0)
    for slot in range(1, 3):
        if op.gives(slot):
            op.give(op.stack([states[slot - 1] for _, states in runs], time), slot)


def _is_looped(op: NodeExport) -> bool:
    is_open = not isinstance(op.dims(0)[time_axis(op)], int)
    return bool(op.node.meta.get(LOOP)) and (is_open or not op.graph.runtime.for_integers)


def _one_direction(op: NodeExport, sequence: DraftTensor, number: int, cell: Cell) -> Results:
    backwards = is_backward(op, number)
    lengths = op.cast(op.input(LENGTHS), TensorType.INT32) if op.has(LENGTHS) else None
    if backwards:
        sequence = reversed_steps(op, sequence, lengths)
    direction = _direction(op, number)
    inputs = _inputs(op, sequence, direction)
    states = [
        _initial(op, slot, number, sequence, direction.hidden) for slot in ((5, 6) if op.op_type == "LSTM" else (5,))
    ]

    def step(inside: NodeExport) -> Step:
        return partial(_step, direction if inside is op else _direction(inside, number), cell)

    write = write_loop if _is_looped(op) else write_steps
    every, states = write(op, LoopStep(step, is_listed=op.gives(0)), inputs, states, lengths)
    return (reversed_steps(op, every, lengths) if backwards and every is not None else every), states


def _step(
    direction: Direction,  # of the node
    cell: Cell,  # what it computes
    rows: Sequence[DraftTensor],  # the products of its inputs and their weights, `batch number·hidden` each
    states: list[DraftTensor],  # before it, `batch hidden` each
    lengths: DraftTensor | None,  # how many steps each row of the batch has; None: all
    place: DraftTensor | int,  # the number of the step
) -> tuple[DraftTensor, list[DraftTensor]]:
    """Write one step; return its result and the states after it."""
    op, after = direction.op, cell(direction, rows, states)
    if lengths is None:
        return after[0], after
    runs = op.compare("GREATER", op.reshape(lengths, (rows[0].dims[0], 1)), place)
    new_states = [op.select(runs, new, old) for new, old in zip(after, states, strict=True)]
    return op.select(runs, after[0], 0.0), new_states


def _bytes(op: NodeExport, slot: int) -> RoundedWeights | None:
    """Return the weights of one direction as bytes, where the products of a `.tflite` had them."""
    return None if op.op_type == "LSTM" else rounded_weights_of(op, slot)


def _rows(op: NodeExport, slot: int, number: int, begin: int, size: int) -> DraftTensor:
    """Return some rows of one direction's part of a parameter: a constant where the parameter is one."""
    value = constant_behind(op.value(slot))
    if value is not None and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return ParameterRows(value, number, begin, size).tensor(op, keeps_half=True)
    return op.part(op.at(op.input(slot), 0, number), 0, begin, size)


def _direction(op: NodeExport, number: int) -> Direction:
    _, _, hidden = op.static(RECURRENT)
    has_bias = op.has(BIAS) and op.op_type == "GRU" and bool(op.integer("linear_before_reset"))
    peepholes = _rows(op, PEEPHOLE, number, 0, 3 * hidden) if op.op_type == "LSTM" and op.has(PEEPHOLE) else None
    clip = op.number("clip", 0.0)
    if clip < 0:
        raise Unwritable("activations that are clipped at less than 0")
    limits = [clip, clip, 0.0]  # the last one is given an LSTM's cell as it is
    rows = zip(activations_of(op.node, number), limits, strict=False)
    activations = [_activation(op, name, numbers, limit) for (name, numbers), limit in rows]
    return Direction(op, number, hidden, activations, _bytes(op, RECURRENT), has_bias, peepholes, {})


def _inputs(op: NodeExport, sequence: DraftTensor, direction: Direction) -> list[DraftTensor]:
    """Return the products of all inputs with the weights of each activation's gates, and the biases added to them."""
    *steps, size = sequence.dims
    whole, products = _bytes(op, KERNEL), list[DraftTensor]()
    is_known = all(isinstance(each, int) for each in steps)
    count = op.elements(tuple(steps), "rows")
    # XNNPACK may leave out the copy that a RESHAPE of an input is, once tensors and its workspace have moved: their new
    # addresses may be old ones (LiteRT 2.3). They move where extents are known only once a loop has run.
    is_flat = whole is not None or is_known
    flat = op.reshape(sequence, (count, size)) if is_flat else sequence
    for gates in direction.gates:
        first, rows, bias = gates.first * direction.hidden, gates.number * direction.hidden, None
        if op.has(BIAS):
            bias = direction.rows(BIAS, first, rows)
            if not direction.has_bias:
                bias = op.add(bias, direction.rows(BIAS, GATES[op.op_type] * direction.hidden + first, rows))
        if whole is not None:
            product = whole.product(flat, first, first + rows, bias)
        else:
            product = op.fully_connected(flat, direction.rows(KERNEL, first, rows), bias)
        products.append(op.reshape(product, (*steps, rows), sequence))
    return products


def _initial(op: NodeExport, slot: int, number: int, sequence: DraftTensor, hidden: int) -> DraftTensor:
    """Return a state before the first step, `batch hidden`.

    A row that is over keeps its states. One without steps begins with zeros, which runtimes of ONNX give as its last
    states; the standard says nothing of it.
    """
    if not op.has(slot):
        return _zeros(op, sequence, hidden)
    state, lengths = op.at(op.input(slot), 1 if op.integer("layout") else 0, number), op.constant(LENGTHS)
    if not op.has(LENGTHS) or (lengths is not None and (lengths > 0).all()):
        return state
    has_steps = op.cast(op.cast(op.input(LENGTHS), TensorType.BOOL), state.type)
    return op.mul(state, op.reshape(has_steps, (state.dims[0], 1)))


def _zeros(op: NodeExport, sequence: DraftTensor, hidden: int) -> DraftTensor:
    """Return a state of zeros; where the batch is open it has its extent from the sequence."""
    time = time_axis(op)
    batch = sequence.dims[1 - time]
    if isinstance(batch, int):
        return op.const(np.zeros((batch, hidden), np.float32), what="zeros")
    column = op.part(op.part(sequence, time, 0, 1), 2, 0, 1)
    # ZEROS_LIKE and ADD, since FILL of a shape that is computed gives extents that are known only once it has run.
    zeros = op.emit("ZEROS_LIKE", [op.reshape(column, (batch, 1))], (batch, 1))
    return op.add(zeros, np.zeros((1, hidden), np.float32))


def _activation(op: NodeExport, name: str, numbers: Sequence[float], clip: float) -> Activation:
    alpha, beta = (*numbers, 0.0, 0.0)[:2]
    known_names: dict[str, Activation] = {
        "affine": lambda x: op.add(op.mul(x, alpha), beta),
        "sigmoid": lambda x: op.each("LOGISTIC", x),
        "tanh": lambda x: op.each("TANH", x),
        "scaledtanh": lambda x: op.mul(op.each("TANH", op.mul(x, beta)), alpha),
        "relu": lambda x: op.each("RELU", x),
        "softsign": lambda x: op.div(x, op.add(op.each("ABS", x), 1.0)),
        "hardsigmoid": lambda x: op.each("RELU_0_TO_1", op.add(op.mul(x, alpha), beta)),
        "leakyrelu": lambda x: op.emit("LEAKY_RELU", [x], x.dims, alpha=alpha),
    }
    if alpha == 1.0:
        known_names["elu"] = lambda x: op.each("ELU", x)
    function = known_names.get(name)
    if function is None:
        raise Unwritable(f"the activation {name.capitalize()}" + " with parameters" * (name in PARAMETERS))
    if not clip:
        return function
    return lambda x: function(op.clamp(x, -clip, clip))
