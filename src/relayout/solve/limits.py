"""How far the search for the best labels goes, whatever the problem."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

MOST_PRICES = 3_000_000
"""Prices of all relaxations in branches, which are what a proof takes: half a minute, and 200 MB."""


@dataclass
class Limits:
    """What the search through all components may still take.

    Args:
        deadline: `time.monotonic()` after which nothing more is looked at; None for none.
        prices: how many prices of relaxations in branches; the first relaxation of a component is always solved.
    """

    deadline: float | None = None
    prices: int = MOST_PRICES

    @property
    def seconds(self) -> float | None:
        """What is left of the time."""
        return None if self.deadline is None else self.deadline - monotonic()

    @property
    def reached(self) -> bool:
        """Whether there is no time, or no room for a proof, left."""
        return self.prices <= 0 or (self.deadline is not None and monotonic() > self.deadline)
