"""Small models of operators that the converter leaves to the Flex delegate, and what TensorFlow says they compute."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_writing import Net

ONE: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Atan": np.arctan,
    "Ceil": np.ceil,
    "Cosh": np.cosh,
    "Erf": np.vectorize(math.erf),
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": lambda x: np.log(np.abs(x)),
    "LogSoftmax": lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)),
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "Sign": np.sign,
    "Sinh": np.sinh,
    "Softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": lambda x: np.sqrt(np.abs(x)),
    "Tan": np.tan,
}
KINDS = {
    **dict.fromkeys(("Abs", "Sign"), "int64"),
    **dict.fromkeys(("Ceil", "Exp", "Floor", "Log", "LogSoftmax", "Neg", "Reciprocal", "Softmax", "Sqrt"), "float64"),
}
"""TFLite has these itself for real numbers of 32 bits."""
TWO = {
    "AddV2": np.add,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mul": np.multiply,
    "Pow": np.power,
    "RealDiv": np.divide,
    "Sub": np.subtract,
}
SHAPE = (2, 3, 5)


Attribute = int | float | str | list[int]


def left(net: Net, name: str, inputs: Sequence[int], output: int | Sequence[int], **attributes: Attribute) -> Net:
    """An operator of TensorFlow: its name and its NodeDef, in a FlexBuffer."""
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(name)
        builder.Blob(node_def(name, **attributes))
    net.op(f"CUSTOM Flex{name}", inputs, [output] if isinstance(output, int) else output)
    net.graph.operators[-1].customOptions = list(as_text(builder.Finish()))
    return net


def as_text(buffer: bytes) -> bytes:
    """What follows the values of a vector of two are their types; the converter writes a text, whatever is in it."""
    assert buffer[-4] >> 2 == 25, "a blob"
    return bytes((*buffer[:-4], buffer[-4] & 3 | 5 << 2, *buffer[-3:]))


def node_def(name: str, **attributes: Attribute) -> bytes:
    entries = (field(1, key.encode()) + field(2, attribute(v)) for key, v in attributes.items())
    # Field 6 holds names of more than 127 bytes: their length is no UTF-8.
    return field(2, name.encode()) + b"".join(field(5, entry) for entry in entries) + field(6, field(1, b"a" * 200))


def attribute(value: Attribute) -> bytes:
    """Text, list, truth value, whole or real number: fields 2, 1, 5, 3 and 4 of a value."""
    if isinstance(value, str):
        return field(2, value.encode())
    if isinstance(value, list):
        return field(1, field(3, b"".join(map(varint, value))))
    if isinstance(value, float):
        return b"\x25" + struct.pack("<f", value)
    return (b"\x28" if isinstance(value, bool) else b"\x18") + varint(value)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    low = value & 127
    return bytes([low]) if value < 128 else bytes([low | 128]) + varint(value >> 7)


@cases(*(f"CUSTOM Flex{name}" for name in ONE))
def flex_of_one() -> Iterator[Net]:
    for name, function in ONE.items():
        net, kind = Net(), KINDS.get(name, "float32")
        low, high = (0.1, 3) if name in ("Log", "Reciprocal", "Sqrt") else (-1.3, 1.3)
        left(net, name, [net.input(SHAPE, kind, low, high)], net.output(SHAPE, kind))
        net.expected = function
        yield net


@cases(*(f"CUSTOM Flex{name}" for name in TWO))
def flex_of_two() -> Iterator[Net]:
    for name, function in TWO.items():
        net = Net()
        both = [net.input(SHAPE, "float64", 0.1, 3), net.input((3, 1), "float64", 1, 2)]
        left(net, name, both, net.output(SHAPE, "float64"))
        net.expected = function
        yield net


@cases("CUSTOM FlexStridedSlice")
def flex_strided_slices() -> Iterator[Net]:
    for index, masks in (
        ((slice(None), None, slice(None)), {"begin_mask": 5, "end_mask": 5, "new_axis_mask": 2}),
        ((..., None, slice(1, 4)), {"ellipsis_mask": 1, "new_axis_mask": 2}),
        ((1, slice(0, 3, 2)), {"shrink_axis_mask": 1}),
    ):
        net = Net()
        parts = [p if isinstance(p, slice) else slice(p, p + 1) if isinstance(p, int) else slice(0, 0) for p in index]
        bounds = [[p.start or 0 for p in parts], [p.stop or 0 for p in parts], [p.step or 1 for p in parts]]
        operands = [net.input(SHAPE, "int32"), *(net.const(numbers, "int32") for numbers in bounds)]
        left(net, "StridedSlice", operands, net.output(np.zeros(SHAPE)[index].shape, "int32"), **masks)
        net.expected = lambda x, index=index: x[index]
        yield net


@cases("CUSTOM FlexStridedSlice")
def flex_strided_spectra() -> Iterator[Net]:
    """As a discrete cosine transform cuts its spectrum; an axis of its own behind all others is that of the pairs."""
    for masks, index, shape in (
        ({"begin_mask": 7, "end_mask": 3}, np.s_[:, :, :4], (2, 3, 4)),
        ({"ellipsis_mask": 1}, np.s_[..., 0:4:2], (2, 3, 2)),
        ({"ellipsis_mask": 1, "new_axis_mask": 2}, np.s_[..., None], (*SHAPE, 1)),
    ):
        net = Net()
        numbers, part = net.tensor(SHAPE, type_name="COMPLEX64"), net.tensor(shape, type_name="COMPLEX64")
        left(net, "Complex", [net.input(SHAPE), net.input(SHAPE)], numbers)
        slices = [p if isinstance(p, slice) else slice(0, 0) for p in index]
        bounds = [[p.start or 0 for p in slices], [p.stop or 0 for p in slices], [p.step or 1 for p in slices]]
        left(net, "StridedSlice", [numbers, *(net.const(b, "int32") for b in bounds)], part, **masks)
        net.op("IMAG", [part], [net.output(shape)])
        net.expected = lambda x, y, index=index: y[index]
        yield net


@cases("CUSTOM FlexRoll")
def flex_rolls() -> Iterator[Net]:
    for shifts, axes in (([1, -2], [1, 2]), ([7], [-1]), ([0, 3], [0, 1])):
        net = Net()
        operands = [net.input(SHAPE), net.const(shifts, "int32"), net.const(axes, "int32")]
        left(net, "Roll", operands, net.output(SHAPE))
        net.expected = lambda x, shifts=shifts, axes=axes: np.roll(x, shifts, axes)
        yield net


@cases("CUSTOM FlexEinsum")
def flex_einsums() -> Iterator[Net]:
    net = Net()
    result = net.output((2, 5, 4))
    left(net, "Einsum", [net.input(SHAPE), net.input((3, 4))], result, equation="btd, th -> bdh", N=2)
    net.expected = lambda a, b: np.einsum("btd,th->bdh", a, b)
    yield net


@cases("CUSTOM FlexComplex", *(f"CUSTOM Flex{inverse}FFT{axes}" for inverse in ("", "I") for axes in ("", "2D", "3D")))
def flex_transforms() -> Iterator[Net]:
    for inverse, axes in ((a, b) for a in ("", "I") for b in ("", "2D", "3D")):
        for constant in (True, False):
            net = Net()
            numbers, spectrum = (net.tensor(SHAPE, type_name="COMPLEX64") for _ in range(2))
            both = [net.input(SHAPE), net.const(0.5) if constant else net.input(SHAPE)]
            left(net, "Complex", both, numbers)
            left(net, f"{inverse}FFT{axes}", [numbers], spectrum)
            net.op("REAL" if axes == "2D" else "IMAG", [spectrum], [net.output(SHAPE)])
            net.expected = lambda x, y=0.5, inverse=inverse, axes=axes: transformed(x + 1j * y, inverse, axes)
            yield net


def transformed(x: Any, inverse: str, axes: str) -> Any:
    found = (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=range(3 - int(axes[:1] or 1), 3))
    return found.real if axes == "2D" else found.imag


@cases(*(f"CUSTOM Flex{inverse}RFFT{axes}" for inverse in ("", "I") for axes in ("", "2D", "3D")))
def flex_transforms_of_reals() -> Iterator[Net]:
    for axes, length in itertools.product((1, 2, 3), (1, 6, 7)):
        lengths, suffix = [2, 3, length][-axes:], f"{axes}D" if axes > 1 else ""
        over, half = range(3 - axes, 3), length // 2 + 1
        net, spectrum = Net(), (2, 3, half)
        whole, parts = net.const(lengths, "int32"), net.tensor(spectrum, type_name="COMPLEX64")
        left(net, f"RFFT{suffix}", [net.input((2, 3, length)), whole], parts)
        net.op("IMAG" if length > 1 else "REAL", [parts], [net.output(spectrum)])
        part = np.imag if length > 1 else np.real
        net.expected = lambda x, over=over, part=part: part(np.fft.rfftn(x, axes=over))
        yield net
        net = Net()
        whole, parts = net.const(lengths, "int32"), net.tensor((2, 4, 5), type_name="COMPLEX64")
        left(net, "Complex", [net.input((2, 4, 5)), net.input((2, 4, 5))], parts)
        out = (2, 3 if axes > 1 else 4, length)
        left(net, f"IRFFT{suffix}", [parts, whole], net.output(out))
        net.expected = lambda x, y, s=lengths, over=over: np.fft.irfftn(x + 1j * y, s, over)
        yield net
