"""Regions of an image, each in a grid of bins: RoiAlign.

bin[n c i j]  =  mean over samples (y, x) of the bin of  image[n c y x], between elements

With as many samples for each bin as a region is large, their number is known only at run time, and has no limit: a
region may be larger than the image. But the mean over rows and that over columns do not depend on each other:

bin[n c i j]  =  sum over h, w of  rows[n i h] · image[n c h w] · columns[n j w]

A bin with k samples is larger than k - 1 elements, so its samples lie more than (k - 1) / k apart. Of those at most
three lie within one element of an element and weigh on it. They are found from the element's own place.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.builder import Operand
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.sampling import Tap, more
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

# NonMaxSuppression: one NON_MAX_SUPPRESSION_V4 for each image and class.

MOST = 512  # images times classes for which it is written

MOST_SELECTED = 2**31 - 1  # the largest number of boxes that is selected
FAR = 1e7  # a coordinate that no box has: whole numbers next to it are still told apart


@exporter("NonMaxSuppression")
def non_max_suppression(op: NodeExport) -> None:
    """TOPK_V2 and NON_MAX_SUPPRESSION_V4 for each image and class, and CONCATENATION of what they select."""
    (images,), count = known(op.dims(0)[:1]), op.extent(op.input(0), 1)
    (classes,) = known(op.dims(1)[1:2])
    if images * classes > MOST:
        raise Unwritable(f"a selection in more than {MOST} classes and images")
    limits = _limits(op, count)
    boxes, scores = op.input(0), op.input(1)
    boxes = _corners(op, boxes) if op.integer("center_point_box") else boxes
    found = []
    for image in range(images):
        here = _apart(op, op.at(boxes, 0, image))
        for number in range(classes):
            row = op.at(op.at(scores, 0, image), 0, number)
            found.append(_selected(op, here, row, limits, (image, number)))
    dims = (f"?{op.name}", 3)
    joined = found[0] if len(found) == 1 else op.emit("CONCATENATION", found, dims, axis=0)
    op.give(op.cast(joined, TensorType.INT64))


def _limits(op: NodeExport, count: Operand) -> list[DraftTensor]:
    """Return how many boxes are selected at most, and the thresholds of overlap and score."""
    most = op.constant(2) if op.has(2) else np.array(0)
    if most is None:
        largest = op.minimum(op.cast(op.reshape(op.input(2), ()), TensorType.INT32), count)
        largest = op.maximum(largest, 0)
    else:
        number = op.ints(np.array(np.clip(int(most.reshape(-1)[0]), 0, MOST_SELECTED)))
        largest = op.minimum(number, count)
    overlap = _beyond(op)
    lowest = np.float32(np.finfo(np.float32).min)
    score = op.reshape(op.input(4), ()) if op.has(4) else op.const(np.asarray(lowest))
    return [largest, overlap, score]


def _beyond(op: NodeExport) -> DraftTensor:
    """Return the least overlap above the threshold: LiteRT's kernel also leaves out boxes that overlap by it."""
    threshold = op.constant(3) if op.has(3) else np.zeros(1, np.float32)
    if threshold is not None and threshold.size != 1:
        raise Unwritable(f"{threshold.size} thresholds where it reads 1")
    if threshold is None:
        return op.maximum(op.mul(op.reshape(op.input(3), ()), 1 + 2.0**-23), float(np.finfo(np.float32).tiny))
    return op.const(np.asarray(np.nextafter(np.float32(threshold.reshape(-1)[0]), np.float32(2))))


def _selected(
    op: NodeExport, boxes: DraftTensor, scores: DraftTensor, limits: list[DraftTensor], names: tuple[int, int]
) -> DraftTensor:
    """Return the rows (image, class, box) of one class of one image.

    Of equal scores LiteRT's kernel takes any first, and ONNX the first box. So boxes are sorted before, which TOPK_V2
    does as ONNX wants it, and their scores are their ranks from behind: no two are equal.
    """
    largest, overlap, threshold = limits
    (count,), (image, number) = scores.dims, names
    some = (f"?{op.name}.{image}.{number}",)
    kinds: list[tuple[TensorType, Dims]] = [(scores.type, (count,)), (TensorType.INT32, (count,))]
    values, order = op.outputs("TOPK_V2", [scores, op.tensor(op.extent(scores, 0), TensorType.INT32)], kinds)
    ranks = op.cast(op.sub(op.extent(scores, 0), op.arange(op.extent(scores, 0), count)), scores.type)
    ranks = op.select(op.compare("GREATER", values, threshold), ranks, 0.0)
    inputs = [op.gather(boxes, order, 0), ranks, largest, overlap, op.const(np.array(0, np.float32))]
    kinds = [(TensorType.INT32, some), (TensorType.INT32, ())]
    places, valid = op.outputs("NON_MAX_SUPPRESSION_V4", inputs, kinds)
    size = op.emit("RESHAPE", [valid, op.ints([1])], (1,))
    kept = op.gather(order, op.emit("SLICE", [places, op.ints([0]), size], some), 0)
    column = op.emit("RESHAPE", [kept, op.ints([-1, 1])], (*some, 1))
    front = op.mul(column, 0)
    parts = [op.add(front, image), op.add(front, number), column]
    return op.emit("CONCATENATION", parts, (*some, 3), axis=1)


