"""Fourier transforms, as products with matrices."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.draft import DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

LARGEST = 1 << 24
"""Elements of a matrix up to which a transform is written."""
AXIS_AS_OPERAND = 20
"""The version of ONNX from which on the axis of a DFT is an operand."""


@exporter("DFT")
def dft(op: NodeExport) -> None:
    """FULLY_CONNECTED with the transform's matrix, real and imaginary parts side by side."""
    operand = op.input(0)
    dims, rank = known(operand.dims), op.rank()
    axis = op.integer("axis", 1)
    if op.version >= AXIS_AS_OPERAND:
        axis = int(op.required_constant(2, "the axis of a transform").reshape(-1)[0]) if op.has(2) else -2
    axis %= rank
    count = dims[axis]
    inverse, onesided = bool(op.integer("inverse")), bool(op.integer("onesided"))
    is_real = inverse and onesided  # half a spectrum, which is that of real numbers
    length = 2 * (count - 1) if is_real else count
    if op.has(1):
        length = int(op.required_constant(1, "the length of a transform").reshape(-1)[0])
    bins = length // 2 + 1 if onesided and not inverse else length
    order = [*(each for each in range(rank - 1) if each != axis), axis, rank - 1]
    moved = op.transpose(operand, order)
    if is_real:
        made = transformed(op, moved, from_half(length, count), bins, parts=1)
    else:
        matrix = fourier(length, bins, min(count, length), count, dims[-1], inverse=inverse)
        made = transformed(op, moved, matrix, bins)
    back = [order.index(each) for each in range(rank)]
    op.give(op.transpose(made, back))


def fourier(length: int, bins: int, used: int, count: int, parts: int, *, inverse: bool = False) -> NDArray[np.float32]:
    """Return the matrix of a transform, `bins·2 count·parts`.

    Args:
        length: of the transform.
        bins: frequencies that are wanted.
        used: elements that count.
        count: elements that there are.
        parts: 1 for real numbers, 2 for complex ones.
        inverse: whether it is the way back.

    Raises:
        Unwritable: it is too large.
    """
    if bins * count * 2 * parts > LARGEST:
        raise Unwritable("a transform of that length")
    angles = 2 * np.pi * ((np.arange(bins)[:, None] * np.arange(used)) % length) / length
    real, imaginary = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    matrix = np.zeros((bins, 2, count, parts))
    matrix[:, 0, :used, 0], matrix[:, 1, :used, 0] = real, imaginary
    if parts > 1:
        matrix[:, 0, :used, 1], matrix[:, 1, :used, 1] = -imaginary, real
    if inverse:
        matrix /= length
    return matrix.reshape(bins * 2, count * parts).astype(np.float32)


def from_half(length: int, count: int) -> NDArray[np.float32]:
    """Return the matrix of the way back from half a spectrum to real numbers, `length count·2`.

    Each frequency but the first and that of half the length stands for its mirror image, too.

    Args:
        length: of the result.
        count: frequencies that there are: those beyond half the length do not count.

    Raises:
        Unwritable: it is too large.
    """
    if length * count * 2 > LARGEST:
        raise Unwritable("a transform of that length")
    frequencies = np.arange(min(count, length // 2 + 1))
    angles = 2 * np.pi * ((np.arange(length)[:, None] * frequencies) % length) / length
    weights = np.where((frequencies == 0) | (2 * frequencies == length), 1, 2) / length
    matrix = np.zeros((length, count, 2))
    matrix[:, : len(frequencies), 0] = weights * np.cos(angles)
    matrix[:, : len(frequencies), 1] = -weights * np.sin(angles)
    return matrix.reshape(length, count * 2).astype(np.float32)


def transformed(
    op: NodeExport, tensor: DraftTensor, matrix: NDArray[np.float32], bins: int, *, parts: int = 2
) -> DraftTensor:
    """Return a tensor `… count parts` as `… bins 2`, or `… bins 1` where the result is real."""
    front = known(tensor.dims[:-2])
    flat = op.reshape(tensor, (prod(front), matrix.shape[1]))
    made = op.emit("FULLY_CONNECTED", [flat, op.const(matrix)], (prod(front), matrix.shape[0]))
    return op.reshape(made, (*front, bins, parts))


@exporter("STFT")
def stft(op: NodeExport) -> None:
    """GATHER of frames, and FULLY_CONNECTED with the transform's matrix, which the window is a part of."""
    batch, count, *parts = op.static()
    step = int(op.required_constant(1, "the step between frames").reshape(-1)[0])
    window = op.required_constant(2, "a window") if op.has(2) else None
    if op.has(3):
        length = int(op.required_constant(3, "the length of a frame").reshape(-1)[0])
    elif window is not None:
        length = len(window)
    else:
        raise Unwritable("frames without a length")
    width = parts[0] if parts else 1
    bins = length // 2 + 1 if op.integer("onesided", 1) else length
    frames = (count - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)
    signal = op.reshape(op.input(0), (batch, count, width))
    taken = op.gather(signal, op.ints(places), 1)
    matrix = fourier(length, bins, length, length, width)
    if window is not None:
        weights = np.zeros(length)
        begin = (length - len(window)) // 2
        weights[begin : begin + len(window)] = window
        matrix = (matrix * np.repeat(weights, width)).astype(np.float32)
    op.give(transformed(op, taken, matrix, bins))
