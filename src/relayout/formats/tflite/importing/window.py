"""Sliding windows: axis orders, padding and output extents of convolutions and pools."""

from collections.abc import Sequence
from typing import NamedTuple

from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.importing.builder import Dim
from relayout.formats.tflite.importing.extents import MAX_EXPRESSION, shifted, shrunk

TO_FIRST = (0, 3, 1, 2)  # `n h w c -> n c h w`; the same permutation takes a kernel from `o h w i` to `o i h w`

TO_LAST = (0, 2, 3, 1)  # `n c h w -> n h w c`

TO_FIRST_3D, TO_LAST_3D = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)  # `n d h w c -> n c d h w`, and back


class Border(NamedTuple):
    """A border of zeros that an operator of its own puts around `n *s c`."""

    inner: Tensor  # what it is put around
    pads: tuple[int, ...]  # of the axes `*s`, as ONNX has them: all begins, then all ends
    least: bool  # whether nothing within is below 0


def slid(extent: Dim, window: Dim, stride: int, dilation: int, same: bool) -> Dim:
    """Return how many places a window takes along one axis: every `stride`-th with SAME, only whole ones with VALID."""
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


def is_open(extents: Sequence[Dim], windows: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]) -> bool:
    """Tell whether the border that SAME means depends on extents that are known only at run time.

    It does not where the stride is 1: then the window less one element is what is added. Windows of one element need no
    border.
    """
    sizes = zip(extents, windows, strides, dilations, strict=True)
    return any(not isinstance(e, int) and s > 1 and reach(k, d) != 0 for e, k, s, d in sizes)


def left_to_the_runtime(windows: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]) -> bool:
    """Tell whether `auto_pad` may stand for an open SAME.

    ONNX Runtime knows it without dilations only. Where strides are longer than windows it counts a border below 0: a
    convolution or an average begins too late, a maximum is refused.
    """
    axes = zip(windows, strides, dilations, strict=True)
    return all(d == 1 and isinstance(k, int) and k >= s for k, s, d in axes)


def reach(window: Dim, dilation: int) -> int | None:
    """Return how far behind its first element a window ends."""
    return (window - 1) * dilation if isinstance(window, int) else None


def pads(
    extents: Sequence[Dim], windows: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int], same: bool
) -> list[int]:
    """ONNX `pads` (all begins, then all ends): with SAME, what makes `ceil(extent / stride)` windows fit.

    An odd total has its larger half at the end.
    """
    begins, ends = [], []
    for extent, window, stride, dilation in zip(extents, windows, strides, dilations, strict=True):
        total, more = 0, reach(window, dilation) or 0
        if same and stride == 1:
            total = more
        elif same and isinstance(extent, int):
            total = max((-(-extent // stride) - 1) * stride + more + 1 - extent, 0)
        begins.append(total // 2)
        ends.append(total - total // 2)
    return begins + ends
