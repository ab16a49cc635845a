"""How much an operator would write, known from its operands before it runs: a short file can ask for any amount."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

Array = NDArray[Any]
Operands = Sequence[Array | None]
Attributes = Mapping[str, Any]


def output_size(node: onnx.NodeProto, operands: Operands) -> float:
    """Return at least as many elements as a node's outputs have together, and as running it takes.

    Most operators write as many elements as their operands have where these are broadcast; `SIZES` has the others.

    Args:
        node: the node, of an operator that is evaluated.
        operands: the values of its inputs; None for one that is left out.

    Raises:
        ValueError, IndexError, TypeError: the node's operands are not what its operator takes.
    """
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    size = SIZES[node.op_type](operands, attributes) if node.op_type in SIZES else _broadcast(operands)
    return max(size, *(array.size for array in operands if array is not None), 0)


def _broadcast(operands: Operands, *more: Sequence[int]) -> float:
    """The elements of operands that are stretched to each other, and to more shapes."""
    shapes = [*(array.shape for array in operands if array is not None), *more]
    extents = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return math.prod(float(max(map(abs, each))) for each in extents)


def _integers(operands: Operands, slot: int) -> list[int]:
    """The elements of an operand, as extents."""
    array = operands[slot] if slot < len(operands) else None
    return [] if array is None else [abs(int(item or 0)) for item in array.reshape(-1).tolist()]


def _first(operands: Operands) -> Array:
    array = operands[0]
    if array is None:
        raise ValueError("the first input is left out")
    return array


def _joined(operands: Operands, _: Attributes) -> float:
    return sum(array.size for array in operands if array is not None)


def _filled(operands: Operands, _: Attributes) -> float:
    return math.prod(map(float, _integers(operands, 0)))


def _expanded(operands: Operands, _: Attributes) -> float:
    return _broadcast(operands[:1], _integers(operands, 1))


def _gathered(operands: Operands, attributes: Attributes) -> float:
    data, indices = _first(operands), operands[1]
    extent = data.shape[int(attributes.get("axis", 0))]
    return 0.0 if indices is None or not extent else float(indices.size) * data.size / extent


def _gathered_slices(operands: Operands, attributes: Attributes) -> float:
    data, indices = _first(operands), operands[1]
    if indices is None or not indices.ndim or not indices.shape[-1]:
        return float(data.size) * (1 if indices is None else indices.size + 1)
    depth = int(attributes.get("batch_dims", 0)) + indices.shape[-1]
    slices: float = math.prod(map(float, data.shape[depth:]))
    return slices * float(indices.size // indices.shape[-1])


def _one_hot(operands: Operands, _: Attributes) -> float:
    return float(_first(operands).size) * math.prod(map(float, _integers(operands, 1)))


def _padded(operands: Operands, attributes: Attributes) -> float:
    dims = _first(operands).shape
    pads = _integers(operands, 1) or [abs(int(item)) for item in attributes.get("pads", attributes.get("paddings", []))]
    axes = [int(item) for item in operands[3].reshape(-1)] if len(operands) > 3 and operands[3] is not None else []
    padded = list(map(float, dims))
    count = len(pads) // 2
    for axis, before, after in zip(axes or range(len(dims)), pads[:count], pads[count:], strict=False):
        padded[axis] += before + after
    return math.prod(padded)


def _ranged(operands: Operands, _: Attributes) -> float:
    ends = [float(array.reshape(-1)[0]) for array in operands if array is not None]
    start, limit, delta = ends
    return max(0, math.ceil((limit - start) / delta)) if delta else math.inf


def _tiled(operands: Operands, _: Attributes) -> float:
    data, repeats = _first(operands), _integers(operands, 1)
    return float(data.size) * math.prod(map(float, repeats))


SIZES: Mapping[str, Callable[[Operands, Attributes], float]] = {
    "Concat": _joined,
    "ConstantOfShape": _filled,
    "Expand": _expanded,
    "Gather": _gathered,
    "GatherND": _gathered_slices,
    "OneHot": _one_hot,
    "Pad": _padded,
    "Range": _ranged,
    "Tile": _tiled,
}
"""Operators that write more than their operands have, or other amounts."""


def writes_at_most(node: onnx.NodeProto, operands: Operands, most: int) -> bool:
    """Tell whether a node is known to write no more than so many elements."""
    try:
        with np.errstate(all="ignore"):
            size = output_size(node, operands)
    except (ValueError, IndexError, TypeError, OverflowError):
        return False
    return size <= most  # not where it is not a number
