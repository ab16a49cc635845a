"""Judge optimized ONNX models against their source, or time them beside it; print what is found by file, as JSON.

    python bench/judge_optimized.py judge SOURCE.onnx RESULT.onnx ...
    python bench/judge_optimized.py time SECONDS SOURCE.onnx RESULT.onnx ...

Both run in ONNX Runtime on the same random inputs, as they are written. Values are equal where they differ by no more
than twice what the source differs from itself, run with all of the runtime's optimizations, or by 1e-4 of the largest.

Times are of full optimization, one thread, in turns in a random order, and count that thread's processor time only:
what else runs on the machine counts less. `self` is a second session of the source: what it differs by is noise.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
from counting import Array, count_transposes, first_line, run_time_nodes, session_of

DYNAMIC = {"batch": 2, "height": 96, "width": 128, "length": 37}
"""Extents of dynamic dimensions; any other counts as 1."""
FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8}
FEWEST = 10
"""Rounds of which an interval says something."""
HIDDEN = (
    *("Attention", "MultiHeadAttention", "FusedMatMul", "Einsum", "GroupQueryAttention", "PackedAttention"),
    *("ReorderInput", "ReorderOutput"),
)
"""Operators that may transpose inside: named beside the bytes, which they are not counted in."""


def inputs_of(session: onnxruntime.InferenceSession, seed: int = 3) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    fed = {}
    for put in session.get_inputs():
        shape = [extent if isinstance(extent, int) else DYNAMIC.get(extent, 1) for extent in put.shape]
        if put.type in FLOATS:
            fed[put.name] = rng.normal(size=shape).astype(FLOATS[put.type])
        elif put.type == "tensor(bool)":
            fed[put.name] = rng.random(shape) < 0.5
        else:
            fed[put.name] = rng.integers(0, 100, shape).astype(INTEGERS[put.type])
    return fed


def difference(first: list[Array], second: list[Array]) -> float:
    """The largest difference, as a part of the largest value; infinite where shapes or kinds differ."""
    worst = 0.0
    for a, b in zip(first, second, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.dtype.kind not in "fiub":
            worst = max(worst, 0.0 if np.array_equal(a, b) else float("inf"))
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return float("inf")
        x, y = np.nan_to_num(x), np.nan_to_num(y)
        worst = max(worst, float(np.abs(x - y).max(initial=0)) / (float(np.abs(x).max(initial=0)) or 1.0))
    return worst


class Source:
    """The model that others were made from, run as it is written, and optimized."""

    def __init__(self, path: str) -> None:
        model = onnx.load(path)
        plain, whole = session_of(model), session_of(path)
        self.fed = inputs_of(plain)
        self.interface = interface_of(model)
        self.names = [put.name for put in plain.get_outputs()]
        self.expected = plain.run(self.names, self.fed)
        self.spread = difference(self.expected, whole.run(self.names, self.fed))


def judge(source: Source, result: str) -> dict[str, Any]:
    verdict: dict[str, Any] = {"valid": False, "runs": False, "equal": False}
    model = onnx.load(result)
    try:
        onnx.checker.check_model(result, full_check=True)
        verdict["valid"] = True
    except Exception as error:
        verdict["why"] = first_line(error)
    try:
        session = session_of(model)
        verdict["interface"] = interface_of(model) == source.interface
        got = session.run(source.names, {put.name: source.fed[put.name] for put in session.get_inputs()})
    except Exception as error:
        return verdict | {"why": first_line(error)}
    error, spread = difference(source.expected, got), source.spread
    verdict |= {"runs": True, "equal": error <= max(1e-4, 2 * spread), "error": error, "spread": spread}
    flat = onnx.inliner.inline_local_functions(model) if model.functions else model
    hidden = Counter(node.op_type for node in run_time_nodes(flat.graph) if node.op_type in HIDDEN)
    verdict["hidden"] = dict(hidden)
    verdict["nodes"] = len(flat.graph.node)
    verdict["transposes"], verdict["bytes"] = count_transposes(flat, source.fed)
    return verdict


def interface_of(model: onnx.ModelProto) -> list[tuple[str, str]]:
    """Inputs and outputs with their types, as the file states them: a runtime may know an extent that no file does."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [put for put in model.graph.input if put.name not in weights]
    return [(put.name, str(put.type)) for put in (*inputs, *model.graph.output)]


def timed(limit: float, source: str, results: list[str]) -> dict[str, dict[str, float]]:
    """Result -> milliseconds, and the time as a multiple of the source's, with the interval of 95 % of resamples."""
    paths = {"source": source, "self": source} | {Path(path).stem: path for path in results}
    sessions = {}
    for name, path in paths.items():
        try:
            sessions[name] = session_of(path)
            fed = inputs_of(sessions["source"])
            sessions[name].run(None, fed)
        except Exception:
            sessions.pop(name, None)
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    rng, begun = random.Random(0), time.perf_counter()
    while len(seconds["source"]) < 20 or time.perf_counter() - begun < limit:
        for name in rng.sample(sorted(sessions), len(sessions)):
            start = time.thread_time()
            sessions[name].run(None, fed)
            seconds[name].append(time.thread_time() - start)
        enough = len(seconds["source"]) >= FEWEST and time.perf_counter() - begun > 8 * limit
        if enough or len(seconds["source"]) >= 2000:
            break
    found = {}
    for name, taken in seconds.items():
        low, high = interval(taken, seconds["source"])
        ratio = statistics.median(taken) / statistics.median(seconds["source"])
        found[name] = {"ms": 1e3 * statistics.median(taken), "ratio": ratio, "low": low, "high": high}
        found[name]["rounds"] = len(taken)
    return found


def interval(taken: list[float], reference: list[float]) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    rounds = rng.integers(0, len(taken), (400, len(taken)))
    ratios = np.median(np.asarray(taken)[rounds], 1) / np.median(np.asarray(reference)[rounds], 1)
    return float(np.quantile(ratios, 0.025)), float(np.quantile(ratios, 0.975))


def main() -> None:
    action, *rest = sys.argv[1:]
    if action == "time":
        print(json.dumps(timed(float(rest[0]), rest[1], rest[2:])))
        return
    source = Source(rest[0])
    print(json.dumps({path: judge(source, path) for path in rest[1:]}))


if __name__ == "__main__":
    main()
