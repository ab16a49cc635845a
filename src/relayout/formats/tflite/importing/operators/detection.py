"""Choosing among boxes."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.extents import product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.custom import Options
from relayout.formats.tflite.importing.operators.gathering import counted
from relayout.formats.tflite.importing.operators.reduction import top_elements
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import cut, divided, joined, squeeze, unsqueeze
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.registry import Unsupported, operator

# The custom operator at the end of detection networks: boxes from offsets to anchors, and the best of them.

_FLOAT = ir.DataType.FLOAT
_INT64 = ir.DataType.INT64
_MOST = 100_000  # Detections; as many as the file says are padded to


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
    if options.number("use_regular_nms", 0):
        per_class = options.count("detections_per_class", 100, most=_MOST)
        picked, labels, values = _regular(op, boxes, scores, options, per_class, most)
    else:
        picked, labels, values = _fast(op, boxes, scores, options, most, per_box)
    label_count = op.emit("Shape", [labels])
    count = label_count
    if per_box > 1 and not options.number("use_regular_nms", 0):
        count = op.each("Div", label_count, op.ints([per_box], "classes"))
    rows = most * per_box
    missing = op.each("Sub", op.ints([rows], "rows"), label_count)
    for i, value in enumerate((picked, op.cast(labels, _FLOAT), values)):
        op.result(unsqueeze(op, _filled_up(op, value, missing, rows), [0]), i)
    op.result(op.cast(count, _FLOAT), 3)


def _filled_up(op: Operation, value: ir.Value, missing: ir.Value, length: int, axis: int = 0) -> ir.Value:
    """Zeros behind the elements along an axis, up to the number wanted."""
    shape, rank = dims(value), len(dims(value))
    pads = joined(op, [op.ints([0] * (rank + axis), "begin"), missing, op.ints([0] * (rank - 1 - axis), "end")], 0)
    return op.emit("Pad", [value, pads], (*shape[:axis], length, *shape[axis + 1 :]), mode="constant")


def _suppressed(op: Operation, options: Options, boxes: ir.Value, scores: ir.Value, most: int) -> ir.Value:
    """`found (batch class box)`."""
    overlap = options.number("nms_iou_threshold")
    threshold = np.float32(options.number("nms_score_threshold"))
    if not 0 <= overlap <= 1:
        raise op.damaged(f"the option nms_iou_threshold is {overlap}")
    limits = (("iou", overlap), ("score", np.nextafter(threshold, np.float32(-math.inf))))
    operands = [op.ints([most], "most")]
    operands += [op.array(name, np.array([v], np.float32)) for name, v in limits]
    row_count = op.builder.names.unique(op.hint("found"))
    return op.emit("NonMaxSuppression", [boxes, scores, *operands], (row_count, 3), _INT64)


def _decoded(op: Operation, options: Options) -> ir.Value:
    """`1 box (top left bottom right)`."""
    op.require_rank(0, 3)
    op.require_rank(2, 2)
    offsets, anchors = cut(op, op.real(0), [0], [4], [2]), unsqueeze(op, op.real(2), [0])
    offsets = _alone(op, offsets)
    batch, count, width = dims(offsets)
    if batch != 1 or width != 4 or dims(anchors)[1:] != (count, 4):
        raise op.damaged(f"boxes of shape {list(dims(offsets))}, anchors of {list(dims(anchors))}")
    scales = [options.number(f"{axis}_scale") for axis in "yxhw"]
    if 0 in scales:
        raise op.damaged("a scale is 0")
    scaled = op.each("Div", offsets, op.array("scales", np.array(scales, np.float32)))
    shift, growth = divided(op, scaled, 2, [2, 2])
    centre, size = divided(op, anchors, 2, [2, 2])
    middle = op.each("Add", op.each("Mul", shift, size), centre)
    half = op.each("Mul", op.each("Mul", op.each("Exp", growth), size), op.number(0.5, growth, "half"))
    return joined(op, [op.each("Sub", middle, half), op.each("Add", middle, half)], 2)


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
        raise op.damaged(f"{there} scores for {classes} classes")
    return cut(op, scores, [1], [classes + 1], [2]) if there == classes + 1 else scores


def _column(op: Operation, rows: ir.Value, column: int) -> ir.Value:
    return squeeze(op, op.emit("Gather", [rows, op.ints([column], "column")], axis=1), [1])


def _fast(
    op: Operation, boxes: ir.Value, scores: ir.Value, options: Options, most: int, per_box: int
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Each box counts with its best class; those that are kept get their best classes."""
    best = op.emit("ReduceMax", [scores, op.ints([2])], keepdims=0)
    box_indices = _column(op, _suppressed(op, options, boxes, unsqueeze(op, best, [1]), most), 2)
    box_count = dims(box_indices)[0]
    theirs = op.emit("Gather", [squeeze(op, scores, [0]), box_indices], axis=0)
    values, labels = top_elements(
        op, theirs, op.ints([per_box], "classes"), (box_count, per_box), ("best", "class"), axis=1
    )
    picked = op.emit("Gather", [squeeze(op, boxes, [0]), box_indices], axis=0)
    if per_box == 1:
        return picked, squeeze(op, labels, [1]), squeeze(op, values, [1])
    each = unsqueeze(op, picked, [1])
    spread = op.emit("Expand", [each, op.ints([1, per_box, 1], "shape")])
    rows = op.builder.names.unique(op.hint("rows"))
    shapes: list[tuple[ir.Value, Dims, list[int]]] = [
        (spread, (rows, 4), [-1, 4]),
        (labels, (rows,), [-1]),
        (values, (rows,), [-1]),
    ]
    flat = [op.emit("Reshape", [v, op.ints(target, "shape")], shape) for v, shape, target in shapes]
    return flat[0], flat[1], flat[2]


