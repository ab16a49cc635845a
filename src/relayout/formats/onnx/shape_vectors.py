"""Vectors of shapes that are known in part: their elements are numbers, extents with symbols, or None."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relayout.layout import Extent

Array = NDArray[Any]
Item = int | Extent | None  # an extent in a vector of shapes: a number, a product with symbols, or not known


def product_or_quotient(node: onnx.NodeProto, operands: Mapping[str, Array]) -> list[Array]:
    """Return the products or the quotients of extents, by the operator of a node."""
    left, right = np.broadcast_arrays(*(operands[name] for name in node.input))
    pairs = zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)
    items = [combine_items(node.op_type, one, other) for one, other in pairs]
    return [as_integers(object_vector(items).reshape(left.shape))]


def combine_items(operator: str, one: Item, other: Item) -> Item:
    """Return the product (`Mul`) or the quotient of two extents; None where it is not known."""
    if one is None or other is None:
        return None
    a, b = Extent.of(one), Extent.of(other)
    if a.number <= 0 or b.number <= 0:
        return None
    return item_of(a * b if operator == "Mul" else a.floor(b))


def _equal(one: Array, other: Array) -> list[Array]:
    """Return which elements are equal, if each is known: no extent is negative, and a named extent equals itself."""
    left, right = np.broadcast_arrays(one, other)
    flags: list[bool] = []
    for a, b in zip(left.ravel().tolist(), right.ravel().tolist(), strict=True):
        negative = any(isinstance(item, int) and item < 0 for item in (a, b))
        if a is None or b is None or not (a == b or negative or (isinstance(a, int) and isinstance(b, int))):
            return []
        flags.append(a == b)
    return [np.array(flags, bool).reshape(left.shape)]


def _chosen(condition: Array, one: Array, other: Array) -> list[Array]:
    """Elements of one or the other, where it is known of which."""
    return [] if condition.dtype == object else [as_integers(np.where(condition, one, other))]


OF_ITEMS: dict[str, Callable[..., list[Array]]] = {"Equal": _equal, "Where": _chosen}
"""Operators on vectors of shapes of which only some extents are numbers."""


def item_of(extent: Extent | None) -> Item:
    """Return an extent as an element of a vector of shapes: a number, where it is one."""
    return extent.number if extent is not None and extent.is_static else extent


def object_vector(items: Sequence[Item]) -> Array:
    """Return extents as an array of objects."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


def as_integers(array: Array, kind: int | None = None) -> Array:
    """Return the array as integers where every element is one."""
    if not all(isinstance(item, int) for item in array.ravel()):
        return array
    return array.astype(np.int32 if kind == onnx.TensorProto.INT32 else np.int64)


# Operators that only move elements, computed on vectors of shapes: numbers, or extents that are known in part.

Attributes = Mapping[str, Any]  # an operator's attributes by name, as Python has them
INTEGERS = {onnx.TensorProto.INT64: np.int64, onnx.TensorProto.INT32: np.int32}
"""Types of integers that a Cast to them is computed for -> NumPy's."""
NUMBERS = {**INTEGERS, onnx.TensorProto.BOOL: np.bool_, onnx.TensorProto.FLOAT: np.float32}
"""The types of numbers likewise."""


def move_elements(
    node: onnx.NodeProto,
    operands: Sequence[Array | None],  # the values of its inputs; None for one that is left out
) -> Array | None:
    """Return what a node gives that only moves elements of its first operand, or of all operands of a Concat.

    Returns:
        The elements; as integers where all are known. None where this form of the operator is not computed here, or
        where an index or a shape is not known.

    Raises:
        ValueError, LookupError, TypeError: the operands or attributes are not what the operator takes.
    """
    compute = MOVES.get(node.op_type)
    data = operands if node.op_type == "Concat" else operands[:1]
    others = [array for array in operands[len(data) :] if array is not None]
    kinds = {array.dtype for array in data if array is not None}
    if compute is None or any(array is None for array in data) or any(each.dtype.kind not in "iu" for each in others):
        return None
    if len(kinds - {np.dtype(object)}) > 1:
        return None
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    moved = compute(attributes, *operands)
    if moved is None or np.dtype(object) not in kinds:
        return None if moved is None else np.asarray(moved)
    return as_integers(np.asarray(moved, object), attributes.get("to"))


def _cast(attributes: Attributes, data: Array) -> Array | None:
    if data.dtype == object:
        return data if attributes["to"] in INTEGERS else None
    kind = NUMBERS.get(attributes["to"]) if data.dtype.kind in "iubf" else None
    return None if kind is None else data.astype(kind)


def _flattened(attributes: Attributes, data: Array) -> Array:
    axis = attributes.get("axis", 1)
    axis += data.ndim if axis < 0 else 0
    return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))


def _reshaped(attributes: Attributes, data: Array, shape: Array | None = None) -> Array | None:
    if shape is None:
        return None
    dims = shape.tolist()
    if not attributes.get("allowzero"):
        dims = [dim or data.shape[axis] for axis, dim in enumerate(dims)]
    return data.reshape(dims)


def _sliced(
    _: Attributes,
    data: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array | None:
    if starts is None or ends is None:
        return None
    along = range(starts.size) if axes is None else axes.tolist()
    by = [1] * starts.size if steps is None else steps.tolist()
    cuts = [slice(None)] * data.ndim
    for axis, start, stop, step in zip(along, starts.tolist(), ends.tolist(), by, strict=True):
        cuts[axis] = slice(start, stop, step)
    return data[tuple(cuts)]


def _unsqueezed(attributes: Attributes, data: Array, axes: Array | None = None) -> Array | None:
    named = _axes(attributes, axes)
    return np.expand_dims(data, named) if named else None


def _axes(attributes: Attributes, axes: Array | None) -> tuple[int, ...]:
    """Axes that an operand names, or the attribute that they were before opset 13."""
    return tuple(attributes.get("axes", ()) if axes is None else axes.tolist())


MOVES: dict[str, Callable[..., Array | None]] = {
    "Cast": _cast,
    "Concat": lambda attributes, *operands: np.concatenate(operands, axis=attributes["axis"]),
    "Flatten": _flattened,
    "Gather": lambda attributes, data, indices: np.take(data, indices, axis=attributes.get("axis", 0)),
    "Identity": lambda _, data: data,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Squeeze": lambda attributes, data, axes=None: np.squeeze(data, _axes(attributes, axes) or None),
    "Transpose": lambda attributes, data: np.transpose(data, attributes.get("perm")),
    "Unsqueeze": _unsqueezed,
}
"""Operators whose results hold elements of their first operand (Concat: of all), by no more than where they stand."""
