"""LSTM, GRU and RNN, step by step.

The product with the inputs' weights is one for all steps. An LSTM that LiteRT's fused kernel computes is one operator
(`sequence_lstm.py`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor, known
from relayout.formats.tflite.exporting.loops import SCAN_WITHOUT_BATCHES
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.matrix import RoundedWeights, rounded_weights_of
from relayout.formats.tflite.exporting.operators.parameter_rows import select_rows
from relayout.formats.tflite.exporting.operators.recurrent_loop import LOOP, LoopStep, constant_behind, write_loop
from relayout.formats.tflite.exporting.operators.sequence_lstm import has_kernel, write_sequence_lstm
from relayout.formats.tflite.exporting.recurrent_operands import BIAS, KERNEL, PEEPHOLE, RECURRENT
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

MOST_STEPS = 1024
"""Steps up to which a sequence is written one by one."""
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
PARAMETERS = {
    "affine": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "elu": (1.0,),
}
"""Activations -> their alpha and beta where a node gives none."""
Activation = Callable[[DraftTensor], DraftTensor]
Results = tuple[DraftTensor | None, list[DraftTensor]]
"""The results of all steps, `length batch hidden`, where anybody reads them; the last states, `batch hidden` each."""


class Direction(NamedTuple):
    """One direction of a recurrent node.

    Args:
        op: the node.
        number: which direction.
        hidden: elements of the state.
        activations: functions of the gates.
        recurrent: weights of a state, `gates·hidden hidden`, if they are bytes; None: they are real numbers.
        bias: of the product with a state, `gates·hidden`; None: it is in the inputs' product.
        peepholes: `3·hidden`; None: there are none.
        weights: first row and number of rows -> these rows of real weights, once for all steps.
    """

    op: NodeExport
    number: int
    hidden: int
    activations: Sequence[Activation]
    recurrent: RoundedWeights | None
    bias: DraftTensor | None
    peepholes: DraftTensor | None
    weights: dict[tuple[int, int], DraftTensor]

    @property
    def gates(self) -> int:
        """How many gates there are."""
        return GATES[self.op.op_type]

    def split(self, tensor: DraftTensor, count: int) -> list[DraftTensor]:
        """Return the parts of a tensor for so many gates."""
        if count == 1:
            return [tensor]
        axis = self.op.ints(np.array(len(tensor.dims) - 1))
        kinds = [(tensor.type, (*tensor.dims[:-1], self.hidden))] * count
        return self.op.outputs("SPLIT", [axis, tensor], kinds, num_splits=count)

    def product(self, state: DraftTensor, begin: int = 0, count: int | None = None) -> DraftTensor:
        """Return the product of a state with the weights of some gates."""
        first, size = begin * self.hidden, (self.gates if count is None else count) * self.hidden
        if self.recurrent is not None:
            return self.recurrent.product(state, first, first + size, self.bias)
        if (first, size) not in self.weights:
            self.weights[first, size] = _rows(self.op, RECURRENT, self.number, first, size)
        inputs = [state, self.weights[first, size], *([] if self.bias is None else [self.bias])]
        return self.op.emit("FULLY_CONNECTED", inputs, (*state.dims[:-1], size))


@exporter("LSTM")
def lstm(op: NodeExport) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM; for other cells FULLY_CONNECTED, LOGISTIC and TANH for each step."""
    if has_kernel(op):
        write_sequence_lstm(op)
    else:
        _recurrent(op, _lstm_cell)


@exporter("GRU")
def gru(op: NodeExport) -> None:
    """FULLY_CONNECTED, LOGISTIC and TANH for each step."""
    _recurrent(op, _gru_cell)


@exporter("RNN")
def rnn(op: NodeExport) -> None:
    """FULLY_CONNECTED and TANH for each step."""
    _recurrent(op, _rnn_cell)


Cell = Callable[[Direction, DraftTensor, list[DraftTensor]], list[DraftTensor]]
"""The inputs' product and the states before -> the states after; the first is what the node gives."""


def _lstm_cell(cell: Direction, inputs: DraftTensor, states: list[DraftTensor]) -> list[DraftTensor]:
    op, (hidden, memory) = cell.op, states
    f, g, h = cell.activations
    total = op.add(inputs, cell.product(hidden))
    i, o, forget, c = cell.split(total, 4)
    peeps = None if cell.peepholes is None else cell.split(cell.peepholes, 3)
    if peeps is not None:
        i = op.add(i, op.mul(memory, peeps[0]))
        forget = op.add(forget, op.mul(memory, peeps[2]))
    enters = f(i)
    stays = op.sub(1.0, enters) if op.integer("input_forget") else f(forget)
    after = op.add(op.mul(stays, memory), op.mul(enters, g(c)))
    if peeps is not None:
        o = op.add(o, op.mul(after, peeps[1]))
    return [op.mul(f(o), h(after)), after]


