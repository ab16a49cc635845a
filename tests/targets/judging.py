"""Judges in environments of their own: a script answers about models, a line of JSON each, and may end over one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import relayout

BENCH = Path(__file__).parents[2] / "bench"
PARTS = 17
"""A sweep over many cases has this many parts. The first runs by default, and the others are slow.

The number is prime, so that a part has cases of all types where a list alternates between a few.
"""
Item = TypeVar("Item")
Test = TypeVar("Test", bound=Callable[..., None])


def python_with(variable: str, *, module: str = "", program: str = "") -> str | None:
    """Return the Python that has a judge, or None.

    Args:
        variable: an environment variable that names the Python.
        module: the judge's module, if this environment may have it.
        program: the judge's program, if it may be on the path: the Python is beside it.
    """
    if variable in os.environ:
        return os.environ[variable]
    if module and find_spec(module):
        return sys.executable
    found = shutil.which(program) if program else None
    return str(Path(found).parent / "python") if found else None


def in_parts(test: Test) -> Test:
    """Run a test once for each part of a sweep: it takes the number as `part`."""
    parts = pytest.mark.parametrize("part", range(PARTS))
    marked: Test = pytest.mark.sampled(every=PARTS)(parts(test))
    return marked


def part_of(items: Sequence[Item], part: int) -> Sequence[Item]:
    """Return every n-th item."""
    return items[part::PARTS]


def answers(python: str, script: str, models: Sequence[Path]) -> dict[str, Any]:
    """Ask about models; where the process ends over one, go on behind it."""
    found: dict[str, Any] = {}
    ahead = [str(path) for path in models]
    while ahead:
        command = [python, str(BENCH / script), *ahead]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        found |= {line["model"]: line for line in lines}
        ahead = ahead[len(lines) :]
        if ahead:
            found[ahead[0]] = {"model": ahead[0], "refused": "its process ended"}
            ahead = ahead[1:]
    return found


def saved(result: relayout.Result, feed: dict[str, Any], path: Path) -> None:
    """Write a file, what it is fed in the order of its inputs, and what LiteRT gives in the order of its outputs."""
    result.save(path)
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    runner = interpreter.get_signature_runner()
    given = runner(**feed)
    inputs, outputs = (
        {details["index"]: name for name, details in found.items()}
        for found in (runner.get_input_details(), runner.get_output_details())
    )
    read = [feed[inputs[details["index"]]] for details in interpreter.get_input_details()]
    made = [given[outputs[details["index"]]] for details in interpreter.get_output_details()]
    arrays = {f"i{place}": array for place, array in enumerate(read)}
    np.savez(path.with_suffix(".npz"), **arrays, **{f"o{place}": array for place, array in enumerate(made)})
