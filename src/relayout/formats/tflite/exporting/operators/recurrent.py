"""LSTM, GRU and RNN, step by step.

The product with the inputs' weights is one for all steps. An LSTM that LiteRT's fused kernel computes is one operator
(`sequence_lstm.py`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.loops import SCAN_WITHOUT_BATCHES
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.operators.rounded_products import Bytes, bytes_of
from relayout.formats.tflite.exporting.operators.sequence_lstm import first_states, has_kernel, write_sequence_lstm
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps

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


class Direction(NamedTuple):
    """One direction of a recurrent node.

    Args:
        steps: of the node.
        number: which direction.
        hidden: elements of the state.
        activations: functions of the gates.
        recurrent: `gates·hidden hidden`, as real numbers or bytes.
        bias: of the recurrent product, `gates·hidden`; None: it is in the inputs' already.
        peepholes: `3·hidden`; None: there are none.
    """

    steps: Steps
    number: int
    hidden: int
    activations: Sequence[Activation]
    recurrent: DraftTensor | Bytes
    bias: DraftTensor | None
    peepholes: DraftTensor | None

    def gate(self, tensor: DraftTensor, place: int) -> DraftTensor:
        """Return one gate's part of a tensor."""
        return self.steps.part(tensor, -1, place * self.hidden, self.hidden)

    def product(self, state: DraftTensor, begin: int = 0, count: int | None = None) -> DraftTensor:
        """Return the product of a state with the weights of some gates."""
        weights = self.recurrent
        if isinstance(weights, Bytes):
            first, rows = begin * self.hidden, weights.array.shape[0]
            return weights.product(state, first, rows if count is None else first + count * self.hidden)
        rows = known(weights.dims)[0]
        if count is not None:
            weights = self.steps.part(weights, 0, begin * self.hidden, count * self.hidden)
            rows = count * self.hidden
        return self.steps.op.emit("FULLY_CONNECTED", [state, weights], (*state.dims[:-1], rows))


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
    steps, (hidden, memory) = cell.steps, states
    f, g, h = cell.activations
    total = steps.add(inputs, cell.product(hidden))
    i, o, forget, c = (cell.gate(total, place) for place in range(4))
    if cell.peepholes is not None:
        i = steps.add(i, steps.mul(memory, cell.gate(cell.peepholes, 0)))
        forget = steps.add(forget, steps.mul(memory, cell.gate(cell.peepholes, 2)))
    enters = f(i)
    stays = steps.sub(1.0, enters) if steps.op.integer("input_forget") else f(forget)
    after = steps.add(steps.mul(stays, memory), steps.mul(enters, g(c)))
    if cell.peepholes is not None:
        o = steps.add(o, steps.mul(after, cell.gate(cell.peepholes, 1)))
    return [steps.mul(f(o), h(after)), after]


def _gru_cell(cell: Direction, inputs: DraftTensor, states: list[DraftTensor]) -> list[DraftTensor]:
    steps, (hidden,) = cell.steps, states
    f, g = cell.activations
    if steps.op.integer("linear_before_reset"):
        product = cell.product(hidden)
        z, r = (f(steps.add(cell.gate(inputs, place), cell.gate(product, place))) for place in (0, 1))
        last = cell.gate(product, 2)
        if cell.bias is not None:
            last = steps.add(last, cell.gate(cell.bias, 2))
        candidate = g(steps.add(cell.gate(inputs, 2), steps.mul(r, last)))
    else:
        product = cell.product(hidden, 0, 2)
        z, r = (f(steps.add(cell.gate(inputs, place), cell.gate(product, place))) for place in (0, 1))
        candidate = g(steps.add(cell.gate(inputs, 2), cell.product(steps.mul(r, hidden), 2, 1)))
    return [steps.add(steps.mul(steps.sub(1.0, z), candidate), steps.mul(z, hidden))]


