"""What holds for any valid graph: optimized, converted to another layout and back, it computes what it did."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

import relayout
from infer.mixed import Made
from relayout.infer.build import build
from relayout.pipeline import check_plan, read
from relayout.reports.report import DROPPED, FOR_SOME
from running import moved_bytes, refusal, run
from transposes import left

EXACT, STEPPED = 1e-4, 0.05
QUANTIZED, BODIES = frozenset({"quantized", "per channel"}), frozenset({"If", "Loop", "Scan"})
"""How far results may lie apart, in the length of the whole result: sums are added up in another order, and where
values are quantized a number at the border of a step may fall on the other side."""


class PropertyError(AssertionError):
    """A graph for which a property does not hold."""


@dataclass
class Held:
    """What was found of a graph: Transposes and bytes of the source, optimized, there and back.

    Args:
        contested: more bytes came back than there were at first, or a second optimization saved some, for Reshapes
            split an axis in ways that do not agree, and another of them was the first one then.
        capped: so many orders are possible that some were dropped: what is proved holds for the others.
    """

    source: tuple[int, int]
    optimized: tuple[int, int]
    there: tuple[int, int]
    back: tuple[int, int]
    contested: bool = False
    capped: bool = False


def hold(made: Made, layout: str = "NHWC") -> Held:
    """Try every property of one graph.

    Raises:
        PropertyError: one does not hold.
    """
    model, feed = made.model, made.feed
    want = run(model, feed)
    tolerance = STEPPED if made.has & QUANTIZED else EXACT
    optimized = _converted("optimize", relayout.optimize(model), model, want, feed, tolerance)
    certified(optimized, model)
    there = _converted("there", relayout.convert(model, to=layout), model, want, feed, tolerance)
    certified(there, model)
    back = _converted("back", relayout.convert(there.proto, to="NCHW"), model, want, feed, tolerance)
    certified(back, there.proto)
    report = optimized.report
    source = report.source_transposes, report.source_bytes
    if report.bytes > report.source_bytes:
        raise PropertyError(f"optimize: {report.bytes} bytes, and {report.source_bytes} before")
    first, last = report.source_bytes, back.report.bytes
    turned = there.proto
    if "dynamic" in made.has:
        first, last, turned = _there_and_back(made, layout)
    contested = last > first and build(read(turned)).contested
    if last > first and not contested:
        raise PropertyError(f"back: {last} bytes, and {first} at first")
    if not made.has & {"dynamic", "If", "Loop", "Scan"}:
        counted = left(optimized.proto, feed)
        if counted != (report.transposes, report.bytes):
            raise PropertyError(f"optimize: {counted} are run, {report.transposes, report.bytes} reported")
    fixed = fixed_dims(made)
    gains = _gain(optimized if not fixed else relayout.optimize(model, dims=fixed))
    gains += _gain(relayout.optimize(shortened(made), dims=fixed or None))
    if gains and not any(build(read(each)).contested for each in (model, shortened(made))):
        raise PropertyError(f"again: {gains} bytes fewer")
    contested |= bool(gains)
    if not made.has & BODIES:  # a Transpose in a body has no output to look at
        _no_more_moved(made, optimized)
    results = optimized, there, back
    ends = [(each.report.transposes, each.report.bytes) for each in results]
    return Held(source, *ends, contested, not all(each.report.proved for each in results))


def hold_open(source: onnx.ModelProto, feeds: Sequence[Mapping[str, NDArray[np.generic]]]) -> int:
    """Hold a graph of open extents to what it is optimized to, in a run of each size.

    Returns:
        How many of the runs there were: a runtime may refuse what numbers that are fed make of an extent.

    Raises:
        PropertyError: a run computes something else, or moves more than the source's, or the result can be optimized.
    """
    result, count = relayout.optimize(source), 0
    if gain := _gain(result):
        raise PropertyError(f"again: {gain} bytes fewer")
    for feed in feeds:
        try:
            wanted = run(source, feed)
        except Exception:  # a pool of nothing
            continue
        count += 1
        for want, got in zip(wanted, run(result.proto, feed), strict=True):
            if want.shape != got.shape or apart(want, got) > EXACT:
                raise PropertyError("open: other numbers")
        before, after = moved_bytes(source, feed), moved_bytes(result.proto, feed)
        if after > before:
            raise PropertyError(f"run: {after} bytes moved, and {before} by the source")
    return count


def fixed_dims(made: Made) -> dict[str, int]:
    """Return the extents that a graph's open dimensions have where it is fed."""
    pairs = [
        (dim.dim_param, extent)
        for value in made.model.graph.input
        for dim, extent in zip(value.type.tensor_type.shape.dim, made.feed[value.name].shape, strict=True)
    ]
    return {name: extent for name, extent in pairs if name}


