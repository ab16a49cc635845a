"""BATCH_MATMUL of many axes: its kernels take three axes in front of matrices, so neighbours become one axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable

MOST = 3
"""Axes in front of the last two that the kernels take."""
MATRIX = 2
"""Axes of a matrix."""
Extent = int | str
Axes = tuple[tuple[Extent, ...], tuple[Extent, ...]]
"""One axis of both operands: for each the extents that are one."""


def batched_product(
    op: NodeExport,
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
        op.reshaped(operand, (*(_joined(op, axis[side]) for axis in axes), *operand.dims[-MATRIX:]))
        for side, operand in enumerate(operands)
    ]
    front = [
        first if first != 1 else second for first, second in zip(*(each.dims[:MOST] for each in given), strict=True)
    ]
    made = op.emit("BATCH_MATMUL", given, (*front, *dims[-MATRIX:]), kind, meaning, adj_x=adj_x, adj_y=adj_y)
    return op.reshaped(made, dims, max(operands, key=lambda operand: len({*dims} & {*operand.dims})))


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
            if _fits(joined) and max(map(_open, joined)) <= allowed:
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


def _open(extents: Sequence[Extent]) -> int:
    """Return how many extents are known only at run time; none if there are only ones beside a single such."""
    unknown = sum(not isinstance(dim, int) for dim in extents)
    return 0 if unknown == 1 and len([dim for dim in extents if dim != 1]) == 1 else unknown


def _joined(op: NodeExport, extents: Sequence[Extent]) -> Extent:
    """Return the extent of several axes as one."""
    larger = [dim for dim in extents if dim != 1]
    if len(larger) == 1:
        return larger[0]
    return prod(int(dim) for dim in larger) if all(isinstance(dim, int) for dim in larger) else f"?{op.name}.{larger}"
