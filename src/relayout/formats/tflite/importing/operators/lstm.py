"""Long short-term memory, in all of TFLite's kinds."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import ActivationFunctionType, TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.importing.activation import clip
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.operators import recurrent
from relayout.formats.tflite.importing.operators.convolution import weights
from relayout.formats.tflite.importing.operators.shape import CELL, FORGET, INPUT, OUTPUT, Unlimited
from relayout.formats.tflite.importing.operators.slicing import divided, joined, squeeze
from relayout.formats.tflite.importing.registry import Unsupported, operator

_LAYER_NORM_FLOOR = 1e-8
_NORMALIZED_STEP = 2**-10  # of the integers that a gate's normalized sums are, before the weights of the normalization
_STAGES = (0, 3, 1, 2)  # the file lists the scales of intermediate results in the order input, forget, cell, output
_HIDDEN = 4  # the intermediate result after these: the output before its projection


class Operands(NamedTuple):
    """The numbers of the operands, by role; four in a row belong to the gates INPUT, OUTPUT, FORGET, CELL."""

    kernels: tuple[int, ...] = (1, 4, 2, 3)
    recurrent: tuple[int, ...] = (5, 8, 6, 7)
    peepholes: tuple[int, ...] = (9, 11, 10)
    biases: tuple[int, ...] = (12, 15, 13, 14)
    projection: tuple[int, int] = (16, 17)
    states: tuple[int, int] = (18, 19)
    norms: tuple[int, ...] = (20, 23, 21, 22)
    auxiliary: tuple[int, ...] = ()


KERNELS = Operands().kernels
FORWARD = Operands(states=(35, 36), norms=(), auxiliary=(40, 43, 41, 42))
BACKWARD = Operands(
    kernels=(18, 21, 19, 20),
    recurrent=(22, 25, 23, 24),
    peepholes=(26, 28, 27),
    biases=(29, 32, 30, 31),
    projection=(33, 34),
    states=(37, 38),
    norms=(),
    auxiliary=(44, 47, 45, 46),
)


class Lstm:
    """One direction of an LSTM."""

    def __init__(self, op: Operation, which: Operands, *, auxiliary: bool = False, reverse: bool = False) -> None:
        self.op, self.which, self.reverse = op, which, reverse
        self.fused = op.options.fused_activation_function
        if self.fused == ActivationFunctionType.NONE:
            raise Unsupported("a cell without activation, for which the runtime reads what it never wrote")
        self.units = recurrent.units_of(op, which.kernels[FORGET])
        self.coupled = not op.has(which.kernels[INPUT])
        self.normalized = bool(which.norms) and op.has(which.norms[FORGET])
        self.projected = op.has(which.projection[0])
        self.peeping = op.has(which.peepholes[OUTPUT])
        self.state = op.input(which.states[0]).quantization
        self.quantized = self.state is not None and not op.tensors.dequantize
        if self.state is not None and op.input(which.states[1]).type != TensorType.INT16:
            raise Unsupported("a cell state of 8 bits, for which there is no sound kernel")
        self.kernels = kernels = self._kernels(auxiliary)
        self.gates = [gate for gate, kernel in enumerate(kernels) if kernel is not None]
        self.recurrences: ir.Value | None = None
        self.recurrent = [None if k is None else weights(op, which.recurrent[g], 0) for g, k in enumerate(kernels)]
        for gate in self.gates:
            op.input(which.biases[gate])  # LiteRT crashes without
        self.biases = [
            None if k is None else op.bias(which.biases[g], *self._factors(g)) for g, k in enumerate(kernels)
        ]
        self.peepholes = [
            weights(op, i, 0) if self.peeping and not (self.coupled and g == INPUT) else None
            for g, i in enumerate(which.peepholes)
        ]

    def _kernels(self, auxiliary: bool) -> list[ir.Value | None]:
        """The weights of each gate, beside them those of an auxiliary operand; None of a gate that is coupled."""
        op, which = self.op, self.which
        kernels = [None if self.coupled and g == INPUT else weights(op, i, 0) for g, i in enumerate(which.kernels)]
        if not auxiliary:
            return kernels
        return [
            None if k is None else joined(op, [k, weights(op, which.auxiliary[g], 0)], 1) for g, k in enumerate(kernels)
        ]

    def _factors(self, gate: int) -> tuple[int | Quantization | None, ...]:
        """Return what the bias of a gate is added to: the product of operand and weights, or what was normalized."""
        if not self.normalized:
            return 0, self.which.kernels[gate]
        norm = self.op.input(self.which.norms[gate]).quantization
        return (None if norm is None else norm._replace(scale=norm.scale * np.float32(_NORMALIZED_STEP)),)

    def over(self, x: ir.Value) -> ir.Value:
        """Return the outputs for `time batch c`; the states are kept."""
        op, which = self.op, self.which
        batch = dims(x)[1]
        outputs = dims(op.stored(which.projection[0]))[0] if self.projected else self.units
        shapes: list[Dims] = [(batch, outputs), (batch, self.units)]
        first = [recurrent.start(op, i, shape) for i, shape in zip(which.states, shapes, strict=True)]
        diagonal = any(r is not None and len(dims(r)) != 2 for r in self.recurrent)
        special = self.quantized or self.normalized or self.projected or diagonal or self._yielded() != self.state
        name = None if special else recurrent.named(self.fused)

        def step_by_step() -> list[ir.Value]:
            states = [
                s if s is not None else recurrent.zeros(op, shape, x) for s, shape in zip(first, shapes, strict=True)
            ]
            rows = x if self.quantized or self.normalized or diagonal else self._input_sums(x)
            last, y = recurrent.scan(op, rows, states, self._step, reverse=self.reverse)
            return [y, *last]

        y, *last = step_by_step() if name is None else self.of_cells(name, x, first, step_by_step)
        for i, value in zip(which.states, last, strict=True):
            recurrent.keep(op, i, value)
        return y

    def of_cells(
        self,
        name: str,  # the activation
        x: ir.Value,  # the sequence, `time batch c`
        first: Sequence[ir.Value | None],  # the first states, None for zeros
        step_by_step: Callable[[], list[ir.Value]],  # writes them as a Scan
    ) -> list[ir.Value]:
        """Return results and last states of plain cells, by ONNX's LSTM where none of them can reach its limit.

        A cell that begins with 0 grows by less than 1 a step, and where gates are coupled never beyond 1.
        """
        time, _, columns = dims(x)
        steps = time if isinstance(time, int) and isinstance(columns, int) else math.inf
        most = 1 if self.coupled else steps
        bounded = self.fused == ActivationFunctionType.TANH and first[1] is None
        if self.op.options.cell_clip > 0 and not (bounded and most <= self.limits()[1]):
            return step_by_step()
        free = Unlimited(self.op, *self.matrices(name))
        free.keeps_states = all(recurrent.is_forgotten(self.op, i) for i in self.which.states)
        return free.over(x, first)

    def matrices(self, name: str) -> tuple[Any, ...]:
        """Return what an `Unlimited` is made of beside the operator."""
        peepholes = self.peepholes if self.peeping else None
        return self.kernels, self.recurrent, self.biases, peepholes, ("Sigmoid", name, name), self.reverse

    def result(self, y: ir.Value, perm: tuple[int, ...] | None = None) -> None:
        """Hand over the outputs. The integer kernel copies those of the state, whatever the result's parameters say."""
        op, state, own = self.op, self.op.input(self.which.states[0]), self.op.output(0).quantization
        if self.state is None or self.state.equals(own):
            op.result(y, perm=perm)
            return
        if not self.quantized:
            op.result(op.reread(y, self.state, own), perm=perm)
            return
        copied = op.emit("QuantizeLinear", [y, *op.tensors.parameters(state)])
        op.result_stored(copied if perm is None else op.transpose(copied, perm))

    # A step of a Scan.

    def _step(self, x: ir.Value, states: list[ir.Value]) -> tuple[list[ir.Value], ir.Value]:
        """Return the sums of the gates, the new cell, the new output.

        1. A gate is peephole times cell on top of its sums, then normalized; its bias comes after the normalization.
        2. The cell is clipped; where it is quantized, it is rounded to its own scale.
        3. The output may be a projection of what the cell yields, clipped in its turn, and is rounded likewise.
        """
        op, which = self.op, self.which
        h, c = states
        sums = self._sums(x, h)
        forget = op.each("Sigmoid", self._gate(FORGET, sums, c))
        if self.coupled:
            enter = op.each("Sub", op.number(1, forget, "one"), forget)
        else:
            enter = op.each("Sigmoid", self._gate(INPUT, sums, c))
        fresh = op.each("Mul", enter, recurrent.activated(op, self._gate(CELL, sums, None), self.fused))
        c = self._cell(op.each("Add", op.each("Mul", forget, c), fresh))
        leave = op.each("Sigmoid", self._gate(OUTPUT, sums, c))
        h = op.each("Mul", leave, recurrent.activated(op, c, self.fused))
        if self.projected:
            h = self._rounded(h, _HIDDEN, 8)
            kernel = weights(op, which.projection[0], 0)
            offset = op.bias(which.projection[1], self._intermediate(_HIDDEN), which.projection[0])
            limit = op.options.proj_clip
            h = op.emit("Gemm", [h, kernel, offset], transB=1)
            h = clip(op, h, -limit, limit) if limit > 0 else h
        h = self._output(h)
        return [h, c], h

    def _output(self, h: ir.Value) -> ir.Value:
        """Return the output, rounded as the state is where it is quantized.

        Without a projection the kernel rounds to the integers of its last intermediate result, and takes them for
        those of the state.
        """
        op, quantization = self.op, self._yielded()
        if quantization is None:
            return h
        if self.quantized:
            h = recurrent.grid(op, h, float(quantization.scale[0]), int(quantization.zero_point[0]), 8)
        return h if quantization == self.state else op.reread(h, quantization, self.state)

    def _yielded(self) -> Quantization | None:
        """Return what the integers mean that a step yields; the state's own parameters where they are the same."""
        quantization = None if self.projected or self.state is None else self._intermediate(_HIDDEN)
        return self.state if quantization is None or quantization.equals(self.state) else quantization

    def _input_sums(self, x: ir.Value) -> ir.Value:
        """Return what the operand adds to the sums of all gates, at all steps: `time batch (gate units)`.

        The weights of the gates become one matrix, for the operand and for the last output.
        """
        op = self.op
        kernel, self.recurrences = (
            joined(op, [part for part in parts if part is not None], 0) for parts in (self.kernels, self.recurrent)
        )
        y = op.emit("MatMul", [x, op.transpose(kernel, (1, 0))])
        return op.each("Add", y, joined(op, [bias for bias in self.biases if bias is not None], 0))

    def _sums(self, x: ir.Value, h: ir.Value) -> dict[int, ir.Value]:
        """Gate -> the sum of what the operand and the last output add to it."""
        if self.recurrences is None:
            return {gate: self._sum(gate, x, h) for gate in self.gates}
        total = self.op.emit("Gemm", [h, self.recurrences, x], transB=1)
        return dict(zip(self.gates, divided(self.op, total, 1, [self.units] * len(self.gates)), strict=True))

    def _sum(self, gate: int, x: ir.Value, h: ir.Value) -> ir.Value:
        op, kernel, own = self.op, self.kernels[gate], self.recurrent[gate]
        assert kernel is not None
        assert own is not None
        total = op.emit("Gemm", [x, kernel, None if self.normalized else self.biases[gate]], transB=1)
        if len(dims(own)) == 2:
            return op.emit("Gemm", [h, own, total], transB=1)
        return op.each("Add", op.each("Mul", h, own), total)

    def _gate(self, gate: int, sums: Mapping[int, ir.Value], c: ir.Value | None) -> ir.Value:
        """Return the sums of a gate with its peephole, normalized if it is."""
        op, bias, total = self.op, self.biases[gate], sums[gate]
        peephole = self.peepholes[gate] if gate < len(self.peepholes) else None
        if peephole is not None and c is not None:
            total = op.each("Add", total, op.each("Mul", peephole, c))
        if not self.normalized:
            return total
        total = self._rounded(total, _STAGES[gate], 16)
        centred = op.each("Sub", total, self._mean(total))
        floor = op.number(_LAYER_NORM_FLOOR, total, "floor")
        spread = op.each("Add", self._mean(op.each("Mul", centred, centred)), floor)
        y = op.each("Mul", op.each("Div", centred, op.each("Sqrt", spread)), op.real(self.which.norms[gate]))
        return y if bias is None else op.each("Add", y, bias)

    def _mean(self, x: ir.Value) -> ir.Value:
        return self.op.emit("ReduceMean", [x, self.op.ints([1])], keepdims=1)

    def _cell(self, c: ir.Value) -> ir.Value:
        """Return the cell within its limits; those of its integers count where it is not rounded to them, too."""
        op, limit = self.op, self.op.options.cell_clip
        integers = op.input(self.which.states[1]).quantization
        step = 0.0 if integers is None else float(integers.scale[0])
        if self.quantized:
            return recurrent.grid(op, c, step, 0, 16, limit if limit > 0 else None)
        low, high = self.limits()
        return c if math.isinf(high) else clip(op, c, low, high)

    def limits(self) -> tuple[float, float]:
        """Return the limits of a cell that is not rounded to its integers."""
        limit, integers = self.op.options.cell_clip, self.op.input(self.which.states[1]).quantization
        step = 0.0 if integers is None else float(integers.scale[0])
        low, high = -(2**15) * step or -math.inf, (2**15 - 1) * step or math.inf
        return (max(low, -limit), min(high, limit)) if limit > 0 else (low, high)

    def _rounded(self, value: ir.Value, stage: int, bits: int) -> ir.Value:
        """Return an intermediate result, rounded as the file says where it is quantized."""
        quantization = self._intermediate(stage)
        if quantization is None or not self.quantized:
            return value
        return recurrent.grid(self.op, value, float(quantization.scale[0]), int(quantization.zero_point[0]), bits)

    def _intermediate(self, stage: int) -> Quantization | None:
        """Return how an intermediate result is quantized, if it is."""
        stages = self.op.operator.intermediates
        if self.state is None or stage >= len(stages) or stages[stage] < 0:
            return None
        return self.op.tensors.subgraph.tensors[stages[stage]].quantization


