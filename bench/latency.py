"""Compare latencies: relayout's results and tf2onnx's in ONNX Runtime, and the .tflite itself in LiteRT.

    python bench/latency.py --peers PYTHON [--threads 1 2] [--rounds 30] [--out DIRECTORY] PATH ...

A PATH is a model, NAME_FORMAT.tflite, or a folder that is searched for them; `latency_models.py` makes some. What
follows the last underscore of a file's name is its number format. relayout converts each twice: by default, and for
ONNX Runtime's CPU provider (`--target onnxruntime-cpu`). This Python has relayout with its `verify` extra; `--peers`
(or PEERS_PYTHON) is one that has tf2onnx.

Machines are noisy, so runtimes take turns: one round runs each of them for some milliseconds, in another order each
time, and counts its fastest inference; what is reported is the median of the rounds' ratios, with their quartiles. On
one thread, times are what the thread itself was given by the processor; on several, they are the clock's, and mean
something on an idle machine only. ONNX Runtime optimizes fully and stops spinning between runs, or it would take time
from the others; LiteRT uses XNNPACK, as by default.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from counting import in_full
from processes import last_line, measure, models, record
from tables import table

import relayout

LITERT, OURS, TARGETED, PEER = "LiteRT", "relayout", "with target", "tf2onnx"
RUNTIMES, RESULTS = (LITERT, OURS, TARGETED, PEER), (OURS, TARGETED, PEER)
PAIRS = ((OURS, LITERT), (TARGETED, LITERT), (PEER, LITERT), (TARGETED, OURS), (OURS, PEER))
TURN_SECONDS = 0.04
"""How long a runtime runs before it is another's turn, at least three inferences."""

Run = Callable[[], list[np.ndarray]]


