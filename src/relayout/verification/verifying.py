"""Verify a model: run it and its source on the same inputs, and report how they compare."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from relayout.arguments import FLAG, LAYOUTS, TOLERANCE, checked, mapping, whole
from relayout.errors import LayoutError
from relayout.formats.pytorch import exported
from relayout.layout.restated import restated
from relayout.layout.stored_as import OPENED_BATCH, Holds
from relayout.progress import say
from relayout.verification.compare import Tolerance
from relayout.verification.comparison import Comparison, RunValues
from relayout.verification.feeds import user_feeds
from relayout.verification.pairs import Pair
from relayout.verification.quantization import QuantizationLoss, is_quantization, measured
from relayout.verification.report import Row, VerifyReport
from relayout.verification.side import Array, Feeds, Source, open_side

# Hold a model whose batch was opened against its source, which runs batch after batch.
#
# What the source makes of each of its batches, put together, is what the opened model makes of all at once.

EXTENTS = (3, 7)  # batches that are tried where the result leaves the batch open


class Batch(NamedTuple):
    """A batch that was opened, and is to be tried."""

    before: int  # how many rows the source takes
    inputs: Mapping[str, int]  # input of the source -> the axis that is the batch
    outputs: Mapping[str, tuple[int, int]]  # output -> the axis that holds the batch, and how many runs of it
    extents: tuple[int, ...]  # the batches to try
    is_open: bool  # whether the result takes any, the source's too


def batch_of(
    comparison: Comparison,  # the two models
) -> Batch | None:
    """Return the batch that the second model declares to be opened and the first has fixed; else note what is open."""
    opened, pairs = comparison.right.batch, [*comparison.inputs, *comparison.begun]
    if opened is not None:
        places = [(pair, place) for pair in pairs if (place := _place(opened.inputs, pair)) is not None]
        mine = {_extent(pair.left.shape, axis) for pair, (axis, _) in places}
        theirs = {_extent_in_second(pair, axis) for pair, (axis, _) in places}
        before = mine.pop() if len(mine) == len(theirs) == 1 else None
        if before:
            extent = theirs.pop()
            if extent is None:
                return Batch(before, opened.inputs, opened.outputs, EXTENTS, True)
            return None if extent in (0, before) else Batch(before, opened.inputs, opened.outputs, (extent,), False)
    for pair in pairs:
        if None not in (pair.left.shape or (None,)) and None in (pair.right.shape or ()):
            comparison.notes.append(
                f"input '{pair.name}' is open in the second model and fixed in the first: only the first's extents ran"
            )
    return None


def _extent_in_second(pair: Pair, axis: int) -> int | None:
    """Return the second model's extent of an axis of the source's input; None where it is open."""
    holds = pair.right_held
    if holds is None:
        return _extent(pair.right.shape, axis)
    if pair.left_held is not None:
        opened = _with_open_axis(pair, axis)
        if opened is None or -1 not in opened.shape:
            return None
        axis = opened.shape.index(-1)
    extent = _extent(holds.shape, axis)
    return None if extent == -1 else extent


def _extent(shape: Sequence[int | None] | None, axis: int) -> int | None:
    return None if shape is None or axis >= len(shape) else shape[axis]


def _with_open_axis(pair: Pair, axis: int) -> Holds | None:
    """Return what the source declares to hold, with one of its stored axes open; None if it declares nothing."""
    if pair.left_held is None or pair.left.shape is None:
        return None
    before = tuple([-1 if extent is None else extent for extent in pair.left.shape])
    return restated(pair.left_held, before, (*before[:axis], -1, *before[axis + 1 :]))


def compare_rows(comparison: Comparison, batch: Batch, seed: int, *, alone: bool) -> Iterator[Row]:
    """Yield what is found of each output at each batch.

    A source that rounds may be off by as much as it is from itself, on any of its batches.

    Args:
        comparison: the two models.
        batch: what was opened.
        seed: of what is fed.
        alone: whether the opened model runs with the source's batch, too.

    Raises:
        RelayoutError: one of the two does not run.
    """
    for count in batch.extents:
        chunks = list(_chunks(comparison, batch, count, np.random.default_rng([seed, count])))
        joined = {  # all that the source is fed, batch after batch, as one batch; what a part begins with, too
            pair.left.name: _concatenated(
                [chunk[side][pair.left.name] for chunk in chunks], _place(batch.inputs, pair), count
            )
            for side, pairs in enumerate((comparison.inputs, comparison.begun))
            for pair in pairs
        }
        if not alone:
            comparison.fed = comparison.described(joined)
        opened = (_opened(pair, _place(batch.inputs, pair)) for pair in (*comparison.inputs, *comparison.begun))
        carried = {pair.right.name: pair.carried(joined[pair.left.name]) for pair in opened}
        results = comparison.run_opened(carried)
        pairs, whole = [], {}
        for pair in comparison.outputs:
            place, name = _place(batch.outputs, pair), pair.left.name
            whole[name] = _concatenated([values[name] for _, values in chunks], place, count, batch.before)
            pairs.append(_opened(pair, place))
        for row in comparison.compare(RunValues(pairs, True, chunks, carried, whole, results)):
            yield replace(row, name=f"{row.name} at batch {count}", batch=count)


def _opened(pair: Pair, place: tuple[int, int] | None) -> Pair:
    """Return a pair whose models may declare the source's batch: with another one, their layouts stay what they are."""
    left = None if place is None else _with_open_axis(pair, place[0])
    factor = None if left is None or place is None else _factor(left, place[0])
    if left is None or factor is None:
        return pair
    right = None if pair.right_held is None else _with_open_factor(pair.right_held, factor)
    return replace(pair, left_held=left, right_held=right)


