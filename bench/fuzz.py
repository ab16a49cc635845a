"""Damaged models in any number: the readers, and `convert` on some of what can be read. Findings are kept as files.

    python bench/fuzz.py --inputs 20000 [--guided 0.15] [--models FOLDER] [--seed 0] [--out findings]
    python bench/fuzz.py --seconds 60                   # as many of them as there is time for

Of the inputs, `--guided` is the part that atheris chooses, guided by coverage (`pip install atheris`). The others are
dealt out: every field of `.tflite`, `.ort` and `.onnx` files at its extremes, every axis at -1, at the rank and where
it loses bits, every truncation, and random damage. Of a kind with more inputs than its share every nth is dealt out, of
all files. `--kinds axes,cuts` deals out these alone. `--models` adds the small models of a folder to the committed
ones.
The seed says which of them is the first, and the random damage. Inputs go in portions to processes of their own, which
may end: the input that ended one is known. The inputs of a seed are always the same, the guided ones excepted.

An input is a finding if it is answered by anything but a model or a `RelayoutError` that is no `InternalError`, takes
above 10 s or 1 GB, or ends the process. A run that was stopped goes on where it was if it is started again with the
same `--out`; what it counted is in `state.json` there. Exit code 1 if there are findings.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import json
import logging
import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "fuzz")]

ADDRESS_SPACE = 16 << 30
STUCK, STOPPED = 60, 600
"""Processor seconds, and seconds of the clock, after which an input is given up, by ending the process."""

PORTION, GUIDED_PORTION = 2000, 10_000
"""Inputs for one process."""

SAMPLE = 50
SAMPLES = {"axes": 5, "fields of .tflite": 2, "fields of .ort": 2, "fields of .onnx": 2}
"""One in so many of the inputs of a kind that can be read is converted and written too."""

KEPT = 3
"""Files of one finding."""

GUIDED_LIMIT = 13_000
"""Bytes of a seed that coverage guides from."""

SHARES = {
    "axes": 0.13,
    "fields of .tflite": 0.17,
    "fields of .ort": 0.12,
    "fields of .onnx": 0.23,
    "cuts": 0.2,
    "random": 0.15,
}
"""Of the inputs that are not guided. Where there are fewer of a kind than its share, the rest is random."""

Inputs = Iterator[tuple[str, bytes]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--guided", type=float, default=0.0, help="the part of the inputs that coverage guides to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("findings"), help="where findings go")
    parser.add_argument("--models", type=Path, help="small models of other people to begin with too")
    parser.add_argument("--kinds", default=",".join(SHARES), help=f"some of: {', '.join(SHARES)}")
    parser.add_argument("--runs", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.runs:
        guided(given.runs, given.seed, given.out)
    else:
        sys.exit(supervise(given.inputs, given.seconds, given.guided, given.seed, given.out, given.models, given.kinds))


# The supervisor: it keeps the count, and never looks at a damaged model itself.


@dataclass(frozen=True)
class Portion:
    """`count` inputs of one kind, each `step`th, from the `first` on."""

    kind: str
    first: int
    count: int
    step: int = 1

    @property
    def name(self) -> str:
        return f"{self.kind} {self.first}"


def supervise(
    inputs: int, seconds: float, part: float, seed: int, out: Path, more: Path | None, kinds: str = ",".join(SHARES)
) -> int:
    """Give out portions until all are done or the time is over, and say what came of them."""
    out.mkdir(parents=True, exist_ok=True)
    quiet()
    source = Source.at(out, seed, more)
    state = State.at(out)
    gc.collect()
    gc.freeze()
    end = time.monotonic() + seconds
    for portion in portions(source, inputs, part, kinds.split(",")):
        if time.monotonic() > end:
            break
        if portion.name not in state.done:
            run = guided_portion if portion.kind == "guided" else forked
            state.add(portion, run(portion, source, out))
    print(state)
    return int(bool(state.findings))


def portions(source: Source, inputs: int, part: float, kinds: Sequence[str] = tuple(SHARES)) -> list[Portion]:
    """All portions, the kinds mixed: a run that is cut short has seen some of each."""
    plain = inputs - int(inputs * part)
    whole = sum(SHARES[kind] for kind in kinds)
    counts = {kind: min(int(plain * SHARES[kind] / whole), source.size(kind)) for kind in kinds}
    if "random" in kinds:
        counts["random"] = plain - sum(count for kind, count in counts.items() if kind != "random")
    found: list[tuple[float, Portion]] = []
    for kind, count in (*counts.items(), ("guided", inputs - plain)):
        size = GUIDED_PORTION if kind == "guided" else PORTION
        step = max(1, source.size(kind) // count) if count else 1
        for first in range(0, count, size):
            portion = Portion(kind, first * step + source.seed % step, min(size, count - first), step)
            found.append(((first + size / 2) / count, portion))
    return [portion for _, portion in sorted(found, key=lambda item: (item[0], item[1].kind))]


class State:
    """What was counted so far, in a file after every portion."""

    def __init__(self, path: Path) -> None:
        self.path = path
        known = json.loads(path.read_text()) if path.exists() else {}
        self.done: dict[str, int] = known.get("done", {})
        self.answers: Counter[str] = Counter(known.get("answers", {}))
        self.findings: Counter[str] = Counter(known.get("findings", {}))
        self.measured: dict[str, float] = known.get("measured", {"slowest": 0.0, "memory": 0.0, "seconds": 0.0})

    @staticmethod
    def at(out: Path) -> State:
        return State(out / "state.json")

    def add(self, portion: Portion, summary: dict[str, Any]) -> None:
        self.done[portion.name] = sum(count for name, count in summary["answers"].items() if ": " not in name)
        self.answers.update(summary["answers"])
        for finding, examples in summary["findings"].items():
            for number, (name, data) in enumerate(examples):
                if self.findings[finding] + number < KEPT:
                    kind = f"{len(self.findings)}-{self.findings[finding] + number}"
                    (self.path.parent / f"{kind}{Path(name).suffix}").write_bytes(data)
                    print(f"{kind}: {portion.name}: {name}: {finding}", flush=True)
            self.findings[finding] += summary["times"][finding]
        for key in ("slowest", "memory"):
            self.measured[key] = max(self.measured[key], summary[key])
        self.measured["seconds"] += summary["seconds"]
        known = {"done": self.done, "answers": self.answers, "findings": self.findings, "measured": self.measured}
        staged = self.path.with_suffix(".tmp")
        staged.write_text(json.dumps(known, indent=1))
        staged.replace(self.path)
        print(f"{sum(self.done.values())} inputs, {self.measured['seconds']:.0f} s: {portion.name}", flush=True)

    def __str__(self) -> str:
        kinds: Counter[str] = Counter()
        for name, count in self.done.items():
            kinds[name.rpartition(" ")[0]] += count
        measured, total = self.measured, sum(self.done.values())
        seconds = measured["seconds"]
        lines = [
            f"{total} inputs in {seconds:.0f} s ({total / max(seconds, 1e-9):.0f} a second), "
            f"slowest {measured['slowest']:.2f} s, memory {measured['memory'] / 2**20:.0f} MB",
            *(f"  {kind}: {count}" for kind, count in sorted(kinds.items())),
            *(f"  -> {answer}: {count}" for answer, count in sorted(self.answers.items())),
            f"{sum(self.findings.values())} findings" + (f", in {self.path.parent}:" if self.findings else ""),
            *(f"  {count} x {finding}" for finding, count in self.findings.most_common()),
        ]
        return "\n".join(lines)


class Report:
    """What came of one portion, as it grows."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.examples: dict[str, list[tuple[str, bytes]]] = {}
        self.times: Counter[str] = Counter()

    def found(self, finding: str, name: str, data: bytes) -> None:
        self.times[finding] += 1
        examples = self.examples.setdefault(finding, [])
        if len(examples) < KEPT:
            examples.append((name, data))

    def summary(self, answers: dict[str, int], slowest: float, memory: float) -> dict[str, Any]:
        return {
            "answers": {**answers, "finding": sum(self.times.values())},
            "findings": self.examples,
            "times": self.times,
            "slowest": slowest,
            "memory": memory,
            "seconds": time.monotonic() - self.began,
        }


