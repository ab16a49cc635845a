"""Convert `.tflite` to ONNX and back, ONNX to `.tflite` and back, and `.tflite` to `.tflite`; compare what comes back.

    python bench/there_and_back.py [--onnx2tf PYTHON] [--peer-most 40] [--out DIRECTORY] [--keep] SET=FOLDER ...
    python bench/node_tests.py --constants --json DIRECTORY/node_tests.json [--onnx2tf PYTHON --peer-every 12]
    python bench/there_and_back.py --again DIRECTORY --page docs/there-and-back.md     # and docs/node-tests.md

A SET is a name for the models of a FOLDER, `.tflite` and `.onnx`. onnx2tf converts some of the ONNX models in the
middle back: at most `--peer-most` of each set, evenly spaced. Its own have images with channels first, as it expects
them. `bench/make_cases.py`, `make_keras.py`, `make_random.py` and `make_onnx.py` make sets.

Every conversion and every run is a fork of a process that has imported what it needs (`bench/forking.py`), and may die.
`--keep` takes what DIRECTORY knows of an earlier run about the same files. The last command only writes the page.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import node_tests_page
import numpy as np
from comparing_runs import VERDICTS, compared, worst
from conversion import Tool
from processes import HERE, digest, last_line, models, processor, record, versions
from tables import write_page
from there_and_back_page import headlines, page

THROUGH, AT_ONCE, PEER = "through ONNX", "at once", "onnx2tf"
PACKAGES = ("onnx-relayout", "onnxruntime", "ai-edge-litert", "onnx")
EXTENT = 3
"""The size that open extents have in a further run."""
EVERY = 100_000
"""More models than any set has."""
LIMIT, PEER_LIMIT = 120, 120
"""Seconds of one process."""
FILE, REFERENCE, AGAIN = "default", "reference", "default again"
LACKING = "Didn't find op for builtin"
"""LiteRT's answer to a builtin for which it has no reference kernel."""
MODES = {FILE: ("default", 0), REFERENCE: ("reference", 0), "other extents": ("default", EXTENT)}
MODES[AGAIN] = MODES[FILE]
"""Mode -> kernels, and what open extents become."""

Row = dict[str, Any]


@dataclass
class Tools:
    """The processes that convert and judge."""

    relayout: Tool
    judge: Tool
    onnx: Tool
    peer: Tool | None

    @staticmethod
    def of(python: str, peer: str | None) -> Tools:
        here = f"import sys\nsys.path.insert(0, {str(HERE)!r})\n"
        preload = "import pkgutil, relayout\nfor each in pkgutil.walk_packages(relayout.__path__, 'relayout.'):\n"
        preload += "    if not each.name.endswith('__main__'): __import__(each.name)"
        return Tools(
            Tool(python, "import sys\nfrom relayout.cli import main", "main()", preload, LIMIT),
            Tool(python, f"{here}import judge_back", "judge_back.main(*sys.argv[1:])", limit=LIMIT),
            Tool(python, f"{here}import judge_optimized", "judge_optimized.main()", limit=LIMIT),
            peer_of(peer) if peer else None,
        )

    def close(self) -> None:
        for tool in filter(None, (self.relayout, self.judge, self.onnx, self.peer)):
            if tool.server is not None:
                tool.server.communicate()


def peer_of(python: str) -> Tool:
    """onnx2tf, which calls onnxsim by name: its environment is on PATH."""
    folder = str(Path(python).absolute().parent)
    imports = f"import os, sys\nos.environ['PATH'] = {folder!r} + os.pathsep + os.environ['PATH']\nimport onnx2tf"
    return Tool(str(Path(python).absolute()), imports, "onnx2tf.main()", "import onnx2tf.onnx2tf", PEER_LIMIT)


class Look(NamedTuple):
    """The contents of a file, and for each mode its outputs, or why it has none."""

    facts: Row
    outputs: dict[str, Row]


