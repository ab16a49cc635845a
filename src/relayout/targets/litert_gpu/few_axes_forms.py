"""Forms of at most four axes: neighbouring axes that an operator treats alike are one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

import numpy as np

from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.layout.perm import transposes_of_few_axes
from relayout.targets.litert_gpu.operator_form import EACH, MOST_AXES, REDUCTIONS, STRETCHED
from relayout.targets.litert_gpu.rewriting import Rewriting

AXIS_OPTION = frozenset({"CONCATENATION", "GATHER", "UNPACK"})
"""Builtins whose axis is an option."""
AXIS_OPERAND = {"SPLIT": 0, "SPLIT_V": 2, "CUMSUM": 1, "REVERSE_V2": 1, "ARG_MAX": 1, "ARG_MIN": 1}
"""Builtin -> the operand that names its axis."""
DATA = {"SPLIT": 1}
"""Builtin -> the operand that holds its elements, where it is not the first."""
LAST = frozenset({"SOFTMAX", "LOG_SOFTMAX", "FULLY_CONNECTED", "L2_NORMALIZATION", "TOPK_V2"})
"""Builtins along the last axis."""
FOUR = 4


def _rank(writing: Rewriting) -> int:
    tensors = (*writing.operator.inputs, *writing.operator.outputs)
    return max((len(each.dims) for each in tensors if each is not None), default=0)


# Complexity: each reason why an operator cannot be written so is one guard.
def elements_of_few_axes(writing: Rewriting) -> bool:
    """Write an operator on each element with neighbours joined that all operands have, or stretch, together."""
    name, operator = writing.operator.name, writing.operator
    if (name not in STRETCHED and name not in EACH) or _rank(writing) <= MOST_AXES:
        return False
    (result,) = operator.outputs
    dims = tuple(map(int, result.dims))
    read = [each for each in operator.inputs if each is not None]
    padded = {each: (1,) * (len(dims) - len(each.dims)) + tuple(map(int, each.dims)) for each in read}
    axes = [axis for axis in range(len(dims)) if dims[axis] != 1]
    groups = [list(run) for _, run in groupby(axes, lambda axis: [padded[each][axis] == 1 for each in read])]
    if len(groups) > MOST_AXES:
        stretched = [writing.stretch(each, dims) if len({*padded[each]} - {1}) else each for each in read]
        if stretched == read:
            return False
        writing.same(*stretched)
        return True
    inner = [
        writing.reshape(each, [prod(padded[each][axis] for axis in group) for group in groups]) if each.dims else each
        for each in read
    ]
    joined = [prod(dims[axis] for axis in group) for group in groups]
    made = writing.draft.tensor(f"{result.name}/few", result.type, tuple(joined), result.quantization)
    writing.same(*inner, result=made)
    writing.reshape(made, dims, result)
    return True


def transpose_of_few_axes(writing: Rewriting) -> bool:
    """Write a TRANSPOSE as TRANSPOSEs of four axes."""
    operator = writing.operator
    if operator.name != "TRANSPOSE" or _rank(writing) <= MOST_AXES:
        return False
    source, perm = operator.inputs[:2]
    if source is None or perm is None or perm.array is None:
        return False
    steps = list(transposes_of_few_axes(source.dims, [int(axis) for axis in perm.array], MOST_AXES))
    for extents, order in steps:
        source = writing.reshape(source, [int(extent) for extent in extents])
        source = writing.transpose(source, order)
    writing.reshape(source, [int(dim) for dim in writing.result.dims], writing.result)
    return True


def _groups(dims: Sequence[int], axes: Sequence[int], together: bool) -> list[list[int]]:
    """Return neighbouring axes that are worked along, or not; those that are worked along by themselves."""
    runs = groupby(range(len(dims)), lambda axis: (axis in axes, axis if axis in axes and not together else None))
    return [list(run) for _, run in runs]


def along_axes_of_few(writing: Rewriting) -> bool:
    """Write an operator along some axes on groups of axes: those before, each of its own, those behind."""
    operator, name = writing.operator, writing.operator.name
    if _rank(writing) <= MOST_AXES or len(operator.inputs) == 0:
        return False
    data = operator.inputs[DATA.get(name, 0)]
    axes = None if data is None else own_axes(writing, data)
    if data is None or not axes:
        return False
    dims = [int(dim) for dim in data.dims]
    groups = _groups(dims, axes, together=name in REDUCTIONS)
    if len(groups) > MOST_AXES:
        return _one_axis_after_the_other(writing, data, axes)
    return regrouped(writing, data, axes, groups)


def own_axes(writing: Rewriting, data: DraftTensor) -> list[int]:
    """Return the axes that an operator works along; none where they are not known."""
    operator, rank = writing.operator, len(data.dims)
    if operator.name in LAST:
        return [rank - 1]
    if operator.name in AXIS_OPTION:
        return [int(operator.options.get("axis", 0)) % rank]
    if operator.name in AXIS_OPERAND or operator.name in REDUCTIONS:
        stated = operator.inputs[AXIS_OPERAND.get(operator.name, 1)]
        if stated is None or stated.array is None:
            return []
        return sorted({int(axis) % rank for axis in stated.array.reshape(-1)})
    if operator.name == "SLICE":
        return [axis for axis in range(rank) if operator.outputs[0].dims[axis] != data.dims[axis]]
    if operator.name in ("PAD", "PADV2", "MIRROR_PAD"):
        pads = operator.inputs[1]
        return [] if pads is None or pads.array is None else [int(axis) for axis in np.flatnonzero(pads.array.any(1))]
    if operator.name == "TILE":
        count = operator.inputs[1]
        return [] if count is None or count.array is None else [int(each) for each in np.flatnonzero(count.array != 1)]
    if operator.name == "STRIDED_SLICE":
        return _strided_axes(writing, data)
    return []


def _strided_axes(writing: Rewriting, data: DraftTensor) -> list[int]:
    options, operands = writing.operator.options, writing.operator.inputs[1:4]
    masks = ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask")
    if any(options.get(mask) for mask in masks) or any(each is None or each.array is None for each in operands):
        return []
    strides = operands[2]
    assert strides is not None
    assert strides.array is not None
    changed = [data.dims[axis] != writing.result.dims[axis] for axis in range(len(data.dims))]
    return [axis for axis in range(len(data.dims)) if changed[axis] or strides.array[axis] != 1]


# Complexity: as for `regrouped`.
def _one_axis_after_the_other(writing: Rewriting, data: DraftTensor, axes: Sequence[int]) -> bool:
    """Write an operator along each of its axes by itself; only such whose axes do not depend on each other."""
    operator, name = writing.operator, writing.operator.name
    if (
        len(axes) < 2
        or name not in ("SLICE", "STRIDED_SLICE", "PAD", "PADV2", "TILE", "REVERSE_V2", *REDUCTIONS)
        or name == "MEAN"
    ):
        return False
    source = data
    for axis in axes:
        dims = [int(dim) for dim in source.dims]
        if name in REDUCTIONS:
            dims[axis] = 1
            operands: list[DraftTensor | None] = [writing.ints([axis])]
        elif name == "SLICE":
            begin = operator.inputs[1]
            if begin is None or begin.array is None:
                return False
            dims[axis] = int(writing.result.dims[axis])
            operands = [
                writing.ints([int(b) * (each == axis) for each, b in enumerate(begin.array)]),
                writing.ints(dims),
            ]
        elif name == "STRIDED_SLICE":
            rows = [each.array for each in operator.inputs[1:4] if each is not None and each.array is not None]
            whole = [(0, extent, 1) for extent in dims]
            whole[axis] = (int(rows[0][axis]), int(rows[1][axis]), int(rows[2][axis]))
            dims[axis] = int(writing.result.dims[axis])
            operands = [writing.ints([row[slot] for row in whole]) for slot in range(3)]
        else:
            stated = operator.inputs[1]
            assert stated is not None
            assert stated.array is not None
            kept = np.full_like(stated.array, 1 if name == "TILE" else 0)
            kept[axis] = stated.array[axis]
            if name != "REVERSE_V2":
                dims[axis] = int(writing.result.dims[axis])
            operands = [writing.ints([axis] if name == "REVERSE_V2" else kept), *operator.inputs[2:]]
        options = operator.options | ({"keep_dims": True} if name in REDUCTIONS else {})
        for mask in ("begin_mask", "end_mask") if name == "STRIDED_SLICE" else ():
            options[mask] = int(options.get(mask) or 0) & 1 << axis
        source = writing.add(name, [source, *operands], dims, **options)
    writing.reshape(source, [int(dim) for dim in writing.result.dims], writing.result)
    return True


# Complexity: each kind of builtin names its axes in a way of its own; each has a branch of few lines.
def regrouped(writing: Rewriting, data: DraftTensor, axes: Sequence[int], groups: Sequence[Sequence[int]]) -> bool:
    """Write an operator on groups of axes.

    Args:
        writing: the operator.
        data: the operand that holds its elements.
        axes: the axes that it works along.
        groups: the axes of each group, in order; an empty one is an axis of one element.
    """
    operator, name = writing.operator, writing.operator.name
    own = [place for place, group in enumerate(groups) if group and group[0] in axes]
    rank = len(data.dims)

    def merged(tensor: DraftTensor) -> list[int]:
        return [prod(int(tensor.dims[axis]) for axis in group) for group in groups]

    places = range(len(operator.inputs)) if name == "CONCATENATION" else (DATA.get(name, 0),)
    read = list(operator.inputs)
    for place in places:
        tensor = read[place]
        assert tensor is not None
        read[place] = writing.reshape(tensor, merged(tensor))
    options = dict(operator.options)
    if name in AXIS_OPTION:
        options["axis"] = own[0]
    elif name in AXIS_OPERAND or name in REDUCTIONS:
        slot = AXIS_OPERAND.get(name, 1)
        stated = operator.inputs[slot]
        assert stated is not None
        assert stated.array is not None
        read[slot] = writing.constant(np.array(own if stated.array.ndim else own[0], stated.array.dtype))
    elif name == "SLICE":
        begin = operator.inputs[1]
        if begin is None or begin.array is None:
            return False
        read[1] = writing.ints(
            [int(begin.array[group[0]]) if place in own else 0 for place, group in enumerate(groups)]
        )
        read[2] = writing.ints(merged(operator.outputs[0]))
    elif name in ("PAD", "PADV2", "MIRROR_PAD", "TILE"):
        stated = operator.inputs[1]
        assert stated is not None
        assert stated.array is not None
        none = [0, 0] if name != "TILE" else 1
        read[1] = writing.ints([stated.array[group[0]] if place in own else none for place, group in enumerate(groups)])
    elif name == "STRIDED_SLICE" and not _regroup_strides(writing, read, own, groups, merged(data), options):
        return False
    if name in REDUCTIONS:
        options["keep_dims"] = True
    results = []
    for result in operator.outputs:
        dims = (
            merged(result) if len(result.dims) == rank else [1 if p in own else e for p, e in enumerate(merged(data))]
        )
        if name in ("ARG_MAX", "ARG_MIN", "UNPACK"):
            dims = [extent for place, extent in enumerate(merged(data)) if place not in own]
        if name == "GATHER":
            dims = merged(data)
            dims[own[0]] = int(result.dims[axes[0]])
        if name == "FULLY_CONNECTED":
            dims = [*merged(data)[:-1], int(result.dims[-1])]
        results.append(writing.draft.tensor(f"{result.name}/few", result.type, tuple(dims), result.quantization))
    made = type(operator)(name, read, results, options)
    writing.operators.append(made)
    for result, inner in zip(operator.outputs, results, strict=True):
        writing.reshape(inner, [int(dim) for dim in result.dims], result)
    return True


def _regroup_strides(
    writing: Rewriting,
    read: list[DraftTensor | None],
    own: Sequence[int],
    groups: Sequence[Sequence[int]],
    dims: Sequence[int],
    options: dict[str, object],
) -> bool:
    """Write the operands of a STRIDED_SLICE for groups of axes: whole axes but for its own."""
    begin, end, strides = (each.array for each in writing.operator.inputs[1:4] if each is not None)
    if begin is None or end is None or strides is None:
        return False
    rows = []
    for place, group in enumerate(groups):
        axis = group[0] if group else 0
        rows.append((int(begin[axis]), int(end[axis]), int(strides[axis])) if place in own else (0, dims[place], 1))
    for slot in range(3):
        read[slot + 1] = writing.ints([row[slot] for row in rows])
    for mask in ("begin_mask", "end_mask"):
        bits = int(str(options.get(mask) or 0))
        options[mask] = sum(1 << place for place, group in enumerate(groups) if place in own and bits >> group[0] & 1)
    return True


def as_images(writing: Rewriting) -> bool:
    """Write an operator along one axis on four, so that neither the first nor the last axis is its own.

    SOFTMAX and what else works along the last axis stay there.
    """
    operator, name = writing.operator, writing.operator.name
    if _rank(writing) > MOST_AXES or not operator.inputs:
        return False
    data = operator.inputs[DATA.get(name, 0)]
    axes = [] if data is None else own_axes(writing, data)
    if data is None or len(axes) != 1:
        return False
    (axis,) = axes
    rank = len(data.dims)
    before, behind = list(range(axis)), list(range(axis + 1, rank))
    groups = [[], before, [axis]] if name in LAST else [[], before, [axis], behind]
    if [prod(int(data.dims[each]) for each in group) for group in groups] == list(data.dims):
        return False
    return regrouped(writing, data, axes, groups)


def borders_as_images(writing: Rewriting) -> bool:
    """Write a PAD on four axes, the first of which has no border; where there are too many, in steps."""
    operator, name = writing.operator, writing.operator.name
    data = operator.inputs[0] if name in ("PAD", "PADV2", "MIRROR_PAD") else None
    axes = [] if data is None else own_axes(writing, data)
    if data is None or not axes or len(data.dims) > MOST_AXES:
        return False
    groups = _groups([int(dim) for dim in data.dims], axes, together=False)
    if groups[0][0] in axes:
        groups = [[], *groups]
    if len(groups) > FOUR:
        return _one_axis_after_the_other(writing, data, axes)
    groups = [*([[]] * (FOUR - len(groups))), *groups]
    if [prod(int(data.dims[each]) for each in group) for group in groups] == list(data.dims):
        return False
    return regrouped(writing, data, axes, groups)