@operator("UNIDIRECTIONAL_SEQUENCE_LSTM", options="UnidirectionalSequenceLSTMOptions")
def unidirectional(op: Operation, kind: type[Lstm] = Lstm) -> None:
    """LSTM, forward; a Scan where a cell may reach its limit, or a step is projected, normalized or quantized."""
    time_major = op.options.time_major
    x = recurrent.sequence(op, 0, time_major=time_major)
    cell = kind(op, Operands())
    y = cell.over(x)
    loop = recurrent.loop_of(y)
    # ONNX's own LSTM is written as the builtin, and says less of it only where that is a hybrid one.
    is_hybrid = op.input(0).type == TensorType.FLOAT32 and op.input(KERNELS[FORGET]).type in BYTES_ONLY
    if loop is not None and (is_hybrid or loop.op_type != "LSTM"):
        recurrent.mark(op, loop, cell.which.states)
    cell.result(y, perm=None if time_major else recurrent.SWAPPED)


@operator("BIDIRECTIONAL_SEQUENCE_LSTM", options="BidirectionalSequenceLSTMOptions")
def bidirectional(op: Operation, kind: type[Lstm] = Lstm) -> None:
    """LSTM forward, LSTM in reverse."""
    recurrent.only_floats(op)
    options = op.options
    ours, theirs, both = recurrent.paired(op, 39, 41, time_major=options.time_major)
    forward = kind(op, FORWARD, auxiliary=both).over(ours)
    backward = kind(op, BACKWARD, auxiliary=both, reverse=True).over(theirs)
    recurrent.mark(op, recurrent.loop_of(forward), (*FORWARD.states, *BACKWARD.states))
    recurrent.hand_over_both(op, forward, backward, merge=options.merge_outputs, time_major=options.time_major)


