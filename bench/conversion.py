"""Compare converters from .tflite to ONNX: what they convert, numerics, Transposes left, time, memory, latency.

    python bench/conversion.py --peers PYTHON [--out DIRECTORY] [--page PAGE.md] [--keep peers|all] [--fork] PATH ...

A PATH is a .tflite file, or a folder that is searched for them. `--peers` (or PEERS_PYTHON) is a Python that has
tflite2onnx and tf2onnx; `--python` (or RELAYOUT_PYTHON) one that has relayout with its `verify` extra, by default this
one. Every conversion runs in a process of its own, and the converters take turns. Time is the median of the repeats,
memory the largest; imports and start are part of both. With `--fork` a converter is imported once and forked for each
model: much faster on many small models, and without figures of time and memory.

DIRECTORY gets a JSON file for every model, the ONNX files, and the tables as `conversion.md` and `.json`; PAGE is
the page of the documentation. `--keep peers` takes the peers' rows, `--keep all` every row, from what an earlier run
left there for the same file; `--part 1/2` runs half of the models, for two runs side by side. `--twice` judges once
more what is not right, or seems slower than a peer's or with the target than without, and takes the mean of the two
latencies.

This file imports nothing heavy: a child's peak memory counts from what its parent held.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmark_page import TARGETED, headlines, page, suspect
from processes import (
    ENVIRONMENT,
    HERE,
    LIMIT_SECONDS,
    Measured,
    digest,
    last_line,
    measure,
    models,
    processor,
    versions,
)
from processes import record as write_all
from tables import write_page

OURS = {"relayout": [], "relayout --io convert": ["--io", "convert"], TARGETED: ["--target", "onnxruntime-cpu"]}
NCHW = """
def ends(puts):
    return [put["name"] for put in puts if len(put["shape"]) == 4] or None
model = tf.lite.Interpreter(sys.argv[1])
convert.from_tflite(sys.argv[1], opset=18, inputs_as_nchw=ends(model.get_input_details()),
                    outputs_as_nchw=ends(model.get_output_details()), output_path=sys.argv[2])
"""


@dataclass
class Tool:
    """Python code that finds its arguments in `sys.argv[1:]`: imports, then a call; before forks, `preload`, too."""

    python: str
    imports: str
    call: str
    preload: str = ""
    limit: int = LIMIT_SECONDS
    server: subprocess.Popen[str] | None = None

    def run(self, arguments: list[str], log: Path, fork: bool) -> Measured:
        """A process of its own, or a fork, of which only the exit status is known."""
        if fork:
            return self._forked(arguments, log)
        return measure([self.python, "-c", f"{self.imports}\n{self.call}", *arguments], log, self.limit)

    def _forked(self, arguments: list[str], log: Path) -> Measured:
        if self.server is None:
            self.server = subprocess.Popen(
                [self.python, str(HERE / "forking.py"), f"{self.imports}\n{self.preload}", self.call],
                text=True,
                env=ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        job = {"argv": ["job", *arguments], "log": str(log), "limit": self.limit}
        print(json.dumps(job), file=self.server.stdin, flush=True)
        answer = json.loads(self.server.stdout.readline())
        return Measured(answer["code"], answer["seconds"], 0, 0)


def tools(python: str, peers: str | None, nchw: bool) -> dict[str, Tool]:
    """Converter -> the tool that takes IN and OUT."""
    ours = "import sys\nfrom relayout.cli import main"
    known = {
        name: Tool(
            python, ours, f"sys.argv[1:1] = {['convert', '--json', *options]}\nmain()", "import relayout.pipeline"
        )
        for name, options in OURS.items()
    }
    if peers:
        small, large = "import sys, tflite2onnx", "import sys\nimport tensorflow as tf\nfrom tf2onnx import convert"
        command = "sys.argv[1:] = ['--opset', '18', '--tflite', sys.argv[1], '--output', sys.argv[2]]\nconvert.main()"
        known["tflite2onnx"] = Tool(peers, small, "tflite2onnx.convert(*sys.argv[1:3])")
        known["tf2onnx"] = Tool(peers, large, command)
        if nchw:
            known["tf2onnx nchw"] = Tool(peers, large, NCHW)
    return known


def judge_of(python: str) -> Tool:
    return Tool(python, f"import sys\nsys.path.insert(0, {str(HERE)!r})\nimport judge", "judge.main(sys.argv[1:])")


@dataclass
class Row:
    """One model by one converter."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    megabytes: float = 0.0
    converted: bool = False
    why: str = ""
    proved: bool | None = None
    verdict: dict[str, Any] = field(default_factory=dict)


def convert(name: str, tool: Tool, source: Path, result: Path, options: argparse.Namespace) -> Row:
    row, log = Row(), result.with_suffix(".log")
    for _ in range(options.repeats):
        result.unlink(missing_ok=True)
        done = tool.run([str(source), str(result)], log, options.fork)
        row.converted = done.code == 0 and result.exists()
        if not row.converted:
            row.why = last_line(log) or f"exit {done.code}"
            break
        if not options.fork:
            row.seconds.append(round(done.wall, 3))
            row.processor.append(round(done.processor, 3))
            row.peak_mb.append(round(done.peak_mb, 1))
        row.megabytes = result.stat().st_size / 1e6
        if name in OURS:
            row.proved = bool(json.loads(log.read_text())["proved"])
    return row