# Inputs by number.


@dataclass(frozen=True)
class Source:
    """All inputs of a seed: kinds, and for each kind a sequence that can be entered anywhere."""

    models: dict[str, bytes]
    seed: int

    @staticmethod
    def at(out: Path, seed: int, more: Path | None = None) -> Source:
        """The seeds, made once and kept: making them runs what is tested here, which is left to another process."""
        folder = out / "seeds"
        if not folder.is_dir():
            staged = out / "seeds.tmp"
            staged.mkdir(exist_ok=True)
            code = "import attempting, pathlib, sys\n"
            code += "more = [pathlib.Path(name) for name in sys.argv[2:]]\n"
            code += "for name, data in attempting.Seeds.small(more=more).models.items():\n"
            code += "    (pathlib.Path(sys.argv[1]) / name).write_bytes(data)\n"
            path = os.pathsep.join(sys.path[:2])
            environment = os.environ | {"PYTHONPATH": path}
            others = [str(path) for path in sorted(more.rglob("*")) if path.is_file()] if more else []
            subprocess.run([sys.executable, "-c", code, str(staged), *others], check=True, env=environment)
            staged.rename(folder)
        return Source({path.name: path.read_bytes() for path in sorted(folder.iterdir())}, seed)

    @functools.cached_property
    def sizes(self) -> dict[str, dict[str, int]]:
        """How many edits each model has, and how many cuts."""
        import mutating

        edits: dict[str, dict[str, int]] = {kind: {} for kind in SHARES}
        edits["axes"] = {name: sum(1 for _ in mutating.axis_edits(data)) for name, data in self.counting.items()}
        for name in self.by_size:
            data = self.models[name]
            kind = mutating.message_edits if name.endswith(".onnx") else mutating.field_edits
            edits[f"fields of {Path(name).suffix}"][name] = sum(1 for _ in kind(data))
            edits["cuts"][name] = len(data)
        return edits

    @functools.cached_property
    def counting(self) -> dict[str, bytes]:
        """The models whose axes are changed: small ones of each operator, and all others."""
        import written

        return written.with_axes() | {name: self.models[name] for name in self.by_size}

    @property
    def by_size(self) -> list[str]:
        """The models, the smallest first."""
        return sorted(self.models, key=lambda name: (len(self.models[name]), name))

    def size(self, kind: str) -> int:
        return sum(self.sizes.get(kind, {}).values())

    def inputs(self, portion: Portion) -> Inputs:
        if portion.kind == "random":
            return self._random(portion)
        return self._chosen(portion)

    def _chosen(self, portion: Portion) -> Inputs:
        """A stretch of all inputs of a kind; models before it are passed over as wholes."""
        place, left = portion.first, portion.count
        for name, size in self.sizes[portion.kind].items():
            if place < size:
                for made in itertools.islice(self._of(portion.kind, name), place, size, portion.step):
                    if not left:
                        return
                    left -= 1
                    place += portion.step
                    yield name, made()
            place -= size

    def _of(self, kind: str, name: str) -> Iterator[Callable[[], bytes]]:
        """Every input of a kind that comes of a model, not made yet."""
        import mutating

        if kind == "axes":
            return mutating.axis_edits(self.counting[name])
        data = self.models[name]
        if kind == "cuts":
            return (functools.partial(data.__getitem__, slice(length)) for length in range(len(data)))
        if not name.endswith(".onnx"):
            return (
                functools.partial(mutating.field_edited, data, field, new) for field, new in mutating.field_edits(data)
            )
        return (functools.partial(mutating.message_edited, data, edit) for edit in mutating.message_edits(data))

    def _random(self, portion: Portion) -> Inputs:
        import attempting

        every = attempting.damaged(attempting.Seeds(self.models), self.seed * 1_000_003 + portion.first)
        return itertools.islice(every, portion.count)


