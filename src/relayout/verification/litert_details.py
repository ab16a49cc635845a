"""Details of a tensor as LiteRT's interpreter lists them: what its integers mean."""

from __future__ import annotations

from typing import Any

import numpy as np


def limits_of(details: dict[str, Any]) -> tuple[float, float] | None:
    """The least and the greatest real number that a tensor's integers stand for; None without one scale."""
    dtype, (scale, zero) = np.dtype(details["dtype"]), details["quantization"]
    if dtype.kind not in "iu" or not scale:
        return None
    info = np.iinfo(dtype)
    return float(scale) * (info.min - int(zero)), float(scale) * (info.max - int(zero))


def quantization_arguments(details: dict[str, Any]) -> dict[str, Any]:
    """Return a tensor's scale and zero point as arguments of `Value`."""
    found = details["quantization_parameters"]
    scale, zero = (tuple(found[name].tolist()) for name in ("scales", "zero_points"))
    return {"scale": scale, "zero": zero, "axis": int(found["quantized_dimension"])}


def is_quantized(details: dict[str, Any]) -> bool:
    """Tell whether a tensor holds integers with a scale."""
    return len(details["quantization_parameters"]["scales"]) > 0 and np.dtype(details["dtype"]).kind in "iu"