def judged(judge: Tool, source: Path, results: dict[str, Path], log: Path, fork: bool) -> dict[str, Any]:
    """Converter -> verdict, and `LiteRT` -> milliseconds of the source itself."""
    code = judge.run([str(source), *map(str, results.values())], log, fork).code
    if code:
        return {name: {"why": f"judge: {last_line(log) or code}"} for name in results} | {"LiteRT": None}
    found = json.loads(log.read_text().strip().splitlines()[-1])
    return dict(zip(results, found["verdicts"], strict=True)) | {"LiteRT": found["litert_ms"]}


def one(path: Path, known: dict[str, Tool], judge: Tool, options: argparse.Namespace) -> dict[str, Any]:
    """The record of one model: what was kept from an earlier run, and the rest measured."""
    folder = options.out / path.parent.name
    folder.mkdir(parents=True, exist_ok=True)
    file, found = folder / f"{path.stem}.json", digest(path)
    results = {name: folder / f"{path.stem}.{name.replace(' ', '_')}.onnx" for name in known}
    record: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if record.get("sha256") != found or options.keep == "none":
        record = {"model": f"{path.parent.name}/{path.stem}", "sha256": found, "rows": {}}
        record["megabytes"] = path.stat().st_size / 1e6
    kept = {name for name in record["rows"] if options.keep == "all" or name not in OURS}
    if set(known) <= kept:
        return record
    rows = {name: record["rows"][name] for name in known if name in kept}
    for name, tool in known.items():
        if name not in kept:
            rows[name] = asdict(convert(name, tool, path, results[name], options))
    done = {name: results[name] for name in known if rows[name]["converted"]}
    verdicts = judged(judge, path, done, folder / f"{path.stem}.log", options.fork)
    record |= {"litert_ms": verdicts.pop("LiteRT"), "rows": {name: rows[name] for name in known}}
    record.pop("rejudged", None)
    for name, verdict in verdicts.items():
        rows[name]["verdict"] = verdict
    file.write_text(json.dumps(record, indent=1) + "\n")
    states = {name: row["why"][:60] or row["verdict"].get("numerics") for name, row in rows.items()}
    print(f"{record['model']}: {states}", file=sys.stderr, flush=True)
    return record


def judge_again(record: dict[str, Any], path: Path, judge: Tool, options: argparse.Namespace) -> None:
    """Judge once more a model that is not right or seems slower than a peer's: a busy machine gives outliers."""
    if record.get("rejudged") or not suspect(record):
        return
    folder = options.out / path.parent.name
    done = {
        name: folder / f"{path.stem}.{name.replace(' ', '_')}.onnx"
        for name, row in record["rows"].items()
        if row["converted"]
    }
    verdicts = judged(judge, path, done, folder / f"{path.stem}.log", options.fork)
    if verdicts.pop("LiteRT") is None:
        return
    for name, verdict in verdicts.items():
        before = record["rows"][name]["verdict"].get("latency")
        if before and verdict.get("latency"):
            verdict["latency"] = (before + verdict["latency"]) / 2
        record["rows"][name]["verdict"] = verdict
    record["rejudged"] = True
    (folder / f"{path.stem}.json").write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--python", default=os.environ.get("RELAYOUT_PYTHON", sys.executable))
    parser.add_argument("--peers", default=os.environ.get("PEERS_PYTHON"))
    parser.add_argument("--nchw", action="store_true", help="also tf2onnx with its inputs and outputs as NCHW")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--keep", choices=["none", "peers", "all"], default="none")
    parser.add_argument("--fork", action="store_true", help="import a converter once; no time and memory")
    parser.add_argument("--twice", action="store_true", help="judge once more what is not right or seems slow")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    known, judge = tools(options.python, options.peers, options.nchw), judge_of(options.python)
    files = models(options.paths, ".tflite")[part - 1 :: parts]
    records = [one(path, known, judge, options) for path in files]
    for record, path in zip(records, files, strict=True):
        if options.twice:
            judge_again(record, path, judge, options)
    for tool in (*known.values(), judge):
        if tool.server is not None:
            tool.server.communicate()
    if parts > 1:
        return
    used = versions(options.python, "onnxruntime", "ai-edge-litert", "onnx")
    used |= versions(options.peers, "tf2onnx", "tflite2onnx", "tensorflow-cpu", "tensorflow") if options.peers else {}
    text = page(records, used, processor())
    write_all(options.out, "conversion", {"versions": used, "models": records}, text, headlines(records))
    if options.page:
        write_page(options.page, text)
    seconds = [statistics.median(row["seconds"] or [0]) for record in records for row in record["rows"].values()]
    print(f"{len(records)} models, {sum(seconds):.0f} s of conversions")


if __name__ == "__main__":
    main()
