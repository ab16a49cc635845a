"""Operator by operator: each part of the second model on the values that the source has before it.

Roundings add up. Where two models round alike but for the order of additions, an element beside a border falls to the
other side, the next operators make more of it, and after a hundred of them the results are apart by what neither of
the two is wrong by. So each operator is held against the source's on the source's own values: then it is one rounding
that counts, however deep the network is.

1. All values that both models have are fed to the second one as the source computed them; what it makes of them is
   compared with what the source made. Between two such values lies one operator, or as many as were fused.
2. Floats agree within the tolerance, quantized integers within one step, all others exactly. A sum, clamped or not, may
   also be off by what rounding makes of its terms: they may be large, and it small.
3. Steps of rounding have no direction. A line through a tensor's or a channel's differences, over its integers, is
   nowhere in their range more than half a step from 0, chance apart: a scale or a zero point that is not the source's
   shows, unless it is less than rounding everywhere. Not so of 16 bits, which LiteRT multiplies by 15 bits. Numbers
   that lie midway between two integers do have one: an average of two is midway every other time, and runtimes
   differ in whether they take the even integer then. A kernel that multiplies 8 bits by an integer and shifts rounds
   to halves first, so it takes all from a quarter on up. Where enough others are left, those tell.
4. A hybrid operator of the source computes with its operand rounded to 8 bits. It is held against the second model on
   the operand as it is, or on what that rounding makes of it. Where the second model rounds operands while it runs,
   too, each may fall to the next level: as far as the result moves when operands are moved by up to half a level.
5. Where a float stands for integers, it is fed what they mean, and its result, rounded as theirs, is what counts. One
   float may stand for several tensors: an operator is given the one that the source's operator reads.
6. A recurrent operator is also given what it yields, as its results of the steps before.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from relayout.errors import LayoutError, RelayoutError
from relayout.light_dataclass import dataclass
from relayout.verification.compare import (
    DISTURBANCES,
    PIECE,
    SPREADS,
    Difference,
    Kind,
    Tolerance,
    Verdict,
    difference,
    judge,
    kind_of,
    magnitude,
    moved_by_rounding,
    relative,
    wider,
)
from relayout.verification.kernel_rounding import EPSILON, ROUNDING_KERNELS, spread_of_kernel
from relayout.verification.matching import Holders, batches, choices, holding
from relayout.verification.pairs import Pair
from relayout.verification.report import Row
from relayout.verification.side import Array, BatchBlocks, Feeds, Forced, Precision, RunnableModel

ENOUGH = 16  # elements from which on a direction is told from chance

HALF_STEP = 0.5
CHANCE = 1.5  # three times the standard deviation of a step that is there or not, as it falls

REORDERED = 8 * EPSILON
"""How far apart two orders of additions are, relative to the magnitudes of the terms: 1 to 2 eps were found."""

MIDWAY = 1e-3  # steps from the middle between two integers, up to which a number may go to either

TWICE = 0.25
"""The same where the source rounds twice, to halves first, as kernels do that multiply by an integer and shift."""

FIRST = 1 / 64
"""Such steps where a kernel first rounds to small parts of a step: of sums of products, since the product of the two
operands' steps is a small part of a step of the result."""