def _apart(op: NodeExport, boxes: DraftTensor) -> DraftTensor:
    """Return boxes of which those without an area lie far from all others, each by itself.

    They overlap with nothing, and once LiteRT's kernel has selected one, it selects no other box.
    """
    sides = op.sub(op.part(boxes, -1, 2, 2), op.part(boxes, -1, 0, 2))
    area = op.mul(op.part(sides, -1, 0, 1), op.part(sides, -1, 1, 1))
    numbers = op.cast(op.arange(op.extent(boxes, 0), boxes.dims[0]), boxes.type)
    along = op.mul(op.reshape(numbers, (*numbers.dims, 1)), np.array([-2.0, 0.0, -2.0, 0.0]))
    places = op.add(along, np.array([-FAR, -FAR, 1 - FAR, 1 - FAR]))
    return op.select(op.compare("EQUAL", area, 0.0), places, boxes)


def _corners(op: NodeExport, boxes: DraftTensor) -> DraftTensor:
    """Return boxes `x y width height` as `y1 x1 y2 x2`."""
    x, y, width, height = (op.part(boxes, -1, place, 1) for place in range(4))
    half = [op.mul(each, 0.5) for each in (height, width)]
    return op.concat([op.sub(y, half[0]), op.sub(x, half[1]), op.add(y, half[0]), op.add(x, half[1])], -1)


TAPS = 4  # samples of a bin that may weigh on an element: three, and one more for what is rounded
LEAST_STEP = 1e-6  # a distance between samples for regions without any


class _Side(NamedTuple):
    """The regions along one axis of the image."""

    begin: DraftTensor  # where each begins, `regions 1`
    end: DraftTensor  # where each ends
    bins: int  # how many bins there are
    extent: Operand  # elements of the image, as a real number
    is_half: bool  # whether a region may be smaller than an element

    def span(self, op: NodeExport) -> DraftTensor:
        """Return how large each region is."""
        span = op.sub(self.end, self.begin)
        return span if self.is_half else op.maximum(span, 1.0)


@exporter("RoiAlign")
def roi_align(op: NodeExport) -> None:
    """GATHER of four neighbours of each sample, times their weights, and MEAN; else products with matrices."""
    op.require_channels_last()
    height, width = (op.real_extent(op.input(0), axis) for axis in (1, 2))
    half = op.text("coordinate_transformation_mode", "half_pixel" if op.version >= 16 else "output_half_pixel")
    is_half = half == "half_pixel"
    corners = op.mul(op.input(1), op.number("spatial_scale", 1.0))
    corners = op.sub(corners, 0.5) if is_half else corners
    x1, y1, x2, y2 = (op.part(corners, 1, place, 1) for place in range(4))
    rows = _Side(y1, y2, op.integer("output_height", 1), height, is_half)
    columns = _Side(x1, x2, op.integer("output_width", 1), width, is_half)
    write = _write_samples if op.integer("sampling_ratio") else _write_products
    write(op, rows, columns)


def _write_samples(op: NodeExport, down: _Side, across: _Side) -> None:
    """Write a RoiAlign whose bins have as many samples as the node says."""
    image, ratio = op.input(0), op.integer("sampling_ratio")
    (channels,) = known(image.dims[-1:])
    height, width = (op.extent(image, axis) for axis in (1, 2))
    rows, columns = _samples(op, down, ratio), _samples(op, across, ratio)
    flat = op.reshape(image, (op.elements(image.dims[:3], "elements"), channels))
    (count, *_) = op.dims(1)
    images = op.mul(op.cast(op.input(2), TensorType.INT32), op.product([height, width]))
    base = op.reshape(images, (count, 1, 1))
    most = op.text("mode", "avg") == "max"
    total: DraftTensor | None = None
    for row, column in product(rows, columns):
        assert row.weight is not None
        assert column.weight is not None
        lines = op.mul(op.reshape(row.place, (*row.place.dims, 1)), width)
        places = op.reshape(column.place, (count, 1, *column.place.dims[1:]))
        found = op.gather(flat, op.add(op.add(lines, places), base), 0)
        weight = op.mul(
            op.reshape(row.weight, (*row.weight.dims, 1)),
            op.reshape(column.weight, (count, 1, *column.weight.dims[1:])),
        )
        part = op.mul(found, op.reshape(weight, (*weight.dims, 1)))
        total = part if total is None else op.each("MAXIMUM" if most else "ADD", total, part)
    assert total is not None
    split = op.reshape(total, (op.elements((count, down.bins), "rows"), ratio, across.bins, ratio * channels))
    over_rows = op.reduce("REDUCE_MAX" if most else "MEAN", split, [1])
    again = op.reshape(over_rows, (op.elements((count, down.bins, across.bins), "bins"), ratio, channels))
    found = op.reduce("REDUCE_MAX" if most else "MEAN", again, [1])
    op.give(op.reshape(found, (count, down.bins, across.bins, channels)))


