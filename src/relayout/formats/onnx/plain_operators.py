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
        ValueError, LookupError, TypeError: the operands are not what the operator takes.
    """
    if any(array is None for array in operands) and node.op_type != "Clip":
        return None
    if node.op_type in OTHERS:
        return OTHERS[node.op_type](node, *operands)
    function = FUNCTIONS.get(node.op_type)
    kinds = {array.dtype for array in operands[1 if node.op_type == "Where" else 0 :] if array is not None}
    if function is None or len(kinds) != 1:
        return None
    if any(attribute.type != onnx.AttributeProto.INT or attribute.i for attribute in node.attribute):
        return None
    return np.asarray(function(*operands))


def _clipped(node: onnx.NodeProto, data: Array, least: Array | None = None, most: Array | None = None) -> Array | None:
    return None if node.attribute else np.clip(data, least, most)


def _filled(node: onnx.NodeProto, shape: Array) -> Array:
    """Return a tensor of the attribute's value; of 0.0 where there is no attribute."""
    values = [numpy_helper.to_array(attribute.t) for attribute in node.attribute if attribute.name == "value"]
    value = values[0] if values else np.zeros(1, np.float32)
    return np.full(tuple(shape.tolist()), value.reshape(()))


def _expanded(_: onnx.NodeProto, data: Array, shape: Array) -> Array:
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape.tolist())))


def _picked(node: onnx.NodeProto, data: Array, indices: Array) -> Array:
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return np.take_along_axis(data, indices, axis)


def _scattered(node: onnx.NodeProto, data: Array, indices: Array, updates: Array) -> Array | None:
    """Return the data with updates in some places; None where these are reduced with what is there."""
    if node.attribute and node.attribute[0].s not in (b"", b"none"):
        return None
    result = data.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


def _ranged(start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)


def _quotient(one: Array, other: Array) -> Array:
    """Integers are truncated, as ONNX has it; its reference floored them until version 1.22."""
    if one.dtype.kind not in "iu":
        return one / other
    floor: Array = one // other
    rounded: Array = np.add(floor, (floor < 0) & (floor * other != one), dtype=floor.dtype)
    return rounded


def _sigmoid(x: Array) -> Array:
    power: Array = np.exp(-np.abs(x))
    quotient: Array = np.where(x > 0, 1, power) / (1 + power)
    return quotient


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Div": _quotient,
    "Equal": np.equal,
    "Exp": np.exp,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "MatMul": np.matmul,
    "Mod": np.mod,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": np.power,
    "Range": _ranged,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": _sigmoid,
    "Sub": np.subtract,
    "Where": np.where,
}
"""Operators without attributes but flags that are 0, on operands of one type."""

OTHERS: dict[str, Callable[..., Array | None]] = {
    "Clip": _clipped,
    "ConstantOfShape": _filled,
    "Expand": _expanded,
    "GatherElements": _picked,
    "ScatterND": _scattered,
}
"""Operators whose attributes are read, or whose operands are of several types or left out."""
