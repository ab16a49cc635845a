"""Images read at places that a tensor lists: GridSample, DeformConv, RoiAlign; and boxes in them."""

from collections.abc import Sequence
from functools import partial, reduce
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.builder import Operand
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.resizing import CUBIC_TAPS, cubic_weights
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

CUBIC = -0.75  # the coefficient of GridSample's cubic weights


class Tap(NamedTuple):
    """One element that is read along an axis: its place (int32) and how much it weighs."""

    place: DraftTensor
    weight: DraftTensor | None


@exporter("GridSample")
@exporter("GridSample", domain="com.microsoft")
def grid_sample(op: NodeExport) -> None:
    """GATHER of every neighbour, times its weight."""
    op.require_channels_last()
    grid, image = op.input(1), op.input(0)
    count = op.rank() - 2
    extents = [op.extent(image, 1 + axis) for axis in range(count)]
    sampling = _Sampling(op)
    axes = []
    for axis in range(count):
        coordinate = op.at(grid, -1, count - 1 - axis)
        axes.append(sampling.taps(coordinate, op.real_extent(image, 1 + axis)))
    rows = op.elements(image.dims[:-1], "rows")
    flat = op.reshape(image, (rows, *known(image.dims[-1:])))
    batches = op.mul(op.arange(op.extent(image, 0), image.dims[0]), op.product(extents))
    steps = [op.product(extents[axis + 1 :]) for axis in range(count)]
    op.give(_at_taps(op, flat, axes, steps, op.reshape(batches, (*batches.dims, *[1] * count))))


def _at_taps(
    op: NodeExport,  # the node
    flat: DraftTensor,  # the elements of images, `rows channels`
    axes: Sequence[Sequence[Tap]],  # what is read along each axis of an image
    steps: Sequence[Operand],  # how many rows an element of each axis is
    first: DraftTensor | None,  # the first row of the image that is read; None: of all the first
    pair: str = "ADD",  # the builtin of two elements that are read
) -> DraftTensor:
    """Return the sum, or the largest, of the elements that are read, times their weights."""

    def of_taps(taps: Sequence[Tap]) -> DraftTensor:
        places = [
            tap.place if isinstance(step, int) and step == 1 else op.mul(tap.place, step)
            for tap, step in zip(taps, steps, strict=True)
        ]
        place = reduce(op.add, places if first is None else [*places, first])
        weights = [tap.weight for tap in taps if tap.weight is not None]
        elements = op.gather(flat, place, 0)
        if not weights:
            return elements
        weight = reduce(op.mul, weights)
        return op.mul(elements, op.reshape(weight, (*weight.dims, 1)))

    return reduce(partial(op.each, pair), map(of_taps, product(*axes)))


def more(op: NodeExport, number: Operand, other: float) -> Operand:
    """Return a sum, computed here where both are numbers."""
    return op.add(number, other) if isinstance(number, DraftTensor) else number + other


def times(op: NodeExport, number: Operand, factor: float) -> Operand:
    """Return a product, computed here where both are numbers."""
    return op.mul(number, factor) if isinstance(number, DraftTensor) else number * factor