class Scratch:
    """A folder for the files of one model, and the processes that write them."""

    def __init__(self, folder: Path, tools: Tools) -> None:
        self.folder, self.tools, self.log, self.code = folder, tools, folder / "log", 0

    def said(self) -> str:
        """Return why the last process ended as it did."""
        late = "out of time" if self.code == -signal.SIGALRM else ""
        died = f"the process died of signal {-self.code}" if self.code < 0 else ""
        return self.without_paths(late or died or error_line(self.log) or f"exit {self.code}")

    def without_paths(self, text: str) -> str:
        return text.replace(str(self.folder), "").replace(str(HERE.parent), "")[:300]

    def convert(self, source: Path, name: str, *more: str) -> Path | Row:
        result = self.folder / name
        arguments = ["convert", str(source), str(result), "--json", *more]
        self.code = self.tools.relayout.run(arguments, self.log, fork=True).code
        return result if not self.code and result.exists() else {"why": self.said()}

    def convert_by_peer(self, source: Path) -> Path | Row:
        assert self.tools.peer is not None
        folder = self.folder / "peer"
        self.code = self.tools.peer.run(["-i", str(source), "-o", str(folder), "-n"], self.log, fork=True).code
        result = folder / f"{source.stem}_float32.tflite"
        return result if result.exists() else {"why": self.said()}

    def look(self, source: Path, path: Path, modes: list[str], *, loose: str = "") -> Look:
        """Run a file in some modes; where the process dies of one, each in a process of its own."""
        found = self._look(source, path, modes, loose)
        if found is not None or not modes:
            return found or Look({"why": self.said()}, {})
        facts, alone = self._look(source, path, [], loose), {}
        for mode in modes:
            each = self._look(source, path, [mode], loose)
            alone[mode] = {"why": self.said()} if each is None else each.outputs[mode]
        return Look({"why": "the process died"} if facts is None else facts.facts, alone)

    def _look(self, source: Path, path: Path, modes: list[str], loose: str) -> Look | None:
        out = self.folder / "outputs"
        arguments = [str(source), str(path), str(out), json.dumps([MODES[mode] for mode in modes])]
        self.code = self.tools.judge.run([*arguments, *([loose] if loose else [])], self.log, fork=True).code
        if self.code:
            return None
        told = json.loads(self.log.read_text().strip().splitlines()[-1])
        outputs: dict[str, Row] = {}
        for number, (mode, why) in enumerate(zip(modes, told["modes"], strict=True)):
            outputs[mode] = {"why": self.without_paths(why)} if why else arrays_of(Path(f"{out}.{number}.npz"))
        return Look(told["facts"], outputs)


def arrays_of(path: Path) -> Row:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def error_line(log: Path) -> str:
    """Return the line that names an error, or the last one that a process said."""
    lines = [line.strip() for line in log.with_name(log.name + ".err").read_text(errors="replace").splitlines()]
    named = [line for line in lines if line.lower().startswith("error") or "Error: " in line]
    return named[-1] if named else last_line(log)


def judged(scratch: Scratch, source: Path, result: Path, wanted: Look, *, loose: str = "") -> Row:
    """Run a result in all modes in which the source runs; return the verdicts, and what it has and lost."""
    modes = [mode for mode in wanted.outputs if not (loose and MODES[mode][1])]
    found = scratch.look(source, result, modes, loose=loose)
    runs = 1 if loose and wanted.facts["names"]["variables"] else None
    verdicts = {
        mode: {"verdict": "does not run", "why": outputs["why"]}
        if "why" in outputs
        else compared(wanted.outputs[mode], outputs, loose=loose, runs=runs)
        for mode, outputs in found.outputs.items()
        if not (mode == REFERENCE and LACKING in outputs.get("why", ""))
    }
    if verdicts.get(REFERENCE, {}).get("verdict") == "wrong" and is_ambiguous(wanted.outputs):
        del verdicts[REFERENCE]
    row: Row = {"modes": {mode: each["verdict"] for mode, each in verdicts.items()}, **worst(verdicts.values())}
    if "operators" in found.facts:
        before, after = Counter(wanted.facts["operators"]), Counter(found.facts["operators"])
        row |= {"operators": after.total(), "bytes": found.facts.get("bytes")}
        row |= {"added": dict(after - before), "gone": dict(before - after)}
        names = found.facts["names"]
        row["lost"] = [name for name, texts in wanted.facts["names"].items() if Counter(texts) - Counter(names[name])]
    return row


