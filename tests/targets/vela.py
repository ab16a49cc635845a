"""Arm's compiler Vela as a judge of `.tflite` files: the operators that it leaves to the CPU, and estimated cycles."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from relayout.formats.tflite.container.loading import load

PROGRAM = os.environ.get("RELAYOUT_VELA") or shutil.which("vela")
"""The program; `RELAYOUT_VELA` names one that is in an environment of its own."""
NPU = "CUSTOM ethos-u"
"""The custom operator that stands for all that the NPU runs."""
needs_vela = pytest.mark.skipif(PROGRAM is None, reason="no vela: pip install ethos-u-vela")


class Judgement(NamedTuple):
    """What Vela makes of a model.

    Args:
        on_cpu: the builtin operators that it leaves to the CPU.
        has_npu: whether it puts any on the NPU.
        cycles: its estimate for an inference.
    """

    on_cpu: list[str]
    has_npu: bool
    cycles: float


def judge(model: Path, directory: Path) -> Judgement:
    """Compile a `.tflite` for an Ethos-U55."""
    assert PROGRAM is not None
    done = subprocess.run(
        [PROGRAM, str(model), "--output-dir", str(directory)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (subgraph, *_) = load(directory / f"{model.stem}_vela.tflite").subgraphs
    names = [operator.name for operator in subgraph.operators]
    (summary,) = directory.glob(f"{model.stem}_summary_*.csv")
    (row,) = csv.DictReader(summary.read_text(encoding="utf-8").splitlines())
    return Judgement([name for name in names if name != NPU], NPU in names, float(row["cycles_total"]))