def _factor(holds: Holds, axis: int) -> int | None:
    """Return the factor of what a value holds that one of its axes is; None where axes are not factors one by one."""
    return holds.perm[axis] if len(holds.perm) == len(holds.shape) and axis < len(holds.perm) else None


def _with_open_factor(holds: Holds, factor: int) -> Holds:
    """Return it with one factor of any extent."""
    if len(holds.factors) != len(holds.shape):
        return holds
    factors, shape = list(holds.factors), list(holds.shape)
    factors[factor] = shape[factor] = -1
    return replace(holds, factors=tuple(factors), shape=tuple(shape))


def _chunks(
    comparison: Comparison, batch: Batch, count: int, rng: np.random.Generator
) -> Iterator[tuple[Feeds, Feeds]]:
    """Yield what the source is fed and gives, batch after batch; what is no batch is the same in all."""
    shared: dict[str, Array] = {}
    for index in range(-(-count // batch.before)):
        feeds, outputs = comparison.run_source(shared, rng, signed=index % 2 == 0)
        shared = {
            pair.left.name: feeds[pair.left.name] for pair in comparison.inputs if _place(batch.inputs, pair) is None
        }
        yield feeds, outputs


def _place(places: Mapping[str, object], pair: Pair) -> tuple[int, int] | None:
    """Return the axis of the batch in the source's value of a pair, and its runs; None if it has none."""
    names = (*pair.left.all_names, *pair.right.all_names, pair.name)
    place = next((places[name] for name in names if name in places), None)
    return (place, 1) if isinstance(place, int) else place  # type: ignore[return-value]


def _concatenated(arrays: Sequence[Array], place: tuple[int, int] | None, count: int, before: int = 0) -> Array:
    """Put arrays together along the batch, and keep so many rows."""
    if place is None:
        return arrays[0]
    axis, outer = place
    shape = arrays[0].shape
    if axis >= len(shape) or not outer or shape[axis] % (outer * (before or shape[axis] or 1)):
        runs = f"{outer} runs of the batch along axis {axis}"
        raise LayoutError(f"metadata {OPENED_BATCH!r}: what is {list(shape)} has no {runs}")
    rows = before or shape[axis]
    split = [array.reshape(*shape[:axis], outer, rows, -1, *shape[axis + 1 :]) for array in arrays]
    joined = np.concatenate(split, axis + 1).take(range(count), axis + 1)
    return np.asarray(joined.reshape(*shape[:axis], -1, *shape[axis + 1 :]))


SEEDS = 2  # random inputs that are tried where nobody says how many
QUICK = 1.0  # seconds of one run of both models up to which it is done again on another input


@checked(
    inputs=mapping("{'x': array} or {'x': 'x.npy'}", lambda value: value is not None),
    seed=whole(0),
    runs=whole(1),
    rtol=TOLERANCE,
    atol=TOLERANCE,
    tensors=FLAG,
    layouts=LAYOUTS,
)
def verify(
    a: Source,
    b: Source,
    *,
    args: Any = None,
    inputs: Mapping[str, Array | str | Path] | None = None,
    seed: int = 0,
    runs: int | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    tensors: bool = True,
    layouts: Mapping[str, tuple[str, str]] | None = None,
) -> VerifyReport:
    """Hold model `b` against its source `a`: do they compute the same, and if not, where do they part?

    1. Layouts that a model declares in its metadata are undone, for inputs, outputs and interior values. Where it
       declares that its batch was opened, it runs at batch 3 and 7, too, or at the one that it has: the source runs
       batch after batch.
    2. The graph's outputs decide; interior values tell where to look.
    3. Floats agree within `atol + rtol * max|a|` of their tensor; quantized integers, and floats that were dequantized
       from them, within one step.
    4. Where more than that is found in a model that rounds (quantized anywhere), or between integers, the source is run
       again with its runtime's other kernels, and what these differ by among themselves is allowed too.

    Args:
        a: the source: a `.tflite` or `.onnx` path, bytes, `onnx.ModelProto` or `ir.Model`.
        b: the model to hold against it; likewise.
        args: where `a` is a PyTorch module: what it is called with, for PyTorch's exporter.
        inputs: input name -> array or path to a `.npy`; all others are random.
        seed: of the random inputs.
        runs: how many random inputs; a value's worst counts. By default two where a run takes under a second, else one.
        rtol: relative to the largest magnitude in the tensor.
        atol: absolute.
        tensors: whether to compare interior values. Without them outputs are judged as a whole, so that roundings of a
            deep quantized network may add up to a difference.
        layouts: input or output -> its layout in `a` and in `b`, such as `("NHWC", "NCHW")`, where the models do not
            declare it. An output that fits only in the layouts of an input is compared in these.

    Of a float model and one that computes with less precision the report measures what quantization cost, and passes
    unless an output is noise: see `quantization_loss`.

    Raises:
        ReadError: one is not a model, or its runtime cannot load it.
        MissingRuntimeError: a runtime is not installed.
        RelayoutError: a run fails, or the two models' inputs cannot be matched.
    """
    a = exported(a, args, None)
    say("loading")
    with ExitStack() as stack:
        right = stack.enter_context(open_side(b))
        left = stack.enter_context(open_side(a, right.signature, other=right))
        comparison = Comparison(left, right, Tolerance(rtol, atol), tensors, runs=runs or 1, layouts=layouts or {})
        fixed_feeds = user_feeds(inputs, left.inputs)
        if is_quantization(left.precision, right.precision):
            samples = 1 if len(fixed_feeds) == len(left.inputs) else comparison.runs if runs else SEEDS
            comparison.runs = samples
            return _report(comparison, seed, loss=measured(comparison, [fixed_feeds] * samples, seed, None))
        batch = batch_of(comparison)
        alone = batch is None or batch.is_open
        if alone:
            run_all(comparison, fixed_feeds, seed, runs)
        if fixed_feeds and not alone:
            comparison.notes.append(
                "inputs that were given have the source's batch, and the result takes another: all are random"
            )
        if batch is not None:
            for row in compare_rows(comparison, batch, seed, alone=alone):
                comparison.add(row)
        batches = () if batch is None else tuple(dict.fromkeys((*((batch.before,) if alone else ()), *batch.extents)))
        report = _report(comparison, seed, batches=batches)
        note = comparison.note_of_failure
        return report if report.ok or not note else replace(report, notes=(*report.notes, note))


def run_all(comparison: Comparison, fixed_feeds: Feeds, seed: int, runs: int | None) -> None:
    """Compare on as many inputs as asked for; if nothing is asked for, on a second one where a run takes no second."""
    comparison.run(fixed_feeds, np.random.default_rng([seed, 0]), signed=True)
    is_random = len(fixed_feeds) < len(comparison.left.inputs)
    if runs is None and is_random and comparison.seconds < QUICK:
        comparison.runs = SEEDS
    for run in range(1, comparison.runs):
        comparison.run(fixed_feeds, np.random.default_rng([seed, run]), signed=run % 2 == 0)


def _report(
    comparison: Comparison, seed: int, *, batches: tuple[int, ...] = (), loss: QuantizationLoss | None = None
) -> VerifyReport:
    """Return the report on two models, or on a float model and what quantization cost it."""
    left, right, tolerance = comparison.left, comparison.right, comparison.tolerance
    return VerifyReport(
        left.label,
        right.label,
        tuple(sorted(comparison.rows.values(), key=lambda row: (row.order, row.output))),
        comparison.fed,
        comparison.unmatched,
        seed,
        comparison.runs,
        tolerance.rtol,
        tolerance.atol,
        tuple(dict([left.runtime, right.runtime]).items()),
        tuple(dict.fromkeys((*comparison.notes, *left.notes, *right.notes))),
        batches,
        loss,
    )