@dataclass
class Row:
    """One model on so many threads: milliseconds of each round, by runtime; the error against LiteRT's result."""

    model: str
    format: str
    threads: int
    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    def ratio(self, one: str, other: str) -> tuple[float, float, float] | None:
        """Lower quartile, median and upper quartile of the rounds' ratios."""
        if one not in self.milliseconds or other not in self.milliseconds:
            return None
        ratios = [a / b for a, b in zip(self.milliseconds[one], self.milliseconds[other], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        return low, middle, high


def feeds(details: list[dict[str, Any]]) -> list[np.ndarray]:
    """An input of each kind: normal for floats, any integer otherwise."""
    rng = np.random.default_rng(0)
    made = []
    for one in details:
        dtype, shape = one["dtype"], tuple(one["shape"])
        if np.issubdtype(dtype, np.floating):
            made.append(rng.normal(size=shape).astype(dtype))
        else:
            ends = np.iinfo(dtype)
            scale, zero = one["quantization"]
            drawn = rng.normal(size=shape) / (scale or 1) + zero
            made.append(np.clip(np.round(drawn), ends.min, ends.max).astype(dtype))
    return made


def litert(path: Path, threads: int) -> tuple[Run, list[np.ndarray]]:
    """The interpreter on its own inputs."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    given = feeds(inputs)

    def run() -> list[np.ndarray]:
        for detail, value in zip(inputs, given, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in outputs]

    return run, given


def session(path: Path, threads: int, given: list[np.ndarray]) -> Run:
    """ONNX Runtime on the CPU, fully optimized."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3
    opened = ort.InferenceSession(in_full(str(path)), options, providers=["CPUExecutionProvider"])
    named = {put.name: value for put, value in zip(opened.get_inputs(), given, strict=True)}

    def run() -> list[np.ndarray]:
        return opened.run(None, named)

    return run


def difference(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference, as a part of the largest magnitude that is wanted."""
    parts = [
        float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max() / max(np.abs(b.astype(np.float64)).max(), 1e-9))
        for a, b in zip(found, wanted, strict=True)
        if a.size
    ]
    return max(parts, default=0.0)


def fastest(run: Run, count: int, clock: Callable[[], float]) -> float:
    """Milliseconds of the fastest of so many runs."""
    best = float("inf")
    for _ in range(count):
        begun = clock()
        run()
        best = min(best, clock() - begun)
    return best * 1000


def take_turns(row: Row, runs: dict[str, Run], rounds: int) -> None:
    # On one thread everything happens in this one, whose own time does not count what others take of the processor.
    clock = time.thread_time if row.threads == 1 else time.perf_counter
    counts = {}
    for name, run in runs.items():
        run()
        counts[name] = max(3, round(TURN_SECONDS * 1000 / fastest(run, 3, clock)))
        row.milliseconds[name] = []
    order, shuffle = list(runs), random.Random(0)
    for _ in range(rounds):
        shuffle.shuffle(order)
        for name in order:
            row.milliseconds[name].append(fastest(runs[name], counts[name], clock))


def results(source: Path, directory: Path, peers: str | None, why: dict[str, str]) -> dict[str, Path]:
    """The model as each converter writes it; where one fails, why. What the peer wrote before is not made again."""
    made = {}
    for name, target in ((OURS, None), (TARGETED, "onnxruntime-cpu")):
        ours = directory / f"{source.stem}.{name.replace(' ', '_')}.onnx"
        try:
            relayout.convert(source, target=target).save(ours)
            made[name] = ours
        except relayout.RelayoutError as error:
            why[name] = str(error).splitlines()[0]
    theirs = directory / f"{source.stem}.{PEER}.onnx"
    if peers and theirs.exists():
        made[PEER] = theirs
    elif peers:
        command = [peers, "-m", "tf2onnx.convert", "--opset", "18", "--tflite", str(source), "--output", str(theirs)]
        log = directory / f"{source.stem}.log"
        if measure(command, log).code == 0 and theirs.exists():
            made[PEER] = theirs
        else:
            why[PEER] = last_line(log) or "no result"
    return made


def compared(source: Path, threads: list[int], rounds: int, peers: str | None, directory: Path) -> list[Row]:
    name, _, form = source.stem.rpartition("_")
    rows = [Row(name or source.stem, form, count) for count in threads]
    why: dict[str, str] = {}
    made = results(source, directory, peers, why)
    for row in rows:
        row.why.update(why)
        runs: dict[str, Run] = {}
        try:
            runs[LITERT], given = litert(source, row.threads)
            wanted = runs[LITERT]()
        except (RuntimeError, ValueError) as error:  # a kernel that LiteRT has for other types only
            row.why |= {name: f"LiteRT: {str(error).splitlines()[0]}"[:200] for name in RESULTS}
            continue
        for converter, path in made.items():
            try:
                run = session(path, row.threads, given)
                row.error[converter] = difference(run(), wanted)
                runs[converter] = run
            except Exception as error:  # ONNX Runtime's exceptions have no common class
                row.why[converter] = str(error).splitlines()[0][:200]
        take_turns(row, runs, rounds)
        print(*cells_of(row), sep=" | ", file=sys.stderr, flush=True)
    return rows


def shown(ratio: tuple[float, float, float] | None) -> str:
    return "" if ratio is None else f"{ratio[1]:.2f} ({ratio[0]:.2f}–{ratio[2]:.2f})"


def cells_of(row: Row) -> list[str]:
    times = [f"{statistics.median(row.milliseconds[n]):.1f}" if n in row.milliseconds else "—" for n in RUNTIMES]
    errors = [f"{row.error[name]:.1e}" if name in row.error else row.why.get(name, "") for name in RESULTS]
    return [row.model, row.format, str(row.threads), *times, *(shown(row.ratio(*pair)) for pair in PAIRS), *errors]


def markdown(rows: list[Row]) -> str:
    head = ["model", "format", "threads", *(f"{n} ms" for n in RUNTIMES), *(f"{a} / {b}" for a, b in PAIRS)]
    head += [f"error {name}" for name in RESULTS]
    return "\n".join([table(head, map(cells_of, rows), 2), "", summary(rows)])


def summary(rows: list[Row]) -> str:
    """For each number format: the median of the models' ratios, and the worst."""
    lines = []
    for form, threads in dict.fromkeys((row.format, row.threads) for row in rows):
        own = [row for row in rows if (row.format, row.threads) == (form, threads) and LITERT in row.milliseconds]
        cells = []
        for pair in PAIRS:
            middles = [ratio[1] for row in own if (ratio := row.ratio(*pair)) is not None]
            cells.append(f"{statistics.median(middles):.2f} (worst {max(middles):.2f})" if middles else "")
        lines.append([form, str(threads), str(len(own)), *cells])
    return table(["format", "threads", "models", *(f"{a} / {b}" for a, b in PAIRS)], lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", nargs="+", type=Path)
    arguments.add_argument("--peers", default=os.environ.get("PEERS_PYTHON"))
    arguments.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    arguments.add_argument("--rounds", type=int, default=30)
    arguments.add_argument("--out", type=Path, default=Path())
    given = arguments.parse_args()
    directory = given.out / "converted"
    directory.mkdir(parents=True, exist_ok=True)
    rows = []
    for source in models(given.models, ".tflite"):
        rows += compared(source, given.threads, given.rounds, given.peers, directory)
    text = markdown(rows)
    content = [asdict(row) | {f"{a}/{b}": row.ratio(a, b) for a, b in PAIRS} for row in rows]
    record(given.out, "latency", content, text, summary(rows))
    print(text)


if __name__ == "__main__":
    main()
