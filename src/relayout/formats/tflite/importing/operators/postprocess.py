"""The custom operator at the end of detection networks: boxes from offsets to anchors, and the best of them."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.custom import Options
from relayout.formats.tflite.importing.operators.elementwise import one, two
from relayout.formats.tflite.importing.operators.slicing import cut, divided, joined, squeeze, unsqueeze
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.light_dataclass import dataclass

_FLOAT, _INT64 = ir.DataType.FLOAT, ir.DataType.INT64
_MOST = 100_000
"""Detections; as many as the file says are padded to."""


@operator("CUSTOM TFLite_Detection_PostProcess")
def detection_postprocess(op: Operation) -> None:
    """NonMaxSuppression over decoded boxes, over all classes at once or, with `use_regular_nms`, class by class.

    1. A box is centre and size, relative to its anchor: `y x h w`, divided by their scales, h and w as exponents.
    2. Scores may have one class more than there are, in front: the background, which is left out.
    3. A score counts from the threshold on (ONNX counts those above it).
    4. Results are filled up with zeros; the last one tells, as a float, how many are meant.
    """
    options = Options(op)
    classes, most = options.count("num_classes", most=_MOST), options.count("max_detections", most=_MOST)
    per_box = options.count("max_classes_per_detection", most=_MOST)
    if per_box > classes:
        raise Unsupported("more classes for each detection than there are")
    boxes, scores = _decoded(op, options), _without_background(op, classes)
    limits = _Limits(op, options)
    if options.number("use_regular_nms", 0):
        per_class = options.count("detections_per_class", 100, most=_MOST)
        picked, labels, values = _regular(op, boxes, scores, limits, per_class, most)
    else:
        picked, labels, values = _fast(op, boxes, scores, limits, most, per_box)
    found = op.emit("Shape", [labels], (1,), _INT64)
    count = found
    if per_box > 1 and not options.number("use_regular_nms", 0):
        count = two(op, "Div", found, op.ints([per_box], "classes"))
    rows = most * per_box
    missing = two(op, "Sub", op.ints([rows], "rows"), found)
    for i, value in enumerate((picked, op.cast(labels, _FLOAT), values)):
        rank = len(dims(value))
        pads = joined(op, [op.ints([0] * rank, "begin"), missing, op.ints([0] * (rank - 1), "end")], 0)
        filled = op.emit("Pad", [value, pads], (rows, *dims(value)[1:]), mode="constant")
        op.result(unsqueeze(op, filled, [0]), i)
    op.result(op.cast(count, _FLOAT), 3)


@dataclass
class _Limits:
    """The thresholds as operands of NonMaxSuppression."""

    op: Operation
    options: Options

    def suppress(self, boxes: ir.Value, scores: ir.Value, most: int) -> ir.Value:
        """`found (batch class box)`."""
        op = self.op
        overlap = self.options.number("nms_iou_threshold")
        threshold = np.float32(self.options.number("nms_score_threshold"))
        if not 0 <= overlap <= 1:
            raise ReadError(f"the option nms_iou_threshold is {overlap}", where=op.place)
        below = np.nextafter(threshold, np.float32(-math.inf))
        operands = [op.ints([most], "most")] + [
            op.builder.array(op.hint(name), np.array([v], np.float32))
            for name, v in (("iou", overlap), ("score", below))
        ]
        found = op.builder.names.unique(op.hint("found"))
        return op.emit("NonMaxSuppression", [boxes, scores, *operands], (found, 3), _INT64)


def _decoded(op: Operation, options: Options) -> ir.Value:
    """`1 box (top left bottom right)`."""
    op.require_rank(0, 3)
    op.require_rank(2, 2)
    offsets, anchors = cut(op, op.real(0), [0], [4], [2]), unsqueeze(op, op.real(2), [0])
    offsets = _alone(op, offsets)
    batch, count, width = dims(offsets)
    if batch != 1 or width != 4 or dims(anchors)[1:] != (count, 4):
        raise ReadError(f"boxes of shape {list(dims(offsets))}, anchors of {list(dims(anchors))}", where=op.place)
    scales = [options.number(f"{axis}_scale") for axis in "yxhw"]
    if 0 in scales:
        raise ReadError("a scale is 0", where=op.place)
    scaled = two(op, "Div", offsets, op.builder.array(op.hint("scales"), np.array(scales, np.float32)))
    shift, growth = divided(op, scaled, 2, [2, 2])
    centre, size = divided(op, anchors, 2, [2, 2])
    middle = two(op, "Add", two(op, "Mul", shift, size), centre)
    half = two(op, "Mul", two(op, "Mul", one(op, "Exp", growth), size), op.number(0.5, growth, "half"))
    return joined(op, [two(op, "Sub", middle, half), two(op, "Add", middle, half)], 2)


def _alone(op: Operation, value: ir.Value) -> ir.Value:
    """One image: the kernel takes no more, so an unknown batch is 1."""
    _, *rest = dims(value)
    known = all(isinstance(dim, int) for dim in rest)
    return value if isinstance(dims(value)[0], int) or not known else op.reshape(value, (1, *rest))


def _without_background(op: Operation, classes: int) -> ir.Value:
    """`1 box class`."""
    op.require_rank(1, 3)
    scores = _alone(op, op.real(1))
    there = dims(scores)[2]
    if there not in (classes, classes + 1):
        raise ReadError(f"{there} scores for {classes} classes", where=op.place)
    return cut(op, scores, [1], [classes + 1], [2]) if there == classes + 1 else scores


def _column(op: Operation, rows: ir.Value, column: int) -> ir.Value:
    return squeeze(op, op.emit("Gather", [rows, op.ints([column], "column")], (dims(rows)[0], 1), axis=1), [1])


def _fast(
    op: Operation, boxes: ir.Value, scores: ir.Value, limits: _Limits, most: int, per_box: int
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Each box counts with its best class; those that are kept get their best classes."""
    count, classes = dims(scores)[1:]
    best = op.emit("ReduceMax", [scores, op.ints([2])], (1, count), keepdims=0)
    kept = _column(op, limits.suppress(boxes, unsqueeze(op, best, [1]), most), 2)
    found = dims(kept)[0]
    theirs = op.emit("Gather", [squeeze(op, scores, [0]), kept], (found, classes), axis=0)
    values, labels = op.builder.emit(
        "TopK",
        [theirs, op.ints([per_box], "classes")],
        [(op.hint("best"), _FLOAT, (found, per_box)), (op.hint("class"), _INT64, (found, per_box))],
        source=op.source,
        axis=1,
    )
    picked = op.emit("Gather", [squeeze(op, boxes, [0]), kept], (found, 4), axis=0)
    if per_box == 1:
        return picked, squeeze(op, labels, [1]), squeeze(op, values, [1])
    each = unsqueeze(op, picked, [1])
    spread = op.emit("Expand", [each, op.ints([1, per_box, 1], "shape")], (found, per_box, 4))
    rows = op.builder.names.unique(op.hint("rows"))
    shapes: list[tuple[ir.Value, Dims, list[int]]] = [
        (spread, (rows, 4), [-1, 4]),
        (labels, (rows,), [-1]),
        (values, (rows,), [-1]),
    ]
    flat = [op.emit("Reshape", [v, op.ints(target, "shape")], shape) for v, shape, target in shapes]
    return flat[0], flat[1], flat[2]


def _regular(
    op: Operation, boxes: ir.Value, scores: ir.Value, limits: _Limits, per_class: int, most: int
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Each class by itself; then the best of all of them."""
    _, count, classes = dims(scores)
    by_class = op.emit("Transpose", [scores], (1, classes, count), perm=[0, 2, 1])
    rows = limits.suppress(boxes, by_class, per_class)
    values = op.emit("GatherND", [by_class, rows], (dims(rows)[0],))
    there = op.emit("Shape", [values], (1,), _INT64)
    wanted = op.emit("Min", [there, op.ints([most], "most")], (1,), _INT64)
    found: Dims = (op.builder.names.unique(op.hint("kept")),)
    best, order = op.builder.emit(
        "TopK",
        [values, wanted],
        [(op.hint("best"), _FLOAT, found), (op.hint("order"), _INT64, found)],
        source=op.source,
        axis=0,
    )
    labels = op.emit("Gather", [_column(op, rows, 1), order], found, axis=0)
    kept = op.emit("Gather", [_column(op, rows, 2), order], found, axis=0)
    return op.emit("Gather", [squeeze(op, boxes, [0]), kept], (*found, 4), axis=0), labels, best
