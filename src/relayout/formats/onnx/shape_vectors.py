"""Vectors of shapes that are known in part: their elements are numbers, extents with symbols, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relayout.layout import Extent

Array = NDArray[Any]
Item = int | Extent | None
"""An extent in a vector of shapes: a number, a product with symbols, or not known."""


def product_or_quotient(node: onnx.NodeProto, given: Mapping[str, Array]) -> list[Array]:
    """Return the products or the quotients of extents, by the operator of a node."""
    left, right = np.broadcast_arrays(*(given[name] for name in node.input))
    pairs = zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)
    found = [combine_items(node.op_type, one, other) for one, other in pairs]
    return [as_integers(object_vector(found).reshape(left.shape))]


def combine_items(operator: str, one: Item, other: Item) -> Item:
    """Return the product (`Mul`) or the quotient of two extents; None where it is not known."""
    if one is None or other is None:
        return None
    a, b = Extent.of(one), Extent.of(other)
    if a.number <= 0 or b.number <= 0:
        return None
    return item_of(a * b if operator == "Mul" else a.floor(b))


def _equal(one: Array, other: Array) -> list[Array]:
    """Which elements are equal, if it is known of each: no extent is negative, and one that has a name is itself."""
    left, right = np.broadcast_arrays(one, other)
    found: list[bool] = []
    for a, b in zip(left.ravel().tolist(), right.ravel().tolist(), strict=True):
        negative = any(isinstance(item, int) and item < 0 for item in (a, b))
        if a is None or b is None or not (a == b or negative or (isinstance(a, int) and isinstance(b, int))):
            return []
        found.append(a == b)
    return [np.array(found, bool).reshape(left.shape)]


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
