"""Axes of a transposed convolution as those of convolutions in steps of one.

Element i of an axis, times tap t of the kernel, is added to the pixel `i stride + t dilation - pad`. So the pixels at
one place r of their blocks of `stride` are a convolution, with the taps that meet that place:

    y[q stride + r]  =  sum over t of  w[t] x[q + m],    m = (r + pad - t dilation) / stride, a whole number
"""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GROWTH, FEW = 4, 64
"""Taps that the windows of all places may have: so many times those of the kernel, and so many in any case."""


class Place(NamedTuple):
    """The pixels at one place in the blocks of an axis."""

    taps: tuple[tuple[int, int], ...]  # (element of the window, tap of the kernel)
    window: int  # elements of the window
    dilation: int  # steps between the window's elements
    pads: tuple[int, int]  # zeros before and behind the axis


class Axis(NamedTuple):
    """One axis of space."""

    kernel: int  # taps
    stride: int  # pixels in a block
    dilation: int  # steps between the taps
    begin: int  # pixels that are cut off in front
    beyond: int  # how many pixels the result has beyond `extent · stride`

    @property
    def more(self) -> int:
        """Number of blocks beyond the extent; the last one may reach beyond the result."""
        return -(-self.beyond // self.stride)

    @property
    def over(self) -> int:
        """Pixels of the last block that are none of the result."""
        return -self.beyond % self.stride

    @property
    def as_one(self) -> "Axis":
        """The axis of one element, whose stride may be any: with that of the kernel each tap is a place."""
        if self.dilation > 1:
            return self
        return self._replace(stride=self.kernel, beyond=self.beyond + self.stride - self.kernel)

    def met(self, number: int) -> list[tuple[int, int]]:
        """Return which taps meet the pixels at a place: (elements from the block's own, tap of the kernel)."""
        shifts = [(number + self.begin - tap * self.dilation, tap) for tap in range(self.kernel)]
        return [(shift // self.stride, tap) for shift, tap in shifts if shift % self.stride == 0]

    def place(self, number: int, *, among: int = 0) -> Place:
        """Return the convolution for the pixels at a place. Its window holds the taps of `among` places, if any."""
        offset_taps = self.met(number)
        offsets = [offset for each in range(among) for offset, _ in self.met(each)] or [
            offset for offset, _ in offset_taps
        ]
        # No convolution leaves elements out at an end, so that the window reaches to both.
        first = min([0, *offsets])
        last = max([first, -self.more, *offsets])
        step = self.dilation if self.stride == 1 and first == offsets[-1] and last == offsets[0] else 1
        taps = tuple(((offset - first) // step, tap) for offset, tap in offset_taps)
        return Place(taps, (last - first) // step + 1, step, (-first, self.more + last))


def places_of(
    axes: Sequence[Axis],  # the axes of space
    *,
    united: bool = False,  # whether all windows of an axis are as large
) -> dict[tuple[int, ...], list[Place]]:
    """Return the convolution on each axis that gives the pixels at each place of a block."""
    numbers = product(*(range(axis.stride) for axis in axes))
    return {
        each: [axis.place(at, among=axis.stride if united else 0) for axis, at in zip(axes, each, strict=True)]
        for each in numbers
    }


def are_few(axes: Sequence[Axis]) -> bool:
    """Tell whether the windows of all places are not much more than the kernel."""
    most = max(GROWTH * prod(axis.kernel for axis in axes), FEW)
    if prod(axis.stride for axis in axes) > most:
        return False
    every = (places_of(axes, united=each).values() for each in (False, True))
    return all(sum(prod(place.window for place in each) for each in places) <= most for places in every)


def kernel_at(
    kernel: NDArray[np.generic],  # `o i *s`
    places: Sequence[Place],  # of each axis of space
    zero: NDArray[np.generic] | None = None,  # the integers that mean zero, one or one for each output; None: 0
) -> NDArray[np.generic]:
    """Return the kernel of the pixels at some places, with zeros for elements that no tap meets."""
    subkernel = np.zeros((*kernel.shape[:2], *(place.window for place in places)), kernel.dtype)
    if zero is not None:
        subkernel[:] = zero.reshape(-1, *[1] * (subkernel.ndim - 1))
    for pairs in product(*(place.taps for place in places)):
        elements, taps = zip(*pairs, strict=True)
        subkernel[(..., *elements)] = kernel[(..., *taps)]
    return subkernel
