"""Convolutions whose places are moved: DeformConv.

y[n o s]  =  sum over k, c of  w[o c k] · mask[n k s] · x[n c (place of k at s, moved by offset[n k s])]

What lies at the places is gathered, four neighbours of each with their weights; the sum is a product.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.operators.sampling import Tap
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps

OFFSETS, BIAS, MASK = 2, 3, 4
"""Operands of a DeformConv."""


@exporter("DeformConv")
def deform_conv(op: NodeExport) -> None:
    """GATHER of four neighbours of each place, times their weights, and FULLY_CONNECTED."""
    steps = Steps(op)
    if op.rank() != 4:
        raise Unwritable(f"a deformed convolution over {op.rank() - 2} axes")
    op.require_channels_last()
    batch, height, width, channels = op.static()
    _, high, wide, _ = op.static(OFFSETS)
    count, *kernel, _ = op.static(1)
    moved, group = op.integer("offset_group", 1), op.integer("group", 1)
    taps, places, each = prod(kernel), high * wide, channels // moved
    offsets = steps.reshape(op.input(OFFSETS), (batch * places, moved, taps, 2))
    down, across = (
        _neighbours(steps, _moved(op, steps, offsets, axis, (batch, high, wide)), extent)
        for axis, extent in enumerate((height, width))
    )
    flat = steps.reshape(op.input(0), (batch * height * width * moved, each))
    images = np.arange(batch) * height * width * moved
    first = np.arange(moved).reshape(1, -1, 1) + (np.repeat(images, places).reshape(-1, 1, 1) if batch > 1 else 0)
    first = np.broadcast_to(first, (len(first), moved, taps if moved > 1 else 1))  # stretched in long runs
    total: DraftTensor | None = None
    for row, column in product(down, across):
        assert row.weight is not None
        assert column.weight is not None
        place = steps.add(steps.mul(row.place, width * moved), _times(steps, column.place, moved))
        place = steps.add(place, first) if first.any() else place
        weight = steps.mul(row.weight, column.weight)
        part = steps.mul(steps.gather(flat, place, 0), steps.reshape(weight, (*weight.dims, 1)))
        total = part if total is None else steps.add(total, part)
    assert total is not None
    if op.has(MASK):
        total = steps.mul(total, steps.reshape(op.input(MASK), (batch * places, moved, taps, 1)))
    made = _products(op, steps, total, group)
    made = steps.add(made, op.input(BIAS)) if op.has(BIAS) else made
    steps.give(steps.reshape(made, (batch, high, wide, count)))


def _times(steps: Steps, place: DraftTensor, factor: int) -> DraftTensor:
    return place if factor == 1 else steps.mul(place, factor)


def _moved(op: NodeExport, steps: Steps, offsets: DraftTensor, axis: int, results: tuple[int, int, int]) -> DraftTensor:
    """Return where along an axis each element of the kernel lies, `places parts kernel`.

    Args:
        op: the node.
        steps: of the node.
        offsets: `places parts kernel 2`.
        axis: the axis of space.
        results: how many images there are, and results along both axes.
    """
    kernel = op.static(1)[1:3]
    stride, dilation = (op.integers(name, [1, 1])[axis] for name in ("strides", "dilations"))
    start = np.arange(results[1 + axis]) * stride - op.integers("pads", [0] * 4)[axis]
    shape = [1, 1, 1, 1, 1]
    shape[1 + axis], shape[3 + axis] = results[1 + axis], kernel[axis]
    along = (start[:, None] + np.arange(kernel[axis]) * dilation).reshape(shape)
    whole = np.broadcast_to(along, (*results, *kernel)).reshape(prod(results), 1, prod(kernel))
    return steps.add(steps.at(offsets, 3, axis), whole.astype(np.float32))


def _neighbours(steps: Steps, place: DraftTensor, extent: int) -> list[Tap]:
    """Return the two neighbours of places along an axis; outside of the image they weigh nothing."""
    low = steps.each("FLOOR", place)
    rest = steps.sub(place, low)
    taps = []
    for at, weight in ((low, steps.sub(1.0, rest)), (steps.add(low, 1.0), rest)):
        inside = steps.both(steps.compare("GREATER_EQUAL", at, 0.0), steps.compare("LESS_EQUAL", at, extent - 1.0))
        bounded = steps.maximum(steps.minimum(at, extent - 1.0), 0.0)
        counted = steps.mul(weight, steps.cast(inside, TensorType.FLOAT32))
        taps.append(Tap(steps.cast(bounded, TensorType.INT32), counted))
    return taps


def _products(op: NodeExport, steps: Steps, found: DraftTensor, group: int) -> DraftTensor:
    """Return the results of all groups of channels, `places results`.

    Args:
        op: the node.
        steps: of the node.
        found: the elements of the image, `places parts kernel channels`.
        group: groups of channels.
    """
    rows, moved, taps, each = known(found.dims)
    count, *_, reads = op.static(1)
    if reads % each and each % reads:  # groups and parts overlap
        found = steps.reshape(steps.transpose(found, (0, 2, 1, 3)), (rows, 1, taps, moved * each))
        each *= moved
    array = op.constant(1)
    kernel = steps.reshape(op.input(1) if array is None else op.const(array), (count, taps, reads))
    gives, made = count // group, []
    for number in range(group):
        parts, size = max(reads // each, 1), min(reads, each)
        own = steps.part(found, 1, number * reads // each, parts)
        own = steps.reshape(steps.part(own, 3, number * reads % each, size), (rows, taps * reads))
        weights = steps.part(kernel, 0, number * gives, gives)
        if parts > 1:  # as the elements come: part by part
            weights = steps.transpose(steps.reshape(weights, (gives, taps, parts, size)), (0, 2, 1, 3))
        weights = steps.reshape(weights, (gives, taps * reads))
        made.append(op.emit("FULLY_CONNECTED", [own, weights], (rows, gives)))
    return steps.concat(made, 1)
