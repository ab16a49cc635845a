"""Operators on more axes than a runtime takes, as operators on fewer: neighbours that they treat alike are one axis.

SUM(x[2 3 2 4 2 3 2], 1)  ->  RESHAPE(SUM(RESHAPE(x, [2 3 96]), 1), [2 2 4 2 3 2])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.builder import BuiltinBuilder
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.file_order import LARGEST_RANK
from relayout.formats.tflite.exporting.rewriting import Rewriting
from relayout.layout.perm import transposes_of_few_axes

REDUCTIONS = frozenset(["MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"])
PADS = frozenset(["MIRROR_PAD", "PAD", "PADV2"])
DATA = {"SPLIT": 1}
"""Builtin -> the operand that holds its elements, where it is not the first. All of a CONCATENATION's do."""
AXIS_OPTION = frozenset(["CONCATENATION", "GATHER", "UNPACK"])  # builtins whose axis is an option
AXIS_OPERAND = {"ARG_MAX": 1, "ARG_MIN": 1, "CUMSUM": 1, "REVERSE_V2": 1, "SPLIT": 0, "SPLIT_V": 2}
AXIS_OPERAND |= dict.fromkeys(REDUCTIONS, 1)
"""Builtin -> the operand that names its axis, or its axes."""
LAST = frozenset(["FULLY_CONNECTED", "L2_NORMALIZATION", "LOG_SOFTMAX", "SOFTMAX", "TOPK_V2"])
"""Builtins along the last axis."""
EXTENT = -1  # in `ROWS`: the extent of the axis
ROWS: Mapping[str, Sequence[int | tuple[int, int]]] = {
    **dict.fromkeys(PADS, ((0, 0),)),
    "SLICE": (0, EXTENT),
    "STRIDED_SLICE": (0, EXTENT, 1),
    "TILE": (1,),
}
"""Builtin -> for each operand behind the first what it says of an axis along which nothing happens."""
MASKS = ("begin_mask", "end_mask")
OTHER_MASKS = ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask")
"""Masks of a STRIDED_SLICE whose result has other axes than its operand."""


def data_of(operator: DraftOperator) -> DraftTensor | None:
    """Return the operand that holds the elements of an operator; None where it has none."""
    place = DATA.get(operator.name, 0)
    return operator.inputs[place] if place < len(operator.inputs) else None


# Complexity: each kind of builtin names its axes in a way of its own; each has a branch of few lines.
def own_axes(operator: DraftOperator, data: DraftTensor) -> list[int]:
    """Return the axes that an operator works along; none where they are computed, or it is not listed here."""
    name, rank, dims = operator.name, len(data.dims), operator.outputs[0].dims
    if name in LAST:
        return [rank - 1]
    if name in AXIS_OPTION:
        return [int(operator.options.get("axis", 0)) % rank]
    if name == "SLICE":
        return [axis for axis in range(rank) if dims[axis] != data.dims[axis]]
    if name not in ROWS and name not in AXIS_OPERAND:
        return []
    stated = [None if each is None else each.array for each in operator.inputs]
    first = stated[AXIS_OPERAND.get(name, 1)]
    if first is None:
        return []
    if name in PADS:
        return [int(axis) for axis in np.flatnonzero(first.any(1))]
    if name == "TILE":
        return [int(axis) for axis in np.flatnonzero(first != 1)]
    if name == "STRIDED_SLICE":
        if any(operator.options.get(mask) for mask in OTHER_MASKS) or stated[2] is None or stated[3] is None:
            return []
        return [axis for axis in range(rank) if dims[axis] != data.dims[axis] or stated[3][axis] != 1]
    return sorted({int(axis) % rank for axis in first.reshape(-1)})


def groups_of(operator: DraftOperator, rank: int, axes: Sequence[int]) -> list[list[int]]:
    """Group the axes: an axis that is worked along is alone; those that a reduction takes together are one group."""
    alone = operator.name not in REDUCTIONS
    runs = groupby(range(rank), lambda axis: (axis in axes, axis if alone and axis in axes else None))
    return [list(run) for _, run in runs]


