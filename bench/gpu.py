"""Count the networks that LiteRT's GPU accelerator takes as a whole and computes right.

    python bench/gpu.py [--files FOLDER] [--limit SECONDS] [--again] [--times] [--out gpu.json] [--page PAGE] MODELS ...

MODELS are .onnx files or folders of them, as `bench/gpu_networks.py` writes them; each is converted for `litert-gpu`
and for the default target. Beside `NAME.onnx` lie the files of other converters: `NAME.litert-torch.tflite` and
`NAME.onnx2tf.tflite`, or a `.txt` that says why there is none. The accelerator runs on a GPU, or on SwiftShader
(Debian's `chromium`). Inputs and outputs of int64 become such of int32 in both of our files.

Answers that `gpu.json` has of an earlier run are kept, but for files that were not made; `--again` asks about
`litert-gpu` again. `--times` runs all files of each network on the CPU, turn by turn, which wants a quiet machine.
`--page` writes the page.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from tables import table, write_page

import relayout
from relayout.verification.litert_gpu import GpuVerdict, Judge

LIMIT_SECONDS = 120.0
CONVERSION_SECONDS = 120
"""Processor time of one conversion."""
SOLVER_SECONDS = 20
DEFAULT, GPU = "litert", "litert-gpu"
OTHERS = ("litert-torch", "onnx2tf")
WAYS = (GPU, DEFAULT, *OTHERS)
KINDS = ("right", "numbers off", "not whole", "not run in time", "not run", "not converted")
HERE = Path(__file__).parent
TIMING = """
import json, sys, time
from ai_edge_litert.interpreter import Interpreter
import numpy as np
runs = {}
for path in sys.argv[1:]:
    try:
        it = Interpreter(model_path=path, num_threads=1); it.allocate_tensors()
        rng = np.random.default_rng(0)
        for d in it.get_input_details():
            real = np.issubdtype(d["dtype"], np.floating)
            x = rng.standard_normal(d["shape"]) if real else rng.integers(0, 2, d["shape"])
            it.set_tensor(d["index"], x.astype(d["dtype"]))
        it.invoke(); runs[path] = it
    except (ValueError, RuntimeError):
        pass
best = dict.fromkeys(runs, 1e9)
end, rounds = time.process_time() + 0.7, 0
while time.process_time() < end or rounds < 3:
    rounds += 1
    for path, it in runs.items():
        begin = time.process_time(); it.invoke(); best[path] = min(best[path], time.process_time() - begin)
print(json.dumps(best))
"""
Row = dict[str, Any]


class LateError(Exception):
    """A conversion takes too long."""


def converted(source: Path, result: Path, target: str) -> Row:
    """Convert a model, and return what the report says of the target."""
    graph = onnx.load(source, load_external_data=False).graph
    kinds = [{value.type.tensor_type.elem_type for value in ends} for ends in (graph.input, graph.output)]
    read, written = ("int32" if onnx.TensorProto.INT64 in each else None for each in kinds)
    made = relayout.convert(
        str(source),
        format="tflite",
        target=target,
        time_limit=SOLVER_SECONDS,
        input_type=read,
        output_type=written,
    )
    made.save(result, overwrite=True)
    claims = made.report.claims
    lines = [] if claims is None else list(claims.lines(0))
    facts = {"operators": sum((made.report.operators or {}).values()), "bytes": made.report.bytes, "claims": lines}
    return facts | ({"verified": relayout.verify(str(source), str(result)).ok} if target == GPU else {})


def outcome(verdict: GpuVerdict) -> str:
    """Return what came of a file."""
    if verdict.is_right:
        return "right"
    if not verdict.is_whole:
        return "not run in time" if verdict.problem.startswith("no answer") else "not whole"
    return "numbers off" if not verdict.problem else "not run"


def file_of(source: Path, folder: Path, way: str) -> Path:
    """Return the place of a network's file."""
    return (source.parent if way in OTHERS else folder) / f"{source.stem}.{way}.tflite"


def answer(source: Path, file: Path, way: str, judge: Judge) -> Row | None:
    """Convert one network, and ask the accelerator; None where another converter was not asked."""
    facts: Row = {}
    if way in OTHERS:
        reason = file.with_suffix(".txt")
        if not file.exists():
            return {"outcome": "not converted", "reasons": [reason.read_text()]} if reason.exists() else None
    else:
        signal.setitimer(signal.ITIMER_PROF, CONVERSION_SECONDS)
        try:
            facts = converted(source, file, way)
        except (LateError, relayout.RelayoutError) as error:
            return {"outcome": "not converted", "reasons": [str(error)[:200]]}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    verdict = judge.ask(file)
    problem = [verdict.problem[:120]] if verdict.problem and not verdict.reasons else []
    return {
        "outcome": outcome(verdict),
        "difference": verdict.difference,
        "reasons": [*verdict.reasons[:6], *problem],
        "seconds": verdict.seconds,
        **facts,
    }


def times(source: Path, folder: Path) -> dict[str, float]:
    """Return way -> the least processor seconds of one run on the CPU."""
    files = {way: str(file) for way in WAYS if (file := file_of(source, folder, way)).exists()}
    try:
        done = subprocess.run(
            [sys.executable, "-c", TIMING, *files.values()], capture_output=True, text=True, timeout=60, check=True
        )
        best = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError):
        return {}
    return {way: best[file] for way, file in files.items() if file in best}


def _late(*_: object) -> None:
    raise LateError("no result in time")


