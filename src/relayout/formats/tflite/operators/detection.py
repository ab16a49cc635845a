"""Choosing among boxes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.builder import Dim, dims
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.elementwise import two
from relayout.formats.tflite.operators.shape import scalar
from relayout.formats.tflite.operators.slicing import squeeze, unsqueeze
from relayout.formats.tflite.registry import Unsupported, operator

_INT64 = ir.DataType.INT64


def _chosen(op: Operation) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Indices of the boxes that are kept, how many there are, and what is missing to the number wanted."""
    boxes, scores = unsqueeze(op, op.real(0), [0]), unsqueeze(op, op.real(1), [0, 1])
    most = op.reshape(op.cast(op.stored(2), _INT64), (1,))
    limits = [op.reshape(op.real(i), (1,)) for i in (3, 4)]
    found = op.out_dims((None,))[0] if not op.is_constant(2) else None
    rows = op.emit("NonMaxSuppression", [boxes, scores, most, *limits], (found, 3), _INT64)
    indices = squeeze(op, op.emit("Gather", [rows, op.ints([2], "column")], (found, 1), axis=1), [1])
    count = op.emit("Shape", [indices], (1,), _INT64)
    return indices, count, two(op, "Sub", most, count)


def _filled(op: Operation, x: ir.Value, missing: ir.Value) -> ir.Value:
    """Zeros behind what was found, up to the number wanted."""
    pads = op.emit("Concat", [op.ints([0], "begin"), missing], (2,), axis=0)
    extent: Dim = op.integers(2, 1)[0] if op.is_constant(2) else None
    return op.emit("Pad", [x, pads], op.out_dims((extent,)), mode="constant")


@operator("NON_MAX_SUPPRESSION_V4")
def non_max_suppression_v4(op: Operation) -> None:
    """NonMaxSuppression of one class, filled up with zeros; then how many boxes there are."""
    indices, count, missing = _chosen(op)
    op.result_stored(_filled(op, indices, missing), 0)
    op.result_stored(scalar(op, count), 1)


@operator("NON_MAX_SUPPRESSION_V5")
def non_max_suppression_v5(op: Operation) -> None:
    """The same, with the scores; soft suppression has no ONNX counterpart."""
    if not op.is_constant(5) or np.any(op.constant(5) != 0):
        raise Unsupported("soft suppression")
    indices, count, missing = _chosen(op)
    scores = op.real(1)
    kept = op.emit("Gather", [scores, indices], dims(indices), axis=0)
    op.result_stored(_filled(op, indices, missing), 0)
    op.result_stored(_filled(op, kept, missing), 1)
    op.result_stored(scalar(op, count), 2)
