"""How far a source is from itself: what another implementation cannot be asked to be closer than."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from relayout.verification.compare import Difference, difference, wider
from relayout.verification.side import Array, Feeds, Precision, RunnableModel, Runner

DISTURBANCES = 3
ROUNDING = {Precision.FLOAT16: 2.0**-11, Precision.FLOAT32: 2.0**-20}
"""What a model computes with -> the part of its magnitude by which a number is moved. Of float32 that is 8 roundings,
which another order of additions makes of one sum."""
EIGHT_BITS = 255
"""The levels of a real input whose quantizer is not known."""


class Spread:
    """The source, run once more with its runtime's other kernels, and on inputs moved by a rounding.

    An input is moved by up to a rounding of its floats, or by up to one step where it is quantized at once. Roundings
    on the way then fall elsewhere, as they do in another runtime. Of a model with hybrid operators, which quantize a
    float operand at run time, or with 16-bit activations, inputs are moved by up to half a level of their range.
    Values that the result declares to be some steps off are moved by as much on the way.

    Args:
        side: the source.
        interiors: its values beside outputs that are asked for.
        other: what it is compared with.
    """

    def __init__(self, side: RunnableModel, interiors: Sequence[str], other: RunnableModel) -> None:
        self._side, self._interiors, self._steps_off = side, interiors, other.steps_off
        levels = side.levels or other.levels
        rounding = 0.0 if side.precision is Precision.QUANTIZED else ROUNDING[side.precision]
        if side.precision is Precision.FLOAT16 and not side.rounding:  # of stored weights alone
            rounding = ROUNDING[Precision.FLOAT32]
        self._move = partial(
            moved_by_rounding,
            levels=levels or (0 if rounding else EIGHT_BITS),
            rounding=rounding,
            steps={} if levels else {name: (high - low) / EIGHT_BITS for name, (low, high) in side.ranges.items()},
            quantized={value.name for value in side.inputs if value.quantized},
        )
        self._runners: tuple[Runner, Runner] | None = None
        self._feeds: Feeds | None = None
        self._moved: list[Feeds] = []

    def of(self, values: Mapping[str, Array], feeds: Feeds) -> dict[str, Difference]:
        """The spread of each of these values, which the source gave for these feeds."""
        found: dict[str, Difference] = {}
        if not values:
            return found
        if self._runners is None:
            moved = self._side.runner(self._interiors, moved=self._steps_off)
            self._runners = self._side.runner(self._interiors, reference=True), moved
        if feeds is not self._feeds:
            # Runners do not run again for feeds that are the same object, so these are kept as long as the feeds are.
            self._feeds = feeds
            self._moved = [self._move(feeds, seed) for seed in range(DISTURBANCES)]
        other_kernels, plain = self._runners
        for runner, fed in ((other_kernels, feeds), *((plain, moved) for moved in self._moved)):
            for name, other in runner.run(fed, list(values)).items():
                if other.shape == values[name].shape:
                    found[name] = wider(found.get(name), difference(values[name], other))
        return found


def moved_by_rounding(
    feeds: Feeds,
    seed: int,
    *,
    levels: int = 0,
    rounding: float = 0.0,
    steps: Mapping[str, float] = MappingProxyType({}),
    quantized: Collection[str] = (),
) -> Feeds:
    """Return the feeds moved at random by up to a rounding.

    Args:
        feeds: the feeds.
        seed: of the movement.
        levels: floats move by up to half of so many levels of their range, and stay within that range; 0: not so.
        rounding: else they move by up to this part of their magnitude.
        steps: floats that are quantized at once -> the step, by which they move.
        quantized: integers that move by up to one step.
    """
    rng = np.random.default_rng([977, seed])
    moved = dict(feeds)
    for name, array in feeds.items():
        if array.dtype.kind == "f" and array.size:
            low, high = float(array.min()), float(array.max())
            if name in steps:
                step = rng.uniform(-1, 1, array.shape) * steps[name]
            elif levels:
                step = rng.uniform(-0.5, 0.5, array.shape) * (high - low) / levels
            else:
                step = rng.uniform(-1, 1, array.shape) * rounding * np.abs(array)
            moved[name] = np.clip(array + step, low, high).astype(array.dtype)
        elif name in quantized and array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            by = np.rint(rng.uniform(-1, 1, array.shape)).astype(np.int64)
            moved[name] = np.clip(array.astype(np.int64) + by, limits.min, limits.max).astype(array.dtype)
    return moved
