"""Signal to noise of a quantized model, value by value, against the float model that it was made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relayout.arguments import LAYOUTS, TOLERANCE, checked, whole
from relayout.errors import LayoutError, RelayoutError
from relayout.formats.tflite import builtin_traits
from relayout.graph.quantized_unit import VIEWS as ONNX_VIEWS
from relayout.progress import say
from relayout.verification.compare import PIECE, Tolerance, top1_agreement
from relayout.verification.comparison import Comparison
from relayout.verification.feeds import user_feeds
from relayout.verification.pairs import Pair
from relayout.verification.side import Array, Precision, RunnableModel, Source, open_side

if TYPE_CHECKING:
    from relayout.terminal import Grid, Line

LEAST_DECIBELS = {Precision.FLOAT16: 30.0, Precision.QUANTIZED: 10.0}
"""Precision of the result -> the signal to noise below which an output is an alarm."""
LEAST_AGREEMENT = 0.5  # the share of equal elements below which an output of indices is an alarm
CLEAN = 50.0  # decibels from which on noise does not count as lost later: 8 bits of a full range have as many
WORST = 5  # how many tensors are listed
JOINS = {"Concat", *builtin_traits.JOINS}
VIEWS = ONNX_VIEWS | builtin_traits.VIEWS  # operators behind which a joined value is still one
QUIET = 32  # a value whose numbers are smaller than the largest by this factor has a few of 255 steps


@dataclass(frozen=True)
class QuietPart:
    """A joined value of an output, far smaller than those beside it."""

    axis: int  # of the output, along which values are joined
    begin: int  # its place along it
    end: int  # and behind its last element
    decibels: float  # its signal to noise

    def __str__(self) -> str:
        """Return where it is: `elements 4 to 11 of axis 1`."""
        last = self.end - 1
        places = f"elements {self.begin} to {last}" if last > self.begin else f"element {last}"
        return f"{places} of axis {self.axis}"


@dataclass(frozen=True)
class Loss:
    """The noise that quantization puts into one value."""

    name: str  # the value, by the source's name
    operator: str  # the source's operator that computes it
    node: str  # which one
    dtype: str  # its element type in the result
    shape: tuple[int, ...]  # its shape in the source, as run
    is_output: bool  # whether it is an output of the graph; these alone decide
    decibels: float | None  # signal to noise, `10 log10(sum a² / sum (a - b)²)`; None of indices and truth values
    lost: float = 0.0  # how many decibels less that is than at the operands of its operator
    # of class scores the share of rows with the same best class, of indices that of equal elements
    agreement: float | None = None
    order: int = 0  # the place of its operator in the source
    problem: str = ""  # why it cannot be compared: another shape, or no counterpart
    quiet_part: QuietPart | None = None  # of an output that joins values; None where all are about as large

    def is_noise(self, limit: float) -> bool:
        """Tell whether the value says nothing of the source's, or cannot be compared."""
        if self.problem:
            return True
        if self.decibels is None:
            return (self.agreement or 0.0) < LEAST_AGREEMENT
        return min(self.decibels, self.decibels if self.quiet_part is None else self.quiet_part.decibels) < limit

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: an infinite ratio is null, with `exact` true."""
        exact = self.decibels == math.inf
        part = self.quiet_part
        columns = {
            "shape": list(self.shape),
            "decibels": _finite(self.decibels),
            "exact": exact,
            "quiet_part": part and {**asdict(part), "decibels": _finite(part.decibels)},
        }
        return asdict(self) | columns


@dataclass(frozen=True)
class QuantizationLoss:
    """The loss of quality that quantization has cost a model."""

    rows: tuple[Loss, ...]  # every value that both models have, in the source's order
    limit: float  # the signal to noise below which an output is an alarm, in decibels
    precision: Precision  # what the result computes with
    # the operators of the result that compute in float though it is quantized: type -> their names
    in_float: Mapping[str, tuple[str, ...]]
    samples: int  # how many inputs were fed

    @property
    def outputs(self) -> tuple[Loss, ...]:
        """The graph's outputs."""
        return tuple(row for row in self.rows if row.is_output)

    @property
    def ok(self) -> bool:
        """Tell whether every output is above the limit."""
        return bool(self.outputs) and not any(row.is_noise(self.limit) for row in self.outputs)

    @property
    def worst(self) -> tuple[Loss, ...]:
        """The tensors at which most is lost, the worst first."""
        noisy = [row for row in self.rows if row.decibels is not None and row.decibels < math.inf and row.lost > 0]
        return tuple(sorted(noisy, key=lambda row: (-row.lost, row.order))[:WORST])

    @property
    def verdict(self) -> str:
        """The result in one line, without the names of the models."""
        if not self.outputs:
            return "FAILED: nothing was compared: no output has a counterpart"
        bad = [row for row in self.outputs if row.is_noise(self.limit)]
        if not bad:
            ratios = [row.decibels for row in self.outputs if row.decibels is not None]
            count = "1 output" if len(self.outputs) == 1 else f"{len(self.outputs)} outputs"
            if not ratios:
                return f"PASSED: {count} of indices agree in most elements"
            ratio = "without noise" if min(ratios) == math.inf else f"with a signal to noise of {min(ratios):.1f} dB"
            return f"PASSED: {count} {ratio} (alarm below {self.limit:g} dB)"
        first = bad[0]
        if first.problem:
            return f"FAILED: output '{first.name}': {first.problem}"
        if first.decibels is None:
            return f"FAILED: output '{first.name}' agrees in {100 * (first.agreement or 0.0):.0f} % of its elements"
        part = first.quiet_part
        if part is not None and first.decibels >= self.limit:
            return (
                f"FAILED: output '{first.name}' has a signal to noise of {in_decibels(part.decibels)} in {part}, below"
                f" {self.limit:g} dB: they share one scale with numbers over {QUIET} times as large; float outputs, or"
                " --outputs with what is joined, give each its own"
            )
        most = self.worst[0] if self.worst else None
        where = f"; most is lost at '{most.name}' ({most.operator})" if most is not None else ""
        return (
            f"FAILED: output '{first.name}' has a signal to noise of {in_decibels(first.decibels)},"
            f" below {self.limit:g} dB{where}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "limit": self.limit,
            "precision": self.precision.value,
            "outputs": [row.to_dict() for row in self.outputs],
            "worst": [row.to_dict() for row in self.worst],
            "rows": [row.to_dict() for row in self.rows],
            "in_float": {operator: list(names) for operator, names in self.in_float.items()},
            "samples": self.samples,
        }

    def render(self) -> list[Line | Grid]:
        """Return the paragraphs and tables for a terminal."""
        from relayout.terminal import ShortNames, line, tabled

        short = ShortNames((row.name for row in self.rows), 24)
        named = any(row.agreement is not None for row in self.outputs)
        outputs: list[list[str | Line]] = [
            [
                short(row.name),
                row.operator,
                f"{row.dtype}{list(row.shape)}",
                row.problem or in_decibels(row.decibels) + _of_part(row.quiet_part),
                *([f"{100 * row.agreement:.3g} %" if row.agreement is not None else ""] if named else []),
                line(("differs", "red") if row.is_noise(self.limit) else ("agrees", "green")),
            ]
            for row in self.outputs
        ]
        headings = ["output", "made by", "type", "signal to noise", *(["same class"] if named else []), "verdict"]
        parts: list[Line | Grid] = [tabled(*headings, rows=outputs)]
        if self.worst:
            worst: list[list[str | Line]] = [
                [
                    short(row.name),
                    f"{row.operator} {short(row.node)}".strip(),
                    row.dtype,
                    in_decibels(row.decibels),
                    f"{row.lost:.1f} dB",
                ]
                for row in self.worst
            ]
            title = f"tensors that lose most, of {len(self.rows)} compared"
            parts.append(tabled("value", "made by", "type", "signal to noise", "lost here", rows=worst, title=title))
        if self.in_float:
            listed = ", ".join(f"{len(names)} {operator}" for operator, names in self.in_float.items())
            parts.append(line(f"computed in float: {listed}"))
        return parts


