"""Arm's compiler Vela as a judge of `.tflite` files: the operators that it leaves to the CPU, and estimated cycles."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from relayout.formats.tflite.container.loading import load

PROGRAM = os.environ.get("RELAYOUT_VELA") or shutil.which("vela")
"""The program; `RELAYOUT_VELA` names one that is in an environment of its own."""
NPU = "CUSTOM ethos-u"
"""The operator that stands for all that the NPU runs in one go."""
ON_NPU = re.compile(r"NPU operators = (\d+)")


class RefusedError(Exception):
    """Vela compiled nothing; the message is its last line."""


class Judgement(NamedTuple):
    """Vela's judgement of a model.

    Args:
        on_cpu: the builtin operators that it leaves to the CPU -> how many.
        on_npu: the number of operators that it puts on the NPU.
        cycles: its estimate for an inference, of the NPU alone.
    """

    on_cpu: dict[str, int]
    on_npu: int
    cycles: int


def judge(model: Path, directory: Path, *options: str, program: str | None = None) -> Judgement:
    """Compile a `.tflite`, by default for an Ethos-U55 with 256 multipliers.

    Raises:
        RefusedError: Vela could not.
    """
    found = program or PROGRAM
    assert found is not None
    command = [found, str(model), "--output-dir", str(directory), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        lines = [line for line in (*done.stdout.splitlines(), *done.stderr.splitlines()) if "Error" in line]
        raise RefusedError(lines[-1].strip() if lines else f"exit {done.returncode}")
    names = Counter(
        operator.name
        for graph in load(directory / f"{model.stem}_vela.tflite").subgraphs
        for operator in graph.operators
    )
    names.pop(NPU, None)
    (summary,) = directory.glob(f"{model.stem}_summary_*.csv")
    (row,) = csv.DictReader(summary.read_text(encoding="utf-8").splitlines())
    count = ON_NPU.search(done.stdout)
    return Judgement(dict(names.most_common()), int(count[1]) if count else 0, int(float(row["cycles_total"])))
