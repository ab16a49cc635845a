"""Operators on more axes than LiteRT prepares, as operators on fewer: neighbours that they treat alike are one axis.

    SUM(x[2 3 2 4 2 3 2], 1)  ->  RESHAPE(SUM(RESHAPE(x, [2 3 96]), 1), [2 2 4 2 3 2])

The default delegate takes the listed operators whatever their rank, and then refuses the file. PAD's kernel refuses by
itself. Other builtins run on seven and eight axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.file_order import LARGEST_RANK
from relayout.formats.tflite.exporting.registry import Unwritable

if TYPE_CHECKING:
    from relayout.formats.tflite.exporting.builder import BuiltinBuilder

# BATCH_MATMUL of many axes: its kernels take three axes in front of matrices, so neighbours become one axis.

MOST = 3
"""Axes in front of the last two that the kernels take."""
MATRIX = 2
"""Axes of a matrix."""
Extent = int | str
Axes = tuple[tuple[Extent, ...], tuple[Extent, ...]]
"""One axis of both operands: for each the extents that are one."""


def batched_product(
    op: BuiltinBuilder,
    operands: tuple[DraftTensor, DraftTensor],
    dims: Dims,
    kind: TensorType | None = None,
    meaning: Quantization | None = None,
    *,
    adjoint: tuple[bool, bool] = (False, False),
) -> DraftTensor:
    """Return a product of matrices.

    Args:
        op: the node.
        operands: the two operands, each of at least two axes.
        dims: the extents of the result.
        kind: its elements.
        meaning: its quantization.
        adjoint: which of the operands' matrices are transposed.

    Raises:
        Unwritable: the operands stretch each other along too many axes.
    """
    adj_x, adj_y = adjoint
    if len(dims) <= MOST + MATRIX:
        return op.emit("BATCH_MATMUL", operands, dims, kind, meaning, adj_x=adj_x, adj_y=adj_y)
    axes = _few([operand.dims[:-MATRIX] for operand in operands], len(dims) - MATRIX)
    given = [
        op.reshape(operand, (*(_joined(op, axis[side]) for axis in axes), *operand.dims[-MATRIX:]))
        for side, operand in enumerate(operands)
    ]
    front = [
        first if first != 1 else second for first, second in zip(*(each.dims[:MOST] for each in given), strict=True)
    ]
    made = op.emit("BATCH_MATMUL", given, (*front, *dims[-MATRIX:]), kind, meaning, adj_x=adj_x, adj_y=adj_y)
    return op.reshape(made, dims, max(operands, key=lambda operand: len({*dims} & {*operand.dims})))


def _few(fronts: Sequence[Dims], count: int) -> list[Axes]:
    """Return the axes in front of matrices, neighbours joined until there are few.

    Both operands have two neighbours, or one of them has neither: then they may be one axis. Extents that are known
    are joined first.

    Raises:
        Unwritable: too many are left.
    """
    filled = [(1,) * (count - len(front)) + front for front in fronts]
    axes: list[Axes] = [((first,), (second,)) for first, second in zip(*filled, strict=True)]
    for allowed in (0, 1, count):
        place = 0
        while len(axes) > MOST and place + 1 < len(axes):
            joined = (axes[place][0] + axes[place + 1][0], axes[place][1] + axes[place + 1][1])
            if _fits(joined) and max(map(_open_products, joined)) <= allowed:
                axes[place : place + 2] = [joined]
            else:
                place += 1
    if len(axes) > MOST:
        raise Unwritable(
            f"a product of matrices in a batch of more than {MOST} axes, along which operands are stretched"
        )
    return axes


def _fits(joined: Axes) -> bool:
    """Tell whether an axis is the same for both operands, or of one element for one of them."""
    return joined[0] == joined[1] or any(all(dim == 1 for dim in extents) for extents in joined)


def _open_products(extents: Sequence[Extent]) -> int:
    """Return how many extents are known only at run time; none if there are only ones beside a single such."""
    unknown = sum(not isinstance(dim, int) for dim in extents)
    return 0 if unknown == 1 and len([dim for dim in extents if dim != 1]) == 1 else unknown


def _joined(op: BuiltinBuilder, extents: Sequence[Extent]) -> Extent:
    """Return the extent of several axes as one."""
    larger = [dim for dim in extents if dim != 1]
    if len(larger) == 1:
        return larger[0]
    return prod(int(dim) for dim in larger) if all(isinstance(dim, int) for dim in larger) else f"?{op.name}.{larger}"


REDUCTIONS = frozenset(["MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"])
PADS = frozenset(["PAD", "PADV2"])
MOST_PADDED = 5
"""Axes that the kernels of PAD take."""
DATA = {"SPLIT": 1}
"""Builtin -> which operand holds its data, where it is not the first."""
AXIS = {"SPLIT": 0, "SPLIT_V": 2} | dict.fromkeys(REDUCTIONS | PADS, 1)
"""Builtin -> the operand that says which axes it works along; PAD's has a row for each axis."""
LAST = frozenset(["FULLY_CONNECTED", "SOFTMAX"])
"""Builtins that work along the last axis."""


