"""A Slice that takes each k-th row of an axis takes one of k, once the axis is split: XNNPACK runs no other steps.

    Slice(x, start, step k)    becomes    Reshape ─ Slice(start, start + 1) ─ Reshape

On x64 the two Reshapes and the Slice take a tenth of the time of LiteRT's own kernel, which moves single elements, and
less where rows are long. Along the last axis, where they are elements, nothing is gained.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.targets.litert.insertion import OPEN, Insertion, integers_of, shape_from


class _Rows(NamedTuple):
    """Each row of an axis that is a whole number of steps behind the first."""

    axis: int
    first: int
    step: int


def split_strided_slice(before: Insertion) -> bool:
    """Rewrite a Slice of real numbers by constant steps that divide the extents, and return whether it is one."""
    taken = [] if before.node.domain else _taken(before.node)
    if taken:
        _replace(before, taken)
    return bool(taken)


def _taken(node: ir.Node) -> list[_Rows]:
    """Return what a Slice takes; nothing of one that would be no faster otherwise."""
    value, dims = node.inputs[0], _dims(node.inputs[0])
    places = [integers_of(node, slot) for slot in range(1, len(node.inputs))]
    is_known = bool(dims) and dims.count(OPEN) <= 1 and 0 not in dims and len(places) == 4 and None not in places
    if value is None or value.dtype != ir.DataType.FLOAT or not is_known:
        return []
    taken: list[_Rows] = []
    for start, end, axis, step in zip(*(each or () for each in places), strict=True):
        place, extent = axis % len(dims), dims[axis]
        if extent == OPEN or place == len(dims) - 1 or step < 1 or extent % step:
            return []
        rows = range(extent)[start:end:step]
        if rows.start >= step or len(rows) != extent // step:
            return []
        taken.append(_Rows(place, rows.start, step))
    return [each for each in taken if each.step > 1]


def _dims(value: ir.Value | None) -> list[int]:
    shape = () if value is None or value.shape is None else value.shape
    return [extent if isinstance(extent, int) else OPEN for extent in shape]


def _replace(before: Insertion, taken: Sequence[_Rows]) -> None:
    """Take the rows of one axis after another."""
    (value, *_), (result,) = before.node.inputs, before.node.outputs
    assert value is not None
    for number, rows in enumerate(taken):
        dims = _dims(value)
        front, back = dims[: rows.axis], dims[rows.axis + 1 :]
        count = dims[rows.axis] // rows.step
        groups = [_size([*front, count]), rows.step, _size(back)]
        if len(dims) == 2:  # what a RESHAPE drops alone, the builtin before it would drop, which XNNPACK cannot
            groups.insert(0, 1)
        split = before.reshaped(value, groups, f"{result.name}/split_{number}")
        bounds = {"start": rows.first, "end": rows.first + 1, "axis": -2}
        limits = [before.constant(np.array([each]), f"{split.name}/{name}") for name, each in bounds.items()]
        row = before.add("Slice", [split, *limits], shape_from([*groups[:-2], 1, groups[-1]]), value.type)
        value = before.reshaped(row, [*front, count, *back], f"{result.name}/rows_{number}")
    before.replace(value)


def _size(dims: Sequence[int]) -> int:
    return OPEN if OPEN in dims else prod(dims)
