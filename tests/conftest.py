"""Paths that tests share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

SHARED = Path(__file__).parents[2] / "shared" / "models" / "tflite"
"""Real models, beside the project; tests that need them skip where they are absent."""


def shared_models(*folders: str) -> list[Path]:
    """The models of some folders, in order; none where they are absent."""
    return [path for folder in folders for path in sorted((SHARED / folder).glob("*.tflite"))]
