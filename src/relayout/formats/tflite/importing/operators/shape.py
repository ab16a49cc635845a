"""Operators that give elements another shape or order, or repeat them; tensors that are filled, counted or drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import onnx_ir as ir

from relayout import layout
from relayout.formats.tflite.importing.builder import Dim, Dims, broadcast, dims
from relayout.formats.tflite.importing.extents import contents, divided, element, product, times
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.slicing import extents_of, joined, result_extents, squeeze, unsqueeze
from relayout.formats.tflite.importing.registry import ANY_OPSET, Unsupported, each_operator, operator
from relayout.formats.tflite.spelled_out import KEPT, STATES
from relayout.layout import Extent
from relayout.light_dataclass import dataclass

# ONNX's LSTM, made of the weights of single gates.

INPUT, OUTPUT, FORGET, CELL = range(4)  # the gates, in ONNX's order


@dataclass
class Unlimited:
    """An LSTM of one direction whose cell has no limit."""

    op: Operation  # the operator
    # for each gate `units c`; None for INPUT means that it is coupled, one minus FORGET
    kernels: Sequence[ir.Value | None]
    recurrent: Sequence[ir.Value | None]  # for each gate `units units`
    biases: Sequence[ir.Value | None]  # for each gate `units`
    peepholes: Sequence[ir.Value | None] | None  # for each gate but CELL `units`; None: there are none
    activations: tuple[str, str, str]  # of the gates, of the candidate, of the cell
    reverse: bool  # whether the last step is computed first
    keeps_states: bool = False  # whether the file keeps the states from run to run
    _stacked: list[ir.Value | None] = field(default_factory=list)

    def over(self, x: ir.Value, first: Sequence[ir.Value | None]) -> list[ir.Value]:
        """Return results `time batch units` and last states, of `time batch c` and states `batch units`."""
        op = self.op
        y, *ends = self.run(x, [None if state is None else unsqueeze(op, state, [0]) for state in first])
        return [squeeze(op, y, [1]), *(squeeze(op, state, [0]) for state in ends)]

    def run(self, x: ir.Value, first: Sequence[ir.Value | None]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The results `time 1 batch units` and the last states, of `time batch c` and states `1 batch units`."""
        op, (time, batch, _) = self.op, dims(x)
        kernel, recurrent, bias, peephole = self.matrices()
        units = dims(recurrent)[2] if recurrent is not None else None
        affine = "Affine" in self.activations
        y, h, c = op.emit_all(
            "LSTM",
            [x, kernel, recurrent, bias, None, *first, peephole],
            [(time, 1, batch, units), (1, batch, units), (1, batch, units)],
            activations=list(self.activations),
            activation_alpha=[1.0] if affine else None,
            activation_beta=[0.0] if affine else None,
            hidden_size=units,
            direction="reverse" if self.reverse else "forward",
        )
        node = y.producer()
        if self.keeps_states and node is not None:
            node.metadata_props[STATES] = KEPT
        return y, h, c

    def matrices(self) -> list[ir.Value | None]:
        """Return the operands W, R, B and P, written once; B has one bias for the operand and one for the state."""
        if not self._stacked:
            op, bias = self.op, self._gates(self.biases)
            empty = self._filled(bias, 0)
            peepholes = None if self.peepholes is None else self._gates(self.peepholes)
            self._stacked = [
                self._gates(self.kernels),
                self._gates(self.recurrent),
                joined(op, [bias, empty], 1),
                peepholes,
            ]
        return self._stacked

    def _filled(self, like: ir.Value, number: float) -> ir.Value:
        shape = [d for d in dims(like) if isinstance(d, int)]
        return self.op.emit("Expand", [self.op.number(number, like), self.op.ints(shape, "shape")])

    def _gates(self, parts: Sequence[ir.Value | None]) -> ir.Value:
        """`1 (gate ...)`. A gate left out is one minus the forget gate: the forget gate of negated sums."""
        op, forget = self.op, parts[FORGET]
        gates = [op.emit("Neg", [forget]) if p is None and forget is not None else p for p in parts]
        return unsqueeze(op, joined(op, [p for p in gates if p is not None], 0), [0])


