"""Return the formula for the integers of a quantized input or output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Quantized(Protocol):
    """An input or output that may have a scale and a zero point."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def dtype(self) -> str:
        """Its element type."""

    @property
    def scale(self) -> float | None:
        """The distance between two integers, in what they mean."""

    @property
    def zero_point(self) -> int | None:
        """The integer that means 0."""


def integers_in_words(ends: Iterable[Quantized]) -> list[str]:
    """Return a line for each input and output of quantized integers: `image: int8 = round(x / 0.0039) - 128`."""
    lines = []
    for end in ends:
        if end.scale is not None and end.zero_point is not None:
            sign, distance = "+" if end.zero_point > 0 else "-", abs(end.zero_point)
            shift = f" {sign} {distance}" if distance else ""
            lines.append(f"{end.name}: {end.dtype.removesuffix(' q')} = round(x / {end.scale:.6g}){shift}")
    return lines
