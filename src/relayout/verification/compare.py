"""How far differences_by_name two arrays are, and whether that is far."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from types import MappingProxyType

import numpy as np

from relayout.light_dataclass import dataclass
from relayout.verification.side import Array, Feeds, Precision, RunnableModel, Runner

SPACING = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # the spacing of floats of 16 bits, relative to their magnitude


PIECE = 1 << 18  # elements that are compared at a time
SPREADS = 2
"""So many times the source's own spread is allowed: it is seen in a handful of runs, which do not show all of it."""


class Verdict(StrEnum):
    """The outcome of a comparison, best first. All before `DIFFERS` pass."""

    EQUAL = "equal"
    CLOSE = "close"  # within the tolerance, or one step of a quantized integer
    SPREAD = "within spread"
    """Within what the source differs from itself by: with other kernels, or with inputs moved by a rounding."""
    STEPWISE = "operator by operator"
    """Its operator computes what the source's does, on the source's own values. That alone never excuses an output,
    but for one of a float model of integers, and for one that is drawn at random."""
    DIFFERS = "differs"
    NOT_FINITE = "nan or inf differ"
    SHAPE = "shape differs"
    TYPE = "type differs"
    MISSING = "missing"
    NOT_COMPARED = "not compared"  # there is nothing to compare it with, at this batch or in this type

    @property
    def passes(self) -> bool:
        """True if the values agree."""
        return self.rank < Verdict.DIFFERS.rank

    @property
    def word(self) -> str:
        """The verdict in a word or two: `agrees`, `differs` or `not compared`."""
        return "agrees" if self.passes else self.value if self is Verdict.NOT_COMPARED else "differs"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Verdict).index(self)


class Kind(StrEnum):
    """The kind of numbers, which decides what counts as close."""

    REAL = "real"  # floats: the largest error, relative to the largest magnitude of the tensor
    STEPS = "steps"  # quantized integers: the largest error in their own steps (LSB)
    EXACT = "exact"  # indices, counts, truth values, text: the share of elements that are not the same


@dataclass(frozen=True)
class Difference:
    """The distance of two arrays of one shape."""

    max_abs: float  # the largest absolute difference, over elements that are finite in both
    max_rel: float  # that, relative to the largest magnitude in the first array; infinite if that is 0
    share: float  # the share of elements that are not equal
    finite: bool  # whether NaN and infinities are in the same places
    # what the element type rounds by, relative to the magnitude, where that is more than float32 does
    rounding: float = 0.0

    def of(self, kind: Kind) -> float:
        """Return the number that counts for this kind."""
        return {Kind.REAL: self.max_rel, Kind.STEPS: self.max_abs, Kind.EXACT: self.share}[kind]


@dataclass(frozen=True)
class Tolerance:
    """The distance that floats may have: `|a - b| <= atol + rtol * max|a|`."""

    rtol: float  # relative to the largest magnitude
    atol: float  # absolute
    # what floats are rounded by on the way, relative to their magnitude, where that is more than float32
    rounding: float = 0.0


def kind_of(array: Array, quantized: bool) -> Kind:
    """Return the kind of an array's numbers."""
    if _is_real(array):
        return Kind.REAL
    return Kind.STEPS if quantized and array.dtype.kind in "iu" and array.dtype.itemsize < 8 else Kind.EXACT


def difference(a: Array, b: Array) -> Difference:
    """The distance of `b` from `a`, two arrays of one shape, compared in pieces: double precision takes room."""
    if not a.size:
        return Difference(0.0, 0.0, 0.0, True)
    if a.dtype.kind not in "fiubcV" or b.dtype.kind not in "fiubcV":
        return Difference(0.0, 0.0, float(np.mean(a != b)), True)
    rounding = max(SPACING.get(array.dtype.name, 0.0) for array in (a, b)) if _is_real(a) else 0.0
    flat = a.reshape(-1), b.reshape(-1)
    largest = size = 0.0
    unequal, finite = 0, True
    for start in range(0, a.size, PIECE):
        one, other = (array[start : start + PIECE] for array in flat)
        off, most, count, sound = (_distance_of_reals if _is_real(a) else _distance_of_integers)(one, other)
        largest, size, unequal, finite = max(largest, off), max(size, most), unequal + count, finite and sound
    return Difference(largest, relative(largest, size), unequal / a.size, finite, rounding)


