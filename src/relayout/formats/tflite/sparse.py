"""Sparse constants: expand what `SparsityParameters` describes to a dense array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from relayout.formats.tflite.registry import Unsupported

if TYPE_CHECKING:
    from relayout.formats.tflite.model import Tensor


def dense(tensor: Tensor) -> npt.NDArray[Any]:
    """The elements of a sparse constant with the zeros written out."""
    raise Unsupported(f"sparse constant {tensor.place}")
