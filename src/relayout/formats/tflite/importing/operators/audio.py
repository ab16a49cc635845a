"""What sound is before a network hears it: LiteRT's own custom operators, of TensorFlow's speech commands."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.complexes import halves_of, pairs, result_pairs
from relayout.formats.tflite.importing.operators.custom import Options
from relayout.formats.tflite.importing.operators.slicing import bordered_to, cut, joined, unsqueeze
from relayout.formats.tflite.importing.registry import Unsupported, each_operator, operator

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
        signs = op.builder.array(op.hint("signs"), np.array([1, -1], np.float32))
        x = joined(op, [x, op.emit("Mul", [other, signs])], last)
    op.result(halves_of(op, _dft(op, x, last, dims(x), inverse=1), op.hint("halves"))[0])


def _lengths(op: Operation, axes: int, rank: int = 0) -> dict[int, int]:
    """Axis -> how many elements are transformed."""
    rank, lengths = rank or len(dims(op.stored(0))), op.integers(1, axes)
    if len(lengths) != axes or rank < axes or min(lengths) < 1:
        raise ReadError(f"{op.operator.name} of {lengths} elements, of rank {rank}", where=op.place)
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
        raise ReadError(f"{op.operator.name} of rank {rank}", where=op.place)
    for axis in range(rank - axes, rank):
        x = _dft(op, x, axis, dims(x), inverse=inverse)
    result_pairs(op, x)


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
        raise ReadError(f"a window of {window} in {samples} samples", where=op.place)
    length = 1 << (window - 1).bit_length()
    signal = unsqueeze(op, op.real(0, (1, 0)), [2])
    if length > window:
        pads = op.ints([0, 0, 0, 0, length - window, 0], "pads")
        signal = op.emit("Pad", [signal, pads], mode="constant")
    shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    hann = op.builder.array(op.hint("window"), np.pad(shape, (0, length - window)).astype(np.float32))
    frames = (samples - window) // stride + 1 if isinstance(samples, int) else None
    step, size = (op.builder.array(op.hint(name), np.array(n)) for name, n in (("stride", stride), ("length", length)))
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
    table = op.builder.array(op.hint("cosines"), (np.sqrt(2 / bands) * np.cos(angles)).astype(np.float32))
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
        raise ReadError("a sample rate that is not above 0", where=op.place)

    def constant(name: str, array: npt.ArrayLike) -> ir.Value:
        return op.builder.array(op.hint(name), np.asarray(array, np.float64))

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
