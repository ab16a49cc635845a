"""Judges in environments of their own: a script answers about models, a line of JSON each, and may end over one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import relayout

BENCH = Path(__file__).parents[2] / "bench"


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