def regroup_axes(
    op: BuiltinBuilder, operator: DraftOperator, axes: Sequence[int], groups: Sequence[Sequence[int]]
) -> list[DraftTensor] | None:
    """Write an operator on groups of axes, and return its results, whose axes are the groups; None where it cannot be.

    Args:
        op: what adds the operators.
        operator: the operator.
        axes: the axes that it works along.
        groups: the axes of each group, in order; an empty one is an axis of one element.
    """
    name, data = operator.name, data_of(operator)
    assert data is not None
    dims = merged(data.dims, groups)
    own = [place for place, group in enumerate(groups) if group and group[0] in axes]
    elements = operator.inputs if name == "CONCATENATION" else [data]
    joined = {each: op.reshape(each, merged(each.dims, groups)) for each in dict.fromkeys(elements) if each is not None}
    results = []
    for result in operator.outputs:
        if name in ("ARG_MAX", "ARG_MIN", "UNPACK"):
            results.append(tuple(dim for place, dim in enumerate(dims) if place not in own))
        elif name == "GATHER":
            places = operator.inputs[1]
            assert places is not None
            results.append((*dims[: own[0]], *places.dims, *dims[own[0] + 1 :]))
        elif name == "FULLY_CONNECTED":
            results.append((*dims[:-1], result.dims[-1]))
        elif len(result.dims) == len(data.dims):
            results.append(merged(result.dims, groups))
        else:
            results.append(tuple(1 if place in own else dim for place, dim in enumerate(dims)))
    operands = [None if each is None else joined.get(each, each) for each in operator.inputs]
    return _on_groups(op, operator, operands, own, groups, results)


def transpose_few(
    op: Rewriting,
    most: int,  # axes that a TRANSPOSE may have
) -> DraftTensor | None:
    """Write a TRANSPOSE of more axes as such of few, with a RESHAPE before each; None of any other operator."""
    if op.operator.name != "TRANSPOSE" or len(op.operands[0].dims) <= most or op.operands[1].array is None:
        return None
    tensor = op.operands[0]
    for extents, order in transposes_of_few_axes(tensor.dims, [int(axis) for axis in op.operands[1].array], most):
        tensor = op.transpose(op.reshape(tensor, extents, like=op.operands[0]), order)
    return op.reshape(tensor, op.result.dims, like=op.operands[0])


def one_by_one(
    op: BuiltinBuilder,  # what adds the operators
    operator: DraftOperator,  # one whose axes do not depend on each other: a reduction, a REVERSE_V2 or one of `ROWS`
    axes: Sequence[int],  # its axes
) -> DraftTensor | None:
    """Write an operator along each of its axes by itself, and return its result; None where it cannot be."""
    (result,), source = operator.outputs, operator.inputs[0]
    assert source is not None
    singles = [[axis] for axis in range(len(source.dims))]
    for axis in axes:
        extent = 1 if operator.name in REDUCTIONS else result.dims[axis]
        dims: Dims = (*source.dims[:axis], extent, *source.dims[axis + 1 :])
        step = _on_groups(op, operator, [source, *operator.inputs[1:]], [axis], singles, [dims])
        if step is None:
            return None
        (source,) = step
    return source


def _on_groups(
    op: BuiltinBuilder,  # what adds it
    operator: DraftOperator,
    operands: list[DraftTensor | None],  # what it reads; elements are on groups of axes already
    own: Sequence[int],  # the groups that it works along
    groups: Sequence[Sequence[int]],  # the axes of each group
    results: Sequence[Dims],  # the extents of its results
) -> list[DraftTensor] | None:
    """Add an operator with what it says of axes said of groups; None where that is computed."""
    name, options, data = operator.name, dict(operator.options), operands[DATA.get(operator.name, 0)]
    assert data is not None
    if name in AXIS_OPTION:
        options["axis"] = own[0]
    elif name in AXIS_OPERAND:
        slot = AXIS_OPERAND[name]
        stated = operator.inputs[slot]
        assert stated is not None
        assert stated.array is not None
        operands[slot] = op.const(np.array(own if stated.array.ndim else own[0], stated.array.dtype))
    elif name in ROWS:
        rows = _rows(operator, own, groups, data.dims)
        if rows is None:
            return None
        if name == "SLICE":
            rows[1] = np.array([dim if isinstance(dim, int) else -1 for dim in results[0]], rows[1].dtype)
        operands[1 : 1 + len(rows)] = map(op.const, rows)
    if name == "STRIDED_SLICE":
        options |= _masks(options, own, groups, data.dims)
    if name in REDUCTIONS:
        options["keep_dims"] = True
    tensors = [
        op.draft.tensor(f"{result.name}/few", result.type, dims, result.quantization)
        for result, dims in zip(operator.outputs, results, strict=True)
    ]
    op.draft.add(name, operands, tensors, **options)
    return tensors