def use_few_axes(draft: Draft, begin: int) -> None:
    """Rewrite operators on more axes than kernels take, in place; with several open extents they stay.

    Args:
        draft: the graph.
        begin: the first operator to look at.
    """
    if all(len(each.dims) <= _most(op) for op in draft.operators[begin:] for each in op.inputs if each is not None):
        return
    added = draft.operators[begin:]
    del draft.operators[begin:]
    for operator in added:
        data = operator.inputs[DATA.get(operator.name, 0)] if operator.inputs else None
        axes = None if data is None or len(data.dims) <= _most(operator) else _own_axes(operator, data)
        if not axes or any(_open(each.dims) > 1 for each in (*operator.inputs, *operator.outputs) if each is not None):
            draft.operators.append(operator)
        else:
            _regroup(draft, operator, axes)


def _most(operator: DraftOperator) -> int:
    """Return how many axes a kernel takes."""
    return MOST_PADDED if operator.name in PADS else LARGEST_RANK


def _own_axes(operator: DraftOperator, data: DraftTensor) -> list[int]:
    """Return the axes that an operator works along; none where they are computed, or it is not listed."""
    rank = len(data.dims)
    if operator.name in LAST:
        return [rank - 1]
    if operator.name == "CONCATENATION":
        return [int(operator.options["axis"]) % rank]
    stated = operator.inputs[AXIS[operator.name]] if operator.name in AXIS else None
    if stated is None or stated.array is None:
        return []
    if operator.name in PADS:
        return [int(axis) for axis in np.flatnonzero(stated.array.any(1))]
    return sorted({int(axis) % rank for axis in stated.array.reshape(-1)})


def _regroup(draft: Draft, operator: DraftOperator, axes: Sequence[int]) -> None:
    """Write an operator on groups of axes; where these are too many, along one axis after the other."""
    data = operator.inputs[DATA.get(operator.name, 0)]
    assert data is not None
    groups = _groups(operator, len(data.dims), axes)
    if len(groups) > _most(operator):
        _one_by_one(draft, operator, axes)
        return
    found: dict[DraftTensor, DraftTensor] = {}
    for tensor in operator.inputs:
        if tensor is not None and len(tensor.dims) == len(data.dims):
            found.setdefault(tensor, _reshape(draft, tensor, _merged(tensor.dims, groups)))
    own = [place for place, group in enumerate(groups) if group[0] in axes]
    operator.inputs = [None if each is None else found.get(each, each) for each in operator.inputs]
    if operator.name == "CONCATENATION":
        operator.options = operator.options | {"axis": own[0]}
    elif operator.name in AXIS:
        slot = AXIS[operator.name]
        operator.inputs[slot] = draft.constant(f"{operator.outputs[0].name}/axes", _stated(operator, groups, own))
    if operator.name in REDUCTIONS:
        operator.options = operator.options | {"keep_dims": True}
    results, operator.outputs = operator.outputs, []
    draft.operators.append(operator)
    for result in results:
        dims = _merged(result.dims, groups) if len(result.dims) == len(data.dims) else _kept(data.dims, groups, own)
        inner = draft.tensor(f"{result.name}/few", result.type, dims, result.quantization)
        operator.outputs.append(inner)
        _reshape(draft, inner, result.dims, result)