class _Sampling:
    """The way in which a GridSample turns coordinates into elements and weights."""

    def __init__(self, op: NodeExport) -> None:
        self.op = op
        self.mode = op.text("mode", "linear").removeprefix("bi").removeprefix("tri")
        self.padding = op.text("padding_mode", "zeros")
        self.aligned = bool(op.integer("align_corners"))

    def taps(self, coordinate: DraftTensor, extent: Operand) -> list[Tap]:
        """Return the elements of an axis that a coordinate of [-1, 1] reads."""
        op = self.op
        if self.aligned:
            x = op.mul(op.add(coordinate, 1.0), times(op, more(op, extent, -1.0), 0.5))
        else:
            x = op.mul(op.sub(op.mul(op.add(coordinate, 1.0), extent), 1.0), 0.5)
        if self.mode == "nearest":
            return [self._tap(self._inside(op.each("ROUND", x), extent), None, extent)]
        x = x if self.padding == "border" else self._inside(x, extent)  # a border is that of each neighbour
        low = op.each("FLOOR", x)
        rest = op.sub(x, low)
        if self.mode == "linear":
            weights = [(0.0, op.sub(1.0, rest)), (1.0, rest)]
        elif self.mode == "cubic":
            weights = list(zip(map(float, CUBIC_TAPS), cubic_weights(op, rest, CUBIC), strict=True))
        else:
            raise Unwritable(f"a GridSample by {self.mode}")
        return [self._tap(op.add(low, offset) if offset else low, weight, extent) for offset, weight in weights]

    def _inside(self, x: DraftTensor, extent: Operand) -> DraftTensor:
        """Return coordinates inside of the image; with zeros around it they stay."""
        op = self.op
        if self.padding == "border":
            return op.clamp(x, 0.0, more(op, extent, -1.0))
        if self.padding == "reflection":
            low, span = (0.0, more(op, extent, -1.0)) if self.aligned else (-0.5, extent)
            if isinstance(span, DraftTensor):
                span = op.maximum(span, 1.0)  # of one element all coordinates are 0 when corners are aligned
            elif span == 0:
                return op.mul(x, 0.0)
            wave = op.each("FLOOR_MOD", op.sub(x, low), times(op, span, 2.0))
            return op.sub(more(op, span, low), op.each("ABS", op.sub(wave, span)))
        return x

    def _tap(self, place: DraftTensor, weight: DraftTensor | None, extent: Operand) -> Tap:
        if self.padding == "zeros":
            return _tap_inside(self.op, place, weight, extent)
        return Tap(_element(self.op, self._inside(place, extent), extent), weight)


def _element(op: NodeExport, place: DraftTensor, extent: Operand) -> DraftTensor:
    """Return places as the numbers of elements: beyond the image those of its ends."""
    return op.cast(op.clamp(place, 0.0, more(op, extent, -1.0)), TensorType.INT32)


def _tap_inside(op: NodeExport, place: DraftTensor, weight: DraftTensor | None, extent: Operand) -> Tap:
    """Return an element that weighs nothing outside of the image."""
    ones = op.cast(op.is_between(place, 0.0, more(op, extent, -1.0)), TensorType.FLOAT32)
    return Tap(_element(op, place, extent), ones if weight is None else op.mul(weight, ones))


# Convolutions whose places are moved: DeformConv.
#
# y[n o s]  =  sum over k, c of  w[o c k] · mask[n k s] · x[n c (place of k at s, moved by offset[n k s])]
#
# What lies at the places is gathered, four neighbours of each with their weights; the sum is a product.

OFFSETS, BIAS, MASK = 2, 3, 4  # operands of a DeformConv


@exporter("DeformConv")
def deform_conv(op: NodeExport) -> None:
    """GATHER of four neighbours of each place, times their weights, and FULLY_CONNECTED."""
    if op.rank() != 4:
        raise Unwritable(f"a deformed convolution over {op.rank() - 2} axes")
    op.require_channels_last()
    image, offsets = op.input(0), op.input(OFFSETS)
    (channels,), (count, *kernel, _) = known(image.dims[-1:]), op.static(1)
    moved, group = op.integer("offset_group", 1), op.integer("group", 1)
    taps, each = prod(kernel), channels // moved
    results = offsets.dims[:3]
    # Constants of a known batch are stretched in long runs; else numbers are counted at run time.
    rows = op.elements(results, "rows")
    front: Dims = (rows,) if isinstance(rows, int) else results
    pairs = op.reshape(offsets, (rows, moved * taps, 2))
    down, across = (
        _neighbours(
            op,
            op.add(op.reshape(op.at(pairs, 2, axis), (*front, moved * taps), offsets), _start(op, axis)),
            op.real_extent(image, 1 + axis),
        )
        for axis in range(2)
    )
    height, width = (op.extent(image, axis) for axis in (1, 2))
    elements = op.elements((*image.dims[:3], moved), "elements")
    flat = op.reshape(image, (elements, each))
    first = _first_places(op, op.product([height, width, moved]))

    total = _at_taps(op, flat, (down, across), (op.product([width, moved]), moved), first)
    total = op.reshape(total, (rows, moved, taps, each))
    if op.has(MASK):
        total = op.mul(total, op.reshape(op.input(MASK), (rows, moved, taps, 1)))
    output = _products(op, total, group)
    output = op.add(output, op.input(BIAS)) if op.has(BIAS) else output
    op.give(op.reshape(output, (*results, count), offsets))


