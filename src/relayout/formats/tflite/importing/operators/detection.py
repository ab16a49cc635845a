"""Choosing among boxes."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import two
from relayout.formats.tflite.importing.operators.gathering import counted
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import squeeze, unsqueeze
from relayout.formats.tflite.importing.registry import Unsupported, operator

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


def _chosen(op: Operation) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Indices of the boxes that are kept, how many there are, and what is missing to the number wanted."""
    boxes, scores = unsqueeze(op, op.real(0), [0]), unsqueeze(op, op.real(1), [0, 1])
    most = op.reshape(op.cast(op.stored(2), _INT64), (1,))
    limits = [op.reshape(op.real(i), (1,)) for i in (3, 4)]
    # How many are found depends on the data, so the extent stays open.
    rows = op.emit("NonMaxSuppression", [boxes, scores, most, *limits], (None, 3), _INT64)
    indices = squeeze(op, op.emit("Gather", [rows, op.ints([2], "column")], (None, 1), axis=1), [1])
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
    """The same, with the scores; a Loop where overlapping boxes lose score instead of being dropped."""
    if not op.is_constant(5):
        raise Unsupported("a computed sigma")
    sigma = float(op.constant(5).reshape(-1)[0])
    if sigma > 0:
        _softly(op, sigma)
        return
    indices, count, missing = _chosen(op)
    scores = op.real(1)
    kept = op.emit("Gather", [scores, indices], dims(indices), axis=0)
    op.result_stored(_filled(op, indices, missing), 0)
    op.result_stored(_filled(op, kept, missing), 1)
    op.result_stored(scalar(op, count), 2)


def _softly(op: Operation, sigma: float) -> None:
    """One box each round: the best that is left. All others lose by how much they overlap with it.

    A score is multiplied by `exp(-iou^2 / (2 sigma))`, and with an overlap of the limit or more it is gone. What no
    round finds is 0.
    """
    boxes, scores = op.real(0), op.real(1)
    limit, least = scalar(op, op.real(3)), scalar(op, op.real(4))
    n = dims(scores)[0]
    parts = op.emit_all("Split", [boxes, op.ints([1] * 4, "sizes")], [(n, 1)] * 4, axis=1)
    top, left_, bottom, right = (squeeze(op, part, [1]) for part in parts)
    # Either corner may come first.
    low = [two(op, "Min", a, b) for a, b in ((top, bottom), (left_, right))]
    high = [two(op, "Max", a, b) for a, b in ((top, bottom), (left_, right))]
    height, width = (two(op, "Sub", h, w) for h, w in zip(high, low, strict=True))
    area = two(op, "Mul", height, width)
    zero = op.number(0, scores, "zero")

    def picked(value: ir.Value, at: ir.Value) -> ir.Value:
        return op.emit("Gather", [value, at], (), axis=0)

    round_ = op.builder.value(op.builder.names.unique(op.hint("round")), _INT64, ())
    going = op.builder.value(op.builder.names.unique(op.hint("going")), _BOOL, ())
    left = op.builder.value(op.builder.names.unique(op.hint("left")), ir.DataType.FLOAT, (n,))
    with op.builder.body() as nodes:
        best = op.emit("ArgMax", [left], (), _INT64, axis=0, keepdims=0)
        score = picked(left, best)
        valid = two(op, "Greater", score, least, _BOOL)
        sides = [
            two(op, "Max", two(op, "Sub", two(op, "Min", h, picked(h, best)), two(op, "Max", w, picked(w, best))), zero)
            for h, w in zip(high, low, strict=True)
        ]
        shared = two(op, "Mul", sides[0], sides[1])
        whole = two(op, "Sub", two(op, "Add", area, picked(area, best)), shared)
        empty = two(op, "LessOrEqual", whole, zero, _BOOL)
        overlap = two(
            op, "Div", shared, op.emit("Where", [empty, op.number(1, scores, "one"), whole], (n,), score.dtype)
        )
        square = two(op, "Mul", two(op, "Mul", overlap, overlap), op.number(-0.5 / sigma, scores, "rate"))
        less = two(op, "Mul", left, op.emit("Exp", [square], (n,)))
        at_best = two(op, "Equal", counted(op, op.emit("Size", [left], (), _INT64), n), best, _BOOL)
        gone = two(op, "Or", two(op, "GreaterOrEqual", overlap, limit, _BOOL), at_best)
        kept = op.emit("Where", [gone, op.number(-math.inf, scores, "none"), less], (n,), score.dtype)
        index = op.emit("Where", [valid, best, op.number(0, best, "zero")], (), _INT64)
        given = op.emit("Where", [valid, score, zero], (), score.dtype)
        one = op.cast(valid, _INT64)
        still = op.emit("Identity", [going], ())
    body = ir.Graph([round_, going, left], [still, kept, index, given, one], nodes=nodes, name=op.hint("body"))
    most = scalar(op, op.cast(op.stored(2), _INT64))
    extent: Dim = op.integers(2, 1)[0] if op.is_constant(2) else None
    rows = op.out_dims((extent,))
    always = op.builder.array(op.hint("true"), np.array(True))
    name = op.hint("soft")
    results = op.builder.emit(
        "Loop",
        [most, always, scores],
        [(name, ir.DataType.FLOAT, (n,)), (name, _INT64, rows), (name, ir.DataType.FLOAT, rows), (name, _INT64, rows)],
        source=op.source,
        body=body,
    )
    _, indices, scores_, flags = results
    op.result_stored(indices, 0)
    op.result(scores_, 1)
    op.result_stored(op.emit("ReduceSum", [flags, op.ints([0])], (), keepdims=0), 2)