@checked(seed=whole(0), runs=whole(1), limit=TOLERANCE, layouts=LAYOUTS)
def quantization_loss(
    a: Source,
    b: Source,
    *,
    inputs: Mapping[str, Array | str | Path] | Iterable[Mapping[str, Array | str | Path] | Array] | None = None,
    seed: int = 0,
    runs: int = 2,
    limit: float | None = None,
    layouts: Mapping[str, tuple[str, str]] | None = None,
) -> QuantizationLoss:
    """Measure what quantization costs: the signal to noise of each value of `b` against the float model `a`.

    1. Values are paired by what `b` declares of its source, and by name where it declares nothing.
    2. Integers are compared as the real numbers that they stand for.
    3. Inputs that are not given are random, and lie in the range that the quantizer of `b` chose for them.
    4. Powers add up over all samples.

    Args:
        a: the float model: a path to a `.tflite` or an `.onnx`, its bytes, or a model.
        b: the same model, quantized; likewise.
        inputs: one sample by input name, or several: input name -> array or path to a `.npy`; of one input each
            sample may be its array.
        seed: of the random inputs.
        runs: how many random inputs, where no sample is given.
        limit: the decibels below which an output is an alarm; None: 10, and 30 of a float16 result.
        layouts: input or output -> its layout in `a` and in `b`, where the models do not declare it.

    Raises:
        RelayoutError: one of the two does not run, or their inputs cannot be matched.
    """
    say("loading")
    with ExitStack() as stack:
        right = stack.enter_context(open_side(b))
        left = stack.enter_context(open_side(a, right.signature, other=right))
        several = [inputs] if inputs is None or isinstance(inputs, Mapping) else list(inputs)
        samples = [user_feeds(each, left.inputs) for each in several]
        if len(samples) == 1 and len(samples[0]) < len(left.inputs):
            samples *= runs
        comparison = Comparison(left, right, Tolerance(1e-5, 1e-6), True, runs=len(samples), layouts=layouts or {})
        return measured(comparison, samples, seed, limit)


