"""Compare the outputs of runs of two `.tflite` files, as `bench/judge_back.py` writes them.

**exact**: equal bit for bit. **right**: within 1e-4 of the largest value, or one step of a quantized output. **close**:
within 2 % of the largest value, or three steps. Beyond that, and where integers that count differ: **wrong**.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from judge import distance
from judge_tflite import CLOSE, CLOSE_STEPS
from numpy.typing import NDArray

Array = NDArray[Any]
VERDICTS = ("exact", "right", "close", "wrong", "does not run", "refused")


def compared(wanted: dict[str, Array], found: dict[str, Array], *, loose: bool = False, runs: int | None = None) -> Any:
    """Return the verdict on all outputs of some runs, and the largest difference as a part of the largest value.

    Args:
        wanted: `RUN.PLACE` -> the source's output, `scale.PLACE` -> scale and zero point.
        found: the result's.
        loose: other types, and channels first or last, count by their values.
        runs: how many runs count; None: all.
    """
    names = [name for name in wanted if name[0].isdigit() and (runs is None or int(name.partition(".")[0]) < runs)]
    if not set(names) <= set(found):
        return {"verdict": "wrong", "why": "other outputs"}
    pairs = [one_output(name, wanted, found, loose) for name in names]
    return worst({"verdict": verdict, "error": error} for verdict, error in pairs)


def worst(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the worst verdict, the largest error, and why."""
    known = list(rows)
    verdict = max((row["verdict"] for row in known), key=VERDICTS.index, default="exact")
    errors = [row.get("error") for row in known]
    whys = [row["why"] for row in known if row["verdict"] == verdict and "why" in row]
    error = None if None in errors else max(errors, default=0.0)
    return {"verdict": verdict, "error": error} | ({"why": whys[0]} if whys else {})


def one_output(name: str, wanted: dict[str, Array], found: dict[str, Array], loose: bool) -> tuple[str, float | None]:
    a, b = wanted[name], found[name]
    if a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes():
        return "exact", 0.0
    place = name.partition(".")[2]
    scale, other = wanted[f"scale.{place}"], found[f"scale.{place}"]
    same = a.shape == b.shape and a.dtype == b.dtype
    fitting = [each for each in readings(b) if each.shape == a.shape] if loose else [b] * same
    if not fitting:
        return "wrong", None
    if a.dtype.kind not in "fiub":
        error = min(float(np.abs(a - each).max(initial=0)) for each in fitting)
        largest = float(np.abs(a).max(initial=0)) or 1.0
        return verdict_of(error, 1e-4 * largest + 1e-6, CLOSE * largest), error / largest
    if a.dtype.kind in "iub" and not scale[0]:
        error = min(float(np.mean(a != each)) for each in fitting)
        return ("wrong" if error else "exact" if a.dtype == b.dtype else "right"), error
    real = meant(a, scale)
    largest = float(np.abs(real[np.isfinite(real)]).max(initial=0)) or 1.0
    error = min(distance(real, meant(each, other)) for each in fitting)
    step = 1.01 * scale[0]
    verdict = verdict_of(error, max(step, 1e-4 * largest + 1e-6), max(CLOSE * largest, CLOSE_STEPS * step))
    return verdict, error / largest if math.isfinite(error) else None


def readings(array: Array) -> list[Array]:
    """Return an output as it is, without a lone axis of one, and with its channels moved to either side."""
    found = [array, array.reshape(())] if array.shape == (1,) else [array]
    return [*found, np.moveaxis(array, 1, -1), np.moveaxis(array, -1, 1)] if array.ndim > 2 else found


def verdict_of(error: float, right: float, close: float) -> str:
    return "right" if error <= right else "close" if error <= close else "wrong"


def meant(array: Array, scale: Array) -> Array:
    """Return the numbers that integers mean."""
    real = array.astype(np.float64)
    return (real - scale[1]) * scale[0] if scale[0] and array.dtype.kind in "iu" else real
