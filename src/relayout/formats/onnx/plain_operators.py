"""The operators that most graphs compute shapes with, by NumPy, as ONNX's reference computes them.

Loading the reference takes as long as converting a small model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from relayout.formats.onnx.shape_vectors import Array


def compute_plainly(node: onnx.NodeProto, operands: Sequence[Array | None]) -> Array | None:
    """Return what a node gives; None where its operator or this form of it is not computed here.

    Args:
        node: the node.
        operands: the values of its inputs, as numbers; None for one that is left out.

    Raises:
        ValueError, TypeError: the operands are not what the operator takes.
    """
    if node.op_type == "ConstantOfShape":
        (shape,) = operands
        return None if shape is None else _filled(node, shape)
    function = FUNCTIONS.get(node.op_type)
    kinds = {None if array is None else array.dtype for array in operands[1 if node.op_type == "Where" else 0 :]}
    if function is None or len(kinds) != 1 or any(array is None for array in operands):
        return None
    if any(attribute.type != onnx.AttributeProto.INT or attribute.i for attribute in node.attribute):
        return None
    return np.asarray(function(*operands))


def _filled(node: onnx.NodeProto, shape: Array) -> Array | None:
    """A tensor of one value: that of the attribute, or the real number 0."""
    values = [numpy_helper.to_array(attribute.t) for attribute in node.attribute if attribute.name == "value"]
    value = values[0] if values else np.zeros(1, np.float32)
    return np.full(tuple(shape.tolist()), value.reshape(()))


def _ranged(start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)


def _quotient(one: Array, other: Array) -> Array:
    return one // other if one.dtype.kind in "iu" else one / other


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Div": _quotient,
    "Equal": np.equal,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mod": np.mod,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": np.power,
    "Range": _ranged,
    "Sub": np.subtract,
    "Where": np.where,
}
"""Operators without attributes but flags that are 0, on operands of one type."""