def is_quantization(left: Precision, right: Precision) -> bool:
    """Tell whether a result computes with less precision than its source: then it is measured and not judged."""
    order = list(Precision)
    return order.index(right) > order.index(left)


def measured(
    comparison: Comparison,  # the float model and the quantized one
    samples: Sequence[Mapping[str, Array]],  # what is given for the inputs of each run; all others are random
    seed: int,  # of these
    limit: float | None,  # decibels; None for the default of the result's precision
) -> QuantizationLoss:
    """Return the loss of each value that the two models of a comparison have."""
    comparison.ranges = comparison.right.ranges
    joins = _joins_of(comparison.left)
    losses: dict[tuple[str, bool], _Power] = {}
    for run, sample in enumerate(samples):
        rng = np.random.default_rng([seed, run])
        for piece in comparison.pieces(sample, rng, signed=run % 2 == 0):
            for pair in piece.pairs:
                left, right = piece.first.get(pair.left.name), piece.second.get(pair.right.name)
                if piece.is_output or (left is not None and right is not None):
                    key = (pair.left.name, piece.is_output)
                    if key not in losses:
                        losses[key] = _Power(pair, joins.get(pair.left.name, ()) if piece.is_output else ())
                    losses[key].add(left, right)
    rows = [power.row(is_output) for (_, is_output), power in losses.items()]
    rows.sort(key=lambda row: (row.order, row.is_output))
    precision = comparison.right.precision
    least_decibels = LEAST_DECIBELS.get(precision, LEAST_DECIBELS[Precision.QUANTIZED]) if limit is None else limit
    return QuantizationLoss(
        tuple(_with_losses(comparison, rows, losses)),
        least_decibels,
        precision,
        comparison.right.in_float,
        len(samples),
    )


