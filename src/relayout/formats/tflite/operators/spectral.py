"""Fourier transforms. A complex number is a pair of real ones, along an axis of its own behind all others.

Pairs live inside the graph only: they are refused where the interface, a constant, or any other operator meets them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.builder import Dims, broadcast, dims
from relayout.formats.tflite.enums import TensorType
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.slicing import bordered_to, cut, joined, squeeze, unsqueeze
from relayout.formats.tflite.registry import Translation, Unsupported, described, operator


def is_complex(op: Operation, i: int = 0) -> bool:
    """Whether operand i is of complex numbers."""
    return op.input(i).type == TensorType.COMPLEX64


def pairs(op: Operation, i: int = 0) -> ir.Value:
    """Operand i as pairs: the real part, the imaginary part."""
    if not is_complex(op, i):
        raise Unsupported(f"{op.input(i).type.name} in place of COMPLEX64")
    return op.tensors.value(op.input(i))


def result_pairs(op: Operation, value: ir.Value) -> None:
    """Hand over pairs as the result."""
    tensor = op.output()
    if tensor.index in op.tensors.subgraph.outputs or tensor.type != TensorType.COMPLEX64:
        raise Unsupported("complex numbers at the interface")
    op.tensors.bind(tensor, value)


def moved(op: Operation) -> tuple[ir.Value, Callable[[ir.Value], None], int]:
    """Operand 0 of an operator that only moves elements, what takes its result, and the rank; pairs' own axis stays."""
    if is_complex(op):
        return pairs(op), partial(result_pairs, op), len(dims(pairs(op))) - 1
    (x,), finish = op.carried(0)
    return x, finish, len(dims(x))


