"""LSTM on LiteRT's fused kernel: a UNIDIRECTIONAL_SEQUENCE_LSTM for each direction.

    h, c = UNPACK(zeros)                              the states, which are variables
    y = UNIDIRECTIONAL_SEQUENCE_LSTM(x, …, h, c)

The kernel keeps its states from run to run, and ONNX's LSTM begins each run anew. So UNPACK writes the initial states
into the variables in every run. An LSTM that was read from a `.tflite` says whether its states were kept there
(`STATES`); then nothing is written, and the file keeps them as its source does.

Of an open batch UNPACK also gives the variables their extents. LiteRT allocates variables together with the operators
before the first one whose extents it does not know until it has run. A SLICE of an open input is one of these already:
variables behind it would have the batch that the file states, and the kernel would write behind their end. So zeros
are made of an input of the file that has the batch, by GATHERs, before all other operators. So are states that are
inputs of the file. A batch that no input has, or of a body, and states that are computed are written step by step.

Both directions are two operators. BIDIRECTIONAL_SEQUENCE_LSTM computes the same and is not faster: it takes 1 to 5 %
longer for one sequence, and up to 40 % longer for eight. It comes from a `.tflite` alone.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.folding import SMALL as IN_SINGLE
from relayout.formats.tflite.container.enums import ActivationFunctionType, TensorType
from relayout.formats.tflite.container.model import TensorContent
from relayout.formats.tflite.exporting.constants import in_single
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.kernel_types import kernel_type
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.recurrent_loop import STEPS, time_axis
from relayout.formats.tflite.exporting.recurrent_operands import (
    BIAS,
    HIDDEN,
    KERNEL,
    LENGTHS,
    MEMORY,
    PEEPHOLE,
    RECURRENT,
    activations_of,
    directions_of,
    has_few_steps,
)
from relayout.formats.tflite.spelled_out import KEPT, STATES

# Rows of parameters that several gates and directions share: `direction row …`.

SMALL = 1 << 12  # elements up to which rows are held as an array


class ParameterRows(NamedTuple):
    """Some rows of a parameter."""

    value: ir.Value  # the value that holds them
    number: int  # the direction
    begin: int  # the first row
    size: int  # how many rows

    @property
    def constant(self) -> ir.TensorProtocol | None:
        """The constant that holds the rows; None where they are computed."""
        return None if self.value.is_graph_input() else self.value.const_value

    def array(self) -> NDArray[Any] | None:
        """Return rows that are constant."""
        constant = self.constant
        return None if constant is None else self._cut(constant)

    def _cut(self, constant: ir.TensorProtocol) -> NDArray[Any]:
        part: NDArray[Any] = constant.numpy()[self.number, self.begin : self.begin + self.size]
        return part

    def is_negated(self, other: "ParameterRows") -> bool:
        """Return whether these are the other rows with the other sign."""
        mine, theirs = self.array(), other.array()
        return mine is not None and theirs is not None and bool(np.array_equal(mine, -theirs))

    def tensor(self, op: NodeExport, *, negated: bool = False, keeps_half: bool = False) -> DraftTensor:
        """Return the rows as a tensor, with the other sign if asked for.

        Args:
            op: the node.
            negated: whether they have the other sign.
            keeps_half: whether constants in half precision stay so in the file.
        """
        constant = self.constant
        shape = self.value.shape
        assert shape is not None
        if constant is None:
            tensor = op.part(op.at(op.graph.tensor_of(self.value), 0, self.number), 0, self.begin, self.size)
            return op.each("NEG", tensor) if negated else tensor
        sign = -1 if negated else 1
        dims = (self.size, *(int(dim) for dim in shape.numpy()[2:]))
        is_half = keeps_half and constant.dtype == ir.DataType.FLOAT16
        if np.prod(dims) <= (IN_SINGLE if is_half else SMALL) or not (is_half or constant.dtype == ir.DataType.FLOAT):
            return op.const((sign * self._cut(constant)).astype(np.float32), what="rows")
        lazy = ir.LazyTensor(
            lambda: ir.Tensor(np.ascontiguousarray(sign * self._cut(constant))),
            dtype=constant.dtype,
            shape=ir.Shape(dims),
            name=self.value.name,
        )
        name = op.draft.unique(f"{self.value.name}/rows")
        if is_half:
            return in_single(op.draft, DraftTensor(name, TensorType.FLOAT16, dims, TensorContent(lazy)))
        return DraftTensor(name, kernel_type(self.value), dims, TensorContent(lazy))


INPUT, OUTPUT, FORGET, CELL = range(4)  # the gates, in ONNX's order
BUILTIN_ORDER = (INPUT, FORGET, CELL, OUTPUT)
PEEPING = (INPUT, FORGET, OUTPUT)
ACTIVATIONS = {"tanh": ActivationFunctionType.TANH, "relu": ActivationFunctionType.RELU}


class Gate(NamedTuple):
    """The parameters of one gate in one direction; None for a peephole that is none."""

    kernel: ParameterRows
    recurrent: ParameterRows
    biases: tuple[ParameterRows, ...]
    peephole: ParameterRows | None

    def is_negated(self, other: "Gate") -> bool:
        """Return whether the gate's sums are those of another one with the other sign, so that both add up to 1."""
        mine = (self.kernel, self.recurrent, self.peephole)
        theirs = (other.kernel, other.recurrent, other.peephole)
        if not all(a is None or (b is not None and a.is_negated(b)) for a, b in zip(mine, theirs, strict=True)):
            return False
        sum_of_mine, sum_of_theirs = total(self.biases), total(other.biases)
        return sum_of_mine is not None and sum_of_theirs is not None and np.array_equal(sum_of_mine, -sum_of_theirs)


