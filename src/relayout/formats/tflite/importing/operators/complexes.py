"""Complex numbers: pairs of real ones along an axis of their own behind all others, or two values, one for each half.

What moves elements, adds or scales them does so with each half by itself; what multiplies is four products of halves.
Both run the operator's translation for real numbers. Pairs live inside the graph only: they are refused at its ends.
"""

from __future__ import annotations

import math
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
from relayout.formats.tflite.importing.operators.custom import Options
from relayout.formats.tflite.importing.operators.slicing import bordered_to, cut, joined, squeeze, unsqueeze
from relayout.formats.tflite.importing.registry import Unsupported, each_operator, entries, of_complex, operator

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
    """Return the halves of pairs, by one Split, and not a Slice or Gather of every second element."""
    last = len(dims(x)) - 1
    parts = op.emit_all("Split", [x, op.ints([1, 1], "sizes")], [(*dims(x)[:-1], 1)] * 2, name=name, axis=last)
    real, imaginary = (_passing(op, squeeze(op, _passing(op, part), [last])) for part in parts)
    return real, imaginary


def _passing(op: Operation, value: ir.Value) -> ir.Value:
    """Return a value whose node goes if nobody reads it."""
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
    columns = [_passing(op, unsqueeze(op, half, [rank])) for half in (real, imaginary)]
    result_pairs(op, _passing(op, op.emit("Concat", columns, axis=rank)), i)
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


@each_operator({"REAL": ("real", 0), "IMAG": ("imaginary", 1)}, "The {} parts.")
def _half(op: Operation, _: str, half: int) -> None:
    op.result(halves(op)[half])


@operator("COMPLEX_ABS")
def complex_abs(op: Operation) -> None:
    """ReduceL2 of the pairs."""
    x = pairs(op)
    op.result(op.emit("ReduceL2", [x, op.ints([-1])], dims(x)[:-1], keepdims=0))


# Fourier transforms, of complex numbers as pairs.


_OF_REALS = "DFT of the last axis, the half of it that the other mirrors"
_TO_REALS = "Inverse DFT of the last axis: it holds one half, and the other one mirrors it"