def _distance_of_integers(a: Array, b: Array) -> tuple[float, float, int, bool]:
    """Return the largest error, the largest magnitude, how many elements differ, and that all are finite."""
    wide = a.astype(np.float64)
    largest = float(np.max(np.abs(wide - b.astype(np.float64))))
    return largest, float(np.max(np.abs(wide))), int(np.sum(a != b)), True


def _distance_of_reals(a: Array, b: Array) -> tuple[float, float, int, bool]:
    """Return the largest error and magnitude, how many elements differ, and whether NaN and infinities coincide."""
    exact = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    with np.errstate(invalid="ignore"):  # memory that a runtime never wrote may hold signalling NaNs
        wide_a, wide_b = a.astype(exact), b.astype(exact)
    sound = np.isfinite(wide_a) & np.isfinite(wide_b)
    # NaN at one place in both is no difference; neither is the same infinity.
    same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    largest = float(np.max(np.abs(np.subtract(wide_a, wide_b, where=sound, out=np.zeros_like(wide_a)))))
    return largest, magnitude(wide_a), int(np.sum(~same)), bool(np.all(same | sound))


def judge(
    distance: Difference,
    kind: Kind,  # what the numbers are
    tolerance: Tolerance,  # of floats
    spread: Difference | None,  # how far the source's runtime is from itself here
    step: float = 0.0,  # of the integers that floats were dequantized from; 0 for other floats
) -> Verdict:
    """Return whether a difference is far, beside how far the source's runtime is from itself, if that is known."""
    if not distance.finite:
        return Verdict.NOT_FINITE
    if distance.share == 0:
        return Verdict.EQUAL
    if kind is Kind.STEPS and distance.max_abs <= 1:
        return Verdict.CLOSE
    # Runtimes compute with floats of 16 bits in float32, and round where they like: an operand or a result.
    rtol = max(tolerance.rtol, 2 * distance.rounding, 2 * tolerance.rounding)
    if kind is Kind.REAL and distance.max_abs <= tolerance.atol + step + _scaled(rtol, distance):
        return Verdict.CLOSE
    slack = {Kind.REAL: tolerance.rtol, Kind.STEPS: 1.0, Kind.EXACT: 0.0}[kind]
    if spread is not None and distance.of(kind) <= SPREADS * spread.of(kind) + slack:
        return Verdict.SPREAD
    return Verdict.DIFFERS


def top1_agreement(a: Array, b: Array) -> tuple[int, int] | None:
    """Return in how many rows of class scores two models prefer the same class, and how many rows there are.

    A row of `b` agrees if its best score is at the best class of `a`, also where others are as good. None of what is
    no table of scores: `[rows, classes]` of real numbers or quantized integers.
    """
    if a.ndim != 2 or a.shape[1] < 2 or a.shape != b.shape or a.dtype.kind not in "fiu":
        return None
    best = b[np.arange(len(a)), a.argmax(1)]
    return int(np.sum(best == b.max(1))), len(a)


def wider(*differences: Difference | None) -> Difference | None:
    """Return several differences at their worst, without those that are not known; None where none is."""
    known = [each for each in differences if each is not None]
    if len(known) < 2:
        return known[0] if known else None
    return Difference(
        max(each.max_abs for each in known),
        max(each.max_rel for each in known),
        max(each.share for each in known),
        all(each.finite for each in known),
        max(each.rounding for each in known),
    )


def _is_real(array: Array) -> bool:
    """Floats, complex numbers, and ml_dtypes' small floats, whose kind numpy does not know."""
    return array.dtype.kind in "fc" or (array.dtype.kind == "V" and array.dtype.names is None)


def magnitude(array: Array) -> float:
    """Return the largest that is finite."""
    return float(np.max(np.abs(array), where=np.isfinite(array), initial=0.0))