@dataclass(frozen=True)
class _Join:
    """Values that are joined on the way to an output."""

    axis: int | None  # of the output, along which they are; None: the one that is as long as they are together
    extents: tuple[int, ...]  # along it, one for each value


def _joins_of(side: RunnableModel) -> dict[str, list[_Join]]:
    """Return the joins on the way to each output of a model, as far as shapes are known."""
    values = {value.name: value for value in (*side.interiors, *side.outputs)}
    joins: dict[str, list[_Join]] = {}
    for output in side.outputs:
        waiting, visited = [output], set[str]()
        while waiting:
            value = waiting.pop()
            if value.name in visited or value.operator not in VIEWS | JOINS:
                continue
            visited.add(value.name)
            operands = [each for name in value.operands if (each := values.get(name)) is not None]
            waiting += operands[: None if value.operator in JOINS else 1]
            if value.operator in JOINS and len(operands) == len(value.operands):
                join = _join(value.shape, [each.shape for each in operands], is_output=value is output)
                joins.setdefault(output.name, []).extend([join] if join is not None else [])
    return joins


def _join(
    shape: tuple[int | None, ...] | None, operands: Sequence[tuple[int | None, ...] | None], *, is_output: bool
) -> _Join | None:
    """Return along which axis values are joined, by the shapes of all; None if they do not say."""
    if shape is None or any(each is None or len(each) != len(shape) for each in operands):
        return None
    for axis, length in enumerate(shape):
        extents = tuple(extent for each in operands if each is not None and (extent := each[axis]) is not None)
        if len(extents) == len(operands) > 1 and sum(extents) == length:
            return _Join(axis if is_output else None, extents)
    return None


class _PartPowers:
    """The power, the noise and the largest number at each place along the axis of a join, over all samples."""

    def __init__(self, join: _Join) -> None:
        self.join, self.axis, self.length = join, -1, sum(join.extents)
        self.signal, self.noise, self.largest = np.zeros((3, self.length))

    def add(self, left: Array, right: Array) -> None:
        """Add a sample, and what another model makes of it; nothing where it does not show the axis."""
        axes = [axis for axis, extent in enumerate(left.shape) if extent == self.length]
        if self.join.axis is not None:
            axes = [axis for axis in axes if axis == self.join.axis]
        if len(axes) != 1 or not self.length:
            return
        (self.axis,) = axes
        one, other = (
            np.moveaxis(array, self.axis, 0).reshape(self.length, -1).astype(np.float64) for array in (left, right)
        )
        self.signal += np.square(one).sum(1)
        self.noise += np.square(one - other).sum(1)
        self.largest = np.maximum(self.largest, np.abs(one).max(1, initial=0.0))

    def quiet_parts(self) -> Iterator[QuietPart]:
        """Yield the values that are far smaller than the largest, and not 0."""
        for begin, end in pairwise(accumulate(self.join.extents, initial=0)):
            part = slice(begin, end)
            if self.signal[part].any() and self.largest[part].max() * QUIET < self.largest.max():
                ratio = _ratio(float(self.signal[part].sum()), float(self.noise[part].sum()))
                yield QuietPart(self.axis, begin, end, ratio)