def total(biases: Sequence[ParameterRows]) -> NDArray[Any] | None:
    """Return the sum of biases that are constants; None where one is computed."""
    arrays = [bias.array() for bias in biases]
    bias_sum: NDArray[Any] = np.zeros(biases[0].size if biases else 0, np.float32)
    for array in arrays:
        if array is None:
            return None
        bias_sum = bias_sum + array
    return bias_sum


def has_kernel(op: NodeExport) -> bool:
    """Return whether LiteRT's fused kernel computes an LSTM, and the target has it."""
    dims = op.dims(0)
    length, batch = dims[time_axis(op)], dims[1 - time_axis(op)]
    by_steps = isinstance(length, int) if op.graph.runtime.for_integers else op.node.meta.get(STEPS)
    if by_steps or not op.graph.runtime.has_lstm or (op.graph.runtime.unrolls and has_few_steps(op.node)):
        return False
    has_extents = isinstance(dims[2], int) and length != 0
    has_batch = isinstance(batch, int)
    if not has_batch and input_with(op, batch) is not None:  # it begins with zeros or with inputs of the file
        states = [slot for slot in (HIDDEN, MEMORY) if op.has(slot) and not _is_zero(op.constant(slot))]
        has_batch = all(op.input(slot) in op.draft.inputs for slot in states)
    return has_extents and has_batch and has_activations(op.node) and op.input(0).type == TensorType.FLOAT32


def input_with(op: NodeExport, extent: int | str) -> DraftTensor | None:
    """Return an input of the file that has an open extent; None for a node of a body, and if no input has it."""
    if op.draft is not op.graph.program[0]:
        return None
    inputs = (each for each in op.draft.inputs if extent in each.dims and each.type != TensorType.STRING)
    return min(inputs, key=lambda each: len(each.dims), default=None)


def has_activations(node: ir.Node) -> bool:
    """Return whether the fused kernel has a node's activations, for whatever shapes."""
    attributes = node.attributes
    if attributes.get_float("clip", 0.0) or attributes.get("activation_alpha") or attributes.get("activation_beta"):
        return False
    has_lengths = len(node.inputs) > LENGTHS and node.inputs[LENGTHS] is not None
    return not has_lengths and all(_activation(node, number) is not None for number in range(directions_of(node)))


def write_sequence_lstm(op: NodeExport) -> None:
    """Write an LSTM on the fused kernel."""
    count = directions_of(op.node)
    states = _states(op, count)
    runs = [_one_direction(op, number, states[number]) for number in range(count)]
    if op.gives(0):
        axis = 2 if op.integer("layout") else 1
        every = [reversed_steps(op, y) if is_backward(op, number) else y for number, y in enumerate(runs)]
        op.give(op.stack(every, axis), 0)
    lasts = [_last(op, y) for y in runs] if op.gives(1) or op.gives(2) else []
    for slot in (1, 2):
        if op.gives(slot):
            ends = lasts
            if slot == 2:
                # A runtime may run what reads a variable alone before the kernel: the last result stands beside it.
                units = op.static(RECURRENT)[2]
                pairs = zip(lasts, states, strict=True)
                ends = [op.part(op.concat([last, cell], 1), 1, units, units) for last, (_, cell) in pairs]
            op.give(op.stack(ends, 1 if op.integer("layout") else 0), slot)


def _activation(node: ir.Node, number: int) -> ActivationFunctionType | None:
    """Return the activation of the candidate and of the cell; None where the kernel lacks one of the three."""
    gate, candidate, cell = (name for name, _ in activations_of(node, number))
    return ACTIVATIONS.get(cell) if gate == "sigmoid" and candidate == cell else None


def _states(op: NodeExport, count: int) -> list[list[DraftTensor]]:
    """Return the variables of each direction: hidden state and cell, with what they begin with written into them."""
    batch, units = op.dims(0)[1 - time_axis(op)], op.static(RECURRENT)[2]
    state = f"{op.name}/state", TensorType.FLOAT32, (batch, units)
    states = [[op.draft.tensor(*state) for _ in range(2)] for _ in range(count)]
    for tensor in chain(*states):
        tensor.variable = True
    axis = 1 if op.integer("layout") else 0
    anew, computed = [], []
    for place, slot in enumerate((HIDDEN, MEMORY)):
        variables = [each[place] for each in states]
        if not op.has(slot) or _is_zero(op.constant(slot)):
            anew += variables
        else:
            computed.append((slot, variables))
    draft, before = op.draft, len(op.draft.operators)
    if anew and not (isinstance(batch, int) and op.node.metadata_props.get(STATES) == KEPT):
        draft.add("UNPACK", [_zeros(op, batch, len(anew), units)], anew, num=len(anew), axis=0)
    for slot, variables in computed:
        draft.add("UNPACK", [op.input(slot)], variables, num=count, axis=axis)
    if not isinstance(batch, int):
        draft.leading += draft.operators[before:]
        del draft.operators[before:]
    return states


