"""Windows that slide over images: which border they have, and how it is written."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from relayout.formats.tflite.container.enums import Padding
from relayout.formats.tflite.exporting.draft import NUMPY, Dims, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable
from relayout.formats.tflite.importing import window as imported

BORDER = "its border depends on an extent that is known only at run time"


class Window(NamedTuple):
    """A window over the axes `*s` of an image `n *s c`."""

    extents: Dims  # of the image
    sizes: tuple[int, ...]  # of the window
    strides: tuple[int, ...]  # between windows
    dilations: tuple[int, ...]  # between elements of a window
    pads: tuple[tuple[int, int], ...]  # of the border, (before, after) of each axis
    same: bool  # whether the border is what TensorFlow Lite calls SAME
    results: Dims  # how many windows there are

    @staticmethod
    def of(op: NodeExport, sizes: Sequence[int]) -> "Window":
        """Read a node's window, its image stored channels last."""
        count = len(sizes)
        extents, results = op.dims(0)[1:-1], op.out_dims(0)[1:-1]
        require_whole(op, extents, results)
        strides = tuple(op.integers("strides", [1] * count))
        dilations = tuple(op.integers("dilations", [1] * count))
        same_upper = Window(extents, tuple(sizes), strides, dilations, ((0, 0),) * count, True, results)
        auto = op.text("auto_pad", "NOTSET")
        if auto == "SAME_UPPER":
            return same_upper
        given = [0] * (2 * count) if auto == "VALID" else op.integers("pads", [0] * (2 * count))
        pads = list(zip(given[:count], given[count:], strict=True))
        if auto.startswith("SAME"):
            pads = list(same_border(extents, sizes, strides, dilations, is_lower=True))
        if op.integer("ceil_mode"):
            # SAME of images of any extents: pairs, of which the last may be one element.
            is_halved = set(zip(sizes, strides, dilations, strict=True)) == {(2, 2, 1)} and not any(map(any, pads))
            if is_halved and not all_known(extents):
                return same_upper
            pads = [
                (before, _after_ceil(extent, result, size, stride, dilation, (before, after)))
                for (before, after), extent, result, size, stride, dilation in zip(
                    pads, extents, results, sizes, strides, dilations, strict=True
                )
            ]
        for extent, pair, size, dilation in zip(extents, pads, sizes, dilations, strict=True):
            if isinstance(extent, int) and extent + sum(pair) < (size - 1) * dilation + 1:
                raise Unwritable("a window that is larger than its image")
        same = all(_is_same(*each) for each in zip(extents, results, sizes, strides, dilations, pads, strict=True))
        return same_upper._replace(pads=tuple(pads), same=same)

    @property
    def border(self) -> tuple[tuple[int, int], ...]:
        """The border of each axis as numbers, also where SAME says it."""
        return same_border(self.extents, self.sizes, self.strides, self.dilations) if self.same else self.pads

    @property
    def is_valid(self) -> bool:
        """True if there is no border."""
        return not self.same and not any(map(any, self.pads))

    @property
    def without_border(self) -> "Window":
        """The window over an image that has its border already."""
        return self._replace(same=False, pads=((0, 0),) * len(self.sizes))

    @property
    def padding(self) -> Padding:
        """The padding of the operator, once the border is written."""
        return Padding.SAME if self.same else Padding.VALID

    def bordered(
        self,
        op: NodeExport,  # the node
        image: DraftTensor,  # `n *s c`
        border: float | None = None,  # what the border holds; None: what means zero
    ) -> DraftTensor:
        """Return the image with its border written by an operator of its own, where SAME does not say it."""
        if self.same or self.is_valid:
            return image
        return bordered(op, image, [(0, 0), *self.pads, (0, 0)], border)

    def written(self, op: NodeExport, image: DraftTensor) -> DraftTensor:
        """Return the image with its border of zeros written by an operator of its own, also where SAME says it."""
        return bordered(op, image, [(0, 0), *self.border, (0, 0)])


def steps(strides: Sequence[int], dilations: Sequence[int] = ()) -> dict[str, Any]:
    """Return strides and dilations of two or three axes as options."""
    axes = "dhw"[-len(strides) :]
    options = {f"stride_{axis}": stride for axis, stride in zip(axes, strides, strict=True)}
    return options | {f"dilation_{axis}_factor": each for axis, each in zip(axes, dilations, strict=False)}