def _groups(operator: DraftOperator, rank: int, axes: Sequence[int]) -> list[list[int]]:
    """Return neighbouring axes that an operator treats alike; a reduction so treats those that it reduces."""
    alone = operator.name not in REDUCTIONS
    runs = groupby(range(rank), lambda axis: (axis in axes, axis if alone and axis in axes else None))
    return [list(run) for _, run in runs]


def _stated(operator: DraftOperator, groups: Sequence[Sequence[int]], own: Sequence[int]) -> np.ndarray:
    """Return the operand that says the axes, for groups of them."""
    stated = operator.inputs[AXIS[operator.name]]
    assert stated is not None
    assert stated.array is not None
    if operator.name in PADS:
        return np.asarray(stated.array[[group[0] for group in groups]])
    return np.array(own, stated.array.dtype) if stated.array.ndim else np.array(own[0], stated.array.dtype)


def _one_by_one(draft: Draft, operator: DraftOperator, axes: Sequence[int]) -> None:
    """Write an operator along each of its axes by itself, the last first, which leaves the places of the others."""
    (result,), (source, stated, *rest) = operator.outputs, operator.inputs
    assert source is not None
    assert stated is not None
    assert stated.array is not None
    for axis in reversed(axes):
        options, one = dict(operator.options), stated.array * 0
        if operator.name in PADS:
            one[axis] = stated.array[axis]
            low, high = (int(each) for each in stated.array[axis])
            extent = source.dims[axis]
            padded = extent + low + high if isinstance(extent, int) else f"{low}+{extent}+{high}"
            dims: Dims = (*source.dims[:axis], padded, *source.dims[axis + 1 :])
        else:
            one = np.array([axis], stated.array.dtype)
            dims = (*source.dims[:axis], *([1] if options["keep_dims"] else []), *source.dims[axis + 1 :])
        last = axis == axes[0]
        inner = result if last else draft.tensor(f"{result.name}/few", result.type, dims, result.quantization)
        step = DraftOperator(
            operator.name, [source, draft.constant(f"{result.name}/axes", one), *rest], [inner], options
        )
        if len(source.dims) > _most(step):
            _regroup(draft, step, [axis])
        else:
            draft.operators.append(step)
        source = inner


def _merged(dims: Dims, groups: Sequence[Sequence[int]]) -> Dims:
    return tuple(_product([dims[axis] for axis in group]) for group in groups)


def _kept(dims: Dims, groups: Sequence[Sequence[int]], own: Sequence[int]) -> Dims:
    """Return what a reduction leaves of groups of axes, with an extent of 1 for each that it reduces."""
    return tuple(1 if place in own else dim for place, dim in enumerate(_merged(dims, groups)))


def _product(dims: Sequence[int | str]) -> int | str:
    names = [dim for dim in dims if isinstance(dim, str)]
    size = prod(dim for dim in dims if isinstance(dim, int))
    return "*".join([*names, *([str(size)] if size != 1 else [])]) if names else size


def _open(dims: Dims) -> int:
    return sum(not isinstance(dim, int) for dim in dims)


def _reshape(draft: Draft, tensor: DraftTensor, dims: Dims, result: DraftTensor | None = None) -> DraftTensor:
    """Return a tensor with other extents, of which one may be open; a constant is one again."""
    if result is None and tensor.array is not None:
        return draft.constant(
            f"{tensor.name}/few", tensor.array.reshape([int(dim) for dim in dims]), tensor.quantization
        )
    shape = draft.constant("shape", np.array([dim if isinstance(dim, int) else -1 for dim in dims], np.int32))
    if result is None:
        result = draft.tensor(f"{tensor.name}/few", tensor.type, dims, tensor.quantization)
    draft.add("RESHAPE", [tensor, shape], [result])
    return result
