"""Compare what ONNX Runtime makes of a model by itself with `--target onnxruntime-cpu`: Transposes, reorders, latency.

    python bench/target_cpu.py [--rounds 30] [--options KEY=VALUE ...] --out DIRECTORY MODEL.onnx ...
    python bench/target_cpu.py --again DIRECTORY/target_cpu.json

`bench/make_onnx.py` makes models (`quantized`: int8). Both are loaded at full optimization, on one thread; `.tflite`
sources are converted first. They take turns: in one round each runs for some milliseconds and counts its fastest
inference, in processor time of the thread; what is reported is the median of the rounds' ratios with their quartiles.
What moves is counted in what ONNX Runtime runs after its own optimization: Transposes that move data, and reorders
between plain and blocked layouts, with the bytes that they give in one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from counting import moves, run_time_nodes
from onnx import helper
from tables import table

import relayout

TARGET = "onnxruntime-cpu"
TURN_SECONDS = 0.04
REORDERS = ("ReorderInput", "ReorderOutput")
SIDES = ("by itself", "converted")

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]


def options_of(level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = level
    return options


def opened(model: str, saved: Path | None = None) -> onnxruntime.InferenceSession:
    """A session at full optimization; what it runs is saved."""
    options = options_of(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def fed(session: onnxruntime.InferenceSession) -> Feed:
    """Normal floats, small integers; dynamic dimensions are 1."""
    rng = np.random.default_rng(0)
    found = {}
    for put in session.get_inputs():
        shape = [dim if isinstance(dim, int) else 1 for dim in put.shape]
        if "float" in put.type:
            found[put.name] = rng.normal(size=shape).astype(np.float32)
        else:
            found[put.name] = rng.integers(0, 100, shape).astype(put.type[7:-1])
    return found


def moved(path: Path, feed: Feed) -> dict[str, int]:
    """How many Transposes and reorders of a model move data in one run, and the bytes that they give."""
    model = onnx.load(path)
    nodes = [node for node in run_time_nodes(model.graph) if node.op_type in ("Transpose", *REORDERS)]
    known = {output.name for output in model.graph.output}
    for node in nodes:
        if node.output[0] not in known:
            model.graph.output.append(helper.make_empty_tensor_value_info(node.output[0]))
    options = options_of(onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = dict(zip((put.name for put in session.get_outputs()), session.run(None, feed), strict=True))
    found = dict.fromkeys(("transposes", "transposed", "reorders", "reordered"), 0)
    for node in nodes:
        given = np.asarray(values[node.output[0]])
        if node.op_type in REORDERS:
            found["reorders"] += 1
            found["reordered"] += given.nbytes
        elif moves(node, given):
            found["transposes"] += 1
            found["transposed"] += given.nbytes
    return found


def fastest(run: Callable[[], object], count: int) -> float:
    """Milliseconds of the fastest of so many runs."""
    best = float("inf")
    for _ in range(count):
        begun = time.thread_time_ns()
        run()
        best = min(best, (time.thread_time_ns() - begun) / 1e6)
    return best


def measured(runs: list[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Milliseconds of each round, of each run; who begins changes from round to round."""
    counts = [max(3, round(TURN_SECONDS * 1000 / max(fastest(run, 3), 0.01))) for run in runs]
    found: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        for place in range(len(runs)):
            side = (place + number) % len(runs)
            found[side].append(fastest(runs[side], counts[side]))
    return found


def quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def difference(a: list[Array], b: list[Array]) -> float:
    """The largest difference of outputs, as a part of the largest magnitude."""
    parts = [
        float(np.abs(x.astype(np.float64) - y).max() / max(float(np.abs(x.astype(np.float64)).max()), 1e-9))
        for x, y in zip(a, b, strict=True)
        if x.size
    ]
    return max(parts, default=0.0)


def compared(source: Path, folder: Path, rounds: int, options: dict[str, Any]) -> dict[str, Any]:
    """One model: both sides."""
    plain = source
    if source.suffix == ".tflite":
        plain = folder / "plain.onnx"
        relayout.convert(source).save(plain)
    begun = time.process_time()
    result = relayout.convert(source, target=TARGET, **options)
    row: dict[str, Any] = {"model": source.stem, "seconds": time.process_time() - begun}
    row |= {"proved": result.report.proved, "notes": list(result.report.notes)}
    result.save(folder / "converted.onnx")
    sides = {SIDES[0]: plain, SIDES[1]: folder / "converted.onnx"}
    sessions = {side: opened(str(path), folder / f"{path.stem}.run.onnx") for side, path in sides.items()}
    feed = fed(sessions[SIDES[0]])
    for side, path in sides.items():
        row[side] = moved(folder / f"{path.stem}.run.onnx", feed)
    first, second = (sessions[side].run(None, feed) for side in SIDES)
    row["difference"] = difference(first, second)
    times = measured([lambda session=session: session.run(None, feed) for session in sessions.values()], rounds)
    for side, found in zip(SIDES, times, strict=True):
        row[side]["milliseconds"] = statistics.median(found)
    row["ratio"] = quartiles([after / before for before, after in zip(*times, strict=True)])
    return row


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}" if count else "0"


def page(rows: list[dict[str, Any]]) -> str:
    """The table, in Markdown."""
    lines = []
    for row in rows:
        if "why" in row:
            lines.append([row["model"], row["why"], *[""] * 10])
            continue
        cells = [row["model"]]
        for side in SIDES:
            found = row[side]
            cells += [str(found["transposes"]), megabytes(found["transposed"])]
            cells += [str(found["reorders"]), megabytes(found["reordered"]), f"{found['milliseconds']:.2f}"]
        low, middle, high = row["ratio"]
        lines.append([*cells, f"{middle:.3f} ({low:.3f}-{high:.3f})"])
    return table(["model", *["Transposes", "MB", "reorders", "MB", "ms"] * 2, "ratio"], lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--options", nargs="*", default=[], help="of relayout.convert, values as JSON")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--again", type=Path)
    given = parser.parse_args()
    if given.again:
        print(page(json.loads(given.again.read_text(encoding="utf-8"))["rows"]))
        return
    options = {key: json.loads(value) for key, _, value in (option.partition("=") for option in given.options)}
    rows = []
    for model in given.models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows.append(compared(model, Path(folder), given.rounds, options))
            except Exception as error:
                rows.append({"model": model.stem, "why": str(error).splitlines()[0][:200]})
        print(page(rows[-1:]).splitlines()[-1], flush=True)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        said = {"runtime": onnxruntime.__version__, "options": options, "rows": rows}
        (given.out / "target_cpu.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
        (given.out / "target_cpu.md").write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