def _of_reals(axes: int) -> Translation:
    def translate(op: Operation) -> None:
        x, lengths = op.real(0), _lengths(op, axes)
        rank = len(dims(x))
        for axis, length in lengths.items():
            x = bordered_to(op, x, axis, length)
        x = unsqueeze(op, x, [rank])
        y = _dft(op, x, rank - 1, (*dims(x)[: rank - 1], lengths[rank - 1] // 2 + 1, 2), 1)
        for axis in sorted(lengths, reverse=True)[1:]:
            y = _dft(op, y, axis, dims(y)) if lengths[axis] > 1 else y
        result_pairs(op, y)

    before = "" if axes == 1 else ", then DFT of the axis before" if axes == 2 else ", then DFT of the two axes before"
    summary = f"DFT of the last axis, the half of it that the other mirrors{before}."
    return described(translate, f"rfft{axes}", summary)


def _to_reals(axes: int) -> Translation:
    def translate(op: Operation) -> None:
        x, lengths = pairs(op), _lengths(op, axes, rank=len(dims(pairs(op))) - 1)
        last = max(lengths)
        for axis in sorted(lengths)[:-1]:
            x = bordered_to(op, x, axis, lengths[axis])
            x = _dft(op, x, axis, dims(x), inverse=1)
        half, mirrored = lengths[last] // 2 + 1, (lengths[last] - 1) // 2
        x = bordered_to(op, x, last, half)
        if mirrored:
            other = cut(op, x, [mirrored], [0], [last], [-1])
            signs = op.builder.array(op.hint("signs"), np.array([1, -1], np.float32))
            x = joined(op, [x, op.emit("Mul", [other, signs], dims(other))], last)
        op.result(_component(op, _dft(op, x, last, dims(x), inverse=1), 0, "real"))

    before = "" if axes == 1 else f"; before that of the {axes - 1} axes in front of it" if axes > 2 else ""
    before = "; before that of the axis in front of it" if axes == 2 else before
    summary = f"Inverse DFT of the last axis, of which the other half is mirrored{before}."
    return described(translate, f"irfft{axes}", summary)


def _lengths(op: Operation, axes: int, rank: int = 0) -> dict[int, int]:
    """Axis -> how many elements are transformed."""
    rank, lengths = rank or len(dims(op.stored(0))), op.integers(1, axes)
    if len(lengths) != axes or rank < axes or min(lengths) < 1:
        raise ReadError(f"{op.operator.name} of {lengths} elements, of rank {rank}", where=op.place)
    return dict(zip(range(rank - axes, rank), lengths, strict=True))


operator("RFFT2D", options="Rfft2dOptions")(_of_reals(2))
for _suffix, _axes in {"": 1, "2D": 2, "3D": 3}.items():
    operator(f"CUSTOM FlexRFFT{_suffix}")(_of_reals(_axes))
    operator(f"CUSTOM FlexIRFFT{_suffix}")(_to_reals(_axes))


def _dft(op: Operation, x: ir.Value, axis: int, shape: Dims, onesided: int = 0, inverse: int = 0) -> ir.Value:
    if op.builder.opset < 20:
        return op.emit("DFT", [x], shape, axis=axis, onesided=onesided, inverse=inverse)
    axes = op.number(axis, op.ints([0]), "axis")
    return op.emit("DFT", [x, None, axes], shape, onesided=onesided, inverse=inverse)


def _transform(axes: int, inverse: int) -> Translation:
    def translate(op: Operation) -> None:
        x = pairs(op)
        rank = len(dims(x)) - 1
        if rank < axes:
            raise ReadError(f"{op.operator.name} of rank {rank}", where=op.place)
        for axis in range(rank - axes, rank):
            x = _dft(op, x, axis, dims(x), inverse=inverse)
        result_pairs(op, x)

    what = "last axis" if axes == 1 else f"last {axes} axes"
    return described(translate, f"fft{axes}", f"{'Inverse ' * inverse}DFT of the {what}.")


for _name, _axes in {"FFT": 1, "FFT2D": 2, "FFT3D": 3}.items():
    operator(f"CUSTOM Flex{_name}")(_transform(_axes, 0))
    operator(f"CUSTOM FlexI{_name}")(_transform(_axes, 1))


@operator("CUSTOM FlexComplex")
def complex_(op: Operation) -> None:
    """Concat of the real and the imaginary parts."""
    parts = [op.stored(0), op.stored(1)]
    shape = broadcast(*map(dims, parts))
    if dims(parts[0]) != dims(parts[1]):
        extents = [op.emit("Shape", [part], (len(dims(part)),), ir.DataType.INT64) for part in parts]
        parts = [op.emit("Expand", [part, other], shape) for part, other in zip(parts, reversed(extents), strict=True)]
    apart = [unsqueeze(op, part, [len(shape)]) for part in parts]
    result_pairs(op, op.emit("Concat", apart, (*shape, 2), axis=len(shape)))


def part(op: Operation, index: int, what: str) -> ir.Value:
    """The real or the imaginary parts of operand 0."""
    return _component(op, pairs(op), index, what)


def _component(op: Operation, x: ir.Value, index: int, what: str) -> ir.Value:
    last = len(dims(x)) - 1
    return squeeze(op, op.emit("Gather", [x, op.ints([index], what)], (*dims(x)[:-1], 1), axis=last), [last])


def result_real(op: Operation, x: ir.Value) -> None:
    """Hand over real numbers as complex ones."""
    x, rank = op.cast(x, ir.DataType.FLOAT), len(dims(x))
    result_pairs(op, bordered_to(op, unsqueeze(op, x, [rank]), rank, 2))


def _part(index: int, what: str) -> Translation:
    def translate(op: Operation) -> None:
        op.result(part(op, index, what))

    return described(translate, what, f"Gather of the {what} parts.")


operator("REAL")(_part(0, "real"))
operator("IMAG")(_part(1, "imaginary"))


@operator("COMPLEX_ABS")
def complex_abs(op: Operation) -> None:
    """ReduceL2 of the pairs."""
    x = pairs(op)
    op.result(op.emit("ReduceL2", [x, op.ints([-1])], dims(x)[:-1], keepdims=0))