def _masks(
    options: Mapping[str, Any], own: Sequence[int], groups: Sequence[Sequence[int]], dims: Dims
) -> dict[str, int]:
    """Return the masks of a STRIDED_SLICE on groups of axes; an open extent has no number, and ends where it ends."""
    masks = {}
    for mask in MASKS:
        bits = int(options.get(mask) or 0)
        masks[mask] = sum(1 << place for place in own if bits >> groups[place][0] & 1)
    masks["end_mask"] |= sum(1 << place for place, dim in enumerate(dims) if isinstance(dim, str))
    return masks


def _rows(
    operator: DraftOperator, own: Sequence[int], groups: Sequence[Sequence[int]], dims: Dims
) -> list[NDArray[Any]] | None:
    """Return what an operator of `ROWS` says of each group, of those extents; None where it is computed."""
    arrays = []
    for stated, neutral in zip(operator.inputs[1:], ROWS[operator.name], strict=False):
        if stated is None or stated.array is None:
            return None
        rows = [neutral if neutral != EXTENT else dim if isinstance(dim, int) else 0 for dim in dims]
        for place in own:
            rows[place] = stated.array[groups[place][0]]
        arrays.append(np.array(rows, stated.array.dtype))
    return arrays


def merged(dims: Dims, groups: Sequence[Sequence[int]]) -> Dims:
    """Return the extents of groups of axes."""
    return tuple(_product([dims[axis] for axis in group]) for group in groups)


def _product(dims: Sequence[int | str]) -> int | str:
    names = [dim for dim in dims if isinstance(dim, str)]
    size = prod(dim for dim in dims if isinstance(dim, int))
    return "*".join([*names, *([str(size)] if size != 1 else [])]) if names else size


# What LiteRT prepares on its CPU. The default delegate takes the listed operators whatever their rank, and then refuses
# the file. PAD's kernel refuses by itself. Other builtins run on seven and eight axes.

MOST_PADDED = 5  # axes that the kernels of PAD take
LIMITED = {"MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM", "PAD", "PADV2", "SPLIT", "SPLIT_V"}
LIMITED |= {"CONCATENATION", "FULLY_CONNECTED", "SOFTMAX"}


def use_few_axes(
    draft: Draft,  # the graph
    begin: int,  # the first operator to look at
) -> None:
    """Rewrite operators on more axes than kernels take, in place; with several open extents they stay."""
    if all(len(each.dims) <= _most(op) for op in draft.operators[begin:] for each in op.inputs if each is not None):
        return
    operators = draft.operators[begin:]
    del draft.operators[begin:]
    for operator in operators:
        if not _with_few_axes(draft, operator):
            draft.operators.append(operator)


def _with_few_axes(draft: Draft, operator: DraftOperator) -> bool:
    """Add operators on few axes that stand for one on more; False where there are none."""
    most, data = _most(operator), data_of(operator)
    axes = [] if data is None or operator.name not in LIMITED or len(data.dims) <= most else own_axes(operator, data)
    tensors = [each for each in (*operator.inputs, *operator.outputs) if each is not None]
    if data is None or not axes or any(sum(not isinstance(dim, int) for dim in each.dims) > 1 for each in tensors):
        return False
    op, begin = BuiltinBuilder(draft, operator.outputs[0].name), len(draft.operators)
    groups = groups_of(operator, len(data.dims), axes)
    if len(groups) <= most:
        results = regroup_axes(op, operator, axes, groups)
    else:
        result = one_by_one(op, operator, axes)
        results = None if result is None else [result]
    for tensor, result in zip(results or (), operator.outputs, strict=False):
        op.become(tensor, result)
    use_few_axes(draft, begin)
    return results is not None


def _most(operator: DraftOperator) -> int:
    """Return how many axes a kernel takes."""
    return MOST_PADDED if operator.name in PADS else LARGEST_RANK
