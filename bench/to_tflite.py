"""Compare ONNX -> .tflite by relayout with onnx2tf: numerics, transposed bytes, operators, size, time, memory, latency.

    python bench/to_tflite.py --onnx2tf PYTHON [--latency ROUNDS] [--out DIRECTORY] [--page PAGE.md] MODELS ...

MODELS are files or folders. `--onnx2tf` (or ONNX2TF_PYTHON) is a Python of an environment of its own that has onnx2tf:

    python3.12 -m venv onnx2tf && onnx2tf/bin/pip install onnx2tf==2.6.9

Models with open extents are left out. Each tool runs in a process of its own, on a copy of the model, since onnx2tf
overwrites its input. One judge (`bench/judge_tflite.py`) runs and counts all results. `--keep` leaves out the models
that DIRECTORY has of an earlier run; `--again TO_TFLITE.json` only writes the page of one. `--readme README.md` puts
the run's sentence there.

This file imports nothing heavy: a child's peak memory counts from what its parent held.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from processes import HERE, answer, digest, last_line, measure, models, processor, record, versions
from tables import write_page
from to_tflite_page import CONVERT, KEEP, PEER, headlines, page, with_sentence

LIMIT_SECONDS = 240
PACKAGES = ("onnx-relayout", "onnxruntime", "ai-edge-litert", "onnx")

Row = dict[str, Any]


def command_of(tool: str, options: argparse.Namespace, source: Path, result: Path) -> list[str]:
    if tool != PEER:
        io = "keep" if tool == KEEP else "convert"
        return [options.python, "-m", "relayout", "convert", str(source), str(result), "--io", io, "--json"]
    # onnx2tf calls onnxsim by name, so its environment must be on PATH.
    path = os.pathsep.join([str(Path(options.onnx2tf).absolute().parent), os.environ.get("PATH", "")])
    python = [str(Path(options.onnx2tf).absolute()), "-m", "onnx2tf"]
    return ["env", f"PATH={path}", *python, "-i", str(source), "-o", str(result.with_suffix("")), "-n"]


def converted(tool: str, options: argparse.Namespace, model: Path, scratch: Path) -> tuple[Row, Path]:
    """Convert a copy of the model with one tool; `why` says why there is no result."""
    folder = scratch / tool.replace(" ", "_").replace("--", "")
    folder.mkdir()
    source, result, log = folder / model.name, folder / "result.tflite", folder / "log"
    shutil.copy(model, source)
    done = measure(command_of(tool, options, source, result), log, LIMIT_SECONDS)
    if tool == PEER:
        written = result.with_suffix("") / f"{source.stem}_float32.tflite"
        if written.exists():
            written.rename(result)
    row: Row = {"processor": done.processor, "wall": done.wall, "peak": done.peak_mb}
    if done.code or not result.exists():
        late = f"more than {LIMIT_SECONDS} s"
        return row | {"why": late if done.code == 124 else reason(log) or f"exit {done.code}"}, result
    row["megabytes"] = result.stat().st_size / 1e6
    if tool != PEER:
        report = json.loads(log.read_text())
        row |= {name: report[name] for name in ("bytes", "lower_bound", "proved")}
        row = {("reported" if name == "bytes" else name): value for name, value in row.items()}
        row["layouts"] = {each["name"]: each["layout"] for each in report["interface"] if "->" in each["layout"]}
    return row, result


def reason(log: Path) -> str:
    """Return the line that names an error, or the last line."""
    lines = [line.strip() for line in log.with_name("log.err").read_text(errors="replace").splitlines()]
    return next((line[:300] for line in lines if line.lower().startswith("error")), last_line(log))


def asked(options: argparse.Namespace, task: list[str], rows: dict[str, Row], results: dict[str, Path]) -> Row:
    """Ask the judge about some results."""
    named = [
        f"{path}={json.dumps(rows[tool]['layouts'])}" if rows[tool].get("layouts") else str(path)
        for tool, path in results.items()
    ]
    return answer(options.python, "judge_tflite.py", *task, *named, limit=LIMIT_SECONDS)


def judge(options: argparse.Namespace, model: Path, rows: dict[str, Row], results: dict[str, Path]) -> bool | None:
    """Put the verdicts into the rows; return whether the model is quantized, None where it does not run.

    A result that brings the judge down is judged by itself, and does not run.
    """
    task = ["judge", str(model)]
    found = asked(options, task, rows, results)
    if "why" not in found:
        for tool, path in results.items():
            rows[tool] |= found["results"][str(path)]
        return bool(found["quantized"])
    alone = asked(options, task, rows, {})
    if "why" in alone:
        return None
    for tool, path in results.items():
        found = asked(options, task, rows, {tool: path})
        fault = {"verdict": "does not run", "why": found.get("why")}
        rows[tool] |= (
            {"kernels": {"default": fault, "reference": fault}} if "why" in found else found["results"][str(path)]
        )
    return bool(alone["quantized"])


def one(model: Path, options: argparse.Namespace) -> Row:
    tools = [KEEP, CONVERT, *([PEER] if options.onnx2tf else [])]
    found: Row = {"model": model.name.removesuffix(".onnx"), "sha256": digest(model)}
    found["megabytes"] = model.stat().st_size / 1e6
    with tempfile.TemporaryDirectory() as name:
        made = {tool: converted(tool, options, model, Path(name)) for tool in tools}
        rows = {tool: row for tool, (row, _) in made.items()}
        results = {tool: path for tool, (row, path) in made.items() if "why" not in row}
        found["quantized"] = judge(options, model, rows, results)
        running = {tool: path for tool, path in results.items() if verdict(rows[tool]) not in ("does not run", None)}
        if options.latency and found["quantized"] is not None:
            times = asked(options, ["time", str(options.latency), str(model)], rows, running)
            if "why" not in times:
                found["source_ms"] = times[str(model)]
                for tool, path in running.items():
                    rows[tool]["ms"] = times[str(path)]
    for row in rows.values():
        row.pop("layouts", None)
        for told in (row, *row.get("kernels", {}).values()):
            if "why" in told:
                told["why"] = str(told["why"]).replace(name, "").replace(str(HERE.parent), "")
    return found | {"tools": rows}


def verdict(row: Row) -> str | None:
    return row["kernels"]["default"]["verdict"] if "kernels" in row else None


def measured(options: argparse.Namespace) -> Row:
    """Measure every model; after each one, what is known is written."""
    file = options.out / "to_tflite.json"
    kept = json.loads(file.read_text())["models"] if options.keep and file.exists() else []
    known = {each["sha256"]: each for each in kept}
    paths = [str(path) for path in models(options.paths, ".onnx")]
    static = answer(options.python, "judge_tflite.py", "static", *paths)
    if not isinstance(static, list):
        sys.exit(f"{static['why']}: the models cannot be read")
    used = versions(options.python, *PACKAGES)
    used |= versions(options.onnx2tf, "onnx2tf") if options.onnx2tf else {}
    found: Row = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "versions": used,
        "processor": processor(),
        "left_out": len(paths) - len(static),
        "models": [],
    }
    for path in map(Path, static):
        again = known.get(digest(path))
        found["models"].append(again or one(path, options))
        record(options.out, "to_tflite", found, page(found), headlines(found))
        states = {tool: verdict(row) or row.get("why", "")[:60] for tool, row in found["models"][-1]["tools"].items()}
        print(path.stem, states, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--python", default=os.environ.get("RELAYOUT_PYTHON", sys.executable))
    parser.add_argument("--onnx2tf", default=os.environ.get("ONNX2TF_PYTHON"))
    parser.add_argument("--latency", type=int, default=0, metavar="ROUNDS")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--readme", type=Path, help="where one sentence is written anew")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--again", type=Path, metavar="TO_TFLITE.json")
    options = parser.parse_args()
    found = json.loads(options.again.read_text()) if options.again else measured(options)
    if options.page:
        write_page(options.page, page(found))
    if options.readme:
        options.readme.write_text(with_sentence(options.readme.read_text(encoding="utf-8"), found), encoding="utf-8")
    print(headlines(found))


if __name__ == "__main__":
    main()