def bordered(
    op: NodeExport,  # the node
    image: DraftTensor,  # the tensor
    pads: Sequence[tuple[int, int]],  # of the border, (before, after) of each axis
    # what the border holds, an integer where the tensor holds integers; None: what means zero
    border: float | None = None,
) -> DraftTensor:
    """Return a tensor with a border of one number; negative pads cut."""
    if any(side < 0 for pair in pads for side in pair):
        dims = known(image.dims, BORDER)
        begin = [max(-before, 0) for before, _ in pads]
        size = [dim + min(before, 0) + min(after, 0) for dim, (before, after) in zip(dims, pads, strict=True)]
        image = op.emit("SLICE", [image, op.ints(begin), op.ints(size)], tuple(size))
        pads = [(max(before, 0), max(after, 0)) for before, after in pads]
    if not any(map(any, pads)):
        return image
    grown = zip(image.dims, pads, strict=True)
    dims_: Dims = tuple(
        dim + before + after if isinstance(dim, int) else (f"{dim} + {before + after}" if before + after else dim)
        for dim, (before, after) in grown
    )
    amounts = op.const(np.array(pads, np.int32), what="pads")
    if border is None or (not border and image.quantization is None):
        return op.emit("PAD", [image, amounts], dims_)  # of integers with a scale it gives their zero point
    value = op.const(np.asarray(border, NUMPY[image.type]), image.quantization, "border")
    return op.emit("PADV2", [image, amounts, value], dims_)


def require_whole(op: NodeExport, extents: Dims, results: Dims) -> None:
    """Refuse windows that `ceil_mode` counts, though they begin behind the image and its border: few runtimes give any.

    Args:
        op: the node.
        extents: of the image's axes of space.
        results: how many windows the graph says there are.
    """
    count = len(extents)
    if not op.integer("ceil_mode"):
        return
    strides, given = op.integers("strides", [1] * count), op.integers("pads", [0] * (2 * count))
    auto = op.text("auto_pad", "NOTSET")
    for extent, result, stride, begin in zip(extents, results, strides, given, strict=False):
        if not isinstance(extent, int) or not isinstance(result, int):
            continue
        last = (result - 1) * stride - (begin if auto == "NOTSET" else 0)
        if last >= extent or (auto.startswith("SAME") and result != -(-extent // stride)):
            raise Unwritable("ceil_mode, with a window that begins behind the image")


def same_border(
    extents: Dims, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int], *, is_lower: bool = False
) -> tuple[tuple[int, int], ...]:
    """Return the border that SAME means, (before, after) of each axis; the larger half is behind, or before."""
    known(tuple(extent for extent, stride in zip(extents, strides, strict=True) if stride > 1), BORDER)
    pads = imported.pads(extents, sizes, strides, dilations, same=True)
    halves = zip(pads[: len(sizes)], pads[len(sizes) :], strict=True)
    return tuple((larger, smaller) if is_lower else (smaller, larger) for smaller, larger in halves)


def _after_ceil(
    extent: int | str, result: int | str, size: int, stride: int, dilation: int, pads: tuple[int, int]
) -> int:
    """Return the border behind an image that all windows of `ceil_mode` need.

    Of an open extent it is the largest that any extent needs: windows that end behind what is needed are left out,
    since ceil(x / stride) = floor((x + stride - 1) / stride).
    """
    (before, after), reach = pads, (size - 1) * dilation + 1
    if isinstance(extent, int) and isinstance(result, int):
        return max(after, (result - 1) * stride + reach - extent - before)
    if reach < after + stride:  # of some extents a last window begins behind the image, and is left out
        raise OpenExtentError(BORDER)
    return after + stride - 1


def _is_same(
    extent: int | str, result: int | str, size: int, stride: int, dilation: int, pads: tuple[int, int]
) -> bool:
    """Return whether TensorFlow Lite's SAME gives the same border to one axis."""
    total = sum(pads)
    if pads[0] != total // 2:
        return False
    if stride == 1:
        return total == (size - 1) * dilation
    if not isinstance(extent, int) or not isinstance(result, int) or result != -(-extent // stride):
        return False
    needed = max((result - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
    # A border that no window reaches does not count.
    return pads[0] == needed // 2 and total >= needed
