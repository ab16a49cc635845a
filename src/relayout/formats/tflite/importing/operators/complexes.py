"""Complex numbers: pairs of real ones along an axis of their own behind all others, or two values, one for each half.

What moves elements, adds or scales them does so with each half by itself; what multiplies is four products of halves.
Both run the operator's translation for real numbers. Pairs live inside the graph only: they are refused at its ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.slicing import bordered_to, squeeze, unsqueeze
from relayout.formats.tflite.importing.registry import Unsupported, entries, of_complex, operator

HALF_BY_HALF = """
    BROADCAST_TO EXPAND_DIMS RESHAPE SELECT SELECT_V2 SLICE SQUEEZE STRIDED_SLICE TILE TRANSPOSE
"""
FLEX_HALF_BY_HALF = """
    AddN AddV2 BroadcastTo ConcatV2 Cumsum GatherNd GatherV2 Mean Neg Pack Pad ReverseV2 Roll SelectV2 Slice Split
    StridedSlice Sub Sum Tile Transpose Unpack
"""
"""What gives the halves of its result by those of its operands: f(a + bi) = f(a) + f(b)i."""

_REALS = {TensorType.FLOAT16, TensorType.FLOAT32, TensorType.FLOAT64}


def is_complex(op: Operation, i: int = 0) -> bool:
    """Tell whether operand i is of complex numbers."""
    return op.has(i) and op.input(i).type == TensorType.COMPLEX64


def pairs(op: Operation, i: int = 0) -> ir.Value:
    """Operand i as pairs: the real part, the imaginary part."""
    tensor = _complex(op, i)
    if (elements := _constant(op, tensor)) is None:
        return op.tensors.value(tensor)
    return op.builder.array(op.tensors.hint(tensor, "pairs"), elements)


def halves(op: Operation, i: int = 0) -> tuple[ir.Value, ir.Value]:
    """Operand i as two values: the real parts, the imaginary parts."""
    tensor = _complex(op, i)
    known = op.tensors.halves
    if tensor.index not in known:
        if (elements := _constant(op, tensor)) is None:
            known[tensor.index] = halves_of(op, op.tensors.value(tensor), op.tensors.hint(tensor, "halves"))
        else:
            names = (op.tensors.hint(tensor, what) for what in ("real", "imaginary"))
            real, imaginary = (op.builder.array(name, elements[..., half]) for half, name in enumerate(names))
            known[tensor.index] = real, imaginary
    return known[tensor.index]


def _complex(op: Operation, i: int) -> Tensor:
    tensor = op.input(i)
    if tensor.type != TensorType.COMPLEX64:
        raise Unsupported(f"{tensor.type.name} in place of COMPLEX64")
    return tensor


def _constant(op: Operation, tensor: Tensor) -> npt.NDArray[np.float32] | None:
    """Its pairs, where they are known."""
    if tensor.data is None or not op.tensors.is_constant(tensor):
        return None
    return tensor.content.view(np.dtype(np.float32).newbyteorder("<")).reshape(*tensor.shape, 2)


def halves_of(op: Operation, x: ir.Value, name: str) -> tuple[ir.Value, ir.Value]:
    """The halves of pairs, by one Split, and not a Slice or Gather of every second element."""
    last = len(dims(x)) - 1
    parts = op.emit_all("Split", [x, op.ints([1, 1], "sizes")], [(*dims(x)[:-1], 1)] * 2, name=name, axis=last)
    real, imaginary = (_passing(op, squeeze(op, _passing(op, part), [last])) for part in parts)
    return real, imaginary


def _passing(op: Operation, value: ir.Value) -> ir.Value:
    """A value whose node goes if nobody reads it."""
    if (node := value.producer()) is not None:
        op.builder.spare.add(id(node))
    return value


def result_pairs(op: Operation, value: ir.Value, i: int = 0) -> None:
    """Hand over pairs as result i."""
    tensor = op.output(i)
    if tensor.index in op.tensors.subgraph.outputs or tensor.type != TensorType.COMPLEX64:
        raise Unsupported("complex numbers at the interface")
    op.tensors.bind(tensor, value)


def result_halves(op: Operation, real: ir.Value, imaginary: ir.Value, i: int = 0) -> None:
    """Hand over the halves as result i; as pairs, too, should anybody want those."""
    rank = len(dims(real))
    apart = [_passing(op, unsqueeze(op, half, [rank])) for half in (real, imaginary)]
    result_pairs(op, _passing(op, op.emit("Concat", apart, axis=rank)), i)
    op.tensors.halves[op.output(i).index] = real, imaginary


# Operators on real numbers, with the halves of complex ones.


class _OfHalves(Operation):
    """The operation with one half of each complex operand in its place; its results are kept, not handed over."""

    def __init__(self, complete: Operation, chosen: Sequence[int]) -> None:
        self.__dict__.update(complete.__dict__)
        self.complete, self.chosen = complete, chosen
        self.results: dict[int, ir.Value] = {}

    def input(self, i: int) -> Tensor:
        return _as_real(self.complete.input(i))

    def output(self, i: int = 0) -> Tensor:
        return _as_real(self.complete.output(i))

    def stored(self, i: int) -> ir.Value:
        return halves(self.complete, i)[self.chosen[i]] if is_complex(self.complete, i) else self.complete.stored(i)

    def emit_all(
        self, op_type: str, inputs: Sequence[ir.Value | None], shapes: Sequence[Dims], *rest: Any, **attributes: Any
    ) -> tuple[ir.Value, ...]:
        values = super().emit_all(op_type, inputs, shapes, *rest, **attributes)
        return tuple(_passing(self, value) for value in values)

    def result_stored(self, value: ir.Value, i: int = 0) -> None:
        self.results[i] = value


def _as_real(tensor: Tensor) -> Tensor:
    return replace(tensor, type=TensorType.FLOAT32, data=None) if tensor.type == TensorType.COMPLEX64 else tensor


def _of_halves(op: Operation, *chosen: int) -> dict[int, ir.Value]:
    """Result -> its value, of an operation with those halves of its operands."""
    part = _OfHalves(op, chosen)
    entries()[op.operator.name].translate(part)
    return part.results


@of_complex(*HALF_BY_HALF.split(), *(f"CUSTOM Flex{name}" for name in FLEX_HALF_BY_HALF.split()))
def half_by_half(op: Operation) -> None:
    """Of complex numbers half by half."""
    types = {op.input(i).type for i in range(len(op.operator.inputs)) if op.has(i)}
    if TensorType.COMPLEX64 not in types or types & _REALS:
        raise Unsupported("real numbers beside complex ones")
    real, imaginary = (_of_halves(op, *[half] * len(op.operator.inputs)) for half in (0, 1))
    for i in real:
        result_halves(op, real[i], imaginary[i], i)


@of_complex("MUL", "CUSTOM FlexEinsum", "CUSTOM FlexMatMul", "CUSTOM FlexMul")
def product(op: Operation) -> None:
    """Of complex numbers by four products of halves."""
    if len(op.operator.inputs) != 2:
        raise Unsupported("complex numbers")
    multiplied(op)


def multiplied(op: Operation, first: bool = False, second: bool = False) -> None:
    """Hand over a product of two complex operands; either may be conjugated before."""
    for i in (0, 1):
        _complex(op, i)
    (a, b), (c, d) = ([_of_halves(op, i, k)[0] for i, k in each] for each in (((0, 0), (1, 1)), ((1, 0), (0, 1))))
    real = op.emit("Add" if first != second else "Sub", [a, b])
    if first == second:
        imaginary = op.emit("Add", [c, d])
        imaginary = op.emit("Neg", [imaginary]) if first else imaginary
    else:
        imaginary = op.emit("Sub", [c, d] if second else [d, c])
    result_halves(op, real, imaginary)


@of_complex("CUSTOM FlexSquare")
def square(op: Operation) -> None:
    """(a² - b²) + 2ab i."""
    a, b = halves(op)
    squares = [op.emit("Mul", [half, half]) for half in (a, b)]
    twice = op.emit("Add", [b, b])
    result_halves(op, op.emit("Sub", squares), op.emit("Mul", [a, twice]))


@of_complex("CUSTOM FlexExp")
def exp(op: Operation) -> None:
    """eᵃ cos b + eᵃ sin b i."""
    a, b = halves(op)
    size = op.emit("Exp", [a])
    cos, sin = (op.emit("Mul", [size, op.emit(each, [b])]) for each in ("Cos", "Sin"))
    result_halves(op, cos, sin)


@of_complex("CUSTOM FlexRealDiv")
def divided(op: Operation) -> None:
    """(a + bi)(c - di) / (c² + d²)."""
    (a, b), (c, d) = halves(op, 0), halves(op, 1)
    below = op.emit("Add", [op.emit("Mul", [half, half]) for half in (c, d)])

    def over(op_type: str, first: Sequence[ir.Value], second: Sequence[ir.Value]) -> ir.Value:
        products = [op.emit("Mul", factors) for factors in (first, second)]
        return op.emit("Div", [op.emit(op_type, products), below])

    result_halves(op, over("Add", (a, c), (b, d)), over("Sub", (b, c), (a, d)))


@operator("CUSTOM FlexConj")
def conj(op: Operation) -> None:
    """Neg of the imaginary parts."""
    a, b = halves(op)
    result_halves(op, a, op.emit("Neg", [b]))


# From real numbers and back.


@operator("CUSTOM FlexComplex")
def complex_(op: Operation) -> None:
    """The real and the imaginary parts, broadcast to each other."""
    parts = [op.stored(0), op.stored(1)]
    if dims(parts[0]) != dims(parts[1]):
        extents = [op.emit("Shape", [part]) for part in parts]
        parts = [op.emit("Expand", [part, other]) for part, other in zip(parts, reversed(extents), strict=True)]
    result_halves(op, parts[0], parts[1])


def result_real(op: Operation, x: ir.Value) -> None:
    """Hand over real numbers as complex ones."""
    x, rank = op.cast(x, ir.DataType.FLOAT), len(dims(x))
    result_pairs(op, bordered_to(op, unsqueeze(op, x, [rank]), rank, 2))


@operator("REAL")
def real(op: Operation) -> None:
    """The real parts."""
    op.result(halves(op)[0])


@operator("IMAG")
def imaginary(op: Operation) -> None:
    """The imaginary parts."""
    op.result(halves(op)[1])


@operator("COMPLEX_ABS")
def complex_abs(op: Operation) -> None:
    """ReduceL2 of the pairs."""
    x = pairs(op)
    op.result(op.emit("ReduceL2", [x, op.ints([-1])], dims(x)[:-1], keepdims=0))
