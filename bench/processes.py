"""Processes of their own: each measured from outside, on one thread, without a device. For all scripts of this folder.

This file imports nothing heavy: a child's peak memory counts from what its parent held.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LIMIT_SECONDS = 600
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""An installed package has its bytecode; one that is run from its source shall have it, too."""


@dataclass(frozen=True)
class Measured:
    """What a process was: exit status, wall seconds, its processor seconds, the most memory that it held."""

    code: int
    wall: float
    processor: float
    peak_mb: float


def measure(command: list[str], log: Path, limit: float = LIMIT_SECONDS) -> Measured:
    """Run a command to its end, its output in `log` and `log.err`; the command itself is what is measured."""
    begun = time.perf_counter()
    with log.open("wb") as out, errors_of(log).open("wb") as err:
        process = subprocess.Popen(
            ["timeout", str(limit), *command], stdout=out, stderr=err, env=ENVIRONMENT, stdin=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    return Measured(process.returncode, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def errors_of(log: Path) -> Path:
    return log.with_name(log.name + ".err")


def last_line(log: Path) -> str:
    """The last thing that a process said, errors first in rank."""
    said = [line for file in (log, errors_of(log)) for line in file.read_text(errors="replace").splitlines()]
    return next((line.strip()[:300] for line in reversed(said) if line.strip()), "")


def answer(python: str, script: str, *arguments: str, limit: float = LIMIT_SECONDS) -> dict[str, Any]:
    """What a script of this folder prints last, as JSON; {"why": …} where it fails."""
    command = ["timeout", str(limit), python, str(HERE / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        return {"why": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:300]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def record(folder: Path, name: str, found: Any, page: str, summary: str) -> None:
    """What every script of this folder leaves: all figures as JSON, its page, and what `run.py` puts together."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(page.rstrip("\n") + "\n", encoding="utf-8")
    (folder / "summary.md").write_text(summary.rstrip("\n") + "\n", encoding="utf-8")


def models(paths: Iterable[Path], suffix: str) -> list[Path]:
    """The files among the paths, and those of that suffix in the folders among them."""
    return [file for path in paths for file in (sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path])]


def digest(path: Path) -> str:
    """SHA-256 of a file, a piece at a time: a child's peak memory counts from what this process held."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


FEATURES = ("avx512_vnni", "avx_vnni", "avx512f", "avx2")
"""Of which the first that a processor has says most about its products of integers, as Linux calls them."""


def processor() -> str:
    """The processor's name, and the widest of its instructions; empty where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    told = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    flags = told.get("flags", "").split()
    widest = next((feature for feature in FEATURES if feature in flags), "")
    return " with ".join(filter(None, (told.get("model name", ""), widest)))


def versions(python: str, *packages: str) -> dict[str, str]:
    """The versions of those of the packages that a Python has."""
    code = (
        "import sys\nfrom importlib.metadata import PackageNotFoundError, version\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(name, version(name))\n"
        "    except PackageNotFoundError: pass"
    )
    done = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True)
    return dict(line.split() for line in done.stdout.splitlines())
