"""NonMaxSuppression: one NON_MAX_SUPPRESSION_V4 for each image and class."""

from __future__ import annotations

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Operand, Steps

MOST = 512
"""Images times classes for which it is written."""

MOST_SELECTED = 2**31 - 1
"""The largest number of boxes that is selected."""
FAR = 1e7
"""A coordinate that no box has: whole numbers next to it are still told apart."""


@exporter("NonMaxSuppression")
def non_max_suppression(op: NodeExport) -> None:
    """TOPK_V2 and NON_MAX_SUPPRESSION_V4 for each image and class, and CONCATENATION of what they select."""
    steps = Steps(op)
    (images,), count = known(op.dims(0)[:1]), steps.extent(op.input(0), 1)
    (classes,) = known(op.dims(1)[1:2])
    if images * classes > MOST:
        raise Unwritable(f"a selection in more than {MOST} classes and images")
    limits = _limits(steps, count)
    boxes, scores = op.input(0), op.input(1)
    boxes = _corners(steps, boxes) if op.integer("center_point_box") else boxes
    found = []
    for image in range(images):
        here = _apart(steps, steps.at(boxes, 0, image))
        for number in range(classes):
            row = steps.at(steps.at(scores, 0, image), 0, number)
            found.append(_selected(steps, here, row, limits, (image, number)))
    dims = (f"?{op.name}", 3)
    joined = found[0] if len(found) == 1 else op.emit("CONCATENATION", found, dims, axis=0)
    steps.give(steps.cast(joined, TensorType.INT64))


def _limits(steps: Steps, count: Operand) -> list[DraftTensor]:
    """Return how many boxes are selected at most, and the thresholds of overlap and score."""
    op = steps.op
    most = op.constant(2) if op.has(2) else np.array(0)
    if most is None:
        largest = steps.minimum(steps.cast(steps.reshape(op.input(2), ()), TensorType.INT32), count)
        largest = steps.maximum(largest, 0)
    else:
        number = steps.ints(np.array(np.clip(int(most.reshape(-1)[0]), 0, MOST_SELECTED)))
        largest = steps.minimum(number, count)
    overlap = _beyond(steps)
    lowest = np.float32(np.finfo(np.float32).min)
    score = steps.reshape(op.input(4), ()) if op.has(4) else op.const(np.asarray(lowest))
    return [largest, overlap, score]


def _beyond(steps: Steps) -> DraftTensor:
    """Return the least overlap above the threshold: LiteRT's kernel also leaves out boxes that overlap by it."""
    op = steps.op
    threshold = op.constant(3) if op.has(3) else np.zeros(1, np.float32)
    if threshold is not None and threshold.size != 1:
        raise Unwritable(f"{threshold.size} thresholds where it reads 1")
    if threshold is None:
        return steps.maximum(steps.mul(steps.reshape(op.input(3), ()), 1 + 2.0**-23), float(np.finfo(np.float32).tiny))
    return op.const(np.asarray(np.nextafter(np.float32(threshold.reshape(-1)[0]), np.float32(2))))


def _selected(
    steps: Steps, boxes: DraftTensor, scores: DraftTensor, limits: list[DraftTensor], names: tuple[int, int]
) -> DraftTensor:
    """Return the rows (image, class, box) of one class of one image.

    Of equal scores LiteRT's kernel takes any first, and ONNX the first box. So boxes are sorted before, which TOPK_V2
    does as ONNX wants it, and their scores are their ranks from behind: no two are equal.
    """
    largest, overlap, threshold = limits
    (count,), (image, number) = scores.dims, names
    some, op = (f"?{steps.op.name}.{image}.{number}",), steps.op
    kinds: list[tuple[TensorType, Dims]] = [(scores.type, (count,)), (TensorType.INT32, (count,))]
    values, order = steps.outputs("TOPK_V2", [scores, steps.tensor(steps.extent(scores, 0), TensorType.INT32)], kinds)
    ranks = steps.cast(steps.sub(steps.extent(scores, 0), steps.numbers(steps.extent(scores, 0), count)), scores.type)
    ranks = steps.select(steps.compare("GREATER", values, threshold), ranks, 0.0)
    inputs = [steps.gather(boxes, order, 0), ranks, largest, overlap, op.const(np.array(0, np.float32))]
    kinds = [(TensorType.INT32, some), (TensorType.INT32, ())]
    places, valid = steps.outputs("NON_MAX_SUPPRESSION_V4", inputs, kinds)
    size = op.emit("RESHAPE", [valid, steps.ints([1])], (1,))
    kept = steps.gather(order, op.emit("SLICE", [places, steps.ints([0]), size], some), 0)
    column = op.emit("RESHAPE", [kept, steps.ints([-1, 1])], (*some, 1))
    front = steps.mul(column, 0)
    parts = [steps.add(front, image), steps.add(front, number), column]
    return op.emit("CONCATENATION", parts, (*some, 3), axis=1)


def _apart(steps: Steps, boxes: DraftTensor) -> DraftTensor:
    """Return boxes of which those without an area lie far from all others, each by itself.

    They overlap with nothing, and once LiteRT's kernel has selected one, it selects no other box.
    """
    sides = steps.sub(steps.part(boxes, -1, 2, 2), steps.part(boxes, -1, 0, 2))
    area = steps.mul(steps.part(sides, -1, 0, 1), steps.part(sides, -1, 1, 1))
    numbers = steps.cast(steps.numbers(steps.extent(boxes, 0), boxes.dims[0]), boxes.type)
    along = steps.mul(steps.reshape(numbers, (*numbers.dims, 1)), np.array([-2.0, 0.0, -2.0, 0.0]))
    places = steps.add(along, np.array([-FAR, -FAR, 1 - FAR, 1 - FAR]))
    return steps.select(steps.compare("EQUAL", area, 0.0), places, boxes)


def _corners(steps: Steps, boxes: DraftTensor) -> DraftTensor:
    """Return boxes `x y width height` as `y1 x1 y2 x2`."""
    x, y, width, height = (steps.part(boxes, -1, place, 1) for place in range(4))
    half = [steps.mul(each, 0.5) for each in (height, width)]
    return steps.concat(
        [steps.sub(y, half[0]), steps.sub(x, half[1]), steps.add(y, half[0]), steps.add(x, half[1])], -1
    )
