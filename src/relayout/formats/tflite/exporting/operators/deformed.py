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
from relayout.formats.tflite.exporting.node import NodeExport
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
    batch, channels, height, width = op.static()
    *_, high, wide = op.static(OFFSETS)
    count, _, *kernel = op.static(1)
    moved, group = op.integer("offset_group", 1), op.integer("group", 1)
    taps, places, every, each = prod(kernel), high * wide, batch * moved, channels // moved
    offsets = steps.reshape(op.input(OFFSETS), (every, taps, 2, places))
    down, across = (
        _neighbours(steps, _moved(op, steps, offsets, axis, (high, wide)[axis]), extent)
        for axis, extent in enumerate((height, width))
    )
    flat = steps.transpose(steps.reshape(op.input(0), (every, each, height * width)), (0, 2, 1))
    flat = steps.reshape(flat, (every * height * width, each))
    images = (np.arange(every) * height * width).reshape(every, 1, 1)
    total: DraftTensor | None = None
    for row, column in product(down, across):
        assert row.weight is not None
        assert column.weight is not None
        place = steps.add(steps.add(steps.mul(row.place, width), column.place), images)
        weight = steps.mul(row.weight, column.weight)
        part = steps.mul(steps.gather(flat, place, 0), steps.reshape(weight, (*weight.dims, 1)))
        total = part if total is None else steps.add(total, part)
    assert total is not None
    if op.has(MASK):
        total = steps.mul(total, steps.reshape(op.input(MASK), (every, taps, places, 1)))
    columns = steps.transpose(steps.reshape(total, (batch, moved, taps, places, each)), (0, 3, 2, 1, 4))
    columns = steps.reshape(columns, (batch * places, taps, channels))
    made = steps.concat([_product(op, steps, columns, number, group) for number in range(group)], 1)
    made = steps.add(made, op.input(BIAS)) if op.has(BIAS) else made
    steps.give(steps.transpose(steps.reshape(made, (batch, high, wide, count)), (0, 3, 1, 2)))


def _moved(op: NodeExport, steps: Steps, offsets: DraftTensor, axis: int, results: int) -> DraftTensor:
    """Return where along an axis each element of the kernel lies, `images kernel places`.

    Args:
        op: the node.
        steps: of the node.
        offsets: `images kernel 2 places`.
        axis: the axis of space.
        results: how many results there are along it.
    """
    kernel, others = op.static(1)[2:], op.static(OFFSETS)[2:]
    stride, dilation = (op.integers(name, [1, 1])[axis] for name in ("strides", "dilations"))
    start = np.arange(results) * stride - op.integers("pads", [0] * 4)[axis]
    found = np.arange(kernel[axis])[:, None] * dilation + start
    shape = [1, *(size if each == axis else 1 for each, size in enumerate(kernel))]
    shape += [size if each == axis else 1 for each, size in enumerate(others)]
    whole = np.broadcast_to(found.reshape(shape), (1, *kernel, *others)).reshape(1, prod(kernel), prod(others))
    return steps.add(steps.at(offsets, 2, axis), whole.astype(np.float32))


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


def _product(op: NodeExport, steps: Steps, columns: DraftTensor, number: int, group: int) -> DraftTensor:
    """Return the results of one group of channels, `places results`."""
    count, reads, *kernel = op.static(1)
    gives = count // group
    own = steps.reshape(steps.part(columns, 2, number * reads, reads), (columns.dims[0], prod(kernel) * reads))
    array = op.constant(1)
    if array is None:
        weights = steps.part(op.input(1), 0, number * gives, gives)
    else:
        weights = op.const(np.ascontiguousarray(array[number * gives :][:gives]))
    turned = steps.transpose(steps.reshape(weights, (gives, reads, prod(kernel))), (0, 2, 1))
    return op.emit("FULLY_CONNECTED", [own, steps.reshape(turned, (gives, prod(kernel) * reads))], (own.dims[0], gives))
