"""Layouts: named orders of factors, written `NHWC`, `OHWI`, `NCHW16c`, or in einops' notation `n h w c`.

A layout names the axes of a tensor and the order in which they are stored. A blocked layout splits one axis into
an outer factor, in the axis's place, and a tile: `NCHW16c` is `n c h w -> n c/16 h w 16`.
"""

import re
from functools import lru_cache
from typing import NamedTuple

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
        """True if this is an order only, without a tile."""
        return not self.tiles

    def perm_to(self, other: "Layout") -> tuple[int, ...]:
        """Return the perm of the Transpose from this plain layout to another over the same axes.

        Raises:
            LayoutError: either is blocked, or they name different axes.
        """
        if not (self.is_plain and other.is_plain):
            raise LayoutError(f"no single Transpose leads from {self} to {other}: one of them is blocked")
        if sorted(self.axes) != sorted(other.axes):
            raise LayoutError(f"{other} is not a reordering of {self}: both must name the same axes")
        return perms.between(self.axes, other.axes)

    def __str__(self) -> str:
        return "".join(f"{f.tile}{f.axis.lower()}" if f.tile else f.axis.upper() for f in self.factors)


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
    """Return the perm from one plain layout to another: `perm_of("NHWC", "NCHW") == (0, 3, 1, 2)`.

    Raises:
        LayoutError: not layouts, blocked, or over different axes.
    """
    first = source if isinstance(source, Layout) else Layout.parse(source)
    second = target if isinstance(target, Layout) else Layout.parse(target)
    return first.perm_to(second)
