"""Unique along an axis: what lies at each of its places is compared as a whole, with all others at once.

equal[i j]    rows i and j have the same elements
less[i j]     row j comes before row i: it is less where both differ first
new[i]        no row before row i is its equal
rank[i]       the number of new rows that come before row i
"""

from __future__ import annotations

from math import prod

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import known
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.exporting.steps import Steps

MOST = 1 << 24
"""Comparisons of elements up to which it is written."""


def unique_rows(steps: Steps, axis: int) -> None:
    """Write a Unique along an axis.

    Args:
        steps: of the node.
        axis: the axis.

    Raises:
        Unwritable: there are too many places, or extents are known only at run time.
    """
    op, operand = steps.op, steps.op.input(0)
    dims = known(operand.dims)
    count, width = dims[axis], prod(dims) // max(dims[axis], 1)
    if not count or not width or count * count * width > MOST:
        raise Unwritable(f"rows with more than {MOST} comparisons, or none")
    order = [axis, *(each for each in range(len(dims)) if each != axis)]
    rows = steps.reshape(steps.transpose(operand, order), (count, width))
    here, there = steps.reshape(rows, (count, 1, width)), steps.reshape(rows, (1, count, width))
    equal = steps.reduce("REDUCE_ALL", steps.compare("EQUAL", here, there), [2])
    places = np.arange(count)
    earliest = steps.reduce("REDUCE_MIN", steps.select(equal, steps.ints(places), count), [1])
    new = steps.compare("EQUAL", earliest, steps.ints(places))
    if op.integer("sorted", 1):
        rank = _rank(steps, here, there, new)
    else:
        before = steps.select(new, steps.ints(np.ones(count, int)), 0)
        total = op.emit("CUMSUM", [before, steps.ints(np.array(0))], (count,), exclusive=True)
        rank = steps.gather(total, earliest, 0)
    many: Dims = (f"?{op.name}",)
    last = steps.select(new, rank, count)  # the others come behind
    kinds: list[tuple[TensorType, Dims]] = [(TensorType.INT32, (count,)), (TensorType.INT32, (count,))]
    _, listed = steps.outputs("TOPK_V2", [steps.each("NEG", last), steps.ints(np.array(count))], kinds)
    number = steps.reduce("SUM", steps.cast(new, TensorType.INT32), [0], keep=True)
    chosen = op.emit("SLICE", [listed, steps.ints([0]), number], many)
    if op.gives(1):
        steps.give(steps.cast(chosen, TensorType.INT64), 1)
    if op.gives(2):
        steps.give(steps.cast(rank, TensorType.INT64), 2)
    if op.gives(3):
        counts = steps.reduce("SUM", steps.cast(equal, TensorType.INT32), [1])
        steps.give(steps.cast(steps.gather(counts, chosen, 0), TensorType.INT64), 3)
    steps.give(steps.gather(operand, chosen, axis))


def _rank(steps: Steps, here: DraftTensor, there: DraftTensor, new: DraftTensor) -> DraftTensor:
    """Return for each row how many different ones come before it, in order of their first elements that differ."""
    count, _, width = known(here.dims)
    places = steps.ints(np.arange(width))
    differs = steps.compare("NOT_EQUAL", here, there)
    first = steps.reduce("REDUCE_MIN", steps.select(differs, places, width), [2], keep=True)
    decides = steps.both(steps.compare("LESS", there, here), steps.compare("EQUAL", first, places))
    less = steps.both(steps.reduce("REDUCE_ANY", decides, [2]), steps.reshape(new, (1, count)))
    return steps.reduce("SUM", steps.cast(less, TensorType.INT32), [1])
