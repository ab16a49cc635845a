"""Verify a model: run it and its source on the same inputs, and report how they compare."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from relayout.arguments import FLAG, LAYOUTS, TOLERANCE, checked, mapping, whole
from relayout.formats.pytorch import exported
from relayout.progress import say
from relayout.verification.compare import Tolerance
from relayout.verification.comparison import Comparison
from relayout.verification.feeds import given_feeds
from relayout.verification.quantization import QuantizationLoss, is_quantization, measured
from relayout.verification.report import VerifyReport
from relayout.verification.rows import batch_of, compare_rows
from relayout.verification.side import Array, Feeds, Source, open_side

SEEDS = 2
"""Random inputs that are tried where nobody says how many."""
QUICK = 1.0
"""Seconds of one run of both models up to which it is done again on another input."""


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
        given = given_feeds(inputs, left.inputs)
        if is_quantization(left.precision, right.precision):
            samples = 1 if len(given) == len(left.inputs) else comparison.runs if runs else SEEDS
            comparison.runs = samples
            return _report_of_loss(comparison, measured(comparison, [given] * samples, seed, None), seed)
        batch = batch_of(comparison)
        alone = batch is None or batch.is_open
        if alone:
            run_all(comparison, given, seed, runs)
        if given and not alone:
            comparison.notes.append(
                "inputs that were given have the source's batch, and the result takes another: all are random"
            )
        if batch is not None:
            for row in compare_rows(comparison, batch, seed, alone=alone):
                comparison.add(row)
        rows = sorted(comparison.rows.values(), key=lambda row: (row.order, row.output))
        batches = () if batch is None else tuple(dict.fromkeys((*((batch.before,) if alone else ()), *batch.extents)))
        report = VerifyReport(
            left.label,
            right.label,
            tuple(rows),
            comparison.fed,
            comparison.unmatched,
            seed,
            comparison.runs,
            rtol,
            atol,
            tuple(dict([left.runtime, right.runtime]).items()),
            tuple(dict.fromkeys((*comparison.notes, *left.notes, *right.notes))),
            batches,
        )
        note = comparison.note_of_failure
        return report if report.ok or not note else replace(report, notes=(*report.notes, note))


def run_all(comparison: Comparison, given: Feeds, seed: int, runs: int | None) -> None:
    """Compare on as many inputs as asked for; if nothing is asked for, on a second one where a run takes no second."""
    comparison.run(given, np.random.default_rng([seed, 0]), signed=True)
    is_random = len(given) < len(comparison.left.inputs)
    if runs is None and is_random and comparison.seconds < QUICK:
        comparison.runs = SEEDS
    for run in range(1, comparison.runs):
        comparison.run(given, np.random.default_rng([seed, run]), signed=run % 2 == 0)


def _report_of_loss(comparison: Comparison, loss: QuantizationLoss, seed: int) -> VerifyReport:
    """Return the report on a quantized model and its float source."""
    left, right, tolerance = comparison.left, comparison.right, comparison.tolerance
    return VerifyReport(
        left.label,
        right.label,
        (),
        comparison.fed,
        comparison.unmatched,
        seed,
        comparison.runs,
        tolerance.rtol,
        tolerance.atol,
        tuple(dict([left.runtime, right.runtime]).items()),
        tuple(dict.fromkeys((*comparison.notes, *left.notes, *right.notes))),
        loss=loss,
    )
