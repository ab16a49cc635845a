"""Tensors of a file that are decoded once, though many ask for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

MOST = 1 << 12
"""Elements of a tensor up to which they are kept."""


class CachedTensor(ir.TensorProtoTensor):
    """A tensor of a proto that keeps its type and shape, and a small one its elements, too."""

    __slots__ = ("_elements", "_kept_dtype", "_kept_shape")

    def __init__(self, tensor: ir.TensorProtoTensor) -> None:
        super().__init__(tensor.raw)
        self._kept_dtype, self._kept_shape = tensor.dtype, tensor.shape
        self._elements: NDArray[Any] | None = None

    @property
    def dtype(self) -> ir.DataType:  # type: ignore[override]  # a property there, too
        """The type of its elements."""
        return self._kept_dtype

    @property
    def shape(self) -> ir.Shape:  # type: ignore[override]  # a property there, too
        """Its extents."""
        return self._kept_shape

    def numpy(self) -> NDArray[Any]:
        """The elements, which nobody may write to."""
        if self._elements is not None:
            return self._elements
        elements: NDArray[Any] = np.asarray(super().numpy())
        if elements.size <= MOST:
            elements.flags.writeable = False
            self._elements = elements
        return elements