# One portion, in a process of its own.


def forked(portion: Portion, source: Source, _: Path) -> dict[str, Any]:
    """Try a portion; where its process ends, what it counted is kept, the input is a finding, and the rest follows."""
    import attempting

    report, answers = Report(), Counter[str]()
    slowest = memory = 0.0
    skip = 0
    inputs = source.inputs(portion)
    while skip < portion.count:
        shared = mmap.mmap(-1, 16 << 20)
        child = os.fork()
        if not child:
            with attempting.folder() as folder:
                attempts = attempting.Attempts(folder, SAMPLES.get(portion.kind, SAMPLE))
                attempt_all(inputs, attempts, shared, skip)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        length = int.from_bytes(shared[:8], "little")
        known = json.loads(shared[8 : 8 + length] or b"{}")
        shared.close()
        answers.update(known.get("answers", {}))
        slowest, memory = max(slowest, known.get("slowest", 0)), max(memory, known.get("memory", 0))
        lost = list(known.get("found", []))
        tried = known.get("tried", skip)
        if status:
            lost.append([f"the process ended: {os.waitstatus_to_exitcode(status)}", tried])
            tried += 1
        if lost:
            made = list(source.inputs(portion))
            for finding, index in lost:
                report.found(finding, *made[index])
        skip = tried
        inputs = itertools.islice(source.inputs(portion), skip, None)
    return report.summary(answers, slowest, memory)


def attempt_all(inputs: Inputs, attempts: Any, shared: mmap.mmap, tried: int) -> None:
    """Try inputs one after the other. What is known is put where it outlives this process, before every one."""
    import attempting

    found: list[tuple[str, int]] = []

    def note() -> None:
        known = {"answers": attempts.answers, "slowest": attempts.slowest, "memory": attempts.memory}
        text = json.dumps({**known, "found": found, "tried": tried}).encode()
        shared[: 8 + len(text)] = len(text).to_bytes(8, "little") + text

    for name, data in inputs:
        note()
        signal.setitimer(signal.ITIMER_PROF, STUCK)
        signal.alarm(STOPPED)
        try:
            attempts.attempt(name, data)
        except attempting.FindingError as error:
            found.append((where(error), tried))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        tried += 1
    note()


