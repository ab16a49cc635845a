"""Operators that give an axis of another length: windows that slide over it, and a Resize by whole numbers.

The new length is a name of its own, the same for the same formula: two branches of a network that shrink an image alike
meet again.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from relayout.layout import Extent
from relayout.rules import Operator

SCALES, SIZES = 2, 3
"""Inputs of a Resize."""


class WindowLength(NamedTuple):
    """The new length of `n` elements: `(n * scale + more) // stride + 1`, or `n * scale` where the stride is 0.

    Args:
        letter: of the axis in the result.
        scale: by how much it is longer first.
        more: what is added.
        stride: of the window.
    """

    letter: str
    scale: int = 1
    more: int = 0
    stride: int = 0

    @property
    def keeps(self) -> bool:
        """True if the length stays as it is."""
        return self.scale == 1 and (not self.stride or (self.stride == 1 and self.more == -1))

    def exact(self, length: Extent) -> Extent | None:
        """Return the new length where it is a multiple of a name: a whole scale, or a stride that leaves no rest."""
        longer = length * Extent(self.scale)
        if not self.stride:
            return longer
        return longer.divide(Extent(self.stride)) if -self.stride <= self.more < 0 else None

    def of(self, extent: int) -> int:
        """Return the new length of a number."""
        longer = extent * self.scale
        return (longer + self.more) // self.stride + 1 if self.stride else longer


def slid(operator: Operator, letter: str) -> WindowLength | None:
    """A convolution or a pool, by its kernel, strides, dilations and pads."""
    rank, weights = operator.rank(), operator.shape(1) if operator.has(1) else None
    kernel = operator.ints("kernel_shape") or (weights or ())[2:]
    axis = _place(letter)
    if rank is None or axis is None or len(kernel) != rank - 2:
        return None
    size, count = kernel[axis], len(kernel)
    stride = (operator.ints("strides") or (1,) * count)[axis]
    reach = (operator.ints("dilations") or (1,) * count)[axis]
    pads = operator.ints("pads") or (0,) * 2 * count
    automatic = operator.string("auto_pad", "NOTSET")
    if not isinstance(size, int) or operator.int("ceil_mode", 0):
        return None
    if automatic.startswith("SAME"):
        return WindowLength(f"t{axis}", more=-1, stride=stride)
    more = 0 if automatic == "VALID" else pads[axis] + pads[axis + count]
    return WindowLength(f"t{axis}", more=more - reach * (size - 1) - 1, stride=stride)


def slid_back(operator: Operator, letter: str) -> WindowLength | None:
    """A transposed convolution: `(n - 1) * stride + reach + more`."""
    rank, weights, axis = operator.rank(), operator.shape(1), _place(letter)
    if rank is None or weights is None or axis is None or operator.ints("output_shape"):
        return None
    count, size = rank - 2, weights[2 + axis]
    stride = (operator.ints("strides") or (1,) * count)[axis]
    reach = (operator.ints("dilations") or (1,) * count)[axis]
    pads = operator.ints("pads") or (0,) * 2 * count
    if not isinstance(size, int) or operator.string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    more = (operator.ints("output_padding") or (0,) * count)[axis] - pads[axis] - pads[axis + count]
    return WindowLength(f"t{axis}", stride, reach * (size - 1) - stride + more, 1)


def resized(operator: Operator, letter: str) -> WindowLength | None:
    """A Resize by whole scales."""
    axis, scales, sizes = int(letter[1:]), operator.constant(SCALES), operator.integers(SIZES)
    shape = operator.shape() or ()
    axes = operator.ints("axes") or tuple(range(len(shape)))
    if axis not in axes or operator.string("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    place, extent = axes.index(axis), shape[axis]
    if sizes is not None and len(sizes) == len(axes) and isinstance(extent, int):
        scale = sizes[place] / extent
    elif scales is not None and scales.size == len(axes) and not operator.has(SIZES):
        scale = float(scales.reshape(-1)[place])
    else:
        return None
    return WindowLength(letter, int(scale)) if scale >= 1 and scale.is_integer() else None


def depth_to_space(operator: Operator, letter: str) -> WindowLength | None:
    """As many elements for each as a block has."""
    axis = _place(letter)
    return None if axis is None else WindowLength(f"t{axis}", operator.int("blocksize", 1))


def space_to_depth(operator: Operator, letter: str) -> WindowLength | None:
    """One element for each block."""
    axis, size = _place(letter), operator.int("blocksize", 1)
    return None if axis is None else WindowLength(f"t{axis}", more=-size, stride=size)


def _place(letter: str) -> int | None:
    """Return which axis of space a letter is; None for any other."""
    return int(letter[1:]) if letter[:1] == "s" and letter[1:].isdigit() else None


WINDOWS: Mapping[tuple[str, str], Callable[[Operator, str], WindowLength | None]] = {
    **dict.fromkeys((("", name) for name in ("AveragePool", "Conv", "ConvInteger", "LpPool", "MaxPool")), slid),
    ("", "ConvTranspose"): slid_back,
    ("", "DepthToSpace"): depth_to_space,
    ("", "Resize"): resized,
    ("", "SpaceToDepth"): space_to_depth,
}
"""(domain, operator) -> what becomes of the length of one of its axes, by the letter of the operand."""
