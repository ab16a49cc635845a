"""Both models, run on the same inputs and compared value by value."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from time import monotonic
from typing import NamedTuple

import numpy as np

from relayout.errors import LayoutError, RelayoutError
from relayout.layout import perm_of
from relayout.layout.perm import permute
from relayout.light_dataclass import dataclass
from relayout.progress import say
from relayout.verification import matching
from relayout.verification.compare import (
    Kind,
    Spread,
    Tolerance,
    Verdict,
    difference,
    judge,
    kind_of,
    top1_agreement,
    wider,
)
from relayout.verification.feeds import BATCH, EXTENTS, random_feeds, to_give
from relayout.verification.matching import batches, match_ends, match_interface, match_interiors, stands_for_integers
from relayout.verification.pairs import Pair, advice, permuted, proposal, refuse_unknown, with_layouts
from relayout.verification.report import Fed, Row
from relayout.verification.side import OPEN, Array, Feeds, ModelValue, RunError, RunnableModel, Runner
from relayout.verification.stepwise import Stepwise, judged_by_operator

OF_EXTENTS = frozenset(["RANK", "SHAPE", "Shape", "Size"])  # operators that read extents alone
FAR = 100  # so many bounds off, an inner value of float32 is no matter of rounding
BY_PARTS_ALONE = (
    "each operator agrees on the source's own values, and together they do not: a runtime may compute several of them"
    " at once, and wrongly"
)


class RunValues(NamedTuple):
    """Values of both models in one run of the second."""

    pairs: Sequence[Pair]
    is_output: bool  # whether they are outputs of the graph
    # what the source was fed in each of its runs, and its values then: several, where the second has a larger batch
    runs: Sequence[tuple[Feeds, Feeds]]
    carried: Feeds  # what the second model was fed
    first: Feeds  # the source's values, by its names
    second: Feeds  # the second model's, by its names


@dataclass
class Comparison:
    """Both sides, their counterparts, their runners, how many values were compared, and the rows so far."""

    left: RunnableModel
    right: RunnableModel
    tolerance: Tolerance
    tensors: bool
    runs: int = 1
    layouts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    compared: int = 0
    rows: dict[tuple[str, int], Row] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    fed: tuple[Fed, ...] = ()
    ranges: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        part = self.right.part
        inputs, _, extra = match_interface(self.left.inputs, self.right.inputs, by_name_only=part is not None)
        of_source = (*self.left.interiors, *self.left.outputs)
        opened = self.right.batch is not None
        self.begun = match_ends(of_source, extra, any_extents=opened) if part is not None else []
        begun = {pair.right.name for pair in self.begun} | set(self.right.initial)
        extra = [value for value in extra if value.name not in begun]
        if extra:
            listed = ", ".join(f"'{value.name}'" for value in extra)
            raise RelayoutError(f"the second model has inputs that the first has not: {listed}")
        outputs = self._match_outputs(part)
        refuse_unknown([*inputs, *outputs], self.layouts)
        self.inputs, self.outputs = with_layouts(inputs, self.layouts), with_layouts(outputs, self.layouts)
        self.notes += advice(self.inputs)
        everything = (*self.right.interiors, *self.right.outputs)
        inner = {pair.left.name for pair in self.outputs}
        lefts = [value for value in self.left.interiors if value.name not in inner]
        self.interiors = match_interiors(lefts, everything) if self.tensors else []
        self.unmatched = len(lefts) - len(self.interiors)
        own = {value.name for value in self.left.outputs}
        ends = (pair.left.name for pair in (*self.begun, *self.outputs) if pair.left.name not in own)
        self._ends = list(dict.fromkeys(ends))
        self._spread = Spread(self.left, [*self._ends, *(pair.left.name for pair in self.interiors)], self.right)
        if declared := self.right.steps_off:
            self.notes.append(
                f"the result declares that {len(declared)} quantized value{'s' * (len(declared) != 1)} may be up to"
                f" {max(declared.values())} steps off, so the spread is that of the source with as much noise there"
            )
        self.dequantized = any(map(stands_for_integers, (*self.outputs, *self.interiors)))
        self._plain = self.left.runner(), self.right.runner()
        self._seen = self.left.runner(self._ends) if self._ends else self._plain[0]
        self._stepwise: Stepwise | None = None
        self._others: Runner | None = None
        self.tolerance = replace(self.tolerance, rounding=self.left.rounding)

    def _learn(self, side: RunnableModel, feeds: Feeds) -> None:
        """Let a side learn its sizes, where that may matter: where interior values may take more room than one run."""
        size = sum(pair.left.size(pair.right) for pair in (*self.interiors, *self.outputs))
        if size > matching.AT_ONCE or any(extent > OPEN for array in feeds.values() for extent in array.shape):
            side.learn(feeds)

    @cached_property
    def _inner(self) -> tuple[Runner, Runner]:
        """The views that show interior values of both; made once it is known how much room they take."""
        if not self.interiors:
            return self._plain
        pair_names = [pair.left.name for pair in self.interiors], [pair.right.name for pair in self.interiors]
        shown = {value.name for value in self.right.outputs}
        added = [name for name in dict.fromkeys(pair_names[1]) if name not in shown]
        return self.left.runner(pair_names[0]), self.right.runner(added) if added else self._plain[1]

    def _match_outputs(self, part: Sequence[str] | None) -> list[Pair]:
        """Outputs with outputs; those of a part also with interior values, and what it left out is not missing."""
        matches = match_interface(self.left.outputs, self.right.outputs, by_name_only=part is not None)
        outputs, self.missing, more = matches
        if part is not None:
            outputs += match_ends(self.left.interiors, more, any_extents=self.right.batch is not None)
            more = [value for value in more if not any(value is pair.right for pair in outputs)]
            left_out = [v for v in self.missing if not set(v.all_names) & set(part)]
            self.missing = [value for value in self.missing if value not in left_out]
            if left_out:
                self.notes.append("outputs that the part leaves out: " + ", ".join(v.name for v in left_out))
        if more:
            self.notes.append("outputs that only the second model has: " + ", ".join(v.name for v in more))
        return outputs

    @property
    def note_of_failure(self) -> str:
        """A sentence for the report of a failed comparison; empty if there is nothing to say."""
        if not (is_quantized(self.left) and not is_quantized(self.right)):
            first = min(self.left.drawn, default="")
            return first and f"{first!r} is drawn at random in each run: what is computed of it cannot be compared"
        reason = "each operator was compared, within one step; a model with weights of its own differs by more"
        if not self.dequantized:
            reason = "they differ by what quantization costs: compare them the other way round"
        return (
            f"the first model computes with quantized integers and the second in float: {reason};"
            " docs/how-to/numbers.md says how to read it"
        )

    def described(self, feeds: Feeds, fixed_feeds: Feeds | None = None) -> tuple[Fed, ...]:
        """Return what the source's inputs are fed, and which of them were given."""
        ways = dict.fromkeys(fixed_feeds or {}, "given")
        return tuple(
            Fed(v.title or v.name, str(feeds[v.name].dtype), feeds[v.name].shape, ways.get(v.name, "random"))
            for v in self.left.inputs
            if v.name in feeds
        )

    def pieces(self, fixed_feeds: Feeds, rng: np.random.Generator, signed: bool) -> Iterator[RunValues]:
        """Yield what both models make of one input: the outputs, then inner values, as many as fit into memory."""
        self._advance(0)
        start = monotonic()
        feeds, first = self.run_source(fixed_feeds, rng, signed)
        self._learn(self.left, feeds)
        carried = self._carry(feeds, first)
        self._learn(self.right, carried)
        self.fed = self.described(feeds, fixed_feeds)
        second = self._plain[1].run(carried, [pair.right.name for pair in self.outputs])
        self.seconds = monotonic() - start
        self.outputs = [self._permuted(pair, first, second) for pair in self.outputs]
        yield RunValues(self.outputs, True, [(feeds, first)], carried, first, second)
        for part in batches(self.interiors):
            mine = self._inner[0].run(feeds, [pair.left.name for pair in part])
            theirs = self._inner[1].run(carried, list(dict.fromkeys(pair.right.name for pair in part)))
            yield RunValues(part, False, [(feeds, mine)], carried, mine, theirs)

    def run(self, fixed_feeds: Feeds, rng: np.random.Generator, signed: bool) -> None:
        """One input through both models."""
        rows: list[Row] = []
        for piece in self.pieces(fixed_feeds, rng, signed):
            compared = self.compare(piece)
            if piece.is_output:
                compared = self._beside_other_kernels(piece, compared)
                for value in self.missing:
                    missing = Pair(value, ModelValue("", None, None))
                    self.add(_row(missing, True, piece.first.get(value.name), Verdict.MISSING))
            rows += compared
        for row in self._judge_again(rows, piece.runs[0][0]):
            self.add(row)

    def _carry(self, feeds: Feeds, first: Mapping[str, Array]) -> dict[str, Array]:
        """Return what the second model is fed where the source is fed `feeds` and makes `first`."""
        carried = {pair.right.name: pair.carried(feeds[pair.left.name]) for pair in self.inputs}
        for pair in self.begun:
            if pair.left.name not in first:
                raise RelayoutError(f"{self.left.label} does not show '{pair.left.name}', which the part begins with")
            carried[pair.right.name] = pair.carried(first[pair.left.name])
        return carried

    # Complexity: each kind of doubt about the rows is one guard, in the order in which they explain each other.
    def _judge_again(self, rows: list[Row], feeds: Feeds) -> list[Row]:
        """Return the rows with what each operator makes of the source's own values, where that may tell more."""
        beyond = {Verdict.DIFFERS, Verdict.SPREAD} if self.left.rounds else {Verdict.DIFFERS}
        # What is chosen by numbers that are nearly equal, such as the best boxes, may be another after a rounding.
        chosen = self.left.behind(self._choices - {row.source for row in rows if row.ok})
        far = {row.source for row in rows if row.source not in chosen and self._is_far(row)}
        if self.tensors and (self.dequantized or any(row.verdict in beyond for row in rows)):
            rows = self._by_operator(rows, feeds, {row.source for row in rows if self._is_excess(row)})
        if not self.left.rounds:
            rows = self._with_faults(rows, far)
        ends = (end for pair in self.inputs for end in (pair.left, pair.right))
        if any(end.normalization is not None for end in ends):
            # A model that normalizes its input itself holds other numbers before its first operator.
            rows = [row if row.output else replace(row, is_fault=False) for row in rows]
        unexplained = any(row.output and row.verdict is Verdict.DIFFERS and row.alone for row in rows)
        if unexplained and not any(row.is_fault for row in rows):
            self.notes.append(BY_PARTS_ALONE)
        return rows

    def _with_faults(self, rows: list[Row], far: set[str]) -> list[Row]:
        """Return the rows of a float model with its faults: of what is far off, what its own operator puts there."""
        faults = {row.source for row in rows if row.source in far and not row.ok} or far
        faulty = (not row.output and row.source in faults for row in rows)
        return [
            replace(row, verdict=Verdict.DIFFERS, is_fault=True) if is_fault else row
            for row, is_fault in zip(rows, faulty, strict=True)
        ]

    def _is_far(self, row: Row) -> bool:
        """Tell whether an inner value of float32 differs by so much that a fault is behind it, and no rounding."""
        judged_alone = row.output or self.left.rounds or self.dequantized or row.source in self._drawn
        return not judged_alone and not row.ok and self._is_excess(row)

    @cached_property
    def _choices(self) -> Set[str]:
        """The integers and truth values that the source makes of real numbers."""
        values = (*self.left.inputs, *self.left.interiors, *self.left.outputs)
        real = {value.name for value in values if value.dtype is not None and value.dtype.kind == "f"}
        return {
            value.name
            for value in values
            if value.name not in real and value.operator not in OF_EXTENTS and not real.isdisjoint(value.operands)
        }

    def _is_excess(self, row: Row) -> bool:
        """Tell whether a value is a hundred bounds off, or beyond its bounds and not of real numbers."""
        distance, tolerance = row.difference, self.tolerance
        if distance is None or row.kind is not Kind.REAL:
            return True
        scale = distance.max_abs / distance.max_rel if distance.max_rel not in (0.0, float("inf")) else 0.0
        return distance.max_abs > FAR * (tolerance.atol + max(tolerance.rtol, 2 * tolerance.rounding) * scale)

    def _beside_other_kernels(self, piece: RunValues, rows: list[Row]) -> list[Row]:
        """Return the rows of outputs with how far LiteRT's default and reference kernels are apart in the result.

        A delegate that computes several operators together wrongly shows in this alone.
        """
        if not self.right.has_other_kernels:
            return rows
        try:
            if self._others is None:
                self._others = self.right.runner(reference=True)
            theirs = self._others.run(piece.carried, [pair.right.name for pair in piece.pairs])
        except RelayoutError as error:
            self.notes.append(f"the result does not run with reference kernels: {error}")
            return rows
        again = self.compare(piece._replace(second=theirs))
        by_name = {row.source: row for row in again}
        return [self._with_kernels(row, by_name.get(row.source)) for row in rows]

    def _with_kernels(self, row: Row, other: Row | None) -> Row:
        if other is None or other.difference is None:
            return row
        if row.ok and not other.ok:
            self.notes.append(
                f"LiteRT's default and reference kernels of the result differ: with reference kernels output"
                f" '{row.name}' is off, and with the default ones it agrees"
            )
            return replace(other, kernels=other.difference)
        if not row.ok and other.ok:
            self.notes.append(
                f"output '{row.name}' agrees with LiteRT's reference kernels: its default ones compute it otherwise"
            )
        return replace(row, kernels=other.difference)

    def run_source(self, fixed_feeds: Feeds, rng: np.random.Generator, signed: bool) -> tuple[Feeds, dict[str, Array]]:
        """Return what the source was fed, some of it given, its outputs, and the values in which a part of it ends."""
        feeds, outputs = self._fed(fixed_feeds, rng, signed)
        if self._ends:
            # All of one run: what the part is fed, and what the source made of it.
            outputs |= self._seen.run(feeds, [*self._ends, *outputs])
        return feeds, outputs

    def run_opened(self, feeds: Feeds) -> dict[str, Array]:
        """Return the outputs of the second model."""
        return self._plain[1].run(feeds, [pair.right.name for pair in self.outputs])

    def _permuted(self, pair: Pair, first: Feeds, second: Feeds) -> Pair:
        """An output that does not fit: in the layouts of an input that a user named, or as it is, with advice."""
        if pair.declared or pair.left.name not in first or pair.right.name not in second:
            return pair
        name, shape, other_shape = pair.name, first[pair.left.name].shape, second[pair.right.name].shape
        if shape == other_shape:
            return pair
        for source, target in self.layouts.values():
            perm = perm_of(source, target)
            if len(perm) == len(shape) and permute(perm, shape) == other_shape:
                self.notes.append(f"output '{name}' was compared as an input is: --layout {name}={source}:{target}")
                return permuted(pair, perm)
        if option := proposal(name, shape, other_shape):
            self.notes.append(
                f"output '{name}' is {list(shape)} in the first model and {list(other_shape)} in the second;"
                f" if both mean the same, say so: {option}"
            )
        return pair

    def values(self, fixed_feeds: Feeds, seed: int, run: int) -> dict[str, Array]:
        """Return the source's inputs, outputs and interior values in one run, by name."""
        feeds, first = self.run_source(fixed_feeds, np.random.default_rng([seed, run]), signed=run % 2 == 0)
        self._learn(self.left, feeds)
        inner = self._inner[0].run(feeds, [pair.left.name for pair in self.interiors]) if self.interiors else {}
        return {**feeds, **first, **inner}

    def _fed(self, fixed_feeds: Feeds, rng: np.random.Generator, signed: bool) -> tuple[Feeds, dict[str, Array]]:
        """Return the source's inputs, and its outputs. Dynamic sizes that it cannot run are given up for others."""
        names = list(dict.fromkeys(value.name for value in self.left.outputs))
        whole, sizes = self._whole(fixed_feeds), self._sizes(fixed_feeds)
        own = sizes[-1][1] is None
        errors: list[RelayoutError] = []
        state = rng.bit_generator.state
        for careful, (batch, extents) in product((False, True), sizes):
            rng.bit_generator.state = state
            try:
                feeds = random_feeds(self.left, self.inputs, whole, rng, signed, extents, careful, batch)
                feeds = {name: self._in_range(name, array, whole) for name, array in feeds.items()}
                outputs = self._plain[0].run(feeds, names)
            except RelayoutError as error:
                errors.append(error)
                continue
            if careful:
                self.notes.append("the source runs with no integers but 0, and floats were whole numbers")
            if batch != sizes[0][0]:
                self.notes.append("the source does not run at batch 2: an open batch is 1")
            if extents is not sizes[0][1]:
                other = "its own" if own else "those that were fed"
                self.notes.append(f"the source does not run with other sizes of its dynamic dimensions than {other}")
            return feeds, outputs
        failed = errors[len(sizes) - 1 if own else 0]
        if isinstance(failed, RunError) and self.left.relax():
            rng.bit_generator.state = state
            if (relaxed_run := self._relaxed(failed, fixed_feeds, rng, signed)) is not None:
                return relaxed_run
        drawn = next((value.title or value.name for value in self.left.inputs if value.name not in fixed_feeds), None)
        if drawn is None or not isinstance(failed, RunError):
            raise failed
        raise RelayoutError(f"{failed}; what is fed is random: if the model takes other values, {to_give(drawn)}")

    def _in_range(self, name: str, array: Array, fixed_feeds: Feeds) -> Array:
        """Return random real numbers stretched to the range that the second model's quantizer chose."""
        pair = next((pair for pair in self.inputs if pair.left.name == name), None)
        limits = None if pair is None or name in fixed_feeds else self.ranges.get(pair.right.name)
        if limits is None or array.dtype.kind != "f" or not array.size:
            return array
        low, high = float(array.min()), float(array.max())
        unit = (array - low) / (high - low or 1.0)
        return np.asarray(limits[0] + unit * (limits[1] - limits[0]), array.dtype)

    def _whole(self, fixed_feeds: Feeds) -> Feeds:
        """Return what was given, as pixels where the second model reads these; a note says how far off that is."""
        whole_feeds = dict(fixed_feeds)
        for pair in self.inputs:
            array = whole_feeds.get(pair.left.name)
            if array is None or not pair.reads_pixels or array.dtype.kind != "f":
                continue
            whole_feeds[pair.left.name] = nearest = pair.whole(array).astype(array.dtype)
            off = float(np.abs(nearest - array).max(initial=0))
            if off > 0:
                name = pair.left.title or pair.left.name
                self.notes.append(f"{name}: both are fed whole pixels, off by {off:.2g} from what was given")
        return whole_feeds

    def _sizes(self, fixed_feeds: Feeds) -> list[tuple[int, tuple[int, int, int] | None]]:
        """Return the batches and sizes of dynamic dimensions to try in turn; None stands for the source's own sizes."""
        free = [v for v in self.left.inputs if v.name not in fixed_feeds and v.shape is not None and None in v.shape]
        own = any(value.fallback for value in free)
        others: tuple[tuple[int, int, int] | None, ...] = (None,) if own else EXTENTS[1:] if free else ()
        batches = (BATCH, 1) if any(v.shape and v.shape[0] is None for v in free) else (BATCH,)
        tried = [(batch, extents) for extents in (EXTENTS[0], *others) for batch in batches]
        return tried[:-1] if own and len(batches) > 1 else tried

    def _relaxed(
        self, failed: RunError, fixed_feeds: Feeds, rng: np.random.Generator, signed: bool
    ) -> tuple[Feeds, dict[str, Array]] | None:
        """The source's inputs and outputs where both models run without optimizations; None if it fails then, too."""
        self.right.relax()
        self._plain = self.left.runner(), self.right.runner()
        self._seen = self.left.runner(self._ends) if self._ends else self._plain[0]
        try:
            relaxed_run = self._fed(fixed_feeds, rng, signed)
        except RelayoutError:
            return None
        self.notes.append(f"both were run without optimizations, with which the source does not run: {failed}")
        return relaxed_run

    def compare(self, piece: RunValues) -> list[Row]:
        """Return a row for each pair of a piece, judged as a whole: by how far the source is from itself in any run."""
        rows: list[Row] = []
        far: dict[int, Row] = {}
        for pair in piece.pairs:
            self._advance(1)
            row = self._row(pair, piece.first.get(pair.left.name), piece.second.get(pair.right.name), piece.is_output)
            if row is None:
                continue
            if row.verdict is Verdict.DIFFERS and row.source not in self._drawn:
                far[len(rows)] = row
            rows.append(row)
        spreads = [
            self._spread.of({row.source: values[row.source] for row in far.values()}, feeds)
            for feeds, values in piece.runs
        ]
        for place, row in far.items():
            if row.difference is not None:
                spread = wider(*(each.get(row.source) for each in spreads))
                verdict = judge(row.difference, row.kind, self.tolerance, spread)
                rows[place] = replace(row, verdict=verdict, spread=spread)
        return rows

    @cached_property
    def _drawn(self) -> Set[str]:
        """The values of the source that are made of what is drawn at random: their spread tells nothing."""
        return self.left.behind(self.left.drawn)

    def _by_operator(self, rows: list[Row], feeds: Feeds, far: set[str]) -> list[Row]:
        """Return the rows judged once more: each operator on the source's own values."""
        if self._stepwise is None:
            pairs = [*self.interiors, *self.outputs]
            inputs = [*self.inputs, *self.begun]
            self._stepwise = Stepwise(self.left, self.right, inputs, pairs, self.tolerance)
        try:
            steps = self._stepwise.judge(feeds)
        except RelayoutError as error:  # what a runtime does not take as given is judged as a whole
            self.notes.append(f"not judged operator by operator: {error}")
            return rows
        return judged_by_operator(rows, steps, self.left, self.right, dequantized=self.dequantized, far=far)

    def _row(self, pair: Pair, left: Array | None, right: Array | None, output: bool) -> Row | None:
        """Return the two arrays compared, without regard to any spread; None if an interior value cannot be seen."""
        if left is None or right is None:
            return _row(pair, output, left, Verdict.MISSING) if output else None
        try:
            left, right = pair.same_way(left, right)
        except LayoutError as error:
            self.notes.append(str(error))
            return _row(pair, output, left, Verdict.SHAPE)
        if left.shape != right.shape or left.dtype != right.dtype:
            if not (output or pair.declared):
                self.unmatched += 1
                return None
            return _row(pair, output, left, Verdict.SHAPE if left.shape != right.shape else Verdict.TYPE)
        kind, distance = kind_of(left, pair.left.quantized), difference(left, right)
        same = top1_agreement(left, right) if output and kind is not Kind.EXACT else None
        return replace(
            _row(pair, output, left, judge(distance, kind, self.tolerance, None, pair.left.step)),
            kind=kind,
            difference=distance,
            agreement=None if same is None else same[0] / max(1, same[1]),
        )

    def _advance(self, count: int) -> None:
        self.compared += count
        say("comparing", self.compared, self.runs * (len(self.outputs) + len(self.interiors)))

    def add(self, row: Row) -> None:
        """Add what was found of a value; of several runs the worst counts."""
        key = (row.name, int(row.output))
        self.rows[key] = row.worst(self.rows[key]) if key in self.rows else row


def is_quantized(side: RunnableModel) -> bool:
    """Tell whether a model computes with quantized integers anywhere."""
    return any(value.quantized for value in (*side.inputs, *side.outputs, *side.interiors))


def _row(pair: Pair, output: bool, array: Array | None, verdict: Verdict) -> Row:
    left, right = pair.left, pair.right
    return Row(
        name=pair.name,
        source=left.name,
        other=right.name,
        output=output,
        dtype=str(left.dtype if array is None else array.dtype),
        shape=() if array is None else array.shape,
        kind=Kind.REAL,
        verdict=verdict,
        difference=None,
        spread=None,
        operator=left.operator,
        node=left.node,
        other_operator=right.operator,
        other_node=right.node,
        order=left.order,
    )