def _gru_cell(cell: Direction, inputs: DraftTensor, states: list[DraftTensor]) -> list[DraftTensor]:
    op, (hidden,) = cell.op, states
    f, g = cell.activations
    of_inputs = cell.split(inputs, 3)
    resets_product = bool(op.integer("linear_before_reset"))
    of_state = cell.split(cell.product(hidden), 3) if resets_product else cell.split(cell.product(hidden, 0, 2), 2)
    z, r = (f(op.add(a, b)) for a, b in zip(of_inputs[:2], of_state[:2], strict=True))
    last = op.mul(r, of_state[2]) if resets_product else cell.product(op.mul(r, hidden), 2, 1)
    candidate = g(op.add(of_inputs[2], last))
    return [op.add(op.mul(op.sub(1.0, z), candidate), op.mul(z, hidden))]


def _rnn_cell(cell: Direction, inputs: DraftTensor, states: list[DraftTensor]) -> list[DraftTensor]:
    (hidden,) = states
    return [cell.activations[0](cell.op.add(inputs, cell.product(hidden)))]


def _recurrent(op: NodeExport, cell: Cell) -> None:
    batch_first = bool(op.integer("layout"))
    sequence = op.transpose(op.input(0), (1, 0, 2)) if batch_first else op.input(0)
    if op.version < SCAN_WITHOUT_BATCHES and not isinstance(sequence.dims[0], int):
        raise Unwritable(
            f"a sequence of open length in version {op.version} of ONNX's operators; "
            f"version {SCAN_WITHOUT_BATCHES} is the first in which it is a loop"
        )
    (length,) = known(sequence.dims[:1])
    if length > MOST_STEPS and not op.node.meta.get(LOOP):
        raise Unwritable(f"a sequence of more than {MOST_STEPS} steps")
    count = 2 if op.text("direction", "forward") == "bidirectional" else 1
    found = [_one_direction(op, sequence, number, cell) for number in range(count)]
    if op.gives(0):
        joined = op.stack([every for every, _ in found if every is not None], 1)  # length directions batch hidden
        op.give(op.transpose(joined, (2, 0, 1, 3)) if batch_first else joined, 0)
    for slot in range(1, 3):
        if op.gives(slot):
            last = op.stack([states[slot - 1] for _, states in found], 1 if batch_first else 0)
            op.give(last, slot)


def _one_direction(op: NodeExport, sequence: DraftTensor, number: int, cell: Cell) -> Results:
    backwards = number == 1 or op.text("direction", "forward") == "reverse"
    lengths = op.cast(op.input(4), TensorType.INT32) if op.has(4) else None
    if backwards:
        sequence = _reversed(op, sequence, lengths)
    direction = _direction(op, number)
    inputs = _inputs(op, sequence, direction)
    states = [
        _initial(op, slot, number, sequence, direction.hidden) for slot in ((5, 6) if op.op_type == "LSTM" else (5,))
    ]
    if op.node.meta.get(LOOP):
        body = LoopStep(lambda inside: partial(_step, _direction(inside, number), cell), is_listed=op.gives(0))
        every, states = write_loop(op, body, inputs, states, lengths)
    else:
        given = []
        for place, row in enumerate(_unpacked(op, inputs, known(inputs.dims[:1])[0])):
            result, states = _step(direction, cell, row, states, lengths, place)
            given.append(result)
        every = op.stack(given, 0) if given and op.gives(0) else None
    return (_reversed(op, every, lengths) if backwards and every is not None else every), states


def _step(
    direction: Direction,
    cell: Cell,
    row: DraftTensor,
    states: list[DraftTensor],
    lengths: DraftTensor | None,
    place: DraftTensor | int,
) -> tuple[DraftTensor, list[DraftTensor]]:
    """Write one step; return its result and the states after it.

    Args:
        direction: of the node.
        cell: what it computes.
        row: the product of its inputs and their weights, `batch gates·hidden`.
        states: before it, `batch hidden` each.
        lengths: how many steps each row of the batch has; None: all.
        place: the number of the step.
    """
    op, after = direction.op, cell(direction, row, states)
    if lengths is None:
        return after[0], after
    runs = op.compare("GREATER", op.reshape(lengths, (row.dims[0], 1)), place)
    kept = [op.select(runs, new, old) for new, old in zip(after, states, strict=True)]
    return op.select(runs, after[0], 0.0), kept


def _reversed(op: NodeExport, sequence: DraftTensor, lengths: DraftTensor | None) -> DraftTensor:
    if lengths is None:
        return op.emit("REVERSE_V2", [sequence, op.ints([0])], sequence.dims)
    return op.emit("REVERSE_SEQUENCE", [sequence, lengths], sequence.dims, seq_dim=0, batch_dim=1)


