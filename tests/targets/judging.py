"""Judges in environments of their own: a script answers about models, a line of JSON each, and may end over one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"


def answers(python: str, script: str, models: Sequence[Path]) -> dict[str, Any]:
    """Ask about models; where the process ends over one, go on behind it."""
    found: dict[str, Any] = {}
    ahead = [str(path) for path in models]
    while ahead:
        command = [python, str(BENCH / script), *ahead]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        found |= {line["model"]: line for line in lines}
        ahead = ahead[len(lines) :]
        if ahead:
            found[ahead[0]] = {"model": ahead[0], "refused": "its process ended"}
            ahead = ahead[1:]
    return found