@operator("LSTM", options="LSTMOptions")
def single_step(op: Operation, kind: type[Lstm] = Lstm) -> None:
    """LSTM of one step; the basic kernel, whose states are operands and results, spelled out."""
    if op.options.kernel_type == 1:
        _basic(op)
        return
    cell = kind(op, Operands())
    y = cell.over(recurrent.one_step(op))
    recurrent.mark(op, recurrent.loop_of(y), cell.which.states)
    cell.result(squeeze(op, y, [0]))


def _basic(op: Operation) -> None:
    """Operands x, h, weights, bias, c; results h, c, and two of the kernel's own intermediates."""
    if any(op.tensors.quantization(op.input(i)) is not None for i in range(3)):
        raise Unsupported("the basic kernel, quantized, whose rounding between the gates ONNX cannot follow")
    both = joined(op, [op.real(0), op.real(1)], 1)
    rows = dims(op.stored(2))[0]
    if not isinstance(rows, int) or rows % 4:
        raise op.damaged(f"{rows} rows for four gates")
    sums = op.emit("Gemm", [both, op.real(2), op.bias(3)], transB=1)
    recurrent.mark(op, sums.producer())
    enter, cell, forget, leave = divided(op, sums, 1, [rows // 4] * 4)
    fresh = op.each("Mul", op.each("Sigmoid", enter), op.each("Tanh", cell))
    c = op.each("Add", fresh, op.each("Mul", op.each("Sigmoid", forget), op.real(4)))
    h = op.each("Mul", op.each("Sigmoid", leave), op.each("Tanh", c))
    for i, value in enumerate((h, c, both, sums)[: len(op.operator.outputs)]):
        op.result(value, i)