def best(rows: Iterable[Row]) -> Row:
    """Return the row with the best verdict."""
    return min(rows, key=lambda row: VERDICTS.index(row["verdict"]))


def is_ambiguous(outputs: dict[str, Row]) -> bool:
    """Return whether LiteRT's two sets of kernels give other numbers for the source itself."""
    return bool(compared(outputs[REFERENCE], outputs[FILE])["verdict"] == "wrong")


def of_tflite(path: Path, scratch: Scratch, known: Row, *, peer: bool) -> Row:
    """Convert one `.tflite` there and back, and at once; what is known of an earlier run stays."""
    look = scratch.look(path, path, [*MODES, AGAIN])
    if "why" in look.facts:
        return {"left_out": f"the file cannot be read: {look.facts['why']}"}
    if "why" in look.outputs[FILE]:
        return {"left_out": f"LiteRT does not run the source: {look.outputs[FILE]['why']}"}
    again = look.outputs.pop(AGAIN)
    if "why" in again or compared(look.outputs[FILE], again)["verdict"] != "exact":
        return {"left_out": "no two runs of the source agree"}
    facts, outputs = look
    running = {m: found for m, found in outputs.items() if "why" not in found and (facts["open"] or not MODES[m][1])}
    wanted = Look(facts, running)
    source = {"operators": sum(facts["operators"].values()), "bytes": facts.get("bytes"), "integer": facts["integer"]}
    found: Row = {"source": source | {"modes": list(running)}}
    made: dict[str, Path | Row] = {}
    if not known:
        middle = scratch.convert(path, "middle.onnx")
        made[THROUGH] = middle if isinstance(middle, dict) else scratch.convert(middle, "through.tflite")
        made[AT_ONCE] = scratch.convert(path, "at_once.tflite")
    if peer:
        middle = scratch.convert(path, "channels_first.onnx", "--io", "nchw")
        made[PEER] = middle if isinstance(middle, dict) else scratch.convert_by_peer(middle)
    readings = {PEER: ("last", "same")}
    found["tools"] = known.get("tools", {}) | {
        tool: result
        if isinstance(result, dict)
        else best(judged(scratch, path, result, wanted, loose=way) for way in readings.get(tool, ("",)))
        for tool, result in made.items()
    }
    return found


def of_onnx(path: Path, scratch: Scratch) -> Row:
    """Convert one `.onnx` there and back."""
    middle = scratch.convert(path, "middle.tflite")
    back = middle if isinstance(middle, dict) else scratch.convert(middle, "back.onnx")
    results = [path] if isinstance(back, dict) else [path, back]
    scratch.code = scratch.tools.onnx.run(["judge", *map(str, [path, *results])], scratch.log, fork=True).code
    if scratch.code:
        return {"left_out": f"ONNX Runtime does not run the source: {scratch.said()}"}
    told = json.loads(scratch.log.read_text().strip().splitlines()[-1])
    if not told[str(path)]["runs"]:
        return {"left_out": f"ONNX Runtime does not run the source: {told[str(path)].get('why')}"}
    found: Row = {"source": told[str(path)]}
    return found | {"back": back if isinstance(back, dict) else told[str(back)]}


def one(name: str, path: Path, tools: Tools, known: Row, *, peer: bool) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(Path(folder), tools)
        found = of_onnx(path, scratch) if path.suffix == ".onnx" else of_tflite(path, scratch, known, peer=peer)
    return {"set": name, "model": path.stem, "sha256": digest(path), "kind": path.suffix[1:]} | found