class _Power:
    """The power of a value and of its noise, added up over samples."""

    def __init__(self, pair: Pair, joins: Iterable[_Join]) -> None:
        self._pair, self.name = pair, pair.name
        self._parts = [_PartPowers(join) for join in joins]
        self._signal = self._noise = 0.0
        self._same = self._compared = 0  # elements, or rows of scores
        self._are_scores, self._is_exact, self._problem = False, False, ""
        self._dtype, self._shape = "", ()

    def add(self, left: Array | None, right: Array | None) -> None:
        """Add a sample."""
        if left is None or right is None:
            self._problem = "there is no counterpart"
            return
        self._dtype, self._shape = str(right.dtype), left.shape
        try:
            left, right = self._pair.same_way(left, right)
        except (LayoutError, RelayoutError) as error:
            self._problem = str(error)
            return
        if left.shape != right.shape:
            self._problem = f"its shape is {list(right.shape)}, and {list(left.shape)} in the source"
            return
        if left.dtype.kind not in "fV" or right.dtype.kind not in "fV":
            self._is_exact = True
            self._same, self._compared = self._same + int(np.sum(left == right)), self._compared + left.size
            return
        for start in range(0, left.size, PIECE):
            mine, theirs = (array.reshape(-1)[start : start + PIECE].astype(np.float64) for array in (left, right))
            sound = np.isfinite(mine)
            mine, noise = mine[sound], mine[sound] - theirs[sound]
            self._signal += float(mine @ mine)
            self._noise += float(noise @ noise) if np.isfinite(noise).all() else math.inf
        if self._parts and np.isfinite(left).all() and np.isfinite(right).all():
            for part in self._parts:
                part.add(left, right)
        if (same := top1_agreement(left, right)) is not None:
            self._are_scores = True
            self._same, self._compared = self._same + same[0], self._compared + same[1]

    @property
    def decibels(self) -> float | None:
        """The signal to noise."""
        return None if self._is_exact or self._problem else _ratio(self._signal, self._noise)

    def row(self, is_output: bool) -> Loss:
        """Return the row of the value."""
        value, has_agreement = self._pair.left, self._is_exact or (self._are_scores and is_output)
        return Loss(
            self._pair.name,
            value.operator,
            value.node,
            self._dtype,
            self._shape,
            is_output,
            self.decibels,
            agreement=self._same / max(1, self._compared) if has_agreement else None,
            order=value.order,
            problem=self._problem,
            quiet_part=min(
                (part for powers in self._parts for part in powers.quiet_parts()),
                key=lambda part: part.decibels,
                default=None,
            ),
        )


def _with_losses(
    comparison: Comparison, rows: Iterable[Loss], losses: Mapping[tuple[str, bool], _Power]
) -> Iterator[Loss]:
    """Yield the rows with what each loses against the operands of its operator, the worst of which counts."""
    left = comparison.left
    ratios = {name: power.decibels for (name, _), power in losses.items()}
    before: dict[str, float] = {}
    for value in sorted((*left.interiors, *left.outputs), key=lambda value: value.order):
        operands = ((name, ratios.get(name)) for name in value.operands)
        # What is not compared passes on the noise of its own operands.
        known = (before.get(name, CLEAN) if ratio is None else min(ratio, CLEAN) for name, ratio in operands)
        before[value.name] = min(known, default=CLEAN)
    names = {power.name: name for (name, _), power in losses.items()}
    for row in rows:
        here = ratios.get(names[row.name])
        yield replace(row, lost=0.0 if here is None else max(0.0, before[names[row.name]] - max(here, 0.0)))


def _ratio(signal: float, noise: float) -> float:
    """Return how much stronger a signal is than noise, in decibels."""
    if noise == 0:
        return math.inf
    return -math.inf if not signal or noise == math.inf else 10 * math.log10(signal / noise)


def _finite(decibels: float | None) -> float | None:
    return decibels if decibels is None or math.isfinite(decibels) else None


def _of_part(part: QuietPart | None) -> str:
    return "" if part is None else f"; {in_decibels(part.decibels)} in {part}"


def in_decibels(ratio: float | None) -> str:
    """Return a ratio in words: `38.2 dB`; `exact` without any noise."""
    if ratio is None:
        return ""
    return "exact" if ratio == math.inf else "-inf dB" if ratio == -math.inf else f"{ratio:.1f} dB"
