"""How far a runtime is from itself: what another implementation cannot be asked to be closer than."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from relayout.verification.compare import Difference, difference, wider
from relayout.verification.side import Array, Feeds, RunnableModel, Runner

DISTURBANCES = 3


class Spread:
    """The source, run once more with its runtime's other kernels.

    A hybrid operator quantizes a float operand at run time, and its real meaning (float times dequantized weight) is
    only met up to that rounding, which both kinds of kernels do alike; so do they with 16-bit activations. Its size
    shows when the input is disturbed by half a level: the roundings fall elsewhere. So a source is run on disturbed
    inputs, too, if it or what it is compared with has such operators.

    Args:
        side: the source.
        interiors: its values beside outputs that are asked for.
        other: what it is compared with.
    """

    def __init__(self, side: RunnableModel, interiors: Sequence[str], other: RunnableModel) -> None:
        self._side, self._interiors, self._levels = side, interiors, side.levels or other.levels
        self._runners: list[Runner] = []
        self._feeds: Feeds | None = None
        self._disturbed: list[Feeds] = []

    def of(self, values: Mapping[str, Array], feeds: Feeds) -> dict[str, Difference]:
        """The spread of each of these values, which the source gave for these feeds."""
        found: dict[str, Difference] = {}
        if not values:
            return found
        for runner, fed in self._runs(feeds):
            for name, other in runner.run(fed, list(values)).items():
                if other.shape == values[name].shape:
                    found[name] = wider(found.get(name), difference(values[name], other))
        return found

    def _runs(self, feeds: Feeds) -> Iterator[tuple[Runner, Feeds]]:
        if not self._runners:
            count = DISTURBANCES if self._levels else 0
            self._runners = [self._side.runner(self._interiors, reference=True)]
            self._runners += [self._side.runner(self._interiors) for _ in range(count)]
        if feeds is not self._feeds:
            # Runners do not run again for feeds that are the same object, so these are kept as long as the feeds are.
            self._feeds = feeds
            self._disturbed = [disturbed(feeds, index, self._levels) for index in range(len(self._runners) - 1)]
        yield from zip(self._runners, [feeds, *self._disturbed], strict=True)


def disturbed(feeds: Feeds, seed: int, levels: int) -> Feeds:
    """The feeds, floats moved by up to half of a level of their range, within that range."""
    rng = np.random.default_rng([977, seed])
    moved = dict(feeds)
    for name, array in feeds.items():
        if array.dtype.kind == "f" and array.size:
            low, high = float(array.min()), float(array.max())
            step = rng.uniform(-0.5, 0.5, array.shape) * (high - low) / levels
            moved[name] = np.clip(array + step, low, high).astype(array.dtype)
    return moved