BESIDE_MIDWAY = {
    **dict.fromkeys(("QUANTIZE", "PRELU", "LEAKY_RELU"), TWICE),
    **dict.fromkeys(("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "HARD_SWISH"), FIRST),
}
"""Operator of LiteRT that multiplies integers of 8 bits by one of 31, or in steps by one of 15 -> those steps."""

DOWNWARDS = frozenset({"SQRT"})
"""Operators of LiteRT that round integers of 8 bits down: half a step on average, and less than one."""

LOOKED_UP = 4
"""Steps of 16 bits that a float may be off: kernels look functions up in tables, with straight lines between."""


@dataclass(frozen=True)
class JudgedValue:
    """The findings on one value."""

    verdict: Verdict  # whether the two agree
    difference: Difference  # how far they are apart
    leans: bool = False  # whether they are apart in one direction, though by one step only
    copies: tuple[str, ...] = ()  # other values of the second model that should hold it, and do not

    def is_better(self, other: "JudgedValue | None") -> bool:
        """Tell whether its verdict is better than that of another; None is the worst."""
        return other is None or self.verdict.rank < other.verdict.rank

    @property
    def fails(self) -> bool:
        """True if an operator that does this is wrong."""
        return self.leans or bool(self.copies) or not self.verdict.passes


class Stepwise:
    """The second model, whose values can be given."""

    def __init__(
        self,
        left: RunnableModel,  # the source
        right: RunnableModel,  # what is held against it
        inputs: Sequence[Pair],  # inputs of the second model, and what the source has there: of a part, interior values
        pairs: Sequence[Pair],  # all other values that both have
        tolerance: Tolerance,  # of floats
    ) -> None:
        self._left, self._right, self._tolerance = left, right, tolerance
        self._holders = Holders(pairs, [*right.interiors, *right.outputs])
        self._inputs = {pair.right.name: [pair] for pair in inputs}
        for pair in holding(left.interiors, [pair.right for pair in inputs]):
            if pair.left.name != self._inputs[pair.right.name][0].left.name:
                self._inputs[pair.right.name].append(pair)
        own = {value.name for value in left.inputs}
        ends = (pair.left.name for input_pairs in self._inputs.values() for pair in input_pairs)
        self._ends = [name for name in dict.fromkeys(ends) if name not in own]
        self._source = left.runner([*self._ends, *self._holders.first])
        self._alone: dict[tuple[str, float, bool, bool], Forced | None] = {}
        self._rounds = False
        self._extents: dict[str, int] = {}

    def judge(self, feeds: Feeds) -> dict[str, JudgedValue]:
        """Return the source's name of each value -> what the second model makes there of the source's values."""
        shown: set[str] = set(feeds)
        self._extents.clear()
        for part in batches([*chain(*self._inputs.values()), *self._holders.first.values()]):
            shown.update(self._source.run(feeds, [pair.left.name for pair in part]))
        pairs_by_name = {**self._inputs, **self._holders.pairs_by_right}
        pairs_by_name = {
            name: shown_pairs
            for name, pairs in pairs_by_name.items()
            if (shown_pairs := [p for p in pairs if p.left.name in shown])
        }
        steps_by_source: dict[str, dict[str, JudgedValue]] = {}
        for part in batches([pair for pair in self._holders.judged if pair.left.name in shown]):
            for (left, right), step in self._part(part, pairs_by_name, feeds).items():
                steps_by_source.setdefault(left, {})[right] = step
        first = {name: pair.right.name for name, pair in self._holders.first.items() if name in steps_by_source}
        return {
            name: _worst(steps_by_source[name], right)
            for name, right in first.items()
            if right in steps_by_source[name]
        }

    def _part(
        self, part: Sequence[Pair], pairs_by_name: Mapping[str, list[Pair]], feeds: Feeds
    ) -> dict[tuple[str, str], JudgedValue]:
        """Return the judged value of each of some pairs, by the names of its two values."""
        interior = [name for name in pairs_by_name if name not in self._inputs]
        self._alone.clear()
        forced = self._right.forced(list(dict.fromkeys(pair.right.name for pair in part)), interior)
        if forced is None:
            return {}
        self._rounds = forced.levels > 0 and self._left.precision is Precision.QUANTIZED
        entries = {name: name for name in self._inputs} | dict(forced.entries)
        before = {(pair.left.name, pair.right.name): self._holders.source_of(pair) for pair in part}
        exact = self._run_source(
            feeds, [*part, *chain(*(pairs_by_name[name] for name in entries)), *filter(None, before.values())]
        )
        steps: dict[tuple[str, str], JudgedValue] = {}
        for values in chain([exact], readings(exact, self._left.rounded)):
            for choice, members in choices(part, [(name, pairs_by_name[name]) for name in entries]):
                chosen = {entry: choice.get(name, pairs_by_name[name][0]) for name, entry in entries.items()}
                fed = self._carry_all(chosen, values)
                theirs = forced.run(fed, list(dict.fromkeys(pair.right.name for pair in members)))
                for pair in members:
                    key, operand = (pair.left.name, pair.right.name), before[pair.left.name, pair.right.name]
                    their_values = theirs if operand is None else {key[1]: self._carried(operand, values)}
                    step = self._closer(pair, exact, their_values, interior, fed, values)
                    if step is not None and step.is_better(steps.get(key)):
                        steps[key] = step
            if all(step.verdict.passes for step in steps.values()):
                break
        return steps

    def _carry_all(self, pairs: Mapping[str, Pair], values: Feeds) -> dict[str, Array]:
        return {entry: self._carried(pair, values) for entry, pair in pairs.items()}

    def _run_source(self, feeds: Feeds, pairs: Sequence[Pair]) -> dict[str, Array]:
        """Return the source's inputs and its values of some pairs, and learn the extents of these."""
        exact = {**feeds, **self._source.run(feeds, list(dict.fromkeys(pair.left.name for pair in pairs)))}
        for pair in pairs:
            self._extents.update(pair.extents(exact[pair.left.name]))
        return exact

    def _carried(self, pair: Pair, values: Feeds) -> Array:
        """Return the second model's array for a value of the source; other values tell its dynamic dimensions."""
        return pair.fixed(self._extents).carried(values[pair.left.name])

    def _closer(
        self, pair: Pair, source: Feeds, theirs: Feeds, entry_names: Sequence[str], fed: Feeds, values: Feeds
    ) -> JudgedValue | None:
        """Return the step of one value, looked at again where it does not pass."""
        if pair.right.name not in theirs:
            return None
        step = self._step(pair, source[pair.left.name], theirs[pair.right.name])
        if step is not None and step.leans:
            real = theirs[pair.right.name].dtype.kind == "f"
            return step if real else self._beside_midway(pair, step, source, theirs, entry_names, fed)
        if step is not None and step.verdict is Verdict.DIFFERS:
            step = self._beside_terms(pair, step, source, entry_names, fed)
            step = step if step.verdict.passes else self._beside_levels(pair, step, entry_names, fed)
            step = step if step.verdict.passes else self._beside_rounding(pair, step, source, entry_names, fed)
            return step if step.verdict.passes else self._beside_own(pair, step, source, entry_names, fed, values)
        return step

    def _making(
        self, name: str, entry_names: Sequence[str], nudge: float = 0, *, terms: bool = False, own: bool = False
    ) -> Forced | None:
        """Return the part that makes one value alone; cached for these pairs, since every reading asks for it again."""
        key = (name, nudge, terms, own)
        if key not in self._alone:
            self._alone[key] = self._right.forced([name], entry_names, nudge, terms=terms, own=own)
        return self._alone[key]

    def _beside_midway(
        self, pair: Pair, step: JudgedValue, source: Feeds, theirs: Feeds, entry_names: Sequence[str], fed: Feeds
    ) -> JudgedValue:
        """Return the step of a value that leans, judged by the elements that are not midway between two integers."""
        left, right = pair.same_way(source[pair.left.name], theirs[pair.right.name])
        width = max(BESIDE_MIDWAY.get(operator, MIDWAY) for operator in (pair.left.operator, pair.right.operator))
        alone = self._making(pair.right.name, entry_names)
        coarse = 0.0 if alone is None else alone.requantized
        # The first of two roundings moves a number by more than half a step, or the only one by as much as a whole one.
        if coarse > 1 or pair.left.operator in DOWNWARDS or pair.right.operator in DOWNWARDS:
            return JudgedValue(Verdict.CLOSE, step.difference)
        width = max(width, TWICE if coarse else 0)
        rounded = [self._nudged(pair, nudge, source, theirs, entry_names, fed) for nudge in (width, -width)]
        if rounded[0] is None or rounded[1] is None:
            return step
        clear = rounded[0] == rounded[1]
        if clear.sum() < ENOUGH or has_direction(left, right, clear):
            return step
        return JudgedValue(Verdict.CLOSE, step.difference)

    def _nudged(
        self, pair: Pair, nudge: float, source: Feeds, theirs: Feeds, entry_names: Sequence[str], fed: Feeds
    ) -> Array | None:
        """A value of integers, rounded from numbers that are so many steps higher: by the second model, or the source.

        LiteRT's kernels compute with integers throughout; None where both models run there.
        """
        left, name = source[pair.left.name], pair.right.name
        forced = self._making(name, entry_names, nudge)
        if forced is not None:
            return pair.same_way(left, forced.run(fed, [name])[name])[1]
        forced, before = self._making_source(pair.left.name, source, nudge)
        if forced is None:
            return None
        return pair.same_way(forced.run(before, [pair.left.name])[pair.left.name], theirs[name])[0]

    def _making_source(self, name: str, source: Feeds, nudge: float = 0) -> tuple[Forced | None, Feeds]:
        """Return the part of the source that makes one value alone, and what to feed it."""
        forced = self._left.forced([name], [each for each in source if each != name], nudge)
        entries = {} if forced is None else forced.entries
        return forced, {**source, **{entry: source[known] for known, entry in entries.items()}}

    def _beside_terms(
        self, pair: Pair, step: JudgedValue, source: Feeds, entry_names: Sequence[str], fed: Feeds
    ) -> JudgedValue:
        """Return the step of a sum of real numbers, measured by the magnitudes of what is added up."""
        name = self._right.sum_behind(pair.right.name)
        forced = self._making(name, entry_names, terms=True) if name else None
        if not name or forced is None:
            return step
        terms = forced.run(fed, [name])[name]
        if kind_of(terms, pair.left.quantized) is not Kind.REAL:
            return step
        off = relative(step.difference.max_abs, magnitude(terms))
        distance = replace(step.difference, max_rel=off, rounding=0.0)  # the type's own has been allowed for the sum
        tolerance = replace(self._tolerance, rtol=min(REORDERED, self._tolerance.rtol), rounding=0.0)
        return JudgedValue(judge(distance, Kind.REAL, tolerance, None, pair.left.step), distance)

    def _beside_levels(self, pair: Pair, step: JudgedValue, entry_names: Sequence[str], fed: Feeds) -> JudgedValue:
        """Return the step of what the second model rounds operands for, measured by what other roundings make of it.

        What rounding makes of a number that many elements have in common is common to them, and has a direction.
        """
        name = pair.right.name
        forced = self._making(name, entry_names) if self._rounds else None
        if forced is None or not forced.levels:
            return step
        base = forced.run(fed, [name])[name]
        moved = (moved_by_rounding(fed, index, levels=forced.levels) for index in range(DISTURBANCES))
        spread = wider(*(difference(base, forced.run(each, [name])[name]) for each in moved))
        kind = kind_of(base, pair.left.quantized)
        return JudgedValue(judge(step.difference, kind, self._tolerance, spread, pair.left.step), step.difference)

    def _beside_rounding(
        self, pair: Pair, step: JudgedValue, source: Feeds, entry_names: Sequence[str], fed: Feeds
    ) -> JudgedValue:
        """Return the step of a sum or a resized image, measured by the rounding within the two kernels."""
        result, spreads = source[pair.left.name], list[Difference | None]()
        if kind_of(result, pair.left.quantized) is Kind.REAL and pair.right.operator in ROUNDING_KERNELS:
            spreads.append(spread_of_kernel(pair.right, self._making(pair.right.name, entry_names), fed))
        if kind_of(result, pair.left.quantized) is Kind.REAL and pair.left.operator in ROUNDING_KERNELS:
            spreads.append(spread_of_kernel(pair.left, *self._making_source(pair.left.name, source)))
        verdict = judge(step.difference, Kind.REAL, self._tolerance, wider(*spreads), pair.left.step)
        return JudgedValue(verdict, step.difference) if spreads else step

    def _beside_own(
        self, pair: Pair, step: JudgedValue, source: Feeds, entry_names: Sequence[str], fed: Feeds, values: Feeds
    ) -> JudgedValue:
        """The step of what a recurrent operator yields, each of its steps on the source's results of those before."""
        name, left = pair.right.name, source[pair.left.name]
        forced = self._making(name, entry_names, own=True)
        if forced is None:
            return step
        theirs = forced.run({**fed, forced.entries[name]: self._carried(pair, values)}, [name])
        return self._step(pair, left, theirs[name]) or step

    def _step(self, pair: Pair, left: Array, right: Array) -> JudgedValue | None:
        try:
            unrounded = pair.same_way(left, right, exact=True)[1]
            left, right = pair.same_way(left, right)
        except (LayoutError, RelayoutError):
            return None
        if left.shape != right.shape or left.dtype != right.dtype:
            return None
        kind, distance = kind_of(left, pair.left.quantized), difference(left, right)
        verdict = judge(distance, kind, self._tolerance, None, pair.left.step)
        if (
            kind is Kind.STEPS
            and left.dtype.itemsize == 2
            and unrounded.dtype.kind == "f"
            and distance.max_abs <= LOOKED_UP
        ):
            verdict = min(verdict, Verdict.CLOSE, key=lambda one: one.rank)
        byte = kind is Kind.STEPS and left.dtype.itemsize == 1
        leans = byte and verdict is Verdict.CLOSE and has_direction(left, right, _clear(unrounded))
        return JudgedValue(Verdict.DIFFERS if leans else verdict, distance, leans)


def _worst(steps: Mapping[str, JudgedValue], first: str) -> JudgedValue:
    """Return the judgement of a value: the worst of all values that hold it."""
    wrong = tuple(name for name, step in steps.items() if name != first and not step.verdict.passes)
    return replace(max(steps.values(), key=lambda step: step.verdict.rank), copies=wrong)


def _clear(steps: Array) -> Array | None:
    """Return which numbers, in steps, round to the nearest integer though kernels round to halves first; None: all."""
    return np.abs(steps - np.floor(steps) - HALF_STEP) > TWICE if steps.dtype.kind == "f" else None


def has_direction(
    left: Array,  # what they should be
    right: Array,  # what they are
    counted: Array | None = None,  # which elements count; all if it is None
) -> bool:
    """Return whether integers differ by more than half a step in one direction: all of them, or those of a channel."""
    channels = left.shape[-1] if left.ndim > 1 else 1
    sums = _Sums.of(left.reshape(-1, channels), right.reshape(-1, channels), counted)
    low, high = sums.low.min(keepdims=True), sums.high.max(keepdims=True)
    whole = _Sums._make([*(field.sum(keepdims=True) for field in sums[:5]), low, high])
    return whole.lean or (left.ndim > 1 and sums.lean)


class _Sums(NamedTuple):
    """Sums over the elements of each channel that count, `x` being an integer and `off` its difference."""

    number: Array
    x: Array
    squares: Array
    off: Array
    products: Array
    low: Array
    high: Array

    @staticmethod
    def of(left: Array, right: Array, counted: Array | None) -> "_Sums":
        """Add up in pieces: double precision takes room."""
        channels = left.shape[1]
        sums, low, high = np.zeros((5, channels)), np.full(channels, np.inf), np.full(channels, -np.inf)
        weights = None if counted is None else counted.reshape(-1, channels)
        rows = max(1, PIECE // channels)
        for start in range(0, len(left), rows):
            x = left[start : start + rows].astype(np.float64)
            off = right[start : start + rows].astype(np.float64) - x
            weight = np.ones_like(x) if weights is None else weights[start : start + rows].astype(np.float64)
            sums += [(weight * each).sum(0) for each in (np.ones_like(x), x, x * x, off, x * off)]
            is_counted = weight > 0
            low = np.minimum(low, x.min(0, where=is_counted, initial=np.inf))
            high = np.maximum(high, x.max(0, where=is_counted, initial=-np.inf))
        return _Sums._make([*sums, low, high])

    @property
    def lean(self) -> bool:
        """For each channel a line `off = a + b x` by least squares, looked at in the middle of x and where it ends."""
        enough = self.number >= ENOUGH
        if not enough.any():
            return False
        count, x, squares, off, products, low, high = (field[enough] for field in self)
        middle, mean = x / count, off / count
        spread = np.maximum(squares - x * middle, 0)
        slope = np.divide(products - middle * off, spread, out=np.zeros_like(spread), where=spread > 0)
        for away in (np.zeros_like(spread), low - middle, high - middle):
            weight = np.divide(away**2, spread, out=np.zeros_like(spread), where=spread > 0) + 1 / count
            if np.any(np.abs(mean + slope * away) > HALF_STEP + CHANCE * np.sqrt(weight)):
                return True
        return False


# What a hybrid operator of LiteRT makes of its operand: real numbers, each row rounded to 8 bits while it runs.
#
# The operator computes with the rounded operand, exactly; on that it can be held against float arithmetic as closely as
# any other. Which rounding it takes depends on the kernel and on an option of the operator, and so does what a row is:
# what is multiplied by one row of weights, or all that the first axis counts.

LEAST, GREATEST = -128, 127


def delegated(rows: Array) -> Array:
    """Each row in 255 steps from its least to its greatest element, 0 among them; halves go to the even integer."""
    low, high = _ends(rows)
    scale = _nonzero(np.float32(GREATEST - LEAST) / _nonzero(high - low))
    zero = np.clip(np.rint(LEAST - low * scale), LEAST, GREATEST)
    rounded: Array = (np.clip(np.rint(rows * scale) + zero, LEAST, GREATEST) - zero) / scale
    return rounded


def asymmetric(rows: Array) -> Array:
    """Return each row in 255 steps from its least to its greatest element, 0 among them; halves go away from 0."""
    low, high = _ends(rows)
    step = _nonzero((high.astype(np.float64) - low) / (GREATEST - LEAST)).astype(np.float32)
    zero = _away(LEAST - low.astype(np.float64) / step).astype(np.float32)
    rounded: Array = (np.clip(_away(zero + rows / step), LEAST, GREATEST) - zero) * step
    return rounded


def symmetric(rows: Array) -> Array:
    """Return each row in 127 steps on either side of 0."""
    step = _nonzero(np.abs(rows).max(1, keepdims=True) / np.float32(GREATEST))
    rounded: Array = _away(rows / step) * step
    return rounded


ROUNDINGS: tuple[Callable[[Array], Array], ...] = (delegated, asymmetric, symmetric)
"""Those of XNNPACK's kernels, and of the others with the option `asymmetric_quantize_inputs` and without it."""


def readings(
    values: Feeds,  # by name
    # name of an operand -> how many elements make a row in each operator that reads it, or how it is divided
    lengths: Mapping[str, tuple[int | BatchBlocks, ...]],
) -> Iterator[Feeds]:
    """Yield the values in all ways in which operands of hybrid operators may be rounded."""
    known = {name: row_lengths for name, row_lengths in lengths.items() if name in values and values[name].size}
    for rounding in ROUNDINGS:
        for place in range(max(map(len, known.values()), default=-1) + 1):
            yield {
                **values,
                **{name: _rounded(values[name], row_lengths, place, rounding) for name, row_lengths in known.items()},
            }


def _rounded(
    array: Array, lengths: tuple[int | BatchBlocks, ...], place: int, rounding: Callable[[Array], Array]
) -> Array:
    """By rows of one of the lengths; after those, by all that the first axis counts."""
    length = lengths[place] if place < len(lengths) else array.size // array.shape[0]
    if isinstance(length, BatchBlocks):
        result = array.copy()
        for part in filter(np.size, length.parts(result)):
            part[...] = rounding(part.reshape(len(part), -1)).reshape(part.shape)
        return result
    if length < 1 or array.size % length:
        return array
    return rounding(array.reshape(-1, length)).reshape(array.shape).astype(array.dtype)


def _ends(rows: Array) -> tuple[Array, Array]:
    none = np.float32(0)
    return np.minimum(rows.min(1, keepdims=True), none), np.maximum(rows.max(1, keepdims=True), none)


def _away(x: Array) -> Array:
    rounded: Array = np.copysign(np.floor(np.abs(x) + 0.5), x)
    return rounded


def _nonzero(step: Array) -> Array:
    return np.where(step > 0, step, step.dtype.type(1))


# Verdicts on values by what each operator makes of the source's own values.

RECURRENT = {f"{way}_SEQUENCE_{kind}" for way in ("UNIDIRECTIONAL", "BIDIRECTIONAL") for kind in ("LSTM", "RNN")}
WITH_BODIES = {"CALL", "IF", "If", "Loop", "Scan", "WHILE", *RECURRENT}
BEYOND = (Verdict.SPREAD, Verdict.DIFFERS)  # verdicts on a value as a whole that its operator may say more about


def judged_by_operator(
    rows: Sequence[Row],  # as values were judged as a whole
    steps: Mapping[str, JudgedValue],  # value of the source -> what its operator was found to do
    source: RunnableModel,  # the first model
    result: RunnableModel,  # the second model
    *,
    dequantized: bool,  # whether floats stand for integers
    far: Collection[str],  # values of the source that are far off, and integers that are beyond the spread
) -> list[Row]:
    """Return rows judged once more by what each operator makes of the source's own values.

    1. An operator that is wrong by itself is a fault, and so is an output beyond the tolerance behind it.
    2. An output that is far off as a whole stays so, whatever its operators do: these excuse what is beyond the
       tolerance of real numbers, and no far matter. LiteRT adds up one element after another, say.
    3. Of a float model of integers operators decide alone: what is saturated in the source is not there, and what is
       close in the end need not be right. So it is behind what is drawn at random, which is as the source drew it.
    """
    judged: list[Row] = []
    wrong: set[str] = set()
    drawn = source.drawn
    free = dequantized or bool(drawn)
    declared = source.behind(result.steps_off.keys())
    for row in rows:
        step = steps.get(row.source)
        if row.source in drawn and row.difference is not None:
            row = replace(row, verdict=Verdict.STEPWISE)
        elif step is not None and (row.verdict in BEYOND or step.leans or step.copies or dequantized):
            fails = step.fails and not _is_in_spread(row, step, has_declared=row.source in declared)
            excused = free or not row.output or row.source not in far
            row = replace(row, verdict=_verdict(row, fails=fails, excused=excused), alone=step.difference)
            if fails:
                row = replace(row, is_fault=True)
                wrong |= {row.other, *step.copies}
        judged.append(row)
    unsure = wrong | {row.other for row in judged if not row.ok}
    return [_beside_faults(row, wrong, unsure, result, dequantized=dequantized) for row in judged]


def _beside_faults(row: Row, wrong: set[str], unsure: set[str], result: RunnableModel, *, dequantized: bool) -> Row:
    """Return an output that agrees by its operator or by a spread as one that differs, if a fault lies before it."""
    faults = unsure if row.verdict is Verdict.STEPWISE else wrong
    doubtful = dequantized or row.verdict in (Verdict.STEPWISE, Verdict.SPREAD)
    if row.output and doubtful and row.ok and faults & result.before(row.other):
        return replace(row, verdict=Verdict.DIFFERS)
    return row


def _is_in_spread(row: Row, step: JudgedValue, *, has_declared: bool) -> bool:
    """Tell whether an operator may differ by its spread, and does by no more.

    So may one with a body, inside of which nothing is shown, and one behind a value that the result declares to be some
    steps off.
    """
    if has_declared:
        slack = 1.0 if row.kind is Kind.STEPS else 0.0
        return row.spread is not None and step.difference.of(row.kind) <= SPREADS * row.spread.of(row.kind) + slack
    if row.operator not in WITH_BODIES or row.spread is None or step.leans:
        return False
    if step.copies and row.operator not in RECURRENT:  # each step of a recurrent kernel rounds
        return False
    return step.difference.of(row.kind) <= SPREADS * row.spread.of(row.kind)


def _verdict(row: Row, *, fails: bool, excused: bool) -> Verdict:
    """Return the verdict on a value whose operator was judged by itself."""
    if fails:
        return Verdict.DIFFERS
    return Verdict.STEPWISE if row.verdict is Verdict.DIFFERS and excused else row.verdict