# Guided by coverage.


def guided_portion(portion: Portion, source: Source, out: Path) -> dict[str, Any]:
    """Let atheris go on from the corpus of the portions before."""
    report, path = Report(), out / "guided.json"
    path.unlink(missing_ok=True)
    (out / "crashes").mkdir(exist_ok=True)
    command = [sys.executable, __file__, "--runs", str(portion.count), "--seed", str(source.seed + portion.first)]
    with (out / "guided.log").open("ab") as log:
        code = subprocess.run([*command, "--out", str(out)], stdout=log, stderr=log, check=False).returncode
    known = json.loads(path.read_text()) if path.exists() else {"answers": {}, "slowest": 0.0, "memory": 0.0}
    for kept in sorted((out / "crashes").iterdir()):
        finding, _, name = kept.read_bytes().partition(b"\0")[0].decode(errors="replace").partition("\1")
        data = kept.read_bytes().partition(b"\0")[2] if name else kept.read_bytes()
        report.found(finding if name else f"the process ended: {code}", name or "x" + suffix(data), data)
        kept.unlink()
    if code and not report.times:
        print(f"atheris ended with {code}: see {out / 'guided.log'}", file=sys.stderr, flush=True)
    return report.summary(known["answers"], known["slowest"], known["memory"])


def guided(runs: int, seed: int, out: Path) -> None:
    """Atheris chooses what to damage further; half of the damage is to fields."""
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["relayout"]):
        import relayout.formats.onnx
        import relayout.formats.tflite
        import relayout.formats.tflite.container.loading  # noqa: F401
    import attempting
    import mutating

    quiet()
    corpus = out / "corpus"
    if not corpus.is_dir():
        corpus.mkdir()
        for path in (out / "seeds").iterdir():
            if path.stat().st_size <= GUIDED_LIMIT:
                (corpus / path.name).write_bytes(path.read_bytes())

    @functools.lru_cache(64)
    def damage(data: bytes) -> Any:
        try:
            return (mutating.messages if suffix(data) == ".onnx" else mutating.flatbuffers)(data)
        except Exception:  # damaged so much already that its structure cannot be found
            return None

    with attempting.folder() as folder:
        attempts = attempting.Attempts(folder, SAMPLE)
        found: Counter[str] = Counter()
        known = 0

        def one(data: bytes) -> None:
            nonlocal known
            if known % 500 == 0 or known + 1 >= runs:
                note = {"answers": attempts.answers, "slowest": attempts.slowest, "memory": attempts.memory}
                (out / "guided.json").write_text(json.dumps(note))
            known += 1
            try:
                attempts.attempt("x" + suffix(data), data, convert=False)
            except attempting.FindingError as error:
                place = where(error)
                found[place] += 1
                if found[place] <= KEPT:
                    header = f"{place}\1x{suffix(data)}\0".encode()
                    (out / "crashes" / f"{len(found)}-{found[place]}").write_bytes(header + data)

        def mutate(data: bytes, most: int, number: int) -> bytes:
            rng = random.Random(number)
            structured = damage(data) if rng.random() < 0.7 else None
            try:
                changed = structured(rng) if structured else b""
            except Exception:  # what is damaged already holds text that cannot be taken over
                changed = b""
            return changed[:most] or bytes(atheris.Mutate(data, most))

        options = [f"-runs={runs}", f"-seed={seed + 1}", "-rss_limit_mb=4096", f"-timeout={STOPPED}", "-max_len=65536"]
        options += [f"-artifact_prefix={out / 'crashes'}/", "-verbosity=1", "-print_final_stats=1", str(corpus)]
        atheris.Setup([sys.argv[0], *options], one, custom_mutator=mutate)
        atheris.Fuzz()


def suffix(data: bytes) -> str:
    """The format that bytes claim to be."""
    return {b"TFL3": ".tflite", b"ORTM": ".ort"}.get(data[4:8], ".onnx")


def where(error: BaseException) -> str:
    """The kind of the error behind a finding, and the line of ours that it came from."""
    cause: Any = error.__cause__
    if cause is None:
        return str(error).partition(":")[0][:80]
    frames = traceback.extract_tb(cause.__traceback__)
    ours = [frame for frame in frames if "relayout" in frame.filename] or frames
    return f"{type(cause).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"


def quiet() -> None:
    """Warnings are findings, as they are in the tests; what other packages log is not."""
    warnings.simplefilter("error")
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


if __name__ == "__main__":
    main()