def _zeros(op: NodeExport, batch: int | str, count: int, units: int) -> DraftTensor:
    """Return zeros `count batch units`; an open batch has its extent from an input of the file."""
    if isinstance(batch, int):
        return op.const(np.zeros((count, batch, units), np.float32), what="zeros")
    source = input_with(op, batch)
    assert source is not None
    place, column = source.dims.index(batch), source
    for axis in range(len(source.dims)):
        if axis != place:
            column = op.gather(column, op.ints([0]), axis)
    column = op.reshape(op.cast(column, TensorType.FLOAT32), (1, batch, 1))
    return op.add(op.emit("ZEROS_LIKE", [column], column.dims), np.zeros((count, 1, units), np.float32))


def _is_zero(array: NDArray[Any] | None) -> bool:
    return array is not None and not array.any()


def is_backward(op: NodeExport, number: int) -> bool:
    """Return whether a direction of a recurrent node reads the last step first."""
    return number == 1 or op.text("direction", "forward") == "reverse"


def _one_direction(op: NodeExport, number: int, states: Sequence[DraftTensor]) -> DraftTensor:
    """Return what one direction gives at each step, in the order in which it runs."""
    x = reversed_steps(op, op.input(0)) if is_backward(op, number) else op.input(0)
    return op.emit(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [x, *_parameters(op, number), None, None, *states, None, None, None, None],
        (*x.dims[:2], states[0].dims[1]),
        fused_activation_function=_activation(op.node, number),
        time_major=not time_axis(op),
    )


def reversed_steps(op: NodeExport, sequence: DraftTensor, lengths: DraftTensor | None = None) -> DraftTensor:
    """Return sequences with their steps in the opposite order; None: all are as long as the axis of time."""
    time = time_axis(op)
    if lengths is None:
        return op.emit("REVERSE_V2", [sequence, op.ints([time])], sequence.dims)
    return op.emit("REVERSE_SEQUENCE", [sequence, lengths], sequence.dims, seq_dim=time, batch_dim=1 - time)


def _last(op: NodeExport, y: DraftTensor) -> DraftTensor:
    """Return what the last step gives."""
    axis = time_axis(op)
    length = op.extent(y, axis)
    if isinstance(length, DraftTensor):
        return op.at(op.gather(y, op.reshape(op.sub(length, 1), (1,)), axis), axis, 0)
    return op.at(y, axis, int(length) - 1)


def _parameters(op: NodeExport, number: int) -> list[DraftTensor | None]:
    """Return the operands between the sequence and the projection, of one direction."""
    gates = [_gate(op, number, gate) for gate in range(4)]
    coupled = bool(op.integer("input_forget"))
    if coupled:
        gates[FORGET] = gates[INPUT]
    left_out = {INPUT} if coupled or gates[INPUT].is_negated(gates[FORGET]) else set()

    def tensor(rows: ParameterRows, gate: int) -> DraftTensor:
        return rows.tensor(op, negated=coupled and gate == FORGET)

    def bias(gate: int) -> DraftTensor:
        biases = gates[gate].biases
        array = total(biases)
        sign = -1 if coupled and gate == FORGET else 1
        if array is not None:
            return op.const((sign * (array if biases else np.zeros(units))).astype(np.float32))
        return op.add(*(tensor(rows, gate) for rows in biases))

    units = op.static(RECURRENT)[2]
    read: list[tuple[ParameterRows | None, int]] = [(gates[gate].kernel, gate) for gate in BUILTIN_ORDER]
    read += [(gates[gate].recurrent, gate) for gate in BUILTIN_ORDER]
    read += [(gates[gate].peephole, gate) for gate in PEEPING]
    result = [None if rows is None or gate in left_out else tensor(rows, gate) for rows, gate in read]
    return result + [None if gate in left_out else bias(gate) for gate in BUILTIN_ORDER]


def _gate(op: NodeExport, number: int, gate: int) -> Gate:
    units = op.static(RECURRENT)[2]

    def rows(slot: int, place: int) -> ParameterRows:
        return ParameterRows(op.value(slot), number, place * units, units)

    biases = (rows(BIAS, gate), rows(BIAS, 4 + gate)) if op.has(BIAS) else ()
    peephole = rows(PEEPHOLE, gate) if op.has(PEEPHOLE) and gate != CELL else None
    return Gate(rows(KERNEL, gate), rows(RECURRENT, gate), biases, peephole)
