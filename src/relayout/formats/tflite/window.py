"""Sliding windows: axis orders, padding and output extents of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence

from relayout.formats.tflite.builder import Dim
from relayout.formats.tflite.extents import MAX_EXPRESSION, shifted, shrunk

TO_FIRST = (0, 3, 1, 2)
"""`n h w c -> n c h w`; the same permutation takes a kernel from `o h w i` to `o i h w`."""

TO_LAST = (0, 2, 3, 1)
"""`n c h w -> n h w c`."""

TO_FIRST_3D, TO_LAST_3D = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)
"""`n d h w c -> n c d h w`, and back."""


def slid(extent: Dim, window: Dim, stride: int, dilation: int, same: bool) -> Dim:
    """How many places a window takes along one axis: every `stride`-th with SAME, only whole ones with VALID."""
    if stride < 1 or dilation < 1:
        raise ValueError(f"stride {stride} and dilation {dilation}")
    if same:
        return shrunk(extent, stride)
    if extent is None or not isinstance(window, int):
        return None
    reach = (window - 1) * dilation
    if isinstance(extent, int):
        return max((extent - reach - 1) // stride + 1, 0)
    if stride == 1 or reach == 0:
        return shrunk(shifted(extent, -reach), stride)
    name = f"floor(({shifted(extent, -reach - 1)})/{stride}) + 1"
    return name if len(name) <= MAX_EXPRESSION else None


def auto_pad(extents: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int], same: bool) -> str | None:
    """SAME depends on the extents, so where they are known only at run time it must be left to the runtime.

    It does not where the stride is 1: then the window less one element is what is added.
    """
    if not same or all(isinstance(e, int) or s == 1 for e, s in zip(extents, strides, strict=True)):
        return None
    return "SAME_UPPER"


def left_to_the_runtime(extents: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]) -> bool:
    """Whether `auto_pad` may stand for SAME: ONNX Runtime knows it without dilations only."""
    return auto_pad(extents, strides, dilations, True) is None or all(d == 1 for d in dilations)


def pads(
    extents: Sequence[Dim], windows: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int], same: bool
) -> list[int] | None:
    """ONNX `pads` (all begins, then all ends): with SAME, what makes `ceil(extent / stride)` windows fit.

    An odd total has its larger half at the end.
    """
    if auto_pad(extents, strides, dilations, same):
        return None
    begins, ends = [], []
    for extent, window, stride, dilation in zip(extents, windows, strides, dilations, strict=True):
        total = 0
        if same and stride == 1 and isinstance(window, int):
            total = (window - 1) * dilation
        elif same and isinstance(extent, int) and isinstance(window, int):
            places = -(-extent // stride)
            total = max((places - 1) * stride + (window - 1) * dilation + 1 - extent, 0)
        begins.append(total // 2)
        ends.append(total - total // 2)
    return begins + ends
