"""The mean of a quantized image over height and width as GlobalAveragePool, of which there is an integer kernel."""

from __future__ import annotations

from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.reduction import mean_of_steps
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST


def mean_as_pool(op: Operation) -> bool:
    """Hand over a MEAN as GlobalAveragePool, if it is one of quantized images over height and width."""
    if mean_of_steps(op):
        return True
    rank, quantized = len(dims(op.stored(0))), op.tensors.quantization(op.input(0)) is not None
    if not quantized or rank != 4 or not op.is_constant(1) or {op.axis(a, 4) for a in op.integers(1)} != {1, 2}:
        return False
    n, _, _, c = dims(op.stored(0))
    pooled = op.emit("GlobalAveragePool", [op.real(0, TO_FIRST)], (n, c, 1, 1))
    y = op.transpose(op.quantize(pooled), TO_LAST)
    op.result_stored(y if op.options.keep_dims else op.emit("Squeeze", [y, op.ints([1, 2])], (n, c)))
    return True
