"""The mean and standard deviation that a model takes its input's numbers to be centred and scaled by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.errors import LayoutError
from relayout.layout.stored_as import Holds

NORMALIZE = "relayout.normalize"
"""Metadata of an input whose numbers the model normalizes, where its source reads normalized ones: JSON."""


@dataclass(frozen=True)
class Normalization:
    """`(x - mean) / std`, for all elements or for each channel.

    Args:
        mean: one number, or one for each channel.
        std: as many, none of them 0.
        axis: the axis of the channels, in the order of axes of `of`; None where one number is for all.
        of: the source's name of the input. One that holds a value of this name stores its axes as it says.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    axis: int | None = None
    of: str = ""

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
        """Return an array with the mean subtracted, divided by the standard deviation, in its own type."""
        mean, std = self.spread(array.shape)
        return np.asarray((array.astype(np.float64) - mean) / std, array.dtype)

    def raw(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array of which `normalized` makes this one, in its type."""
        mean, std = self.spread(array.shape)
        return np.asarray(array.astype(np.float64) * std + mean, array.dtype)

    def as_stored(self, held: Sequence[Holds]) -> Normalization:
        """Return it with the axis as an input stores it that holds these values of its sources."""
        perm = self._perm(held)
        if perm is None or self.axis is None or self.axis not in perm:
            return self
        return replace(self, axis=perm.index(self.axis))

    def in_source(self, held: Sequence[Holds]) -> Normalization:
        """Return it with the axis in the order of `of`, where it was as an input stores it that holds these values."""
        perm = self._perm(held)
        if perm is None or self.axis is None or self.axis >= len(perm):
            return self
        return replace(self, axis=perm[self.axis])

    def _perm(self, held: Sequence[Holds]) -> tuple[int, ...] | None:
        """Return how the value `of` is stored; None if it is not held, or an axis of it is split or joined."""
        named = [each for each in held if each.name == self.of and len(each.factors) == len(each.shape)]
        return named[-1].perm if named else None

    def after(self, first: Normalization) -> Normalization:
        """Return this normalization of what another one has made.

        Raises:
            LayoutError: the two are of channels along different axes.
        """
        axes = {(each.axis, len(each.mean)) for each in (self, first) if each.axis is not None}
        if len(axes) > 1:
            raise LayoutError(f"--normalize: the input is already normalized along axis {first.axis}, not {self.axis}")
        mean, std = (np.array(each, np.float64) for each in (self.mean, self.std))
        scale = np.array(first.std) * std
        return Normalization(
            tuple(map(float, np.array(first.mean) + np.array(first.std) * mean)),
            tuple(map(float, scale)),
            next(iter(axes))[0] if axes else None,
            first.of,
        )

    def dump(self) -> str:
        """Return it as JSON: the same numbers give the same text."""
        data = {"mean": list(self.mean), "std": list(self.std), "axis": self.axis, "of": self.of}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def stored(text: str, held: Sequence[Holds]) -> Normalization | None:
        """Return what a model's metadata says of an input, with the axis as the input is stored."""
        loaded = Normalization.load(text)
        return None if loaded is None else loaded.as_stored(held)

    @staticmethod
    def load(text: str) -> Normalization | None:
        """Return what a model's metadata says; None where that cannot be read."""
        try:
            data = json.loads(text)
            mean, std = (tuple(float(each) for each in data[key]) for key in ("mean", "std"))
            axis, of = None if data["axis"] is None else int(data["axis"]), str(data["of"])
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            return None
        is_sound = len(mean) == len(std) and mean and all(np.isfinite([*mean, *std])) and all(std)
        return Normalization(mean, std, axis, of) if is_sound and (axis is not None or len(mean) == 1) else None
