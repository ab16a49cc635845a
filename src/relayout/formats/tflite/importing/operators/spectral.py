"""Fourier transforms, of complex numbers as pairs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.complexes import pairs, real_parts, result_pairs
from relayout.formats.tflite.importing.operators.slicing import bordered_to, cut, joined, unsqueeze
from relayout.formats.tflite.importing.registry import Translation, described, operator


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
        op.result(real_parts(op, _dft(op, x, last, dims(x), inverse=1)))

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