def relative(largest: float, magnitude: float) -> float:
    """Return a largest error, relative to a magnitude."""
    return 0.0 if largest == 0 else largest / magnitude if magnitude else float("inf")


def _scaled(rtol: float, distance: Difference) -> float:
    """`rtol * max|a|`, the magnitude taken back out of the two forms of the error."""
    return 0.0 if distance.max_rel in (0.0, float("inf")) else rtol * distance.max_abs / distance.max_rel


# How far a source is from itself: what another implementation cannot be asked to be closer than.

DISTURBANCES = 3
ROUNDING = {Precision.FLOAT16: 2.0**-11, Precision.FLOAT32: 2.0**-20}
"""What a model computes with -> the part of its magnitude by which a number is moved. Of float32 that is 8 roundings,
which another order of additions makes of one sum."""
EIGHT_BITS = 255  # the levels of a real input whose quantizer is not known


class Spread:
    """The source, run once more with its runtime's other kernels, and on inputs moved by a rounding.

    An input is moved by up to a rounding of its floats, or by up to one step where it is quantized at once. Roundings
    on the way then fall elsewhere, as they do in another runtime. Of a model with hybrid operators, which quantize a
    float operand at run time, or with 16-bit activations, other inputs are moved by up to half a level of their range;
    where no input is real, such as of ids, the first operands of hybrid operators are.
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
            steps={name: step for name, (_, _, step) in side.ranges.items()},
            quantized={value.name for value in side.inputs if value.quantized},
        )
        self._runners: tuple[Runner, Runner] | None = None
        self._feeds: Feeds | None = None
        self._moved: list[Feeds] = []

    def of(self, values: Mapping[str, Array], feeds: Feeds) -> dict[str, Difference]:
        """Return the spread of each of these values, which the source gave for these feeds."""
        if not values:
            return {}
        if self._runners is None:
            moved = self._side.runner(self._interiors, moved=self._steps_off)
            self._runners = self._side.runner(self._interiors, reference=True), moved
        if feeds is not self._feeds:
            # Runners do not run again for feeds that are the same object, so these are kept as long as the feeds are.
            self._feeds = feeds
            self._moved = [self._move(feeds, seed) for seed in range(DISTURBANCES)]
        other_kernels, plain = self._runners
        differences_by_name: dict[str, list[Difference]] = {}
        for others in (
            other_kernels.run(feeds, list(values)),
            *(plain.run(moved, list(values)) for moved in self._moved),
            *self._on_moved_operands(list(values), feeds),
        ):
            for name, other in others.items():
                if other.shape == values[name].shape:
                    differences_by_name.setdefault(name, []).append(difference(values[name], other))
        return {name: most for name, each in differences_by_name.items() if (most := wider(*each)) is not None}

    def _on_moved_operands(self, names: Sequence[str], feeds: Feeds) -> Iterator[Feeds]:
        """Yield what the source makes of its first hybrid operands moved by a rounding, where no input is real."""
        side = self._side
        rounded = {} if any(array.dtype.kind == "f" for array in feeds.values()) else side.rounded
        first = [name for name in rounded if len(side.before(name) & rounded.keys()) == 1]
        shown = [name for name in names if name not in first]
        part = side.forced(shown, first) if first and shown else None
        if part is None:
            return
        operands = side.runner(first).run(feeds, first)
        for seed in range(DISTURBANCES):
            moved = self._move({part.entries[name]: operands[name] for name in part.entries}, seed)
            yield part.run({**feeds, **moved}, shown)


def moved_by_rounding(
    feeds: Feeds,
    seed: int,  # of the movement
    *,
    # floats move by up to half of so many levels of their range, and stay within that range; 0: not so
    levels: int = 0,
    rounding: float = 0.0,  # else they move by up to this part of their magnitude
    # floats that are quantized at once -> the step, by which they move
    steps: Mapping[str, float] = MappingProxyType({}),
    quantized: Collection[str] = (),  # integers that move by up to one step
) -> Feeds:
    """Return the feeds moved at random by up to a rounding."""
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