def shortened(made: Made) -> onnx.ModelProto:
    """Return the model with one interior value as its only output: whatever that does not need is dead."""
    model = onnx.ModelProto()
    model.CopyFrom(made.model)
    known = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    inside = [node.output[0] for node in model.graph.node if node.output[0] in known]
    if inside:
        del model.graph.output[:]
        model.graph.output.append(known[inside[len(inside) // 2]])
    return model


def _gain(result: relayout.Result) -> int:
    """Return how many bytes fewer the result moves once it is optimized again."""
    report = relayout.optimize(result.proto).report
    return report.source_bytes - report.bytes


def _no_more_moved(made: Made, optimized: relayout.Result) -> None:
    """Hold what Transposes really move in runs of two sizes, as far as the source runs at the other one."""
    for more in (0, 1) if "dynamic" in made.has else (0,):
        feed = {}
        for value in made.model.graph.input:
            given = made.feed[value.name]
            dims = zip(value.type.tensor_type.shape.dim, given.shape, strict=True)
            feed[value.name] = np.resize(given, [extent + more * bool(dim.dim_param) for dim, extent in dims])
        try:
            before = moved_bytes(made.model, feed)
        except Exception:  # a constant may want the first size
            continue
        after = moved_bytes(optimized.proto, feed)
        if after > before:
            raise PropertyError(f"run: {after} bytes moved, and {before} by the source")


def _converted(
    what: str,
    result: relayout.Result,
    source: onnx.ModelProto,
    want: list[NDArray[np.generic]],
    feed: Mapping[str, NDArray[np.generic]],
    tolerance: float,
) -> relayout.Result:
    """The result, if it is valid, has the source's interface, is proved minimal, and computes the same.

    Where orders were dropped, it has to be minimal among the others, and to say so.
    """
    proto = result.proto
    onnx.checker.check_model(proto, full_check=True)
    if _interface(proto) != _interface(source):
        raise PropertyError(f"{what}: another interface")
    report = result.report
    others = any(note.startswith(FOR_SOME) for note in report.notes)
    if not report.proved and not others and not (report.bytes == report.lower_bound and DROPPED in report.notes):
        raise PropertyError(f"{what}: not proved minimal ({report.bytes} bytes, bound {report.lower_bound})")
    for expected, got in zip(want, run(proto, feed), strict=True):
        if expected.shape != got.shape or expected.dtype != got.dtype:
            raise PropertyError(f"{what}: {got.dtype}{got.shape}, and {expected.dtype}{expected.shape} before")
        if apart(expected, got) > tolerance:
            raise PropertyError(f"{what}: other numbers, {apart(expected, got):.2g} apart")
    if (why := refusal(proto)) and not refusal(source):
        raise PropertyError(f"{what}: ONNX Runtime does not load it with its optimizations: {why[:200]}")
    return result


def _there_and_back(made: Made, layout: str) -> tuple[int, int, onnx.ModelProto]:
    """Bytes of the source, and of what came back, with the extents that are fed, and what it came back from.

    Open extents count as 1, or as those beside them where these are known: of the source and of what came back other
    extents may be known, and their bytes are no figures of one kind.
    """
    model = onnx.ModelProto()
    model.CopyFrom(made.model)
    for value in model.graph.input:
        for dim, extent in zip(value.type.tensor_type.shape.dim, made.feed[value.name].shape, strict=True):
            dim.dim_value = extent
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    there = relayout.convert(onnx.shape_inference.infer_shapes(model, data_prop=True), to=layout)
    return there.report.source_bytes, relayout.convert(there.proto, to="NCHW").report.bytes, there.proto


def certified(result: relayout.Result, source: onnx.ModelProto) -> None:
    """The plan, written and read again, is proved by the checker that knows no solver, as far as the report says.

    Raises:
        PropertyError: it is not.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(json.dumps(result.plan))
        checked = check_plan(path, source)
    report = result.report
    if (checked.bytes, checked.bound, checked.proved) != (report.bytes, report.lower_bound, report.proved):
        raise PropertyError(f"the checker proves {checked.bound} of {checked.bytes} bytes")


def apart(expected: NDArray[np.generic], got: NDArray[np.generic]) -> float:
    """The length of the difference over that of what is expected; infinite where only one is a number.

    Numbers below a thousandth are what larger ones leave of each other: they count as a thousandth.
    """
    one, other = expected.astype(np.float64), got.astype(np.float64)
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return float("inf")
    finite = np.isfinite(one)
    difference = np.linalg.norm(one[finite] - other[finite])
    return float(difference / max(float(np.linalg.norm(one[finite])), 1e-3 * max(1, one.size) ** 0.5))


def _interface(model: onnx.ModelProto) -> list[tuple[str, bytes]]:
    return [(value.name, value.type.SerializeToString()) for value in (*model.graph.input, *model.graph.output)]
