"""Count the networks that LiteRT's GPU accelerator takes as a whole and computes right.

    python bench/gpu.py [--limit SECONDS] [--out gpu.json] [--page docs/gpu-benchmark.md] MODELS ...

MODELS are .onnx files or folders of them; each is converted for `litert-gpu` and for the default target. The
accelerator runs on a GPU, or on SwiftShader (Debian's `chromium`). Inputs and outputs of int64 become such of int32 in
both files. Both files also run on the CPU, turn by turn. Rows that `gpu.json` has of an earlier run are kept; `--page`
alone only writes the page.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

import relayout
from relayout.verification.litert_gpu import GpuVerdict, Judge

LIMIT_SECONDS = 120.0
CONVERSION_SECONDS = 120
SOLVER_SECONDS = 20
DEFAULT, GPU = "litert", "litert-gpu"
TIMING = """
import sys, time
from ai_edge_litert.interpreter import Interpreter
import numpy as np
runs = []
for path in sys.argv[1:]:
    it = Interpreter(model_path=path, num_threads=1); it.allocate_tensors()
    rng = np.random.default_rng(0)
    for d in it.get_input_details():
        real = np.issubdtype(d["dtype"], np.floating)
        x = rng.standard_normal(d["shape"]) if real else rng.integers(0, 2, d["shape"])
        it.set_tensor(d["index"], x.astype(d["dtype"]))
    it.invoke(); runs.append(it)
best = [1e9] * len(runs)
end = time.perf_counter() + 1
while time.perf_counter() < end:
    for place, it in enumerate(runs):
        begin = time.process_time(); it.invoke(); best[place] = min(best[place], time.process_time() - begin)
print(*best)
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
    return {"operators": sum((made.report.operators or {}).values()), "bytes": made.report.bytes, "claims": lines}


def outcome(verdict: GpuVerdict) -> str:
    """Return what came of a file."""
    if verdict.is_right:
        return "right"
    if not verdict.is_whole:
        return "not run in time" if verdict.problem.startswith("no answer") else "not whole"
    return "numbers off" if not verdict.problem else "not run"


def row_of(source: Path, folder: Path, judge: Judge) -> Row:
    """Convert one network for both targets, ask the accelerator, and time both files on the CPU."""
    row: Row = {"network": source.stem}
    files = []
    for target in (DEFAULT, GPU):
        file = folder / f"{target}.tflite"
        signal.alarm(CONVERSION_SECONDS)
        try:
            facts = converted(source, file, target)
        except (LateError, relayout.RelayoutError) as error:
            row[target] = {"outcome": "not converted", "reasons": [str(error)[:200]]}
            continue
        finally:
            signal.alarm(0)
        verdict = judge.ask(file)
        row[target] = {
            "outcome": outcome(verdict),
            "difference": verdict.difference,
            "reasons": [
                *verdict.reasons[:6],
                *([verdict.problem[:120]] if verdict.problem and not verdict.reasons else []),
            ],
            "seconds": verdict.seconds,
            **facts,
        }
        files.append(str(file))
    if len(files) == 2:
        try:
            done = subprocess.run(
                [sys.executable, "-c", TIMING, *files], capture_output=True, text=True, timeout=60, check=True
            )
            row["cpu"] = [float(each) for each in done.stdout.split()]
        except (subprocess.SubprocessError, ValueError):
            pass
    return row


def _late(*_: object) -> None:
    raise LateError("no result in time")


def listed(names: Sequence[str]) -> list[Path]:
    """Return the models of files and folders."""
    places = [Path(name) for name in names]
    return [file for place in places for file in (sorted(place.glob("*.onnx")) if place.is_dir() else [place])]


def page(rows: Sequence[Row]) -> str:
    """Return the page."""
    count = {target: Counter(row[target]["outcome"] for row in rows) for target in (DEFAULT, GPU)}
    total = len(rows)
    ratios = [row["cpu"][1] / row["cpu"][0] for row in rows if "cpu" in row]
    kinds = ("right", "numbers off", "not whole", "not run in time", "not run", "not converted")
    taken = (
        f"LiteRT's GPU accelerator takes a network as a whole or not at all. Of {total} exported networks it takes"
        f" {count[GPU]['right']} as `--target litert-gpu` writes them, and computes what LiteRT's CPU kernels compute."
        f" Of the files of the default target it takes {count[DEFAULT]['right']}."
    )
    lines = [
        "# Whole on the GPU, measured",
        "",
        "<!-- made by bench/gpu.py -->",
        "",
        taken,
        "",
        "| files | " + " | ".join(kinds) + " |",
        "|---|" + "---:|" * len(kinds),
    ]
    for target in (DEFAULT, GPU):
        lines.append(f"| `{target}` | " + " | ".join(str(count[target][kind]) for kind in kinds) + " |")
    lines += [
        "",
        "*Right* means that no output differs by more than 0.5 % of its largest number, with the accelerator computing"
        " in float32. The networks are made from configurations with random weights, with inputs of 64 to 224 pixels or"
        " 16 to 64 tokens. Inputs and outputs of int64 are int32 in both files (`--input-type int32`).",
        "",
        "The accelerator is that of ai-edge-litert 2.3 for Linux, over WebGPU, on SwiftShader. Phones have the same"
        " graph compiler over OpenCL or OpenGL, which differs in places: it takes some operators that WebGPU does not,"
        " and rounds otherwise. Times on SwiftShader say nothing of a phone's.",
        "",
    ]
    if ratios:
        lines += [
            f"On the CPU these files take {statistics.median(ratios):.2f} of the processor time of the default target's"
            f" files in the median, and {max(ratios):.2f} at most ({len(ratios)} networks, one thread).",
            "",
        ]
    lines += [
        "## Networks",
        "",
        "| network | `litert` | `litert-gpu` | difference | CPU time |",
        "|---|---|---|---:|---:|",
    ]
    for row in sorted(rows, key=lambda row: str(row["network"])):
        gpu, difference = row[GPU], row[GPU].get("difference")
        ratio = f"{row['cpu'][1] / row['cpu'][0]:.2f}" if "cpu" in row else ""
        shown = "" if difference is None else f"{difference:.0e}"
        lines.append(f"| {row['network']} | {row[DEFAULT]['outcome']} | {gpu['outcome']} | {shown} | {ratio} |")
    left = [row for row in rows if row[GPU]["outcome"] != "right"]
    if left:
        lines += ["", "## What is not taken", "", "| network | reason |", "|---|---|"]
        for row in left:
            reasons = "; ".join(row[GPU].get("reasons", [])[:3]).replace("|", "/").replace("\n", " ")
            lines.append(f"| {row['network']} | {reasons[:200]} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_SECONDS, help="seconds that the accelerator gets for a file"
    )
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    rows: list[Row] = json.loads(options.out.read_text()) if options.out.exists() else []
    signal.signal(signal.SIGALRM, _late)
    with tempfile.TemporaryDirectory() as scratch, Judge(options.limit) as judge:
        for source in listed(options.models):
            if any(row["network"] == source.stem for row in rows):
                continue
            row = row_of(source, Path(scratch), judge)
            rows.append(row)
            options.out.write_text(json.dumps(rows, indent=1))
            print(
                row["network"], *(row[target]["outcome"] for target in (DEFAULT, GPU)), row.get("cpu", ""), flush=True
            )
            if row[GPU]["outcome"] != "right":
                print(
                    "   ",
                    row[GPU].get("reasons"),
                    row[GPU].get("difference"),
                    row[GPU].get("claims", [])[:3],
                    flush=True,
                )
    if options.page:
        options.page.write_text(page(rows))


if __name__ == "__main__":
    main()
