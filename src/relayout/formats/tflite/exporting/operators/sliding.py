"""Pools that no builtin has, as one STRIDED_SLICE for each element of the window: dilations, places of maxima."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.operators.indexing import lowest
from relayout.formats.tflite.exporting.operators.window import bordered, require_whole
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.exporting.steps import Steps

MOST = 128
"""Elements of a window up to which it is written so."""


BYTES = (TensorType.INT8, TensorType.UINT8)


class Sliding(NamedTuple):
    """A window over the axes of space of an image, in whatever order its axes are.

    Args:
        axes: the axes of space.
        extents: of the image along these.
        results: how many windows there are.
        sizes: of the window.
        strides: between windows.
        dilations: between elements of a window.
        begins: the border before.
    """

    axes: range
    extents: tuple[int, ...]
    results: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]

    @staticmethod
    def of(op: NodeExport) -> "Sliding":
        """Read a node.

        Raises:
            Unwritable: extents are known only at run time, or the window is large.
        """
        sizes = op.integers("kernel_shape")
        if prod(sizes) > MOST:
            raise Unwritable("a large window with dilations, or whose places are read")
        count = len(sizes)
        axes = range(1, count + 1) if op.layouts[0] else range(2, count + 2)
        extents, results = (known(tuple(dims[axis] for axis in axes)) for dims in (op.dims(), op.out_dims()))
        require_whole(op, extents, results)
        strides, dilations = (op.integers(name, [1] * count) for name in ("strides", "dilations"))
        begins = op.integers("pads", [0] * (2 * count))[:count]
        auto = op.text("auto_pad", "NOTSET")
        if auto.startswith("SAME"):
            begins = []
            for extent, result, size, stride, dilation in zip(extents, results, sizes, strides, dilations, strict=True):
                total = max((result - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
                begins.append(total // 2 if auto == "SAME_UPPER" else total - total // 2)
        elif auto == "VALID":
            begins = [0] * count
        return Sliding(axes, extents, results, tuple(sizes), tuple(strides), tuple(dilations), tuple(begins))

    def bordered(self, steps: Steps, image: DraftTensor, border: float) -> DraftTensor:
        """Return the image with a border that all windows fit into."""
        pads = [(0, 0)] * len(image.dims)
        for place, axis in enumerate(self.axes):
            reach = (self.results[place] - 1) * self.strides[place] + (self.sizes[place] - 1) * self.dilations[place]
            begin = self.begins[place]
            pads[axis] = (begin, max(reach + 1 - begin - self.extents[place], 0))
        return bordered(steps.op, image, pads, border)

    def places(self) -> Iterator[tuple[int, ...]]:
        """Yield the elements of a window."""
        yield from product(*map(range, self.sizes))

    def slice(self, steps: Steps, image: DraftTensor, place: Sequence[int]) -> DraftTensor:
        """Return one element of all windows."""
        rank = len(image.dims)
        begin, end, stride = [0] * rank, [*known(image.dims)], [1] * rank
        dims = list(image.dims)
        for number, axis in enumerate(self.axes):
            begin[axis] = place[number] * self.dilations[number]
            stride[axis] = self.strides[number]
            end[axis] = begin[axis] + (self.results[number] - 1) * stride[axis] + 1
            dims[axis] = self.results[number]
        inputs = [image, steps.ints(begin), steps.ints(end), steps.ints(stride)]
        return steps.op.emit("STRIDED_SLICE", inputs, tuple(dims))

    def source(self, place: Sequence[int], *, column_major: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Return where in a plane of the image one element of all windows lies: of extents of the axes of space."""
        found = np.zeros(self.results, np.int64)
        factors = [prod(self.extents[axis + 1 :]) for axis in range(len(self.axes))]
        if column_major:
            factors = [prod(self.extents[:axis]) for axis in range(len(self.axes))]
        for axis, factor in enumerate(factors):
            shape = [-1 if each == axis else 1 for each in range(len(self.axes))]
            along = np.arange(self.results[axis]) * self.strides[axis] + place[axis] * self.dilations[axis]
            found = found + (along - self.begins[axis]).reshape(shape) * factor
        return found


def sliding_max(op: NodeExport) -> None:
    """Write a MaxPool: MAXIMUM of slices; places of maxima by GREATER and SELECT_V2."""
    steps, sliding = Steps(op), Sliding.of(op)
    image = op.input(0)
    # A border of the lowest byte would be as large as an element of that value, and lie before it.
    wide = steps.cast(image, TensorType.INT32) if op.gives(1) and image.type in BYTES else image
    padded = sliding.bordered(steps, wide, lowest(wide.type))
    slices = [sliding.slice(steps, padded, place) for place in sliding.places()]
    best = slices[0]
    if not op.gives(1):
        for each in slices[1:]:
            best = steps.maximum(best, each)
        steps.give(best)
        return
    maps = [sliding.source(place, column_major=bool(op.integer("storage_order"))) for place in sliding.places()]
    maps = [each[..., None] if op.layouts[0] else each for each in maps]
    found = op.const(maps[0].astype(np.int32))
    for each, source in zip(slices[1:], maps[1:], strict=True):
        larger = steps.compare("GREATER", each, best)
        found = steps.select(larger, op.const(source.astype(np.int32)), found)
        best = steps.maximum(best, each)
    if op.gives(0):
        op.give(steps.cast(best, image.type), 0)
    steps.give(_with_planes(steps, steps.stretch(found, known(best.dims)), sliding, image), 1)


def _with_planes(steps: Steps, found: DraftTensor, sliding: Sliding, image: DraftTensor) -> DraftTensor:
    """Return places in planes as places in the image as the source stores it, planes of channels one by one."""
    dims = known(image.dims)
    last = bool(steps.op.layouts[0])
    n, c = dims[0], dims[-1] if last else dims[1]
    planes = np.arange(n * c).reshape(n, c) * prod(sliding.extents)
    ones = [1] * len(sliding.axes)
    planes = planes.reshape(n, *ones, c) if last else planes.reshape(n, c, *ones)
    return steps.cast(steps.add(found, steps.ints(planes)), TensorType.INT64)


def sliding_sum(op: NodeExport, image: DraftTensor) -> DraftTensor:
    """Return the sum of each window."""
    steps, sliding = Steps(op), Sliding.of(op)
    padded = sliding.bordered(steps, image, 0.0)
    slices = [sliding.slice(steps, padded, place) for place in sliding.places()]
    total = slices[0]
    for each in slices[1:]:
        total = steps.add(total, each)
    return total


def sliding_counts(op: NodeExport, *, counted: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return how many elements of each window count, stretched to the image's axes.

    Args:
        op: the node.
        counted: whether the border that the node states counts.
    """
    sliding = Sliding.of(op)
    ends = op.integers("pads", [0] * (2 * len(sliding.axes)))[len(sliding.axes) :]
    found = np.ones(())
    for axis, extent in enumerate(sliding.extents):
        starts = np.arange(sliding.results[axis]) * sliding.strides[axis] - sliding.begins[axis]
        each = starts[:, None] + np.arange(sliding.sizes[axis]) * sliding.dilations[axis]
        low, high = (-sliding.begins[axis], extent + ends[axis]) if counted else (0, extent)
        found = np.multiply.outer(found, ((each >= low) & (each < high)).sum(1))
    return (found[..., None] if op.layouts[0] else found).astype(np.float32)
