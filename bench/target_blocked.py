"""Compare kernels for blocks of channels that are written ahead of time with those that ONNX Runtime makes itself.

    python bench/target_blocked.py [--rounds 30] --out DIRECTORY MODEL.onnx ...

Five sides take turns on one thread, as in `bench/target_cpu.py`: the source at full optimization, the results of
`--target onnxruntime-cpu` and of `--target onnxruntime-cpu-nchwc` at full optimization, and the latter and the source
at basic optimization, where ONNX Runtime makes no blocks. A ratio is the median of rounds, over the first side.
Starting is the median processor time of opening a session of each. Outputs are held to the source's, unoptimized.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from tables import table
from target_cpu import REORDERS, difference, fed, measured, options_of, quartiles

import relayout

LEVELS = onnxruntime.GraphOptimizationLevel
FULL, BASIC, NONE = LEVELS.ORT_ENABLE_ALL, LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_DISABLE_ALL
BLOCKED = "onnxruntime-cpu-nchwc"
SIDES = {"source": FULL, "onnxruntime-cpu": FULL, BLOCKED: FULL, f"{BLOCKED}, basic": BASIC, "source, basic": BASIC}
STARTS = 5


def session(path: Path, level: LEVELS, saved: Path | None = None) -> onnxruntime.InferenceSession:
    options = options_of(level)
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def starting(path: Path, level: LEVELS) -> float:
    """Milliseconds of processor time that it takes to open a session."""
    found = []
    for _ in range(STARTS):
        begun = time.process_time_ns()
        session(path, level)
        found.append((time.process_time_ns() - begun) / 1e6)
    return statistics.median(found)


def reorders(path: Path) -> int:
    return sum(node.op_type in REORDERS for node in onnx.load(path).graph.node)


def compared(source: Path, folder: Path, rounds: int) -> dict[str, Any]:
    """One model: all sides."""
    paths = {"source": source}
    for name in ("onnxruntime-cpu", BLOCKED):
        result = relayout.convert(source, target=name)
        paths[name] = folder / f"{name}.onnx"
        result.save(paths[name])
    row: dict[str, Any] = {"model": source.stem, "notes": list(result.report.notes), "proved": result.report.proved}
    files = {side: paths[side.partition(",")[0]] for side in SIDES}
    ran = {side: session(files[side], level, folder / f"{side}.run.onnx") for side, level in SIDES.items()}
    feed = fed(ran["source"])
    want = session(source, NONE).run(None, feed)
    times = measured([lambda one=one: one.run(None, feed) for one in ran.values()], rounds)
    for side, level, found in zip(SIDES, SIDES.values(), times, strict=True):
        row[side] = {
            "milliseconds": statistics.median(found),
            "ratio": quartiles([one / first for one, first in zip(found, times[0], strict=True)]),
            "start": starting(files[side], level),
            "reorders": reorders(folder / f"{side}.run.onnx"),
            "difference": difference(want, ran[side].run(None, feed)),
        }
    kernels = Counter(node.domain for node in onnx.load(paths[BLOCKED]).graph.node)
    return row | {"blocked": kernels["com.microsoft.nchwc"]}


def page(rows: list[dict[str, Any]]) -> str:
    """The table, in Markdown: ratios over the source at full optimization, reorders, milliseconds to start."""
    head = ["model", "ms", "reorders", "`onnxruntime-cpu`", "`-nchwc`", "reorders", "`-nchwc`, basic", "source, basic"]
    lines = []
    for row in rows:
        if "why" in row:
            lines.append([row["model"], row["why"], *[""] * 9])
            continue
        first, plain, blocked, basic, worst = (row[side] for side in SIDES)
        cells = [f"{first['milliseconds']:.2f}", str(first["reorders"]), f"{plain['ratio'][1]:.3f}"]
        low, middle, high = blocked["ratio"]
        cells += [f"{middle:.3f} ({low:.3f}-{high:.3f})", str(blocked["reorders"])]
        cells += [f"{basic['ratio'][1]:.3f}", f"{worst['ratio'][1]:.3f}"]
        cells += [f"{side['start']:.0f}" for side in (first, blocked, basic)]
        lines.append([row["model"], *cells])
    return table([*head, "start, ms", "`-nchwc`", "`-nchwc`, basic"], lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for model in given.models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows.append(compared(model, Path(folder), given.rounds))
            except Exception as error:
                rows.append({"model": model.stem, "why": str(error).splitlines()[0][:200]})
        print(page(rows[-1:]).splitlines()[-1], flush=True)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        said = {"runtime": onnxruntime.__version__, "rows": rows}
        (given.out / "target_blocked.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
        (given.out / "target_blocked.md").write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
