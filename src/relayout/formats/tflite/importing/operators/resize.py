"""Resizes over `n h w c`, and the exchange of space for depth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.contents import contents
from relayout.formats.tflite.importing.extents import divided, times
from relayout.formats.tflite.importing.operation import BYTES_ONLY, MOVABLE, Operation
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST
from relayout.graph.domains import RESIZE


def resized(op: Operation, x: ir.Value, **attributes: Any) -> ir.Value:
    """Resize `n c h w` to the height and width in operand 1."""
    options = op.options
    coordinates = (
        "align_corners" if options.align_corners else "half_pixel" if options.half_pixel_centers else "asymmetric"
    )
    n, c, *spatial = dims(x)
    height, width = size_of(op)
    last = op.out_dims((n, height, width, c))
    scales, sizes = _target(op, x, (n, c), spatial, (height, width))
    return op.emit(
        RESIZE,
        [x, None, scales, sizes],
        (n, c, last[1], last[2]),
        coordinate_transformation_mode=coordinates,
        **attributes,
    )


def _target(
    op: Operation, x: ir.Value, outer: tuple[Dim, Dim], spatial: list[Dim], wanted: tuple[Dim, Dim]
) -> tuple[ir.Value | None, ir.Value | None]:
    """Scales or sizes of all four axes: constants if possible, sizes rather than scales, which have to be rounded.

    The attribute `axes` would be shorter, but ONNX Runtime's transpose optimizer takes no notice of it.
    """
    known = [d for d in (*outer, *wanted) if isinstance(d, int)]
    if len(known) == 4:
        return None, op.ints(known, "sizes")
    factors = [
        k for a, b in zip(spatial, wanted, strict=True) for k in range(1, 17) if a is not None and times(a, k) == b
    ]
    if len(factors) == 2:
        return op.builder.array(op.hint("scales"), np.array([1, 1, *factors], np.float32)), None
    pairs = [(a, b) for a, b in zip(spatial, wanted, strict=True) if isinstance(a, int) and isinstance(b, int)]
    scales = np.array([1, 1, *(b / a if a else 0 for a, b in pairs)], np.float32)
    # Runtimes floor extent times scale, in single or double precision; where that is another size, scales are no use.
    if len(pairs) == 2 and all(
        int(np.float32(a) * s) == int(a * float(s)) == b for (a, b), s in zip(pairs, scales[2:], strict=True)
    ):
        return op.builder.array(op.hint("scales"), scales), None
    front = op.emit("Shape", [x], start=0, end=2)
    back = op.ints(op.integers(1), "sizes") if op.is_constant(1) else op.cast(op.stored(1), ir.DataType.INT64)
    return None, op.emit("Concat", [front, back], axis=0)


def size_of(op: Operation) -> tuple[Dim, Dim]:
    """The height and width in operand 1, as far as they are known."""
    if not op.is_constant(1):
        known = contents(op.stored(1))
        return (known[0], known[1]) if known is not None and len(known) == 2 else (None, None)
    size = op.integers(1)
    if len(size) != 2 or min(size) <= 0:
        raise ReadError(f"{size} is no height and width", where=op.place)
    return size[0], size[1]


@operator("RESIZE_BILINEAR", options="ResizeBilinearOptions")
def resize_bilinear(op: Operation) -> None:
    """Resize, linear; of 16 bits, and of integers without a scale, Gathers and integer weights."""
    op.require_rank(0, 4)
    tensor = op.input(0)
    if tensor.type in MOVABLE and (tensor.quantization is None or tensor.type == TensorType.INT16):
        # A float graph has real numbers, and those of another scale are the same integers.
        if op.tensors.dequantize:
            (x,), finish = op.carried(0, perm=TO_FIRST)
            finish(resized(op, x, mode="linear"))
        else:
            op.result_stored(_interpolated(op, op.stored(0)))
        return
    op.result_alike(resized(op, op.real(0, TO_FIRST), mode="linear"), TO_LAST)


_BITS = 10  # the kernel's coordinates are in 1024ths


def _interpolated(op: Operation, x: ir.Value) -> ir.Value:
    """Bilinear in integers: along each axis the two neighbours, weighted in 1024ths; halves away from zero."""
    extents, sizes = dims(x)[1:3], size_of(op)
    narrow, x = x.dtype, op.cast(x, ir.DataType.INT64)
    for axis, (extent, size) in enumerate(zip(extents, sizes, strict=True), 1):
        if not isinstance(extent, int) or not isinstance(size, int):
            raise Unsupported("integers without a float kernel, resized from or to unknown dimensions")
        low, high, above = _neighbours(extent, size, op)
        behind = (1,) * (3 - axis)
        before, after = (
            op.each(
                "Mul",
                op.emit("Gather", [x, op.ints(places, "places")], axis=axis),
                op.builder.array(op.hint("weights"), weights.reshape(size, *behind)),
            )
            for places, weights in ((low.tolist(), (1 << _BITS) - above), (high.tolist(), above))
        )
        x = op.each("Add", before, after)
    # Not a Sign: that of ONNX Runtime looks at 32 bits.
    below = op.each("Less", x, op.number(0, x, "zero"))
    halves = [op.number(sign << 2 * _BITS - 1, x, "half") for sign in (-1, 1)]
    half = op.emit("Where", [below, *halves])
    y = op.each("Div", op.each("Add", x, half), op.number(1 << 2 * _BITS, x, "whole"))
    return op.cast(y, narrow or ir.DataType.INT16)


def _neighbours(
    extent: int, size: int, op: Operation
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each place of the result: the place before, the place after, and the latter's weight."""
    one, options = 1 << _BITS, op.options
    if options.align_corners and size > 1:
        scale = (one * (extent - 1) + (size - 1) // 2) // (size - 1)
    else:
        scale = (one * extent + size // 2) // size
    at = np.arange(size, dtype=np.int64) * scale
    if options.half_pixel_centers:
        at += scale // 2 - one // 2
    low = np.maximum(np.trunc(at / one).astype(np.int64), 0)
    high = np.minimum(np.trunc((at + one - 1) / one).astype(np.int64), extent - 1)
    return low, high, at - low * one


@operator("RESIZE_NEAREST_NEIGHBOR", options="ResizeNearestNeighborOptions")
def resize_nearest_neighbor(op: Operation) -> None:
    """Resize, nearest: halves are rounded up, except that plain scaling rounds everything down."""
    op.require_rank(0, 4)
    plain = not op.options.align_corners and not op.options.half_pixel_centers
    (x,), finish = op.carried(0, types=BYTES_ONLY, perm=TO_FIRST)
    finish(resized(op, x, mode="nearest", nearest_mode="floor" if plain else "round_prefer_ceil"))


def scaled(dim: Dim, factor: int, down: bool, op: Operation) -> Dim:
    """An extent times a factor, or over it."""
    if factor <= 0 or (down and isinstance(dim, int) and dim % factor):
        raise ReadError(f"{dim} is not divided by {factor}", where=op.place)
    return divided(dim, factor) if down else times(dim, factor)


_REGROUPED = (TensorType.INT32, TensorType.INT64)  # types that ONNX Runtime's kernels for space and depth do not take


@operator("DEPTH_TO_SPACE", options="DepthToSpaceOptions")
def depth_to_space(op: Operation) -> None:
    """DepthToSpace, `n h w (b1 b2 c) -> n (h b1) (w b2) c`."""
    _between_depth_and_space(op, "DepthToSpace", to_space=True, mode="DCR")


@operator("SPACE_TO_DEPTH", options="SpaceToDepthOptions")
def space_to_depth(op: Operation) -> None:
    """SpaceToDepth, `n (h b1) (w b2) c -> n h w (b1 b2 c)`."""
    _between_depth_and_space(op, "SpaceToDepth", to_space=False)


def _between_depth_and_space(op: Operation, name: str, *, to_space: bool, **attributes: Any) -> None:
    """Emit the operator of this name; for types that it does not take, the Transpose that it is."""
    op.require_rank(0, 4)
    block = op.options.block_size
    n, h, w, c = dims(op.stored(0))
    height, width = (scaled(extent, block, not to_space, op) for extent in (h, w))
    depth = scaled(c, block * block, to_space, op)
    last = op.out_dims((n, height, width, depth))
    if op.input(0).type in _REGROUPED:
        (x,), finish = op.carried(0)
        x = op.reshape(x, (n, h, w, block, block, depth) if to_space else (n, height, block, width, block, c))
        x = op.transpose(x, (0, 1, 3, 2, 4, 5), op.hint("transposed"))
        finish(op.reshape(x, (n, height, width, depth)))
        return
    (x,), finish = op.carried(0, types=BYTES_ONLY, perm=TO_FIRST)
    finish(op.emit(name, [x], (last[0], last[3], last[1], last[2]), blocksize=block, **attributes))
