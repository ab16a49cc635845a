"""Images read at places that a tensor lists: GridSample, DeformConv."""

from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.builder import Operand
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.resizing import cubics, polynomial_at
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
    batches = op.reshape(batches, (*batches.dims, *[1] * count))
    total: DraftTensor | None = None
    for taps in product(*axes):
        place, weight = batches, None
        for number, tap in enumerate(taps):
            place = op.add(op.mul(tap.place, op.product(extents[number + 1 :])), place)
            if tap.weight is not None:
                weight = tap.weight if weight is None else op.mul(weight, tap.weight)
        found = op.gather(flat, place, 0)
        if weight is not None:
            found = op.mul(found, op.reshape(weight, (*weight.dims, 1)))
        total = found if total is None else op.add(total, found)
    assert total is not None
    op.give(total)


def more(op: NodeExport, number: Operand, other: float) -> Operand:
    """Return a sum, computed here where both are numbers."""
    return op.add(number, other) if isinstance(number, DraftTensor) else number + other


def times(op: NodeExport, number: Operand, factor: float) -> Operand:
    """Return a product, computed here where both are numbers."""
    return op.mul(number, factor) if isinstance(number, DraftTensor) else number * factor


class _Sampling:
    """How a GridSample turns coordinates into elements and weights."""

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
            weights = [(float(offset), self._cubic(rest, offset)) for offset in (-1, 0, 1, 2)]
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

    def _cubic(self, rest: DraftTensor, offset: int) -> DraftTensor:
        """Return the weight of the element at an offset: a cubic of the distance."""
        near, far = cubics(CUBIC)
        distance = self.op.each("ABS", self.op.sub(rest, float(offset)))
        return polynomial_at(self.op, distance, near if offset in (0, 1) else far)


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
    total: DraftTensor | None = None
    for row, column in product(down, across):
        assert row.weight is not None
        assert column.weight is not None
        place = op.add(op.mul(row.place, op.product([width, moved])), _times(op, column.place, moved))
        place = place if first is None else op.add(place, first)
        weight = op.mul(row.weight, column.weight)
        part = op.gather(flat, place, 0)
        part = op.mul(part, op.reshape(weight, (*weight.dims, 1)))
        total = part if total is None else op.add(total, part)
    assert total is not None
    total = op.reshape(total, (rows, moved, taps, each))
    if op.has(MASK):
        total = op.mul(total, op.reshape(op.input(MASK), (rows, moved, taps, 1)))
    made = _products(op, total, group)
    made = op.add(made, op.input(BIAS)) if op.has(BIAS) else made
    op.give(op.reshape(made, (*results, count), offsets))


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


def _times(op: NodeExport, place: DraftTensor, factor: int) -> DraftTensor:
    return place if factor == 1 else op.mul(place, factor)


def _start(
    op: NodeExport,  # the node
    axis: int,  # the axis of space
) -> Operand:
    """Return where along an axis each element of the kernel lies before it is moved; it stretches to all places."""
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
    found: DraftTensor,  # the elements of the image, `places parts kernel channels`
    group: int,  # groups of channels
) -> DraftTensor:
    """Return the results of all groups of channels, `places results`."""
    rows, (_, taps, each) = found.dims[0], known(found.dims[1:])
    count, *_, reads = op.static(1)
    array = op.constant(1)
    kernel = op.reshape(op.input(1) if array is None else op.const(array), (count, taps, reads))
    gives, made = count // group, []
    for number in range(group):
        weights, pieces = op.part(kernel, 0, number * gives, gives), []
        for part, begin, size in _runs(number * reads, reads, each):  # as the elements come: part by part
            elements = op.part(op.part(found, 1, part, max(size // each, 1)), 3, begin, min(size, each))
            pieces.append(op.reshape(elements, (rows, taps * size)))
        columns = [
            op.reshape(op.part(weights, 2, begin, size), (gives, taps * size))
            for begin, size in _pieces(number * reads, reads, each)
        ]
        made.append(op.emit("FULLY_CONNECTED", [op.concat(pieces, 1), op.concat(columns, 1)], (rows, gives)))
    return op.concat(made, 1)


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
