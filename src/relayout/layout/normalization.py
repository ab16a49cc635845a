"""The mean and standard deviation that a model takes its input's numbers to be centred and scaled by."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.errors import LayoutError
from relayout.layout.restated import with_extents
from relayout.layout.stored_as import Holds

NORMALIZE = "relayout.normalize"
"""Metadata of an input whose numbers the model normalizes, where its source reads normalized ones: JSON."""


class Normalization(NamedTuple):
    """`(x - mean) / std`, for all elements or for each channel."""

    mean: tuple[float, ...]  # one number, or one for each channel
    std: tuple[float, ...]  # as many, none of them 0
    axis: int | None = None  # the axis of the channels, in the order of axes of `of`; None where one number is for all
    of: str = ""  # the source's name of the input. One that holds a value of this name stores its axes as it says.

    def spread(self, shape: Sequence[object]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and standard deviation, to be broadcast over an array of this shape.

        Raises:
            LayoutError: the shape has no axis of so many channels there.
        """
        trailing: list[int] = []
        if self.axis is not None:
            if not 0 <= self.axis < len(shape) or shape[self.axis] != len(self.mean):
                extents = "×".join(map(str, shape))
                channels = f"{len(self.mean)} channels along axis {self.axis}"
                raise LayoutError(f"metadata {NORMALIZE!r}: {extents} has no {channels}")
            trailing = [len(self.mean), *([1] * (len(shape) - 1 - self.axis))]
        return np.array(self.mean, np.float64).reshape(trailing), np.array(self.std, np.float64).reshape(trailing)

    def normalized(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array with the mean subtracted, divided by the standard deviation: of integers in float32."""
        mean, std = self.spread(array.shape)
        dtype = array.dtype if array.dtype.kind == "f" else np.float32
        return np.asarray((array.astype(np.float64) - mean) / std, dtype)

    def raw(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array of which `normalized` makes this one, in its type."""
        mean, std = self.spread(array.shape)
        return np.asarray(array.astype(np.float64) * std + mean, array.dtype)

    def as_stored(self, source_values: Sequence[Holds], stored: Sequence[object]) -> "Normalization":
        """Return it with the axis as an input of this shape stores it that holds these values of its sources."""
        return (
            self
            if self.axis is None
            else self._replace(axis=self._axes(source_values, stored).get(self.axis, self.axis))
        )

    def in_source(self, source_values: Sequence[Holds], stored: Sequence[object]) -> "Normalization":
        """Return it with the axis in the order of `of`, where it was as an input stores it that holds these values."""
        back = {mine: axis for axis, mine in self._axes(source_values, stored).items()}
        return self if self.axis is None else self._replace(axis=back.get(self.axis, self.axis))

    def _axes(self, source_values: Sequence[Holds], stored: Sequence[object]) -> dict[int, int]:
        """Return the axes of `of` -> those stored, but for extents of 1; none if an axis is split or joined."""
        named = [each for each in source_values if each.name == self.of]
        if not named:
            return {}
        last = named[-1]
        extents = [extent if isinstance(extent, int) else -1 for extent in stored]
        last = with_extents(last, extents) or last  # a batch that was open may be 1
        source_axes = [axis for axis, extent in enumerate(last.shape) if extent != 1]
        mine = [axis for axis, extent in enumerate(stored) if extent != 1]
        ones = {place for place, extent in enumerate(last.factors) if extent == 1}
        order = [factor for factor in last.perm if factor not in ones]
        order = [sorted(order).index(factor) for factor in order]
        if not len(source_axes) == len(mine) == len(order):
            return {}
        return {source_axes[factor]: mine[place] for place, factor in enumerate(order)}

    def after(self, first: "Normalization") -> "Normalization":
        """Return this normalization of what another one has made.

        Raises:
            LayoutError: the two are of channels along different axes.
        """
        axes = {(each.axis, len(each.mean)) for each in (self, first) if each.axis is not None}
        if len(axes) > 1:
            raise LayoutError(f"--normalize: the input is already normalized along axis {first.axis}, not {self.axis}")
        mean, std = (np.array(each, np.float64) for each in (self.mean, self.std))
        with np.errstate(all="ignore"):
            scale, center = np.array(first.std) * std, np.array(first.mean) + np.array(first.std) * mean
        if not np.isfinite([*scale, *center]).all() or not scale.all():
            raise LayoutError("--normalize: no float holds the numbers of both normalizations of the input")
        return Normalization(
            tuple(map(float, center)),
            tuple(map(float, scale)),
            next(iter(axes))[0] if axes else None,
            first.of,
        )

    def dump(self) -> str:
        """Return it as JSON: the same numbers give the same text."""
        data = {"mean": list(self.mean), "std": list(self.std), "axis": self.axis, "of": self.of}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def stored(text: str, source_values: Sequence[Holds], shape: Sequence[object]) -> "Normalization | None":
        """Return what a model's metadata says of an input, with the axis as the input is stored."""
        loaded = Normalization.load(text)
        return None if loaded is None else loaded.as_stored(source_values, shape)

    @staticmethod
    def load(text: str) -> "Normalization | None":
        """Return what a model's metadata says; None where that cannot be read."""
        try:
            data = json.loads(text)
            mean, std = (tuple(float(each) for each in data[key]) for key in ("mean", "std"))
            axis, of = None if data["axis"] is None else int(data["axis"]), str(data["of"])
            of.encode()  # no half of a surrogate pair
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            return None
        is_sound = len(mean) == len(std) and mean and all(np.isfinite([*mean, *std])) and all(std)
        return Normalization(mean, std, axis, of) if is_sound and (axis is not None or len(mean) == 1) else None
