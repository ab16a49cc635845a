"""Damaged models without end: the readers, and `convert` on those that can be read. Findings are kept as files.

    python bench/fuzz.py [--seconds 60] [--seed 0] [--out DIRECTORY]
    python bench/fuzz.py --atheris [--seconds 60]       # guided by coverage; pip install atheris

An input is a finding if it is answered by anything but a model or a `RelayoutError`, takes above 10 s or 1 GB, or ends
the process. The inputs of a seed are always the same. Exit code 1 if there are findings.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "fuzz")]

ADDRESS_SPACE = 16 << 30
STUCK = 60
"""Seconds after which an input is given up, by ending the process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("findings"), help="where findings go")
    parser.add_argument("--atheris", action="store_true", help="guided by coverage")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        inside(given.inside, given.seed, given.seconds, given.out)
    elif given.atheris:
        sys.exit(guided(given.seconds, given.seed, given.out))
    else:
        sys.exit(supervise(given.seconds, given.seed, given.out))


def supervise(seconds: float, seed: int, out: Path) -> int:
    """Run the fuzzer in a process that may end, and begin again with the next seed when it has."""
    end = time.monotonic() + seconds
    answers: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    slowest = memory = 0.0
    while (left := end - time.monotonic()) > 1:
        with tempfile.TemporaryDirectory() as name:
            state = Path(name)
            command = [sys.executable, __file__, "--inside", name, "--seed", str(seed), "--seconds", str(left)]
            code = subprocess.run([*command, "--out", str(out)], check=False).returncode
            if (state / "summary.json").exists():
                summary = json.loads((state / "summary.json").read_text())
                answers.update(summary["answers"])
                findings.update(summary["findings"])
                slowest, memory = max(slowest, summary["slowest"]), max(memory, summary["memory"])
            if code:
                kept = next(iter(state.glob("current*")), None)
                findings[f"the process ended: {code}"] += 1
                if kept is not None:
                    keep(out, f"ended{code}-{seed}{kept.suffix}", kept.read_bytes())
        seed += 1_000_003
    inputs = sum(count for answer, count in answers.items() if not answer.startswith("converted: "))
    print(f"{inputs} inputs in {seconds:.0f} s, slowest {slowest:.2f} s, memory {memory / 2**20:.0f} MB")
    for answer, count in sorted(answers.items()):
        print(f"  {answer}: {count}")
    print(f"{sum(findings.values())} findings" + (f", in {out}:" if findings else ""))
    for finding, count in findings.most_common():
        print(f"  {count} x {finding}")
    return int(bool(findings))


def inside(state: Path, seed: int, seconds: float, out: Path) -> None:
    """Try inputs until the time is over; what was found is written every second."""
    import attempting

    quiet()
    findings: Counter[str] = Counter()
    seeds = attempting.Seeds.small()
    with attempting.folder() as folder:
        attempts = attempting.Attempts(folder)
        end, said = time.monotonic() + seconds, 0.0
        for name, data in attempting.damaged(seeds, seed):
            now = time.monotonic()
            if now > said + 1 or now > end:
                summary = {
                    "answers": attempts.answers,
                    "findings": findings,
                    "slowest": attempts.slowest,
                    "memory": attempts.memory,
                }
                (state / "summary.json").write_text(json.dumps(summary))
                said = now
            if now > end:
                return
            (state / f"current{Path(name).suffix}").write_bytes(data)
            signal.alarm(STUCK)
            try:
                attempts.attempt(name, data)
            except attempting.FindingError as error:
                place = where(error)
                findings[place] += 1
                if findings[place] == 1:
                    print(f"{name}: {place}: {error}", file=sys.stderr)
                    keep(out, f"{len(findings)}-{seed}{Path(name).suffix}", data)
            signal.alarm(0)
            (state / f"current{Path(name).suffix}").unlink()


def guided(seconds: float, seed: int, out: Path) -> int:
    """Guided by coverage: atheris chooses what to damage further; half of the damage is to fields."""
    try:
        import atheris  # type: ignore[import-not-found]
    except ImportError:
        print("atheris is not installed: pip install atheris", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["relayout"]):
        import relayout.formats.onnx
        import relayout.formats.tflite
        import relayout.formats.tflite.loading  # noqa: F401
    import attempting
    import mutating

    quiet()
    out.mkdir(parents=True, exist_ok=True)
    with attempting.folder() as folder:
        corpus = folder / "corpus"
        corpus.mkdir()
        for name, data in attempting.Seeds.small(13_000).models.items():
            (corpus / name).write_bytes(data)
        attempts = attempting.Attempts(folder)

        def one(data: bytes) -> None:
            attempts.attempt("x.tflite" if data[4:8] == b"TFL3" else "x.onnx", data, convert=False)

        def mutate(data: bytes, most: int, number: int) -> bytes:
            rng = random.Random(number)
            try:
                damage = (mutating.flatbuffers if data[4:8] == b"TFL3" else mutating.messages)(data)
                changed = damage(rng) if rng.random() < 0.5 else b""
            except Exception:  # damaged so much already that its structure cannot be found
                changed = b""
            return changed[:most] or bytes(atheris.Mutate(data, most))

        options = [f"-max_total_time={int(seconds)}", f"-seed={seed + 1}", "-rss_limit_mb=4096", f"-timeout={STUCK}"]
        options += ["-max_len=65536", f"-artifact_prefix={out}/", str(corpus)]
        atheris.Setup([sys.argv[0], *options], one, custom_mutator=mutate)
        atheris.Fuzz()
    return 0


def where(error: BaseException) -> str:
    """The kind of the error behind a finding, and the line of ours that it came from."""
    cause: Any = error.__cause__
    if cause is None:
        return str(error).partition(":")[0][:80]
    frames = traceback.extract_tb(cause.__traceback__)
    ours = [frame for frame in frames if "relayout" in frame.filename] or frames
    return f"{type(cause).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"


def keep(out: Path, name: str, data: bytes) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / name).write_bytes(data)


def quiet() -> None:
    """Warnings are findings, as they are in the tests; what other packages log is not."""
    warnings.simplefilter("error")
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


if __name__ == "__main__":
    main()
