"""Limits of the search for the best labels, counted in work: how busy the machine is decides nothing."""

from __future__ import annotations

from math import inf
from time import monotonic

from relayout.light_dataclass import dataclass

MOST_PRICES = 1_000_000
"""Prices of all relaxations in branches, which are what a proof takes: some ten seconds, and 70 MB."""

MOST_STEPS, STEPS_OF_LABEL = 200_000, 20
"""Iterations of the simplex method in all relaxations: so many, and some for each label. Networks take a hundredth."""


@dataclass
class Limits:
    """The work and time that the search through all components may still take."""

    prices: int  # how many prices of relaxations in branches
    steps: int  # iterations of the simplex method in all relaxations
    deadline: float = inf  # `time.monotonic()` at which the search ends, where the user asks for a limit of time

    @staticmethod
    def of(labels: int, seconds: float | None = None, prices: int | None = None) -> Limits:
        """Return the limits of a search that begins now.

        Args:
            labels: how many the whole problem has.
            seconds: a limit of time; None for none.
            prices: how many prices of relaxations in branches; by default `MOST_PRICES`.
        """
        deadline = inf if seconds is None else monotonic() + seconds
        return Limits(MOST_PRICES if prices is None else prices, MOST_STEPS + STEPS_OF_LABEL * labels, deadline)

    @property
    def seconds(self) -> float:
        """The remaining time."""
        return self.deadline - monotonic()

    @property
    def reached(self) -> bool:
        """Tell whether nothing more may be looked at."""
        return self.prices <= 0 or self.steps <= 0 or self.seconds < 0
