"""How far the search for the best labels goes, whatever the problem."""

from __future__ import annotations

from time import monotonic

from relayout.light_dataclass import dataclass

MOST_PRICES = 3_000_000
"""Prices of all relaxations in branches, which are what a proof takes: half a minute, and 200 MB."""

MOST_SECONDS, MORE_SECONDS = 300.0, 1e-3
"""Where no time is given: five minutes, and a millisecond more for each label. Residual networks take a hundredth."""


@dataclass
class Limits:
    """What the search through all components may still take.

    Args:
        deadline: `time.monotonic()` after which nothing more is looked at.
        prices: how many prices of relaxations in branches; the first relaxation of a component is always solved.
    """

    deadline: float
    prices: int

    @staticmethod
    def of(labels: int, seconds: float | None = None, prices: int | None = None) -> Limits:
        """From now on.

        Args:
            labels: how many the whole problem has.
            seconds: a limit of time; by default one by the number of labels.
            prices: how many prices of relaxations in branches; by default `MOST_PRICES`.
        """
        allowed = MOST_SECONDS + MORE_SECONDS * labels if seconds is None else seconds
        return Limits(monotonic() + allowed, MOST_PRICES if prices is None else prices)

    @property
    def seconds(self) -> float:
        """What is left of the time."""
        return self.deadline - monotonic()

    @property
    def reached(self) -> bool:
        """Whether there is no time, or no room for a proof, left."""
        return self.prices <= 0 or self.seconds < 0
