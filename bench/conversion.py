"""Compare converters from .tflite to ONNX: time, memory, Transposes left, numerics.

    python bench/conversion.py --peers PYTHON [--repeats 3] [--out DIRECTORY] MODEL.tflite ...

`--peers` (or PEERS_PYTHON) is a Python that has tflite2onnx and tf2onnx; `--python` (or RELAYOUT_PYTHON) one that has
relayout with its `verify` extra, by default this one. Every conversion runs in a process of its own, and the converters
take turns. Time is the median of the repeats, memory the largest.

This file imports nothing heavy: a child's peak memory counts from what its parent held.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 600
JUDGE = Path(__file__).with_name("judge.py")
TFLITE2ONNX = "import sys, tflite2onnx; tflite2onnx.convert(*sys.argv[1:3])"
TF2ONNX_NCHW = """
import sys
import tensorflow as tf
from tf2onnx import convert
model = tf.lite.Interpreter(sys.argv[1])
ins, outs = ([put["name"] for put in puts if len(put["shape"]) == 4] or None
             for puts in (model.get_input_details(), model.get_output_details()))
convert.from_tflite(sys.argv[1], opset=18, inputs_as_nchw=ins, outputs_as_nchw=outs, output_path=sys.argv[2])
"""
# Whose interface is the same: NHWC as in the source, or NCHW.
ALIKE = {"tflite2onnx": "relayout --io convert", "tf2onnx": "relayout", "tf2onnx nchw": "relayout --io convert"}


@dataclass
class Row:
    """One model by one converter."""

    model: str
    converter: str
    seconds: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    converted: bool = False
    why: str = ""
    verdict: dict[str, Any] = field(default_factory=dict)


def converters(python: str, peers: str | None) -> dict[str, list[str]]:
    """Converter -> the command that takes IN and OUT as its last two arguments."""
    ours = [python, "-m", "relayout", "convert"]
    known = {"relayout": ours, "relayout --io convert": [*ours, "--io", "convert"]}
    if peers:
        known["tflite2onnx"] = [peers, "-c", TFLITE2ONNX]
        known["tf2onnx"] = [peers, "-m", "tf2onnx.convert", "--opset", "18", "--tflite"]
        known["tf2onnx nchw"] = [peers, "-c", TF2ONNX_NCHW]
    return known


def command(name: str, start: list[str], source: Path, result: Path) -> list[str]:
    return [*start, str(source), *(["--output"] if name == "tf2onnx" else []), str(result)]


def measure(arguments: list[str], log: Path) -> tuple[int, float, float]:
    """Exit status, wall seconds and peak MB of one process."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    begun = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["timeout", str(LIMIT_SECONDS), *arguments],
            stdout=out,
            stderr=out,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, time.perf_counter() - begun, usage.ru_maxrss / 1024


def judged(python: str, source: Path, result: Path) -> dict[str, Any]:
    done = subprocess.run([python, str(JUDGE), str(source), str(result)], capture_output=True, text=True)
    if done.returncode:
        return {"why": f"judge: {(done.stderr.strip().splitlines() or [f'exit {done.returncode}'])[-1][:300]}"}
    verdict: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return verdict


def run(files: list[Path], python: str, peers: str | None, repeats: int) -> list[Row]:
    known = converters(python, peers)
    rows = {(file, name): Row(file.stem, name) for file in files for name in known}
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        for repeat in range(repeats):
            for (file, name), row in rows.items():
                result = Path(scratch, "result.onnx")
                result.unlink(missing_ok=True)
                code, seconds, peak = measure(command(name, known[name], file, result), log)
                row.seconds.append(seconds)
                row.peak_mb.append(peak)
                if repeat:
                    continue
                row.converted = code == 0 and result.exists()
                if row.converted:
                    row.verdict = judged(python, file, result)
                else:
                    lines = log.read_text(errors="replace").strip().splitlines()
                    row.why = lines[-1][:300] if lines else f"exit {code}"
                print(f"{row.model}: {name}: {seconds:.2f} s {row.why or row.verdict}", file=sys.stderr)
    return list(rows.values())


def table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---" if place < 2 else "---:" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *lines])


def right(row: Row) -> bool:
    return row.verdict.get("numerics") in ("ok", "noise")


def summary(rows: list[Row]) -> str:
    """One line a converter: what it does, and what it costs."""
    lines = []
    for name in dict.fromkeys(row.converter for row in rows):
        own = [row for row in rows if row.converter == name]
        done = [row for row in own if row.converted]
        seconds = f"{statistics.median(statistics.median(row.seconds) for row in done):.2f}" if done else ""
        peak = f"{statistics.median(max(row.peak_mb) for row in done):.0f}" if done else ""
        drift = sum(row.verdict.get("numerics") == "drift" for row in own)
        counts = [len(own), len(done), sum(bool(row.verdict.get("runs")) for row in own), sum(map(right, own)), drift]
        lines.append([name, *map(str, counts), seconds, peak])
    return table(["converter", "models", "converted", "run", "right", "drift", "median s", "median peak MB"], lines)


def duels(rows: list[Row]) -> str:
    """Transposes left, on the models that a peer and relayout with the same interface both get right."""
    good = {(row.converter, row.model): row.verdict for row in rows if right(row)}
    lines = []
    for peer, ours in ALIKE.items():
        both = [model for name, model in good if name == peer and (ours, model) in good]
        cells = [
            f"{sum(good[name, model]['transposes'] for model in both)} / "
            f"{sum(good[name, model]['bytes'] for model in both) / 1e6:.3f}"
            for name in (peer, ours)
        ]
        lines.append([peer, ours, str(len(both)), *cells])
    return table(["peer", "against", "models", "peer: Transposes / MB", "relayout: Transposes / MB"], lines)


def details(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        verdict = row.verdict
        moved = [
            str(verdict.get("transposes", "")),
            f"{verdict['bytes'] / 1e6:.3f}" if verdict.get("bytes") is not None else "",
        ]
        state = verdict.get("numerics") or ("does not run" if row.converted else "not converted")
        cost = [f"{statistics.median(row.seconds):.2f}", f"{max(row.peak_mb):.0f}"]
        lines.append([row.model, row.converter, state, *cost, *moved])
    return table(["model", "converter", "result", "s", "peak MB", "Transposes", "MB transposed"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--python", default=os.environ.get("RELAYOUT_PYTHON", sys.executable))
    parser.add_argument("--peers", default=os.environ.get("PEERS_PYTHON"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    rows = run(options.files, options.python, options.peers, options.repeats)
    options.out.mkdir(parents=True, exist_ok=True)
    Path(options.out, "tflite.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    text = f"{summary(rows)}\n\n{duels(rows)}\n\n{details(rows)}\n"
    Path(options.out, "tflite.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