def _regular(
    op: Operation, boxes: ir.Value, scores: ir.Value, options: Options, per_class: int, most: int
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Each class by itself; then the best of all of them."""
    by_class = op.emit("Transpose", [scores], perm=[0, 2, 1])
    rows = _suppressed(op, options, boxes, by_class, per_class)
    values = op.emit("GatherND", [by_class, rows])
    count = op.emit("Min", [op.emit("Shape", [values]), op.ints([most], "most")])
    shape: Dims = (op.builder.names.unique(op.hint("kept")),)
    best, order = top_elements(op, values, count, shape, ("best", "order"), axis=0)
    labels = op.emit("Gather", [_column(op, rows, 1), order], axis=0)
    box_indices = op.emit("Gather", [_column(op, rows, 2), order], axis=0)
    return op.emit("Gather", [squeeze(op, boxes, [0]), box_indices], axis=0), labels, best


def _chosen(op: Operation) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Indices of the boxes that are kept, how many there are, and what is missing to the number wanted."""
    boxes, scores = unsqueeze(op, op.real(0), [0]), unsqueeze(op, op.real(1), [0, 1])
    most = op.reshape(op.cast(op.stored(2), _INT64), (1,))
    limits = [op.reshape(op.real(i), (1,)) for i in (3, 4)]
    # How many are found depends on the data, so the extent stays open.
    rows = op.emit("NonMaxSuppression", [boxes, scores, most, *limits], (None, 3), _INT64)
    indices = squeeze(op, op.emit("Gather", [rows, op.ints([2], "column")], axis=1), [1])
    count = op.emit("Shape", [indices])
    return indices, count, op.each("Sub", most, count)


def _filled(op: Operation, x: ir.Value, missing: ir.Value) -> ir.Value:
    """Zeros behind what was found, up to the number wanted."""
    pads = op.emit("Concat", [op.ints([0], "begin"), missing], axis=0)
    return op.emit("Pad", [x, pads], _result_extents(op), mode="constant")


def _result_extents(op: Operation) -> Dims:
    """Return the extent of results: as many boxes as are asked for."""
    return op.out_dims((op.integers(2, 1)[0] if op.is_constant(2) else None,))


@operator("NON_MAX_SUPPRESSION_V4")
def non_max_suppression_v4(op: Operation) -> None:
    """NonMaxSuppression of one class, filled up with zeros; then how many boxes there are."""
    indices, count, missing = _chosen(op)
    op.result_stored(_filled(op, indices, missing), 0)
    op.result_stored(scalar(op, count), 1)


@operator("NON_MAX_SUPPRESSION_V5")
def non_max_suppression_v5(op: Operation) -> None:
    """NonMaxSuppression with the scores, too; a Loop where overlapping boxes lose score instead of being dropped."""
    if not op.is_constant(5):
        raise Unsupported("a computed sigma")
    sigma = float(op.constant(5).reshape(-1)[0])
    if sigma > 0:
        _softly(op, sigma)
        return
    indices, count, missing = _chosen(op)
    selected_scores = op.emit("Gather", [op.real(1), indices], axis=0)
    op.result_stored(_filled(op, indices, missing), 0)
    op.result_stored(_filled(op, selected_scores, missing), 1)
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
    top, left, bottom, right = (squeeze(op, part, [1]) for part in parts)
    # Either corner may come first.
    low = [op.each("Min", a, b) for a, b in ((top, bottom), (left, right))]
    high = [op.each("Max", a, b) for a, b in ((top, bottom), (left, right))]
    height, width = (op.each("Sub", h, w) for h, w in zip(high, low, strict=True))
    area = op.each("Mul", height, width)
    zero = op.number(0, scores, "zero")

    def picked(value: ir.Value, at: ir.Value) -> ir.Value:
        return op.emit("Gather", [value, at], axis=0)

    round_ = op.builder.value(op.builder.names.unique(op.hint("round")), _INT64, ())
    going = op.builder.value(op.builder.names.unique(op.hint("going")), ir.DataType.BOOL, ())
    remaining = op.builder.value(op.builder.names.unique(op.hint("left")), ir.DataType.FLOAT, (n,))
    with op.builder.body() as nodes:
        best = op.emit("ArgMax", [remaining], axis=0, keepdims=0)
        score = picked(remaining, best)
        valid = op.each("Greater", score, least)
        sides = [
            op.each("Max", op.each("Sub", op.each("Min", h, picked(h, best)), op.each("Max", w, picked(w, best))), zero)
            for h, w in zip(high, low, strict=True)
        ]
        shared = op.each("Mul", sides[0], sides[1])
        whole = op.each("Sub", op.each("Add", area, picked(area, best)), shared)
        empty = op.each("LessOrEqual", whole, zero)
        overlap = op.each("Div", shared, op.emit("Where", [empty, op.number(1, scores, "one"), whole]))
        square = op.each("Mul", op.each("Mul", overlap, overlap), op.number(-0.5 / sigma, scores, "rate"))
        less = op.each("Mul", remaining, op.emit("Exp", [square]))
        at_best = op.each("Equal", counted(op, op.emit("Size", [remaining]), n), best)
        gone = op.each("Or", op.each("GreaterOrEqual", overlap, limit), at_best)
        next_scores = op.emit("Where", [gone, op.number(-math.inf, scores, "none"), less])
        index = op.emit("Where", [valid, best, op.number(0, best, "zero")])
        best_score = op.emit("Where", [valid, score, zero])
        one = op.cast(valid, _INT64)
        still = op.emit("Identity", [going])
    body = ir.Graph(
        [round_, going, remaining], [still, next_scores, index, best_score, one], nodes=nodes, name=op.hint("body")
    )
    most, rows = scalar(op, op.cast(op.stored(2), _INT64)), _result_extents(op)
    always = op.array("true", np.array(True))
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
    op.result_stored(op.emit("ReduceSum", [flags, op.ints([0])], keepdims=0), 2)


# TensorFlow's operator at the end of detection networks, which is left to the Flex delegate.


@operator("CUSTOM FlexCombinedNonMaxSuppression")
def combined_non_max_suppression(op: Operation) -> None:
    """NonMaxSuppression class by class; of what it keeps of an image TopK, among `b (c n)` scores.

    1. Boxes are `b n q 4`: one for all classes, or one for each. Scores are `b n c`; one counts above the threshold.
    2. Results are filled up with zeros; the last one tells how many are meant.
    """
    op.require_rank(0, 4)
    op.require_rank(1, 3)
    boxes, scores = op.real(0), op.transpose(op.real(1), [0, 2, 1])
    batch, _, count = dims(scores)
    (classes,) = op.fixed(dims(scores)[1:2], "an unknown number of classes")
    if dims(boxes)[2] not in (1, classes) or dims(boxes)[3] != 4:
        raise op.damaged(f"boxes of shape {list(dims(boxes))} for {classes} classes")
    each, whole = dims(boxes)[2] != 1, product((classes, count))
    table = _flat(op, _selected_scores(op, boxes, scores, each), (batch, whole))
    (total,) = op.integers(3, 1)  # boxes of an image that the results have
    if total < 1:
        raise op.damaged(f"{total} boxes are wanted")
    if attributes(op).number("pad_per_class"):
        total = min(total, op.integers(2, 1)[0] * classes)
    score_count: Dim = None  # how many scores are looked at: no more than there are
    if isinstance(whole, int):
        score_count = min(total, whole)
        most = op.ints([score_count], "most")
    else:
        most = op.each("Min", op.ints([total], "most"), op.emit("Shape", [table], start=1, end=2))
    values, places = top_elements(op, table, most, (batch, score_count), ("best", "place"), axis=1)
    there = op.each("Greater", values, op.number(-math.inf, values, "none"))
    length = op.emit("Shape", [scores], start=2, end=3)
    if each:
        boxes, index = _flat(op, op.transpose(boxes, [0, 2, 1, 3]), (batch, whole, 4)), places
    else:
        boxes, index = squeeze(op, boxes, [2]), op.each("Mod", places, length)
    picked = op.emit("GatherND", [boxes, unsqueeze(op, index, [2])], batch_dims=1)
    if attributes(op).number("clip_boxes"):
        picked = op.emit("Clip", [picked, op.number(0, picked, "low"), op.number(1, picked, "high")])
    labels = op.cast(op.each("Div", places, length), _FLOAT)
    for i, value in enumerate((picked, values, labels)):
        meant = there if i else unsqueeze(op, there, [2])
        value = op.emit("Where", [meant, value, op.number(0, value, "zero")])
        if score_count != total:
            value = _filled_up(op, value, op.each("Sub", op.ints([total], "total"), most), total, 1)
        op.result(value, i)
    op.result_stored(op.emit("ReduceSum", [op.cast(there, ir.DataType.INT32), op.ints([1])], keepdims=0), 3)


def _selected_scores(op: Operation, boxes: ir.Value, scores: ir.Value, each: bool) -> ir.Value:
    """Return the scores `b c n`, those of boxes that are not kept infinitely low."""
    batch, classes, count = dims(scores)
    if each:  # an image for every class of an image
        images = product((batch, classes))
        boxes = op.reshape(op.transpose(boxes, [0, 2, 1, 3]), (images, count, 4))
        scores = op.reshape(scores, (images, 1, count))
    else:
        boxes = squeeze(op, boxes, [2])
    if op.is_constant(4) and not 0 <= float(op.constant(4).reshape(-1)[0]) <= 1:
        raise op.damaged("the limit of overlaps is not between 0 and 1")
    most = op.reshape(op.cast(op.stored(2), _INT64), (1,))
    limits = [op.reshape(op.real(i), (1,)) for i in (4, 5)]
    row_count = op.builder.names.unique(op.hint("found"))
    rows = op.emit("NonMaxSuppression", [boxes, scores, most, *limits], (row_count, 3), _INT64)
    shape = op.emit("Shape", [scores])
    low = op.emit("ConstantOfShape", [shape], dtype=_FLOAT, value=ir.tensor([-math.inf], _FLOAT))
    selected_scores = op.emit("ScatterND", [low, rows, op.emit("GatherND", [scores, rows])])
    return op.reshape(selected_scores, (batch, classes, count)) if each else selected_scores


def _flat(op: Operation, x: ir.Value, shape: tuple[Dim, ...]) -> ir.Value:
    """`b c n ... -> b (c n) ...`."""
    return op.emit("Reshape", [x, op.ints([0, -1, *shape[2:]], "shape")], shape)  # type: ignore[list-item]