def sets_of(arguments: list[str], most: int) -> list[tuple[str, Path]]:
    """Return the name of the set and the path of every model."""
    pairs = [argument.partition("=") for argument in arguments]
    return [
        (name, path)
        for name, _, folder in pairs
        for kind in (".tflite", ".onnx")
        for path in spaced(models([Path(folder)], kind), most)
    ]


def spaced(paths: list[Path], most: int) -> list[Path]:
    """Return at most so many, evenly spaced."""
    count = min(most, len(paths))
    return [paths[place * len(paths) // count] for place in range(count)]


def shared_with_peer(rows: list[tuple[str, Path]], most: int) -> set[Path]:
    """Return at most so many `.tflite` files of each set, evenly spaced."""
    found: set[Path] = set()
    for name in dict.fromkeys(name for name, _ in rows):
        found.update(spaced([path for each, path in rows if each == name and path.suffix == ".tflite"], most))
    return found


def measured(options: argparse.Namespace) -> Row:
    """Convert and judge every model; after each one, what is known is written."""
    file = options.out / "there_and_back.json"
    kept = json.loads(file.read_text())["models"] if options.keep and file.exists() else []
    known = {(each["set"], each["model"], each["sha256"]): each for each in kept}
    rows = sets_of(options.sets, options.most)
    with_peer = shared_with_peer(rows, options.peer_most) if options.onnx2tf else set()
    used = versions(options.python, *PACKAGES)
    used |= versions(options.onnx2tf, "onnx2tf") if options.onnx2tf else {}
    found: Row = {"date": dt.datetime.now(dt.UTC).date().isoformat(), "versions": used, "processor": processor()}
    totals = Counter(name for name, _ in sets_of(options.sets, EVERY))
    taken = Counter(name for name, _ in rows)
    found |= {
        "peer_most": options.peer_most,
        "samples": {n: k for n, k in totals.items() if k > taken[n]},
        "models": [],
    }
    tools = Tools.of(options.python, options.onnx2tf)
    for number, (name, path) in enumerate(rows):
        again = known.get((name, path.stem, digest(path)))
        peer = path in with_peer
        fresh = again is None or (peer and "tools" in again and PEER not in again["tools"])
        found["models"].append(one(name, path, tools, again or {}, peer=peer) if fresh else again)
        if fresh and (number % 20 == 0 or options.verbose):
            record(options.out, "there_and_back", found, page(found), headlines(found))
            print(number, len(rows), name, path.stem, said(found["models"][-1]), file=sys.stderr, flush=True)
    record(options.out, "there_and_back", found, page(found), headlines(found))
    tools.close()
    return found


def said(row: Row) -> str:
    if "left_out" in row:
        return str(row["left_out"])
    tools = row.get("tools") or {"back": row["back"]}
    return str({tool: each.get("verdict") or each.get("why") or each.get("equal") for tool, each in tools.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET=FOLDER")
    parser.add_argument("--python", default=os.environ.get("RELAYOUT_PYTHON", sys.executable))
    parser.add_argument("--onnx2tf", default=os.environ.get("ONNX2TF_PYTHON"))
    parser.add_argument("--peer-most", type=int, default=40)
    parser.add_argument("--most", type=int, default=EVERY, help="models of each set, evenly spaced")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--again", type=Path, metavar="DIRECTORY")
    options = parser.parse_args()
    folder = options.again or options.out
    found = json.loads((folder / "there_and_back.json").read_text()) if options.again else measured(options)
    nodes = folder / "node_tests.json"
    if options.page:
        write_page(options.page, page(found))
    if options.page and nodes.exists():
        write_page(options.page.with_name("node-tests.md"), node_tests_page.page(json.loads(nodes.read_text())))
    print(headlines(found))


if __name__ == "__main__":
    main()