def _samples(op: NodeExport, side: _Side, ratio: int) -> list[Tap]:
    """Return the two neighbours of each sample of a region along an axis, `regions bins·ratio`."""
    bins, extent = side.bins, side.extent
    offsets = ((np.arange(bins)[:, None] + (np.arange(ratio) + 0.5) / ratio) / bins).reshape(1, -1)
    place = op.add(op.mul(side.span(op), offsets.astype(np.float32)), side.begin)
    ones = op.cast(_is_inside(op, place, extent), TensorType.FLOAT32)
    last = more(op, extent, -1.0)
    place = op.clamp(place, 0.0, last)
    low = op.each("FLOOR", place)
    rest = op.sub(place, low)
    high = op.minimum(op.add(low, 1.0), last)
    return [
        Tap(op.cast(low, TensorType.INT32), op.mul(op.sub(1.0, rest), ones)),
        Tap(op.cast(high, TensorType.INT32), op.mul(rest, ones)),
    ]


def _is_inside(op: NodeExport, place: DraftTensor, extent: Operand) -> DraftTensor:
    """Return which samples count: those outside of the image by up to one element lie on its border."""
    return op.is_between(place, -1.0, extent)


def _write_products(op: NodeExport, down: _Side, across: _Side) -> None:
    """Write a RoiAlign whose bins have as many samples as a region is large."""
    if op.text("mode", "avg") == "max":
        raise Unwritable("the largest of as many samples as a region is large: say how many by sampling_ratio")
    batch, height, width, channels = op.static()
    (count, *_) = op.dims(1)
    rows = _weights(op, down)
    if batch > 1:  # rows of all images one after the other, of which a region weighs those of its own
        images = op.reshape(op.cast(op.input(2), TensorType.INT32), (count, 1, 1, 1))
        own = op.compare("EQUAL", images, np.arange(batch).reshape(1, 1, batch, 1))
        spread = op.reshape(rows, (count, down.bins, 1, height))
        rows = op.mul(op.cast(own, TensorType.FLOAT32), spread)
    flat = op.reshape(rows, (op.elements((count, down.bins), "rows"), batch * height))
    image = op.reshape(op.input(0), (batch * height, width * channels))
    found = op.reshape(op.matmul(flat, image), (count, down.bins, width, channels))
    columns = _weights(op, across)
    spread = op.reshape(columns, (count, 1, across.bins, width))  # the same for each row of bins
    op.give(op.matmul(spread, found))


def _weights(op: NodeExport, side: _Side) -> DraftTensor:
    """Return how much each element of the image weighs in each bin, `regions bins extent`.

    The samples of a bin are `first + (k + 0.5) · size / samples`, k from 0 on. Those that weigh on an element follow
    each other, so `TAPS` of them are looked at, from the first that may.
    """
    (count, *_), extent = side.begin.dims, side.extent
    assert not isinstance(extent, DraftTensor | np.ndarray)
    size = op.div(side.span(op), float(side.bins))
    samples = _upwards(op, size)
    divisor = op.maximum(samples, 1.0)
    size, samples, begin = (op.reshape(each, (count, 1, 1, 1)) for each in (size, samples, side.begin))
    by = op.reshape(divisor, (count, 1, 1, 1))
    number = np.arange(side.bins, dtype=np.float32).reshape(1, -1, 1, 1)
    elements = np.arange(int(extent), dtype=np.float32).reshape(1, 1, -1, 1)
    first = op.add(begin, op.mul(size, number))
    step = op.maximum(op.div(size, by), LEAST_STEP)
    least = _upwards(op, op.sub(op.div(op.sub(elements - 1, first), step), 1.5))
    least = op.clamp(least, 0.0, op.sub(samples, 1.0))
    k = op.add(least, np.arange(TAPS, dtype=np.float32))
    place = op.add(first, op.div(op.mul(op.add(k, 0.5), size), by))
    counts = op.both(_is_inside(op, place, side.extent), op.compare("LESS", k, samples))
    within = op.clamp(place, 0.0, extent - 1.0)
    weight = op.maximum(op.sub(1.0, op.each("ABS", op.sub(within, elements))), 0.0)
    total = op.reduce("SUM", op.mul(weight, op.cast(counts, TensorType.FLOAT32)), [3])
    return op.div(total, op.reshape(divisor, (count, 1, 1)))


def _upwards(op: NodeExport, x: DraftTensor) -> DraftTensor:
    """Return numbers rounded up; LiteRT has no reference kernel of CEIL."""
    return op.mul(op.each("FLOOR", op.mul(x, -1.0)), -1.0)
