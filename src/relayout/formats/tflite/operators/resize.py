"""Resizes over `n h w c`, and the exchange of space for depth."""

from __future__ import annotations

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.builder import Dim, dims
from relayout.formats.tflite.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.registry import operator
from relayout.formats.tflite.window import TO_FIRST, TO_LAST


def _emit(op: Operation, x: ir.Value, **attributes: str) -> ir.Value:
    """Resize `n c h w` to the sizes in operand 1; sizes rather than scales, which would have to be rounded."""
    options = op.options
    coordinates = (
        "align_corners" if options.align_corners else "half_pixel" if options.half_pixel_centers else "asymmetric"
    )
    n, c, _, _ = dims(x)
    height, width = _size(op)
    last = op.out_dims((n, height, width, c))
    if op.is_constant(1) and isinstance(n, int) and isinstance(c, int):
        sizes, axes = op.ints([n, c, *op.integers(1)], "sizes"), None
    elif op.is_constant(1):
        sizes, axes = op.ints(op.integers(1), "sizes"), [2, 3]
    else:
        sizes, axes = op.cast(op.stored(1), ir.DataType.INT64), [2, 3]
    return op.emit(
        "Resize",
        [x, None, None, sizes],
        (n, c, last[1], last[2]),
        axes=axes,
        coordinate_transformation_mode=coordinates,
        **attributes,
    )


def _size(op: Operation) -> tuple[Dim, Dim]:
    if not op.is_constant(1):
        return None, None
    size = op.integers(1)
    if len(size) != 2 or min(size) <= 0:
        raise ReadError(f"{size} is no height and width", where=op.place)
    return size[0], size[1]


@operator("RESIZE_BILINEAR", options="ResizeBilinearOptions")
def resize_bilinear(op: Operation) -> None:
    """Resize, linear."""
    op.require_rank(0, 4)
    op.result(_emit(op, op.real(0, TO_FIRST), mode="linear"), perm=TO_LAST)


@operator("RESIZE_NEAREST_NEIGHBOR", options="ResizeNearestNeighborOptions")
def resize_nearest_neighbor(op: Operation) -> None:
    """Resize, nearest: halves are rounded up, except that plain scaling rounds everything down."""
    op.require_rank(0, 4)
    plain = not op.options.align_corners and not op.options.half_pixel_centers
    (x,), finish = op.carried(0, types=BYTES_ONLY)
    nearest = "floor" if plain else "round_prefer_ceil"
    finish(op.transpose(_emit(op, op.transpose(x, TO_FIRST), mode="nearest", nearest_mode=nearest), TO_LAST))


def _scaled(dim: Dim, factor: int, down: bool, op: Operation) -> Dim:
    if not isinstance(dim, int):
        return None
    if factor <= 0 or (down and dim % factor):
        raise ReadError(f"{dim} is not divided by {factor}", where=op.place)
    return dim // factor if down else dim * factor


@operator("DEPTH_TO_SPACE", options="DepthToSpaceOptions")
def depth_to_space(op: Operation) -> None:
    """DepthToSpace, `n h w (b1 b2 c) -> n (h b1) (w b2) c`."""
    op.require_rank(0, 4)
    block = op.options.block_size
    (x,), finish = op.carried(0, types=BYTES_ONLY)
    n, h, w, c = dims(x)
    height, width, depth = (
        _scaled(h, block, False, op),
        _scaled(w, block, False, op),
        _scaled(c, block * block, True, op),
    )
    last = op.out_dims((n, height, width, depth))
    shape = (last[0], last[3], last[1], last[2])
    y = op.emit("DepthToSpace", [op.transpose(x, TO_FIRST)], shape, blocksize=block, mode="DCR")
    finish(op.transpose(y, TO_LAST))


@operator("SPACE_TO_DEPTH", options="SpaceToDepthOptions")
def space_to_depth(op: Operation) -> None:
    """SpaceToDepth, `n (h b1) (w b2) c -> n h w (b1 b2 c)`."""
    op.require_rank(0, 4)
    block = op.options.block_size
    (x,), finish = op.carried(0, types=BYTES_ONLY)
    n, h, w, c = dims(x)
    height, width, depth = (
        _scaled(h, block, True, op),
        _scaled(w, block, True, op),
        _scaled(c, block * block, False, op),
    )
    last = op.out_dims((n, height, width, depth))
    shape = (last[0], last[3], last[1], last[2])
    y = op.emit("SpaceToDepth", [op.transpose(x, TO_FIRST)], shape, blocksize=block)
    finish(op.transpose(y, TO_LAST))
