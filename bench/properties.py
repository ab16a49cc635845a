"""Random graphs, each optimized, converted to another layout and back: the same numbers, never more bytes, proved;
what is optimized again moves as much, and no run moves more than one of the source.

    python bench/properties.py --graphs 1000 [--first 0] [--to NHWC] [--out properties]
    python bench/properties.py --seconds 600            # as many as there is time for

The graphs are those of `tests/infer/opened.py` (open extents, computed amounts) and `tests/infer/mixed.py` (If, Loop,
Scan, quantization with a scale for each channel, dynamic dimensions, regroupings), the properties those of
`tests/properties.py`. Where Reshapes split an axis in ways that do not agree, what comes back may have more bytes, and
a second optimization may save some. Where there are more orders than the cap on candidates, not all are looked at. Such
graphs are counted apart. Graph n is always the same. Portions run in processes of their own. A run that was stopped
goes on where it was if it is started again with the same `--out`; what it found is in `state.json` there. Exit code 1
if a property does not hold, or a process ended.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

PORTION = 100
STUCK = 120
"""Processor seconds after which a graph is given up, by ending the process."""

COUNTED = ("source", "optimized", "there", "back")
EXAMPLES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--to", default="NHWC", help="the layout to convert to and back from (default NHWC)")
    parser.add_argument("--out", type=Path, default=Path("properties"), help="where findings and the count go")
    given = parser.parse_args()
    sys.exit(supervise(given.first, given.graphs, given.seconds, given.to, given.out))


def supervise(first: int, graphs: int, seconds: float, layout: str, out: Path) -> int:
    """Give out portions until all are done or the time is over, and say what came of them."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "state.json"
    state: dict[str, Any] = json.loads(path.read_text()) if path.exists() else empty()
    end = time.monotonic() + seconds
    for begin in range(first, first + graphs, PORTION):
        if time.monotonic() > end:
            break
        if str(begin) in state["portions"]:
            continue
        merge(state, forked(begin, min(begin + PORTION, first + graphs), layout))
        state["portions"].append(str(begin))
        staged = path.with_suffix(".tmp")
        staged.write_text(json.dumps(state, indent=1))
        staged.replace(path)
        if begin // PORTION % 10 == 0:
            print(f"{state['graphs']} graphs, {len(state['findings'])} kinds of findings", flush=True)
    print(said(state))
    return int(bool(state["findings"]))


def empty() -> dict[str, Any]:
    counts = {name: [0, 0] for name in COUNTED}
    return {
        "graphs": 0,
        "seconds": 0.0,
        "slowest": [0.0, 0],
        "contested": 0,
        "capped": 0,
        "has": {},
        "moved": counts,
        "findings": {},
        "portions": [],
    }


def merge(state: dict[str, Any], found: dict[str, Any]) -> None:
    """Add one portion to the count."""
    for name in ("graphs", "seconds", "contested", "capped"):
        state[name] = state.get(name, 0) + found[name]
    state["slowest"] = max(state["slowest"], found["slowest"])
    state["has"] = dict(Counter(state["has"]) + Counter(found["has"]))
    for name in COUNTED:
        state["moved"][name] = [a + b for a, b in zip(state["moved"][name], found["moved"][name], strict=True)]
    for finding, (count, examples) in found["findings"].items():
        known = state["findings"].setdefault(finding, [0, []])
        if not known[0]:
            print(f"{finding}: {examples[0]}", flush=True)
        known[0] += count
        known[1] = sorted(known[1] + examples, key=lambda each: each[1])[:EXAMPLES]


def said(state: dict[str, Any]) -> str:
    rate = state["graphs"] / max(state["seconds"], 1e-9)
    slowest, graph = state["slowest"]
    lines = [f"{state['graphs']} graphs, {rate:.1f} a second, slowest {slowest:.1f} s (graph {graph})"]
    lines += [f"  with {name}: {count}" for name, count in sorted(state["has"].items())]
    lines += [f"  {name}: {moved[0]} Transposes, {moved[1]} bytes" for name, moved in state["moved"].items()]
    lines.append(
        f"  splits of an axis do not agree, so more bytes come back, or fewer the second time: {state['contested']}"
    )
    lines.append(f"  minimal among the orders that were considered, since there are too many: {state['capped']}")
    lines.append(f"{sum(count for count, _ in state['findings'].values())} findings")
    lines += [f"  {count} x {finding}: {examples[0]}" for finding, (count, examples) in state["findings"].items()]
    return "\n".join(lines)


def forked(begin: int, end: int, layout: str) -> dict[str, Any]:
    """Try some graphs; where the process ends, that graph is a finding, and the rest follows."""
    total = empty()
    while begin < end:
        with tempfile.TemporaryDirectory() as folder:
            note = Path(folder) / "note.json"
            child = os.fork()
            if not child:
                try:
                    attempt_all(begin, end, layout, note)
                finally:
                    os._exit(0)
            _, status = os.waitpid(child, 0)
            found = json.loads(note.read_text()) if note.exists() else empty() | {"next": begin}
        if status:
            ended = f"the process ended: {os.waitstatus_to_exitcode(status)}"
            found["findings"][ended] = [1, [[found["next"], 0, ""]]]
            found["next"] += 1
            found["graphs"] += 1
        begin = found["next"]
        merge(total, found)
    return total


def attempt_all(begin: int, end: int, layout: str, note: Path) -> None:
    """Hold the properties of graph after graph, and write down what was found before each."""
    import properties
    from infer.mixed import mixed_model
    from infer.opened import opened_model

    warnings.simplefilter("ignore")
    gc.disable()  # the process ends with its portion
    found, began = empty(), time.monotonic()
    for seed in range(begin, end):
        note.write_text(json.dumps({**found, "next": seed, "seconds": time.monotonic() - began}))
        signal.setitimer(signal.ITIMER_PROF, STUCK)
        at = time.process_time()
        made = mixed_model(seed, steps(seed))
        try:
            held = properties.hold(made, layout)
            properties.hold_open(*opened_model(seed, steps(seed)))
            for name in COUNTED:
                moved = getattr(held, name)
                found["moved"][name] = [a + b for a, b in zip(found["moved"][name], moved, strict=True)]
            found["contested"] += held.contested
            found["capped"] += held.capped
        except Exception as error:
            example = [seed, len(made.model.graph.node), str(error)[:300]]
            known = found["findings"].setdefault(kind(error), [0, []])
            known[0] += 1
            known[1] = sorted([*known[1], example], key=lambda each: each[1])[:EXAMPLES]
        signal.setitimer(signal.ITIMER_PROF, 0)
        found["graphs"] += 1
        found["has"] = dict(Counter(found["has"]) + Counter(made.has))
        found["slowest"] = max(found["slowest"], [time.process_time() - at, seed])
    note.write_text(json.dumps({**found, "next": end, "seconds": time.monotonic() - began}))


def steps(seed: int) -> int:
    """How many nodes graph n has at least, besides those in subgraphs."""
    return 4 + seed % 12


def kind(error: Exception) -> str:
    """The error and the line that raised it: what counts as one finding."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "relayout" in frame.filename or "tests" in frame.filename] or frames
    what = str(error).split(" ")[0] if type(error).__name__ == "PropertyError" else ""
    return f"{type(error).__name__} {what} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"


if __name__ == "__main__":
    main()
