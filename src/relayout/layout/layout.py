"""Layouts: named orders of factors, written `NHWC`, `OHWI`, `NCHW16c`, or in einops' notation `n h w c`.

A layout names the axes of a tensor and the order in which they are stored. A blocked layout splits one axis into
an outer factor, in the axis's place, and a tile: `NCHW16c` is `n c h w -> n c/16 h w 16`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.errors import LayoutError
from relayout.layout import perm as perms
from relayout.light_dataclass import dataclass

_FACTOR = re.compile(r"(?P<tile>\d*)(?P<axis>[A-Za-z])")


class Factor(NamedTuple):
    """One stored factor: a whole axis or its outer part (`tile` 0), or a tile of an axis."""

    axis: str
    tile: int = 0


@dataclass(frozen=True)
class Layout:
    """The stored order of a tensor's factors."""

    factors: tuple[Factor, ...]  # in stored order, major to minor

    @staticmethod
    @lru_cache(maxsize=256)  # a conversion names the same few for each of its nodes
    def parse(text: str) -> "Layout":
        """Read `NCHW`, `OHWI`, `NCHW16c`, or einops' `n h w c`, `n co h w ci=16`.

        Raises:
            LayoutError: not a layout, an axis twice, a tile without its outer factor.
        """
        stripped = text.strip()
        factors = _parse_einops(stripped) if " " in stripped or "=" in stripped else _parse_short(stripped)
        outer = [factor.axis for factor in factors if not factor.tile]
        tiled = [factor.axis for factor in factors if factor.tile]
        if not factors or len(set(outer)) != len(outer) or len(set(tiled)) != len(tiled) or set(tiled) - set(outer):
            raise LayoutError(
                f"{text!r} is not a layout: every axis once (NHWC), and each tile beside its axis (NCHW16c)"
            )
        return Layout(tuple(factors))

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes in the order of their outer factors."""
        return tuple(factor.axis for factor in self.factors if not factor.tile)

    @property
    def tiles(self) -> dict[str, int]:
        """Axis -> tile size, for the axes that are split."""
        return {factor.axis: factor.tile for factor in self.factors if factor.tile}

    @property
    def is_plain(self) -> bool:
        """Whether this is an order only, without a tile."""
        return not self.tiles

    def perm_to(self, other: "Layout") -> tuple[int, ...]:
        """The perm of the Transpose from this plain layout to another over the same axes.

        Raises:
            LayoutError: either is blocked, or they name different axes.
        """
        if not (self.is_plain and other.is_plain):
            raise LayoutError(f"no single Transpose leads from {self} to {other}: one of them is blocked")
        if sorted(self.axes) != sorted(other.axes):
            raise LayoutError(f"{other} is not a reordering of {self}: both must name the same axes")
        return perms.between(self.axes, other.axes)

    def relay(self, array: NDArray[np.generic], other: "Layout") -> NDArray[np.generic]:
        """Re-lay `array`, stored in this layout, to `other`; a blocked axis is padded with zeros to whole tiles.

        Coming back from a blocked layout keeps the padding: slice it off.

        Raises:
            LayoutError: the axes differ, or the rank does not fit.
        """
        if array.ndim != len(self.factors):
            raise LayoutError(f"an array of rank {array.ndim} is not stored as {self}")
        if set(self.axes) != set(other.axes):
            raise LayoutError(f"{self} and {other} do not name the same axes")
        plain = self._plain(array)
        return other._stored(plain.transpose([self.axes.index(axis) for axis in other.axes]))

    def _plain(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """The array with its tiles joined to their axes, in the order of `axes`."""
        parts = [[i for i, factor in enumerate(self.factors) if factor.axis == axis] for axis in self.axes]
        for part in parts:
            part.sort(key=lambda position: self.factors[position].tile)
        shape = [int(np.prod([array.shape[position] for position in part])) for part in parts]
        return array.transpose([position for part in parts for position in part]).reshape(shape)

    def _stored(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """The inverse of `_plain`, with zeros up to whole tiles."""
        tiles = [self.tiles.get(axis, 1) for axis in self.axes]
        array = np.pad(array, [(0, -extent % tile) for extent, tile in zip(array.shape, tiles, strict=True)])
        split = [part for extent, tile in zip(array.shape, tiles, strict=True) for part in (extent // tile, tile)]
        where = {Factor(axis): 2 * i for i, axis in enumerate(self.axes)}
        where |= {Factor(axis, tile): 2 * i + 1 for i, (axis, tile) in enumerate(zip(self.axes, tiles, strict=True))}
        order = [where[factor] for factor in self.factors]
        unused = [position for position in range(len(split)) if position not in order]
        laid = array.reshape(split).transpose(order + unused)
        return laid.reshape([split[position] for position in order])

    def __str__(self) -> str:
        return "".join(f"{f.tile}{f.axis.lower()}" if f.tile else f.axis.upper() for f in self.factors)

    @property
    def einops(self) -> str:
        """The layout in einops' notation: `n h w c`, `n co h w ci=16`."""
        tiles = self.tiles
        words = []
        for factor in self.factors:
            name = factor.axis.lower()
            words.append(f"{name}i={factor.tile}" if factor.tile else f"{name}o" if factor.axis in tiles else name)
        return " ".join(words)


def _parse_short(text: str) -> list[Factor]:
    factors, position = [], 0
    for match in _FACTOR.finditer(text):
        if match.start() != position:
            break
        position = match.end()
        factors.append(Factor(match["axis"].upper(), int(match["tile"] or 0)))
    return factors if position == len(text) else []


def _parse_einops(text: str) -> list[Factor]:
    words = text.split()
    tiled = {word[0].upper() for word in words if "=" in word}
    factors = []
    for word in words:
        name, _, tile = word.partition("=")
        letter = name[0].upper()
        if not re.fullmatch(r"[a-z]" if letter not in tiled else r"[a-z][oi]", name) or (tile and not tile.isdigit()):
            return []
        factors.append(Factor(letter, int(tile or 0)))
    return factors


def perm_of(source: str | Layout, target: str | Layout) -> tuple[int, ...]:
    """The perm from one plain layout to another: `perm_of("NHWC", "NCHW") == (0, 3, 1, 2)`.

    Raises:
        LayoutError: not layouts, blocked, or over different axes.
    """
    first = source if isinstance(source, Layout) else Layout.parse(source)
    second = target if isinstance(target, Layout) else Layout.parse(target)
    return first.perm_to(second)


def describe(perm: Sequence[int]) -> str:
    """A perm in einops' notation: `(0, 3, 1, 2)` -> `a b c d -> a d b c`."""
    letters = [chr(ord("a") + i) if i < 26 else f"a{i}" for i in range(len(perm))]
    return f"{' '.join(letters)} -> {' '.join(perms.permute(perm, letters))}"
