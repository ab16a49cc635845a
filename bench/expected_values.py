"""Inputs for a judge in an environment of its own, and expected outputs: `i0`, `i1`, … and `o0`, … of MODEL.npz.

Wants numpy alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


class RefusedError(Exception):
    """A judge refused a model; the message says why."""


def arrays_beside(path: Path) -> tuple[list[Any], list[Any]]:
    """Return inputs and expected outputs, each in the model's order."""
    with np.load(path.with_suffix(".npz")) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    counts = {letter: sum(name[0] == letter and name[1:].isdigit() for name in found) for letter in "io"}
    inputs, outputs = ([found[f"{letter}{place}"] for place in range(counts[letter])] for letter in "io")
    return inputs, outputs


def names_beside(path: Path) -> list[str]:
    """Return the names of the inputs, in the same order."""
    with np.load(path.with_suffix(".npz")) as arrays:
        return [str(name) for name in arrays["names"]]


def difference(expected: Any, got: Any) -> float:
    """Return the greatest difference: of integers in steps, of real numbers by the largest value.

    Raises:
        RefusedError: the shapes differ, or one has numbers where the other has none.
    """
    if expected.shape != got.shape:
        raise RefusedError(f"shape {got.shape} in place of {expected.shape}")
    a, b = expected.astype(np.float64), got.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.isfinite(a[~same]).all() or not np.isfinite(b[~same]).all():
        raise RefusedError("infinities or NaN where there should be none, or none where there should be")
    apart = np.abs(a - b, where=~same, out=np.zeros(a.shape)).max(initial=0)
    largest = np.abs(a[np.isfinite(a)]).max(initial=0) if expected.dtype.kind == "f" else 1
    return float(apart / max(largest, 1e-30))
