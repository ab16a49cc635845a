"""Initial values of inputs that are state from run to run, from a model's metadata (`relayout.initial`)."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from relayout.errors import LayoutError
from relayout.layout.stored_as import Holds, relay
from relayout.verification.side import Array


def initial_state(
    text: str, dtype: np.dtype[Any], stored: tuple[int, ...], held: Sequence[Holds], names: Collection[str]
) -> Array | None:
    """Return the array, stored as the input is; None if the text is not as it is written.

    Args:
        text: the metadata: JSON, in the order of axes of the first source.
        dtype: the input's type.
        stored: its shape.
        held: what the input holds of its sources.
        names: what it is called, here and in the source.
    """
    try:
        array = np.array(json.loads(text), dtype)
        for item in reversed(held):  # the oldest of a name: the values are those of the first source
            if array.ndim and item.name in names:
                return np.asarray(relay(array, item, stored))
        return np.broadcast_to(array, stored)
    except (ValueError, TypeError, OverflowError, RecursionError, LayoutError):  # not as we write it
        return None