def _rnn_cell(cell: Direction, inputs: DraftTensor, states: list[DraftTensor]) -> list[DraftTensor]:
    (hidden,) = states
    return [cell.activations[0](cell.steps.add(inputs, cell.product(hidden)))]


def _recurrent(op: NodeExport, cell: Cell) -> None:
    steps = Steps(op)
    batch_first = bool(op.integer("layout"))
    sequence = steps.transpose(op.input(0), (1, 0, 2)) if batch_first else op.input(0)
    if op.version < SCAN_WITHOUT_BATCHES and not isinstance(sequence.dims[0], int):
        raise Unwritable(
            f"a sequence of open length in version {op.version} of ONNX's operators; "
            f"version {SCAN_WITHOUT_BATCHES} is the first in which it is a loop"
        )
    (length,) = known(sequence.dims[:1])
    if length > MOST_STEPS:
        raise Unwritable(f"a sequence of more than {MOST_STEPS} steps")
    count = 2 if op.text("direction", "forward") == "bidirectional" else 1
    found = [_one_direction(steps, sequence, number, cell) for number in range(count)]
    every = [steps.stack([each[0][step] for each in found], 0) for step in range(length)] if op.gives(0) else []
    if every:
        joined = steps.stack(every, 0)  # length directions batch hidden
        steps.give(steps.transpose(joined, (2, 0, 1, 3)) if batch_first else joined, 0)
    for slot in range(1, 3):
        if op.gives(slot):
            last = steps.stack([each[1][slot - 1] for each in found], 1 if batch_first else 0)
            steps.give(last, slot)


def _one_direction(
    steps: Steps, sequence: DraftTensor, number: int, cell: Cell
) -> tuple[list[DraftTensor], list[DraftTensor]]:
    """Return what one direction gives at each step, and its states at the end."""
    op = steps.op
    backwards = number == 1 or op.text("direction", "forward") == "reverse"
    (length,) = known(sequence.dims[:1])
    lengths = steps.cast(op.input(4), TensorType.INT32) if op.has(4) else None
    if backwards:
        sequence = _reversed(steps, sequence, lengths)
    direction = _direction(steps, number)
    inputs = _inputs(steps, sequence, number, direction)
    pieces = _unpacked(steps, inputs, length)
    states = [
        _initial(steps, slot, number, sequence, direction.hidden) for slot in ((5, 6) if op.op_type == "LSTM" else (5,))
    ]
    given = []
    for step in range(length):
        after = cell(direction, pieces[step], states)
        result = after[0]
        if lengths is not None:
            runs = steps.compare("GREATER", steps.reshape(lengths, (sequence.dims[1], 1)), step)
            after = [steps.select(runs, new, old) for new, old in zip(after, states, strict=True)]
            result = steps.select(runs, result, 0.0)
        states = after
        given.append(result)
    if backwards and op.gives(0):
        if lengths is None:
            given.reverse()
        else:
            given = _unpacked(steps, _reversed(steps, steps.stack(given, 0), lengths), length)
    return given, states


def _reversed(steps: Steps, sequence: DraftTensor, lengths: DraftTensor | None) -> DraftTensor:
    if lengths is None:
        return steps.op.emit("REVERSE_V2", [sequence, steps.ints([0])], sequence.dims)
    return steps.op.emit("REVERSE_SEQUENCE", [sequence, lengths], sequence.dims, seq_dim=0, batch_dim=1)


def _unpacked(steps: Steps, tensor: DraftTensor, count: int) -> list[DraftTensor]:
    """Return what stands at each place of the first axis."""
    kinds = [(tensor.type, tensor.dims[1:])] * count
    return steps.outputs("UNPACK", [tensor], kinds, num=count, axis=0)


def _part_of(steps: Steps, slot: int, number: int) -> DraftTensor:
    """Return one direction's part of an operand."""
    return steps.at(steps.op.input(slot), 0, number)