def _first_places(
    op: NodeExport,  # the node
    size: Operand,  # elements of an image, in all parts
) -> DraftTensor | None:
    """Return where the elements of each image and part begin, for each result and element of the kernel.

    Returns:
        Numbers that stretch to the places; None where all are 0.
    """
    moved, taps, results = op.integer("offset_group", 1), prod(op.static(1)[1:3]), op.dims(OFFSETS)[:3]
    parts = np.repeat(np.arange(moved), taps)
    batch = results[0]
    if all_known(results) and not isinstance(size, DraftTensor):
        images = np.arange(known(results)[0]) * int(size)
        first = parts + (np.repeat(images, prod(known(results[1:]))).reshape(-1, 1) if batch != 1 else 0)
        return op.ints(np.atleast_2d(first)) if first.any() else None
    begins = op.mul(op.arange(op.extent(op.input(OFFSETS), 0), batch), size)
    if all_known(results):
        places = prod(known(results[1:]))
        begins = op.gather(begins, op.ints(np.repeat(np.arange(known(results)[0]), places)), 0)
        begins = op.reshape(begins, (*begins.dims, 1))
    else:
        begins = op.reshape(begins, (*begins.dims, 1, 1, 1))
    return op.add(begins, parts) if parts.any() else begins


def _start(op: NodeExport, axis: int) -> Operand:
    """Return where along an axis of space elements of the kernel lie before they are moved; it stretches to places."""
    results, kernel, moved = op.dims(OFFSETS)[:3], op.static(1)[1:3], op.integer("offset_group", 1)
    stride, dilation = (op.integers(name, [1, 1])[axis] for name in ("strides", "dilations"))
    shape = [1, 1]
    shape[axis] = kernel[axis]
    inside = np.broadcast_to((np.arange(kernel[axis]) * dilation).reshape(shape), kernel).reshape(-1)
    inside = np.tile(inside, moved) - op.integers("pads", [0] * 4)[axis]
    if all_known(results):
        shape = [1, 1, 1]
        shape[1 + axis] = known(results)[1 + axis]
        starts = np.broadcast_to((np.arange(shape[1 + axis]) * stride).reshape(shape), known(results)).reshape(-1, 1)
        return (starts + inside).astype(np.float32)
    numbers = op.arange(op.extent(op.input(OFFSETS), 1 + axis), results[1 + axis])
    dims: list[int | str] = [1, 1, 1, 1]
    dims[1 + axis] = results[1 + axis]
    begins = op.mul(op.reshape(op.cast(numbers, TensorType.FLOAT32), dims), float(stride))
    return op.add(begins, inside.astype(np.float32))


def _neighbours(op: NodeExport, place: DraftTensor, extent: Operand) -> list[Tap]:
    """Return the two neighbours of places along an axis; outside of the image they weigh nothing."""
    low = op.each("FLOOR", place)
    rest = op.sub(place, low)
    return [_tap_inside(op, at, weight, extent) for at, weight in ((low, op.sub(1.0, rest)), (op.add(low, 1.0), rest))]