@each_operator({"CUSTOM FlexRFFT": 1}, f"{_OF_REALS}.")
@each_operator({"CUSTOM FlexRFFT2D": 2}, f"{_OF_REALS}, then DFT of the axis before.")
@each_operator({"CUSTOM FlexRFFT3D": 3}, f"{_OF_REALS}, then DFT of the two axes before.")
@each_operator({"RFFT2D": 2}, f"{_OF_REALS}, then DFT of the axis before.", options="Rfft2dOptions")
def _of_reals(op: Operation, axes: int) -> None:
    x, lengths = op.real(0), _lengths(op, axes)
    rank = len(dims(x))
    for axis, length in lengths.items():
        x = bordered_to(op, x, axis, length)
    x = unsqueeze(op, x, [rank])
    y = _dft(op, x, rank - 1, (*dims(x)[: rank - 1], lengths[rank - 1] // 2 + 1, 2), 1)
    for axis in sorted(lengths, reverse=True)[1:]:
        y = _dft(op, y, axis, dims(y)) if lengths[axis] > 1 else y
    result_pairs(op, y)


@each_operator({"CUSTOM FlexIRFFT": 1}, f"{_TO_REALS}.")
@each_operator({"CUSTOM FlexIRFFT2D": 2}, f"{_TO_REALS}; before that of the axis in front of it.")
@each_operator({"CUSTOM FlexIRFFT3D": 3}, f"{_TO_REALS}; before that of the 2 axes in front of it.")
def _to_reals(op: Operation, axes: int) -> None:
    x, lengths = pairs(op), _lengths(op, axes, rank=len(dims(pairs(op))) - 1)
    last = max(lengths)
    for axis in sorted(lengths)[:-1]:
        x = bordered_to(op, x, axis, lengths[axis])
        x = _dft(op, x, axis, dims(x), inverse=1)
    half, mirrored = lengths[last] // 2 + 1, (lengths[last] - 1) // 2
    x = bordered_to(op, x, last, half)
    if mirrored:
        other = cut(op, x, [mirrored], [0], [last], [-1])
        signs = op.array("signs", np.array([1, -1], np.float32))
        x = joined(op, [x, op.emit("Mul", [other, signs])], last)
    op.result(halves_of(op, _dft(op, x, last, dims(x), inverse=1), op.hint("halves"))[0])


def _lengths(op: Operation, axes: int, rank: int = 0) -> dict[int, int]:
    """Axis -> how many elements are transformed."""
    rank, lengths = rank or len(dims(op.stored(0))), op.integers(1, axes)
    if len(lengths) != axes or rank < axes or min(lengths) < 1:
        raise op.damaged(f"{op.operator.name} of {lengths} elements, of rank {rank}")
    return dict(zip(range(rank - axes, rank), lengths, strict=True))


def _dft(op: Operation, x: ir.Value, axis: int, shape: Dims, onesided: int = 0, inverse: int = 0) -> ir.Value:
    if op.builder.opset < 20:
        return op.emit("DFT", [x], shape, axis=axis, onesided=onesided, inverse=inverse)
    axes = op.number(axis, op.ints([0]), "axis")
    return op.emit("DFT", [x, None, axes], shape, onesided=onesided, inverse=inverse)


@each_operator({"CUSTOM FlexFFT": (1, 0)}, "DFT of the last axis.")
@each_operator({"CUSTOM FlexIFFT": (1, 1)}, "Inverse DFT of the last axis.")
@each_operator({"CUSTOM FlexFFT2D": (2, 0), "CUSTOM FlexFFT3D": (3, 0)}, "DFT of the last {} axes.")
@each_operator({"CUSTOM FlexIFFT2D": (2, 1), "CUSTOM FlexIFFT3D": (3, 1)}, "Inverse DFT of the last {} axes.")
def _transform(op: Operation, axes: int, inverse: int) -> None:
    x = pairs(op)
    rank = len(dims(x)) - 1
    if rank < axes:
        raise op.damaged(f"{op.operator.name} of rank {rank}")
    for axis in range(rank - axes, rank):
        x = _dft(op, x, axis, dims(x), inverse=inverse)
    result_pairs(op, x)


# What sound is before a network hears it: LiteRT's own custom operators, of TensorFlow's speech commands.

MOST_SAMPLES, MOST_BANDS = 1 << 16, 1 << 12  # of a window; of a bank of filters, and of its cosines
MOST_FREQUENCIES = 1 << 20
"""Of a spectrum that Mfcc reads: the next power of two above any window of sound, and a bound for damaged files."""
FLOOR = 1e-12  # what a band has at least
MELS, CORNER = 1127, 700
"""Of the mel scale, `MELS · ln(1 + hertz / CORNER)`: how many the ratio's logarithm is, and hertz of its corner."""


@operator("CUSTOM AudioSpectrogram")
def audio_spectrogram(op: Operation) -> None:
    """STFT of windows of von Hann, zeros behind them up to a power of two, and its magnitudes or their squares.

    `x[samples channels] -> y[channels frames frequencies]`; samples that make no whole window are left out.
    """
    options = Options(op)
    window, stride = options.count("window_size", most=MOST_SAMPLES), options.count("stride")
    op.require_rank(0, 2)
    samples, channels = dims(op.stored(0))
    if window < 2 or (isinstance(samples, int) and samples < window):
        raise op.damaged(f"a window of {window} in {samples} samples")
    length = 1 << (window - 1).bit_length()
    signal = unsqueeze(op, op.real(0, (1, 0)), [2])
    if length > window:
        pads = op.ints([0, 0, 0, 0, length - window, 0], "pads")
        signal = op.emit("Pad", [signal, pads], mode="constant")
    shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    hann = op.array("window", np.pad(shape, (0, length - window)).astype(np.float32))
    frames = (samples - window) // stride + 1 if isinstance(samples, int) else None
    step, size = (op.array(name, np.array(n)) for name, n in (("stride", stride), ("length", length)))
    parts = op.emit("STFT", [signal, step, hann, size], (channels, frames, length // 2 + 1, 2), onesided=1)
    squares = op.emit("ReduceSumSquare", [parts, op.ints([3], "axes")], keepdims=0)
    op.result(squares if options.number("magnitude_squared", 0) else op.each("Sqrt", squares))


@operator("CUSTOM Mfcc")
def mfcc(op: Operation) -> None:
    """Cepstrum of a spectrogram of squares: magnitudes in bands of the mel scale, their logarithms, cosines of these.

    `x[channels frames frequencies], rate -> y[channels frames cosines]`, by two products. Bands follow from the rate,
    which may be computed.
    """
    options = Options(op)
    bands = options.count("filterbank_channel_count", 40, most=MOST_BANDS)
    cosines = options.count("dct_coefficient_count", 13, most=MOST_BANDS)
    limits = options.number("lower_frequency_limit", 20), options.number("upper_frequency_limit", 4000)
    op.require_rank(0, 3)
    x = op.real(0)
    frequencies = dims(x)[-1]
    if not isinstance(frequencies, int) or not 2 <= frequencies <= MOST_FREQUENCIES or not 0 <= limits[0] < limits[1]:
        raise Unsupported(f"{frequencies} frequencies between {limits[0]} and {limits[1]} Hz")
    filters, fits = _filters(op, frequencies, bands, *limits)
    magnitudes = op.emit("MatMul", [op.each("Sqrt", x), filters])
    heard = op.each("Log", op.each("Max", magnitudes, op.number(FLOOR, x, "floor")))
    angles = np.outer(np.arange(bands) + 0.5, np.arange(cosines)) * np.pi / bands
    table = op.array("cosines", (np.sqrt(2 / bands) * np.cos(angles)).astype(np.float32))
    cepstrum = op.emit("MatMul", [heard, table])
    if fits is not None:
        cepstrum = op.emit("Where", [fits, cepstrum, op.number(0, cepstrum, "silence")])
    op.result(cepstrum)


def _filters(
    op: Operation, frequencies: int, bands: int, lower: float, upper: float
) -> tuple[ir.Value, ir.Value | None]:
    """Triangles on the mel scale, each from the middle of the band before to that of the next: `w[frequency band]`.

    In double precision, as the kernel has them: where the first and the last frequency lie is not certain otherwise.

    Returns:
        The triangles; and whether the spectrum reaches the last frequency, where that is not certain: else the kernel
        gives zeros.
    """
    if op.is_constant(1) and op.integers(1, 1)[0] <= 0:
        raise op.damaged("a sample rate that is not above 0")

    def constant(name: str, array: npt.ArrayLike) -> ir.Value:
        return op.array(name, np.asarray(array, np.float64))

    low, high = (MELS * math.log1p(hertz / CORNER) for hertz in (lower, upper))
    width = (high - low) / (bands + 1)
    unit, places = constant("unit", 1), constant("places", np.arange(frequencies)[:, None])
    rate = op.cast(op.reshape(op.stored(1), (1,)), ir.DataType.DOUBLE)
    step = op.each("Mul", rate, constant("half", 0.5 / (frequencies - 1)))
    first = op.each("Floor", op.each("Add", op.each("Div", constant("lower", lower), step), constant("next", 1.5)))
    last = op.each("Floor", op.each("Div", constant("upper", upper), step))
    bounds = ("GreaterOrEqual", first), ("LessOrEqual", last)
    above, below = (op.each(name, places, bound) for name, bound in bounds)
    ratio = op.each("Div", op.each("Mul", places, step), constant("corner", CORNER))
    mels = op.each("Mul", op.each("Log", op.each("Add", ratio, unit)), constant("mels", MELS))
    away = op.each("Abs", op.each("Sub", mels, constant("middles", low + width * np.arange(1, bands + 1))))
    slopes = op.each("Sub", unit, op.each("Div", away, constant("width", width)))
    triangles = op.each("Max", slopes, constant("zero", 0))
    inside = op.cast(op.each("And", above, below), ir.DataType.DOUBLE)
    filters = op.cast(op.each("Mul", triangles, inside), ir.DataType.FLOAT)
    if op.is_constant(1) and math.floor(upper / (op.integers(1, 1)[0] * (0.5 / (frequencies - 1)))) < frequencies:
        return filters, None
    return filters, op.each("Less", last, constant("frequencies", frequencies))