def _matrix(steps: Steps, slot: int, number: int) -> DraftTensor | Bytes:
    """Return the weights of one direction: bytes, where the products of a `.tflite` had them."""
    found = None if steps.op.op_type == "LSTM" else bytes_of(steps.op, slot)
    return _part_of(steps, slot, number) if found is None else found


def _direction(steps: Steps, number: int) -> Direction:
    op = steps.op
    _, rows, hidden = op.static(2)
    kind = op.op_type
    bias = None
    if kind == "GRU" and op.has(3) and op.integer("linear_before_reset"):
        bias = steps.part(_part_of(steps, 3, number), 0, rows, rows)
    peepholes = _part_of(steps, 7, number) if kind == "LSTM" and op.has(7) else None
    recurrent = _matrix(steps, 2, number)
    return Direction(steps, number, hidden, _activations(steps, number), recurrent, bias, peepholes)


def _inputs(steps: Steps, sequence: DraftTensor, number: int, direction: Direction) -> DraftTensor:
    """Return the product of all inputs with their weights, and the biases that are added to it."""
    op = steps.op
    length, batch, size = sequence.dims
    weights = _matrix(steps, 1, number)
    rows = weights.array.shape[0] if isinstance(weights, Bytes) else known(weights.dims)[0]
    count = length * batch if isinstance(length, int) and isinstance(batch, int) else f"?{op.name}.rows"
    flat = steps.reshape(sequence, (count, size))
    bias = None
    if op.has(3):
        both = _part_of(steps, 3, number)
        first, second = steps.part(both, 0, 0, rows), steps.part(both, 0, rows, rows)
        if direction.bias is not None:  # of the last gate's recurrent product, before it is reset
            kept = (GATES[op.op_type] - 1) * direction.hidden
            second = steps.pad(steps.part(second, 0, 0, kept), [(0, rows - kept)])
        bias = steps.add(first, second)
    if isinstance(weights, Bytes):
        made = weights.product(flat, 0, rows, bias)
    else:
        made = op.emit("FULLY_CONNECTED", [flat, weights, *([] if bias is None else [bias])], (count, rows))
    return steps.reshape(made, (length, batch, rows))


def _initial(steps: Steps, slot: int, number: int, sequence: DraftTensor, hidden: int) -> DraftTensor:
    op = steps.op
    if not op.has(slot):
        return steps.at(first_states(steps, sequence, 0, 1, hidden), 0, 0)
    if op.integer("layout"):
        return steps.at(op.input(slot), 1, number)
    return _part_of(steps, slot, number)


def _activations(steps: Steps, number: int) -> list[Activation]:
    op = steps.op
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
    return [_activation(steps, name, numbers, limit) for name, numbers, limit in rows]


def _activation(steps: Steps, name: str, numbers: Sequence[float], clip: float) -> Activation:
    alpha, beta = (*numbers, 0.0, 0.0)[:2]
    known_names: dict[str, Activation] = {
        "affine": lambda x: steps.add(steps.mul(x, alpha), beta),
        "sigmoid": lambda x: steps.each("LOGISTIC", x),
        "tanh": lambda x: steps.each("TANH", x),
        "scaledtanh": lambda x: steps.mul(steps.each("TANH", steps.mul(x, beta)), alpha),
        "relu": lambda x: steps.each("RELU", x),
        "softsign": lambda x: steps.div(x, steps.add(steps.each("ABS", x), 1.0)),
        "hardsigmoid": lambda x: steps.each("RELU_0_TO_1", steps.add(steps.mul(x, alpha), beta)),
        "leakyrelu": lambda x: steps.op.emit("LEAKY_RELU", [x], x.dims, alpha=alpha),
    }
    if alpha == 1.0:
        known_names["elu"] = lambda x: steps.each("ELU", x)
    function = known_names.get(name)
    if function is None:
        raise Unwritable(f"the activation {name.capitalize()}" + " with parameters" * (name in PARAMETERS))
    if not clip:
        return function
    return lambda x: function(steps.maximum(steps.minimum(x, clip), -clip))