def regrouped(shape: Dims, target: list[int], op: Operation) -> Dims:
    """Return the shape that a Reshape gives: -1 in the target takes what is left.

    A named dimension passes to the -1 where everything else cancels: `(batch, 3, 4)` as `(-1, 12)` is `(batch, 12)`.
    """
    if target.count(-1) > 1 or any(t < -1 for t in target):
        raise op.damaged(f"{target} is no shape")
    names = [d for d in shape if not isinstance(d, int)]
    have, rest = math.prod(d for d in shape if isinstance(d, int)), math.prod(t for t in target if t != -1)
    missing: Dim = None
    if rest and (names or have % rest == 0):
        missing = divided(product(shape), rest)
    if not names and (have != rest if -1 not in target else missing is None and have != 0):
        raise op.damaged(f"{list(shape)} cannot become {target}")
    return tuple(missing if t == -1 else t for t in target)


@operator("RESHAPE", options="ReshapeOptions", texts=ANY_OPSET)
def reshape(op: Operation) -> None:
    """Reshape to the second operand, or to the option where there is none."""
    (x,), finish = op.carried(0)
    if op.has(1) and not op.is_constant(1):
        target = op.stored(1)
        target_dims = contents(target)
        constant = _resolved(dims(x), target_dims) if target_dims is not None else None
        if constant is not None:
            numbers, shape = constant
            finish(op.emit("Reshape", [x, op.ints(numbers, "shape")], shape))
            return
        rank = dims(target)[0] if len(dims(target)) == 1 else None
        known = target_dims or (None,) * (rank if isinstance(rank, int) else len(op.tensors.declared(op.output())))
        known = tuple(None if d == -1 else d for d in known)
        finish(op.emit("Reshape", [x, op.cast(target, ir.DataType.INT64)], op.out_dims(known), allowzero=1))
        return
    new_shape = op.integers(1) if op.has(1) else [int(v) for v in op.options.new_shape[:64]]
    if new_shape == [0] and 0 not in dims(x):
        new_shape = []  # how old converters wrote a scalar
    finish(op.reshape(x, regrouped(dims(x), new_shape, op)))


def _resolved(shape: Dims, target_dims: Dims) -> tuple[list[int], Dims] | None:
    """Return a constant that does what a computed target does, and the shape it gives.

    A name that the operand has at the same place is copied (0); of the others there may be one, which is what is left
    (-1). A -1 in the target itself is what is left once equal names have cancelled.
    """
    target: list[Dim] = list(target_dims)
    if None in target or 0 in target or target.count(-1) > 1:
        return None
    if -1 in target:
        if (remainder := _remainder(shape, target)) is None:
            return None
        target[target.index(-1)] = remainder
    numbers = [d if isinstance(d, int) else 0 if i < len(shape) and shape[i] == d else -1 for i, d in enumerate(target)]
    if sum(not isinstance(d, int) for d in target) == 1:
        numbers = [n if n > 0 else -1 for n in numbers]
    return (numbers, tuple(target)) if numbers.count(-1) <= 1 else None


def _remainder(shape: Dims, target: Sequence[Dim]) -> Dim:
    """Return the extents of a shape that a target leaves; None where they are not known."""
    if None in shape:
        return None
    whole = layout.product(Extent.of(d) for d in shape if d is not None)
    rest = layout.product(Extent.of(d) for d in target if d is not None and d != -1)
    quotient = whole.divide(Extent(1, rest.symbols))
    if quotient is None or (quotient.is_static and quotient.number % rest.number):
        return None
    return divided(product((quotient.number, *quotient.symbols)), rest.number)


@operator("SQUEEZE", options="SqueezeOptions", texts=ANY_OPSET)
def squeeze_(op: Operation) -> None:
    """Squeeze of the axes given, or of every axis of extent 1."""
    (x,), finish = op.carried(0)
    shape = dims(x)
    axes = [op.axis(int(a), len(shape)) for a in op.options.squeeze_dims[:64]]
    if not axes:
        ones = [axis for axis, dim in enumerate(shape) if dim == 1]
        unknown = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int)]
        # The result's rank tells whether an unknown dimension is one of the ones.
        gone = len(shape) - len(op.tensors.declared(op.output()))
        if unknown and gone not in (len(ones), len(ones) + len(unknown)):
            raise Unsupported("a squeeze of unknown dimensions")
        axes = ones if gone == len(ones) else sorted(ones + unknown) if unknown else ones
    finish(squeeze(op, x, axes) if axes else x)


@operator("EXPAND_DIMS")
def expand_dims(op: Operation) -> None:
    """Unsqueeze; the axis counts in the result."""
    (x,), finish = op.carried(0)
    (axis,) = op.integers(1, 1)
    finish(unsqueeze(op, x, [op.axis(axis, len(dims(x)) + 1)]))