def listed(names: Sequence[str]) -> list[Path]:
    """Return the models of files and folders."""
    places = [Path(name) for name in names]
    return [file for place in places for file in (sorted(place.glob("*.onnx")) if place.is_dir() else [place])]


def ratios(rows: Sequence[Row], way: str, base: str) -> list[float]:
    """Return the times of a way's files, divided by those of another's."""
    return [row["cpu"][way] / row["cpu"][base] for row in rows if {way, base} <= row.get("cpu", {}).keys()]


def page(rows: Sequence[Row]) -> str:
    """Return the page."""
    ways = [way for way in WAYS if any(way in row for row in rows)]
    count = {way: Counter(row[way]["outcome"] for row in rows if way in row) for way in ways}
    others = ", ".join(f"{count[way]['right']} of {count[way].total()} by {_shown(way)}" for way in ways if way != GPU)
    own, verified = ratios(rows, GPU, DEFAULT), sum(row[GPU].get("verified", False) for row in rows)
    lines = [
        "# Whole on the GPU, measured",
        "",
        "<!-- made by bench/gpu.py -->",
        "",
        f"LiteRT's GPU accelerator takes {count[GPU]['right']} of {len(rows)} networks as a whole, and computes them"
        f" right, if `--target litert-gpu` writes them."
        f" Of other files of these networks it takes {others}."
        f" On the CPU the files of `litert-gpu` take {statistics.median(own) if own else 1:.2f} of the time of the"
        " default target's in the median.",
        "",
        "![Networks that the GPU takes as a whole, and right](plots/gpu-benchmark.svg)",
        "",
        table(["files", *KINDS], [[_shown(way), *(str(count[way][kind]) for kind in KINDS)] for way in ways]),
        "",
        "*Right* means that no output differs from LiteRT's CPU kernels by more than 0.5 % of its largest number, with"
        " the accelerator computing in float32. The networks are made from configurations with random weights, with"
        " inputs of 64 to 224 pixels or 15 to 40 tokens (`bench/gpu_networks.py`). Inputs and outputs of int64 are"
        " int32 in our files (`--input-type int32`) and in those of litert-torch."
        f" {verified} files of `litert-gpu` agree with their ONNX source by `relayout verify`, too."
        " An empty cell: that converter was not asked.",
        "",
        "The accelerator is that of ai-edge-litert 2.3 for Linux, over WebGPU, on SwiftShader. Phones have the same"
        " graph compiler over OpenCL or OpenGL, which differs in places: it takes some operators that WebGPU does not,"
        " and rounds otherwise. Times on SwiftShader say nothing of a phone's.",
        "",
    ]
    if own:
        tail = "".join(
            f" {way}'s files take {statistics.median(found):.2f} of it in the median ({len(found)} networks)."
            for way in ways
            if way in OTHERS and (found := ratios(rows, way, DEFAULT))
        )
        slower = sum(ratio > 1.1 for ratio in own)
        lines += [
            "CPU time is a ratio to the default target's file: the fastest run of each counts, on one thread."
            f" Of {len(own)} files of `litert-gpu` {slower} take more than 1.10 of it, and {max(own):.2f} at most."
            f"{tail}",
            "",
        ]
    networks, left = [], []
    for row in sorted(rows, key=lambda row: str(row["network"])):
        difference, ratio = row[GPU].get("difference"), ratios([row], GPU, DEFAULT)
        outcomes = [row.get(way, {}).get("outcome", "") for way in ways]
        shown = "" if difference is None else f"{difference:.0e}"
        networks.append([row["network"], *outcomes, shown, f"{ratio[0]:.2f}" if ratio else ""])
        if row[GPU]["outcome"] != "right":
            reasons = "; ".join(row[GPU].get("reasons", [])[:3]).replace("|", "/").replace("\n", " ")
            left.append([row["network"], reasons[:200]])
    head = ["network", *map(_shown, ways), "difference", "CPU time"]
    lines += ["## Networks", "", table(head, networks, len(ways) + 1)]
    if left:
        lines += ["", "## What is not taken", "", table(["network", "reason"], left, 2)]
    return "\n".join(lines) + "\n"


def _shown(way: str) -> str:
    return way if way in OTHERS else f"`{way}`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_SECONDS, help="seconds that the accelerator gets for a file"
    )
    parser.add_argument("--files", type=Path, default=Path("gpu_files"), help="the folder of the files that are made")
    parser.add_argument("--out", type=Path, default=HERE / "gpu.json")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    rows: dict[str, Row] = {}
    if options.out.exists():
        rows = {row["network"]: row for row in json.loads(options.out.read_text())}
    options.files.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGPROF, _late)
    with Judge(options.limit) as judge:
        for source in listed(options.models):
            row = rows.setdefault(source.stem, {"network": source.stem})
            for way in WAYS:
                known = row.get(way, {}).get("outcome", "not converted")
                if known != "not converted" and not (way == GPU and options.again):
                    continue
                given = answer(source, file_of(source, options.files, way), way, judge)
                if given is None:
                    continue
                row[way] = given
                print(
                    source.stem, way, given["outcome"], given.get("difference"), given.get("verified", ""), flush=True
                )
                if way == GPU and given["outcome"] != "right":
                    print("   ", given["reasons"], given.get("claims", [])[:3], flush=True)
            if options.times:
                row["cpu"] = times(source, options.files)
            options.out.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    if options.page:
        write_page(options.page, page(list(rows.values())))


if __name__ == "__main__":
    main()
