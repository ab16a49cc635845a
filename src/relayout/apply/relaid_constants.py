"""Constants in another order of axes, evaluated when they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.infer import Form, Root, order_of
from relayout.layout.perm import between


class Relaid(ir.LazyTensor):
    """A constant in another order of axes. `strided` is a view of the source with the same bytes in C order."""

    strided: Callable[[], NDArray[Any]]


def relaid(root: Root, form: Form) -> ir.LazyTensor:
    """Return a constant, or an input's default, as it lies in a form."""
    tensor = root.value.const_value
    assert tensor is not None
    factors = order_of(root.logical)
    extents = [root.extents[factor].number for factor in factors]
    shape = tuple(extent.number for extent in root.shape(form))
    perm = between(factors, order_of(form))

    def strided() -> NDArray[Any]:
        return tensor.numpy().reshape(extents).transpose(perm)

    def evaluated() -> ir.TensorProtocol:
        array = np.ascontiguousarray(strided().reshape(shape))
        return ir.Tensor(array, dtype=tensor.dtype, shape=ir.Shape(shape))

    made = Relaid(evaluated, tensor.dtype, ir.Shape(shape))
    made.strided = strided
    return made