def _unpacked(op: NodeExport, tensor: DraftTensor, count: int) -> list[DraftTensor]:
    """Return what stands at each place of the first axis."""
    kinds = [(tensor.type, tensor.dims[1:])] * count
    return op.outputs("UNPACK", [tensor], kinds, num=count, axis=0)


def _part_of(op: NodeExport, slot: int, number: int) -> DraftTensor:
    """Return one direction's part of an operand."""
    return op.at(op.input(slot), 0, number)


def _bytes(op: NodeExport, slot: int) -> RoundedWeights | None:
    """Return the weights of one direction as bytes, where the products of a `.tflite` had them."""
    return None if op.op_type == "LSTM" else rounded_weights_of(op, slot)


def _rows(op: NodeExport, slot: int, number: int, begin: int, size: int) -> DraftTensor:
    """Return some rows of one direction's part of a parameter: a constant where the parameter is one."""
    value = constant_behind(op.value(slot))
    if value is not None and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return select_rows(value, number, begin, size).tensor(op, keeps_half=True)
    return op.part(_part_of(op, slot, number), 0, begin, size)


def _direction(op: NodeExport, number: int) -> Direction:
    _, rows, hidden = op.static(RECURRENT)
    has_own_bias = op.has(BIAS) and op.op_type == "GRU" and bool(op.integer("linear_before_reset"))
    bias = _rows(op, BIAS, number, rows, rows) if has_own_bias else None
    peepholes = _rows(op, PEEPHOLE, number, 0, 3 * hidden) if op.op_type == "LSTM" and op.has(PEEPHOLE) else None
    activations = _activations(op, number)
    return Direction(op, number, hidden, activations, _bytes(op, RECURRENT), bias, peepholes, {})


def _inputs(op: NodeExport, sequence: DraftTensor, direction: Direction) -> DraftTensor:
    """Return the product of all inputs with their weights, and the biases that are added to it."""
    length, batch, size = sequence.dims
    rows = direction.gates * direction.hidden
    count = length * batch if isinstance(length, int) and isinstance(batch, int) else f"?{op.name}.rows"
    flat, bias = op.reshape(sequence, (count, size)), None
    if op.has(BIAS):
        first, second = (_rows(op, BIAS, direction.number, begin, rows) for begin in (0, rows))
        bias = first if direction.bias is not None else op.add(first, second)
    if (whole := _bytes(op, KERNEL)) is not None:
        made = whole.product(flat, 0, rows, bias)
    else:
        weights = _rows(op, KERNEL, direction.number, 0, rows)
        made = op.emit("FULLY_CONNECTED", [flat, weights, *([] if bias is None else [bias])], (count, rows))
    return op.reshape(made, (length, batch, rows))


def _initial(op: NodeExport, slot: int, number: int, sequence: DraftTensor, hidden: int) -> DraftTensor:
    if not op.has(slot):
        return _zeros(op, sequence, hidden)
    if op.integer("layout"):
        return op.at(op.input(slot), 1, number)
    return _part_of(op, slot, number)


def _zeros(op: NodeExport, sequence: DraftTensor, hidden: int) -> DraftTensor:
    """Return a state of zeros; where the batch is open it has its extent from the sequence `time batch c`."""
    batch = sequence.dims[1]
    if isinstance(batch, int):
        return op.const(np.zeros((batch, hidden), np.float32), what="zeros")
    column = op.part(op.part(sequence, 0, 0, 1), 2, 0, 1)
    # ZEROS_LIKE and ADD, since FILL of a shape that is computed gives extents that are known only once it has run.
    zeros = op.emit("ZEROS_LIKE", [op.reshape(column, (batch, 1))], (batch, 1))
    return op.add(zeros, np.zeros((1, hidden), np.float32))


def _activations(op: NodeExport, number: int) -> list[Activation]:
    default = DEFAULTS[op.op_type]
    attribute = op.node.attributes.get("activations")
    names = [name.lower() for name in (attribute.as_strings() if attribute is not None else default * 2)] or default
    parameters = {0: iter(op.numbers("activation_alpha")), 1: iter(op.numbers("activation_beta"))}
    # Functions take numbers from both lists in order, those that have such a parameter.
    given = [[next(parameters[place], usual) for place, usual in enumerate(PARAMETERS.get(name, ()))] for name in names]
    count = len(default)
    here = slice(number * count, (number + 1) * count)
    clip = op.number("clip", 0.0)
    if clip < 0:
        raise Unwritable("activations that are clipped at less than 0")
    limits = [clip, clip, 0.0]  # the last one is given an LSTM's cell as it is
    rows = zip(names[here], given[here], limits, strict=False)
    return [_activation(op, name, numbers, limit) for name, numbers, limit in rows]


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
    return lambda x: function(op.maximum(op.minimum(x, clip), -clip))
