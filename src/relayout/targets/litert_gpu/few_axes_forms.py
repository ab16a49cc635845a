"""Forms of at most four axes: neighbouring axes that an operator treats alike are one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.few_axes import (
    LAST,
    PADS,
    REDUCTIONS,
    ROWS,
    data_of,
    groups_of,
    merged,
    one_by_one,
    own_axes,
    regroup_axes,
)
from relayout.layout.perm import transposes_of_few_axes
from relayout.targets.litert_gpu.operator_form import EACH, MOST_AXES, STRETCHED
from relayout.targets.litert_gpu.rewriting import GpuRewriting

SEPARABLE = {*REDUCTIONS - {"MEAN"}, *ROWS, "REVERSE_V2"} - {"MIRROR_PAD"}
"""Builtins that can be written along one axis after the other."""


def _rank(writing: GpuRewriting) -> int:
    tensors = (*writing.operator.inputs, *writing.operator.outputs)
    return max((len(each.dims) for each in tensors if each is not None), default=0)


def elements_of_few_axes(writing: GpuRewriting) -> DraftTensor | None:
    """Write an operator on each element with neighbours joined that all operands have, or stretch, together."""
    name, operands, dims = writing.operator.name, writing.operands, writing.result.dims
    if (name not in STRETCHED and name not in EACH) or _rank(writing) <= MOST_AXES:
        return None
    padded = {each: (1,) * (len(dims) - len(each.dims)) + each.dims for each in operands}
    axes = [axis for axis in range(len(dims)) if dims[axis] != 1]
    groups = [list(run) for _, run in groupby(axes, lambda axis: [padded[each][axis] == 1 for each in operands])]
    if len(groups) > MOST_AXES:
        read = [writing.stretch(each, dims) if {*padded[each]} - {1} else each for each in operands]
        return writing.same(*read) if read != operands else None
    read = [writing.reshape(each, merged(padded[each], groups)) if each.dims else each for each in operands]
    return writing.same(*read, dims=merged(dims, groups))


def transpose_of_few_axes(writing: GpuRewriting) -> DraftTensor | None:
    """Write a TRANSPOSE as TRANSPOSEs of four axes."""
    operator = writing.operator
    if operator.name != "TRANSPOSE" or _rank(writing) <= MOST_AXES:
        return None
    source, perm = operator.inputs[:2]
    if source is None or perm is None or perm.array is None:
        return None
    steps = list(transposes_of_few_axes(source.dims, [int(axis) for axis in perm.array], MOST_AXES))
    for extents, order in steps:
        source = writing.transpose(writing.reshape(source, [int(extent) for extent in extents]), order)
    return source


def along_axes_of_few(writing: GpuRewriting) -> DraftTensor | list[DraftTensor] | None:
    """Write an operator along some axes on groups of axes: those before, each of its own, those behind."""
    operator, data = writing.operator, data_of(writing.operator)
    axes = [] if data is None or _rank(writing) <= MOST_AXES else own_axes(operator, data)
    if data is None or not axes:
        return None
    groups = groups_of(operator, len(data.dims), axes)
    if len(groups) > MOST_AXES:
        return _one_by_one(writing, axes)
    return regroup_axes(writing, operator, axes, groups)


def _one_by_one(writing: GpuRewriting, axes: Sequence[int]) -> DraftTensor | None:
    is_separable = len(axes) > 1 and writing.operator.name in SEPARABLE
    return one_by_one(writing, writing.operator, axes) if is_separable else None


def as_images(writing: GpuRewriting) -> list[DraftTensor] | None:
    """Write an operator along one axis on four, so that neither the first nor the last axis is its own.

    SOFTMAX and what else works along the last axis stay there.
    """
    operator, data = writing.operator, data_of(writing.operator)
    axes = [] if data is None or _rank(writing) > MOST_AXES else own_axes(operator, data)
    if data is None or len(axes) != 1:
        return None
    (axis,) = axes
    groups = [[], list(range(axis)), [axis]]
    groups += [] if operator.name in LAST else [list(range(axis + 1, len(data.dims)))]
    return regroup_axes(writing, operator, axes, groups) if merged(data.dims, groups) != data.dims else None


def borders_as_images(writing: GpuRewriting) -> DraftTensor | list[DraftTensor] | None:
    """Write a PAD on four axes, the first of which has no border; where there are too many, in steps."""
    operator, data = writing.operator, data_of(writing.operator)
    axes = [] if data is None or operator.name not in PADS else own_axes(operator, data)
    if data is None or not axes or len(data.dims) > MOST_AXES:
        return None
    groups = groups_of(operator, len(data.dims), axes)
    if groups[0][0] in axes:
        groups = [[], *groups]
    if len(groups) > MOST_AXES:
        return _one_by_one(writing, axes)
    groups = [*([[]] * (MOST_AXES - len(groups))), *groups]
    return regroup_axes(writing, operator, axes, groups) if merged(data.dims, groups) != data.dims else None