def _products(
    op: NodeExport,  # the node
    image_elements: DraftTensor,  # the elements of the image, `places parts kernel channels`
    group: int,  # groups of channels
) -> DraftTensor:
    """Return the results of all groups of channels, `places results`."""
    rows, (_, taps, each) = image_elements.dims[0], known(image_elements.dims[1:])
    count, *_, reads = op.static(1)
    array = op.constant(1)
    kernel = op.reshape(op.input(1) if array is None else op.const(array), (count, taps, reads))
    gives, outputs = count // group, []
    for number in range(group):
        weights, pieces = op.part(kernel, 0, number * gives, gives), []
        for part, begin, size in _runs(number * reads, reads, each):  # as the elements come: part by part
            elements = op.part(op.part(image_elements, 1, part, max(size // each, 1)), 3, begin, min(size, each))
            pieces.append(op.reshape(elements, (rows, taps * size)))
        columns = [
            op.reshape(op.part(weights, 2, begin, size), (gives, taps * size))
            for begin, size in _pieces(number * reads, reads, each)
        ]
        outputs.append(op.fully_connected(op.concat(pieces, 1), op.concat(columns, 1)))
    return op.concat(outputs, 1)


def _pieces(begin: int, size: int, each: int) -> list[tuple[int, int]]:
    """Return the pieces of a run of channels that parts of `each` channels cut it into: where they begin in the run."""
    ends = [begin, *range((begin // each + 1) * each, begin + size, each), begin + size]
    return [(low - begin, high - low) for low, high in pairwise(ends)]


def _runs(begin: int, size: int, each: int) -> list[tuple[int, int, int]]:
    """Return the part, the first channel in it and the size of each run of elements: whole parts, or a piece of one.

    >>> _runs(8, 8, 4), _runs(6, 6, 4)
    ([(2, 0, 8)], [(1, 2, 2), (2, 0, 4)])
    """
    if begin % each == size % each == 0:
        return [(begin // each, 0, size)]
    pieces = [(begin + first, extent) for first, extent in _pieces(begin, size, each)]
    return [(first // each, first % each, extent) for first, extent in pieces]


# Regions of an image, each in a grid of bins: RoiAlign.
#
# bin[n c i j]  =  mean over samples (y, x) of the bin of  image[n c y x], between elements
#
# With as many samples for each bin as a region is large, their number is known only at run time, and has no limit: a
# region may be larger than the image. But the mean over rows and that over columns do not depend on each other:
#
# bin[n c i j]  =  sum over h, w of  rows[n i h] · image[n c h w] · columns[n j w]
#
# A bin with k samples is larger than k - 1 elements, so its samples lie more than (k - 1) / k apart. Of those at most
# three lie within one element of an element and weigh on it. They are found from the element's own place.

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
    (count, *_) = op.dims(1)
    rows = _samples(op, down, ratio, (count, down.bins * ratio, 1))
    columns = _samples(op, across, ratio, (count, 1, across.bins * ratio))
    flat = op.reshape(image, (op.elements(image.dims[:3], "elements"), channels))
    images = op.mul(op.cast(op.input(2), TensorType.INT32), op.product([height, width]))
    pair, many = ("MAXIMUM", "REDUCE_MAX") if op.text("mode", "avg") == "max" else ("ADD", "MEAN")
    total = _at_taps(op, flat, (rows, columns), (width, 1), op.reshape(images, (count, 1, 1)), pair)
    split = op.reshape(total, (op.elements((count, down.bins), "rows"), ratio, across.bins, ratio * channels))
    over_rows = op.reduce(many, split, [1])
    again = op.reshape(over_rows, (op.elements((count, down.bins, across.bins), "bins"), ratio, channels))
    op.give(op.reshape(op.reduce(many, again, [1]), (count, down.bins, across.bins, channels)))


def _samples(op: NodeExport, side: _Side, ratio: int, dims: Dims) -> list[Tap]:
    """Return the two neighbours of each sample of a region along an axis, `regions bins·ratio` in these extents."""
    bins, extent = side.bins, side.extent
    offsets = ((np.arange(bins)[:, None] + (np.arange(ratio) + 0.5) / ratio) / bins).reshape(1, -1)
    place = op.add(op.mul(side.span(op), offsets.astype(np.float32)), side.begin)
    # Samples outside of the image by up to one element lie on its border.
    ones = op.cast(op.is_between(place, -1.0, extent), TensorType.FLOAT32)
    last = more(op, extent, -1.0)
    place = op.clamp(place, 0.0, last)
    low = op.each("FLOOR", place)
    rest = op.sub(place, low)
    high = op.minimum(op.add(low, 1.0), last)
    taps = (low, op.mul(op.sub(1.0, rest), ones)), (high, op.mul(rest, ones))
    return [Tap(op.reshape(op.cast(at, TensorType.INT32), dims), op.reshape(weight, dims)) for at, weight in taps]


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
    row_sums = op.reshape(op.matmul(flat, image), (count, down.bins, width, channels))
    columns = _weights(op, across)
    spread = op.reshape(columns, (count, 1, across.bins, width))  # the same for each row of bins
    op.give(op.matmul(spread, row_sums))


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
    counts = op.both(op.is_between(place, -1.0, side.extent), op.compare("LESS", k, samples))
    within = op.clamp(place, 0.0, extent - 1.0)
    weight = op.maximum(op.sub(1.0, op.each("ABS", op.sub(within, elements))), 0.0)
    total = op.reduce("SUM", op.mul(weight, op.cast(counts, TensorType.FLOAT32)), [3])
    return op.div(total, op.reshape(divisor, (count, 1, 1)))


def _upwards(op: NodeExport, x: DraftTensor) -> DraftTensor:
    """Return numbers rounded up; LiteRT has no reference kernel of CEIL."""
    return op.mul(op.each("FLOOR", op.mul(x, -1.0)), -1.0)


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
    selected_rows = []
    for image in range(images):
        here = _spread_out(op, op.at(boxes, 0, image))
        for number in range(classes):
            row = op.at(op.at(scores, 0, image), 0, number)
            selected_rows.append(_selected(op, here, row, limits, (image, number)))
    dims = (f"?{op.name}", 3)
    joined = selected_rows[0] if len(selected_rows) == 1 else op.emit("CONCATENATION", selected_rows, dims, axis=0)
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
    # The least overlap above the threshold: LiteRT's kernel also leaves out boxes that overlap by it.
    limits, threshold = np.finfo(np.float32), op.constant(3) if op.has(3) else np.zeros(1, np.float32)
    if threshold is not None and threshold.size != 1:
        raise Unwritable(f"{threshold.size} thresholds where it reads 1")
    if threshold is None:
        overlap = op.maximum(op.mul(op.reshape(op.input(3), ()), 1 + 2.0**-23), float(limits.tiny))
    else:
        overlap = op.const(np.asarray(np.nextafter(np.float32(threshold.reshape(-1)[0]), np.float32(2))))
    score = op.reshape(op.input(4), ()) if op.has(4) else op.const(np.asarray(np.float32(limits.min)))
    return [largest, overlap, score]


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
    limit = op.tensor(op.extent(scores, 0), TensorType.INT32)
    values, order = op.outputs("TOPK_V2", [scores, limit], [(scores.type, (count,)), (TensorType.INT32, (count,))])
    ranks = op.cast(op.sub(op.extent(scores, 0), op.arange(op.extent(scores, 0), count)), scores.type)
    ranks = op.select(op.compare("GREATER", values, threshold), ranks, 0.0)
    inputs = [op.gather(boxes, order, 0), ranks, largest, overlap, op.const(np.array(0, np.float32))]
    places, valid = op.outputs("NON_MAX_SUPPRESSION_V4", inputs, [(TensorType.INT32, some), (TensorType.INT32, ())])
    size = op.emit("RESHAPE", [valid, op.ints([1])], (1,))
    box_indices = op.gather(order, op.emit("SLICE", [places, op.ints([0]), size], some), 0)
    column = op.emit("RESHAPE", [box_indices, op.ints([-1, 1])], (*some, 1))
    front = op.mul(column, 0)
    parts = [op.add(front, image), op.add(front, number), column]
    return op.emit("CONCATENATION", parts, (*some, 3), axis=1)


def _spread_out(op: NodeExport, boxes: DraftTensor) -> DraftTensor:
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
