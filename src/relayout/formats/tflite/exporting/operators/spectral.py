"""Fourier transforms, as products with matrices."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.draft import DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.standard_definitions import transform_matrix


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
    matrix = transform_matrix(length, bins, length, length, width)
    if window is not None:
        weights = np.zeros(length)
        begin = (length - len(window)) // 2
        weights[begin : begin + len(window)] = window
        matrix = (matrix * np.repeat(weights, width)).astype(np.float32)
    op.give(transformed(op, taken, matrix, bins))
