"""A normalization over groups of channels, by way of each channel's mean.

    x -> Reshape [n g -1] -> InstanceNormalization -> Reshape [n c h w]

Means over the pixels and over a few channels together are slow where channels lie last, and so is what stretches to
them: a group is two elements wide, or four. A mean over the pixels alone is fast, and so is a scale for each channel.
The mean of a group is that of its channels' means, since all have as many pixels.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.rules import Operator, Step
from relayout.rules.normalization import Normalizing

RESHAPING = frozenset({"Reshape"})
"""The operator that joins channels to groups."""
EXPAND = 8
"""The opset that brought Expand."""


class Groups(NamedTuple):
    """The groups of an image's channels.

    Args:
        number: how many groups.
        channels: how many channels.
        space: the other extents.
        normalizing: how each is normalized.
    """

    number: int
    channels: int
    space: tuple[int, ...]
    normalizing: Normalizing

    @staticmethod
    def of_reshaped(operator: Operator) -> "Groups | None":
        """The groups of an InstanceNormalization behind a Reshape that joins channels; None of any other."""
        source, shape = operator.node.inputs[0], operator.shape()
        producer = None if source is None else source.producer()
        if producer is None or producer.op_type not in RESHAPING or producer.domain or not shape:
            return None
        if operator.version < EXPAND:
            return None
        image = _extents(producer.inputs[0])
        if len(image) < 3 or image[0] != shape[0] or not _are_known(image[1:]) or not _are_known(shape[1:]):
            return None
        number, channels, space = shape[1], image[1], image[2:]
        if not isinstance(number, int) or not isinstance(channels, int) or not 1 < number < channels:
            return None
        pixels = tuple(extent for extent in space if isinstance(extent, int))
        rest = [extent for extent in shape[2:] if isinstance(extent, int)]
        if channels % number or prod(rest) != channels // number * prod(pixels):
            return None
        return Groups(number, channels, pixels, Normalizing.of(operator))

    def steps(self, operand: int | str, kind: np.dtype[np.generic]) -> Iterator[Step]:
        """Return the steps that normalize an image; the last one gives `normalized`.

        Args:
            operand: the image, in any shape.
            kind: the type of its elements.
        """
        yield Step("Reshape", (operand, np.array([0, self.channels, *self.space], np.int64)), "image")
        unit = np.ones(1, kind)
        yield from self.normalizing.by(self._mean, "image", unit, np.zeros_like(unit))

    def _mean(self, operand: int | str, name: str) -> Iterator[Step]:
        """The mean of each group, for each of its channels."""
        width = self.channels // self.number
        yield self.normalizing.mean(operand, range(2, 2 + len(self.space)), f"{name}/channels")
        yield Step("Reshape", (f"{name}/channels", np.array([0, self.number, width], np.int64)), f"{name}/grouped")
        yield self.normalizing.mean(f"{name}/grouped", [2], f"{name}/group")
        yield Step("Expand", (f"{name}/group", np.array([1, self.number, width], np.int64)), f"{name}/stretched")
        ones = [1] * len(self.space)
        yield Step("Reshape", (f"{name}/stretched", np.array([0, self.channels, *ones], np.int64)), name)


def for_each_channel(numbers: NDArray[np.generic], groups: Groups) -> NDArray[np.generic]:
    """Repeat the number of each group for each of its channels."""
    return np.repeat(numbers, groups.channels // groups.number)


def _extents(value: ir.Value | None) -> tuple[int | str | None, ...]:
    if value is None or value.shape is None:
        return ()
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def _are_known(extents: Sequence[object]) -> bool:
    return all(isinstance(extent, int) for extent in extents)