@operator("TRANSPOSE")
def transpose(op: Operation) -> None:
    """Transpose."""
    (x,), finish = op.carried(0)
    rank = len(dims(x))
    perm = [op.axis(axis, rank) for axis in op.integers(1)]
    if sorted(perm) != list(range(rank)):
        raise op.damaged(f"{perm} is no order of {rank} axes")
    finish(op.emit("Transpose", [x], perm=perm))


@operator("BROADCAST_TO")
def broadcast_to(op: Operation) -> None:
    """Expand."""
    (x,), finish = op.carried(0)
    extents, known = extents_of(op, 1)
    shape = broadcast(dims(x), known) if known is not None else (None,) * len(op.tensors.declared(op.output()))
    finish(op.emit("Expand", [x, extents], op.out_dims(shape)))


@operator("FILL")
def fill(op: Operation) -> None:
    """Expand of a scalar."""
    (x,), finish = op.carried(1)
    extents, shape = result_extents(op, 0)
    finish(op.emit("Expand", [x, extents], shape))


@operator("TILE", texts=ANY_OPSET)
def tile(op: Operation) -> None:
    """Tile."""
    (x,), finish = op.carried(0)
    repeats, known = extents_of(op, 1)
    finish(op.emit("Tile", [x, repeats], op.out_dims(tiled_dims(op, x, known))))


def tiled_dims(op: Operation, x: ir.Value, known: Dims | None) -> Dims:
    """Return the shape of a TILE's result, by what is known of how often each axis is repeated."""
    shape: Dims = (None,) * len(dims(x))
    if known is not None:
        if len(known) != len(shape):
            raise op.damaged(f"{len(known)} repeats for rank {len(shape)}")
        pairs = zip(dims(x), known, strict=True)
        shape = tuple(times(d, r) if isinstance(r, int) else r if d == 1 else None for d, r in pairs)
    return shape


@operator("RANGE")
def range_(op: Operation) -> None:
    """Range."""
    start, limit, delta = (scalar(op, op.real(i)) for i in range(3))
    first, last, step = (element(op.stored(i)) for i in range(3))
    count: Dim = None
    if isinstance(first, int) and isinstance(last, int) and isinstance(step, int) and step:
        count = len(range(first, last, step))
    elif (first, step) == (0, 1):
        count = last
    op.result(op.emit("Range", [start, limit, delta], op.out_dims((count,))))


def scalar(op: Operation, x: ir.Value) -> ir.Value:
    """Return a value of one element with no dimension left."""
    return x if dims(x) == () else op.reshape(x, ())


# Random numbers. ONNX's generators draw another stream than TFLite's, from the same distributions.
#
# So two runs of the two runtimes agree in nothing but shape, type, range and moments, whatever the seeds are.

_FLOAT = ir.DataType.FLOAT


def _seed(op: Operation) -> float | None:
    """Seeds of zero mean none: another stream on each run."""
    options = op.options
    return float((options.seed ^ options.seed2 << 1) % (1 << 24)) if options.seed or options.seed2 else None


_DRAWN = {
    "RANDOM_UNIFORM": ("RandomUniformLike", "from 0 to 1", {"low": 0.0, "high": 1.0}),
    "RANDOM_STANDARD_NORMAL": ("RandomNormalLike", "mean 0 and deviation 1", {"mean": 0.0, "scale": 1.0}),
}


@each_operator(_DRAWN, "{}, {}; another stream of numbers than TFLite's.", options="RandomOptions")
def _draw(op: Operation, op_type: str, _: str, unit: Mapping[str, Any]) -> None:
    extents, shape = result_extents(op, 0)
    if op.output().type.name != "FLOAT32":
        raise Unsupported(f"random numbers of type {op.output().type.name}")
    zeros = op.emit("ConstantOfShape", [extents], shape, _FLOAT)
    op.result(op.emit(op_type, [zeros], seed=_seed(op), **unit))


@operator("MULTINOMIAL", options="RandomOptions")
def multinomial(op: Operation) -> None:
    """Multinomial of logarithms of weights; another stream of numbers than TFLite's."""
    op.require_rank(0, 2)
    (count,) = op.integers(1, 1)
    if count < 1:
        raise op.damaged(f"{count} samples")
    logits = op.real(0)
    # ONNX Runtime draws by exp(x), which for large x is infinite: logarithms of probabilities are never above 0.
    logits = op.emit("LogSoftmax", [logits], axis=-1)
    shape: Dims = (dims(logits)[0], count)
    op.result(op.emit("Multinomial", [logits], shape, ir.DataType.INT32, sample_size=count, seed=_seed(op)))
