"""Convolutions whose places are moved: DeformConv.

y[n o s]  =  sum over k, c of  w[o c k] · mask[n k s] · x[n c (place of k at s, moved by offset[n k s])]

What lies at the places is gathered, four neighbours of each with their weights; the sum is a product.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, all_known, known
from relayout.formats.tflite.exporting.operators.sampling import Tap, more
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Operand, Steps

OFFSETS, BIAS, MASK = 2, 3, 4
"""Operands of a DeformConv."""


@exporter("DeformConv")
def deform_conv(op: NodeExport) -> None:
    """GATHER of four neighbours of each place, times their weights, and FULLY_CONNECTED."""
    steps = Steps(op)
    if op.rank() != 4:
        raise Unwritable(f"a deformed convolution over {op.rank() - 2} axes")
    op.require_channels_last()
    image, offsets = op.input(0), op.input(OFFSETS)
    (channels,), (count, *kernel, _) = known(image.dims[-1:]), op.static(1)
    moved, group = op.integer("offset_group", 1), op.integer("group", 1)
    taps, each = prod(kernel), channels // moved
    results = offsets.dims[:3]
    # Constants of a known batch are stretched in long runs; else numbers are counted at run time.
    rows: int | str = prod(known(results)) if all_known(results) else f"?{op.name}.rows"
    front: Dims = (rows,) if isinstance(rows, int) else results
    pairs = steps.reshape(offsets, (rows, moved * taps, 2))
    down, across = (
        _neighbours(
            steps,
            steps.add(op.reshaped(steps.at(pairs, 2, axis), (*front, moved * taps), offsets), _start(op, steps, axis)),
            steps.real_extent(image, 1 + axis),
        )
        for axis in range(2)
    )
    height, width = (steps.extent(image, axis) for axis in (1, 2))
    elements = prod(known(image.dims[:3])) * moved if all_known(image.dims[:3]) else f"?{op.name}.elements"
    flat = steps.reshape(image, (elements, each))
    first = _first_places(op, steps, steps.product([height, width, moved]))
    total: DraftTensor | None = None
    for row, column in product(down, across):
        assert row.weight is not None
        assert column.weight is not None
        place = steps.add(steps.mul(row.place, steps.product([width, moved])), _times(steps, column.place, moved))
        place = place if first is None else steps.add(place, first)
        weight = steps.mul(row.weight, column.weight)
        part = steps.gather(flat, place, 0)
        part = steps.mul(part, op.reshaped(weight, (*weight.dims, 1)))
        total = part if total is None else steps.add(total, part)
    assert total is not None
    total = steps.reshape(total, (rows, moved, taps, each))
    if op.has(MASK):
        total = steps.mul(total, steps.reshape(op.input(MASK), (rows, moved, taps, 1)))
    made = _products(op, steps, total, group)
    made = steps.add(made, op.input(BIAS)) if op.has(BIAS) else made
    steps.give(op.reshaped(made, (*results, count), offsets))


def _first_places(op: NodeExport, steps: Steps, size: Operand) -> DraftTensor | None:
    """Return where the elements of each image and part begin, for each result and element of the kernel.

    Args:
        op: the node.
        steps: of the node.
        size: elements of an image, in all parts.

    Returns:
        Numbers that stretch to the places; None where all are 0.
    """
    moved, taps, results = op.integer("offset_group", 1), prod(op.static(1)[1:3]), op.dims(OFFSETS)[:3]
    parts = np.repeat(np.arange(moved), taps)
    batch = results[0]
    if all_known(results) and not isinstance(size, DraftTensor):
        images = np.arange(known(results)[0]) * int(size)
        first = parts + (np.repeat(images, prod(known(results[1:]))).reshape(-1, 1) if batch != 1 else 0)
        return steps.ints(np.atleast_2d(first)) if first.any() else None
    begins = steps.mul(steps.numbers(steps.extent(op.input(OFFSETS), 0), batch), size)
    if all_known(results):
        places = prod(known(results[1:]))
        begins = steps.gather(begins, steps.ints(np.repeat(np.arange(known(results)[0]), places)), 0)
        begins = steps.reshape(begins, (*begins.dims, 1))
    else:
        begins = steps.reshape(begins, (*begins.dims, 1, 1, 1))
    return steps.add(begins, parts) if parts.any() else begins


def _times(steps: Steps, place: DraftTensor, factor: int) -> DraftTensor:
    return place if factor == 1 else steps.mul(place, factor)


def _start(op: NodeExport, steps: Steps, axis: int) -> Operand:
    """Return where along an axis each element of the kernel lies before it is moved; it stretches to all places.

    Args:
        op: the node.
        steps: of the node.
        axis: the axis of space.
    """
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
    numbers = steps.numbers(steps.extent(op.input(OFFSETS), 1 + axis), results[1 + axis])
    dims: list[int | str] = [1, 1, 1, 1]
    dims[1 + axis] = results[1 + axis]
    begins = steps.mul(steps.reshape(steps.cast(numbers, TensorType.FLOAT32), dims), float(stride))
    return steps.add(begins, inside.astype(np.float32))


def _neighbours(steps: Steps, place: DraftTensor, extent: Operand) -> list[Tap]:
    """Return the two neighbours of places along an axis; outside of the image they weigh nothing."""
    low = steps.each("FLOOR", place)
    rest, last = steps.sub(place, low), more(steps, extent, -1.0)
    taps = []
    for at, weight in ((low, steps.sub(1.0, rest)), (steps.add(low, 1.0), rest)):
        inside = steps.both(steps.compare("GREATER_EQUAL", at, 0.0), steps.compare("LESS_EQUAL", at, last))
        bounded = steps.maximum(steps.minimum(at, last), 0.0)
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
    rows, (moved, taps, each) = found.dims[0], known(found.dims[1:])
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
