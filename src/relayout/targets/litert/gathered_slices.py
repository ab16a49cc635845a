"""A Gather by constants as Slices, which NPUs have: indices that go up by one step are one Slice.

Gather(x, 3)             becomes    Reshape(Slice(x, 3:4))
Gather(x, [0, 2, 4, 9])  becomes    Concat(Slice(x, 0:5:2), Slice(x, 9:10))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants
from relayout.shapes.own_axes import SLICE_INPUTS
from relayout.targets.litert.integer_forms import requantized, unit_scales

MOST_SLICES = 8
"""Slices that a Gather may become."""


def _runs(indices: Sequence[int]) -> list[range]:
    """Return indices as ranges that go up, each as long as can be."""
    runs: list[range] = []
    place = 0
    while place < len(indices):
        first = indices[place]
        step = indices[place + 1] - first if place + 1 < len(indices) else 1
        end = place + 1
        while step > 0 and end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        is_pair = end - place == 2 and step > 1  # the second may begin a longer run
        end = place + 1 if step <= 0 or is_pair else end
        step = step if end - place > 1 else 1
        runs.append(range(first, indices[end - 1] + 1, step))
        place = end
    return runs


def _slices(operator: Operator) -> list[range] | None:
    """Return the ranges of a Gather's constant indices; None where they or the extent are not known."""
    shape, indices = operator.shape(), operator.constant(1)
    if shape is None or indices is None or not indices.size or not operator.has(0) or operator.constant(0) is not None:
        return None
    extent = shape[operator.int("axis", 0) % len(shape)]
    if not isinstance(extent, int):
        return None
    runs = _runs([int(each) % extent for each in indices.reshape(-1)])
    return runs if len(runs) <= MOST_SLICES else None


def _as_slices(operator: Operator, _: Constants) -> Sequence[Step]:
    """Slices, a Concat of several, and a Reshape where indices are no list."""
    runs, shape, y = _slices(operator), operator.shape(), operator.outputs[0]
    if runs is None or shape is None or y is None or operator.version < SLICE_INPUTS:
        return ()
    axis = operator.int("axis", 0) % len(shape)
    axes = np.array([axis], np.int64)
    scales, steps, names = unit_scales(operator.node), list[Step](), list[str]()
    for number, run in enumerate(runs):
        ends = (np.array([each], np.int64) for each in (run.start, run.stop))
        begin, end = ends
        name = f"part_{number}"
        steps.append(Step("Slice", (0, begin, end, axes, np.array([run.step], np.int64)), name))
        if scales is not None and len(runs) > 1:
            meaning = float(scales.first.scale[0]), int(scales.first.zero[0]), scales.first.dtype
            steps += requantized(name, f"quantized_{name}", *meaning)
            name = f"quantized_{name}"
        names.append(name)
    if len(names) > 1:
        steps.append(Step("Concat", tuple(names), "joined", {"axis": axis}))
    if len(y) != len(shape):
        if not all(isinstance(extent, int) for extent in y):
            return ()
        if scales is not None and len(names) > 1:
            meaning = float(scales.result.scale[0]), int(scales.result.zero[0]), scales.result.dtype
            steps += requantized("joined", "quantized", *meaning)
        steps.append(Step("Reshape", (steps[-1].name, np.array(y, np.int64)), "selected"))
    return tuple(steps)


BY_CONSTANTS = Condition("by constants that are a few ranges", lambda operator: _slices(operator) is not None)
GATHERED_SLICES = Expansion("Gather", (BY_CONSTANTS,), _as_slices)
