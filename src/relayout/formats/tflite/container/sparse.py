"""Sparse constants: expand what `SparsityParameters` describes to a dense array.

The elements lie along a tree, one level for each entry of the traversal order. A dense level has the same number of
children everywhere; a compressed one has, for parent p, the children `indices[segments[p]:segments[p + 1]]`. Levels
numbered from the rank on are positions inside a block of the dimension that the block map names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import DimensionType, TensorType

if TYPE_CHECKING:
    from relayout.formats.flatbuffer import Table
    from relayout.formats.tflite.container.model import Tensor

MAX_EXPANSION = 256
"""How many elements one stored element may stand for: beyond that a file is damaged, or means to fill the memory."""

_DTYPES = {TensorType.FLOAT32: "<f4", TensorType.FLOAT16: "<f2", TensorType.INT8: "i1", TensorType.INT32: "<i4"}

_VECTORS = ("Int32Vector", "Uint16Vector", "Uint8Vector")

_Indices = npt.NDArray[np.int64]


def dense(tensor: Tensor) -> npt.NDArray[Any]:
    """The elements of a sparse constant with the zeros written out."""
    if tensor.data is None or tensor.sparsity is None or tensor.type not in _DTYPES:
        raise ReadError(f"a sparse {tensor.type.name} cannot be expanded", where=tensor.place)
    width = np.dtype(_DTYPES[tensor.type]).itemsize
    if tensor.data.nbytes % width:
        raise ReadError("the elements do not fill their buffer", where=tensor.place)
    values = tensor.content.view(_DTYPES[tensor.type])
    if math.prod(tensor.shape) > MAX_EXPANSION * (values.size + 1024):
        raise ReadError(f"{values.size} elements cannot make {list(tensor.shape)}", where=tensor.place)
    position = _positions(tensor, tensor.sparsity, values.size)
    out = np.zeros(tensor.shape, values.dtype)
    out[tuple(position)] = values
    return out


def _positions(tensor: Tensor, sparsity: Table, count: int) -> list[_Indices]:
    """Where each stored element belongs: an index for each dimension."""
    rank, place = len(tensor.shape), f"{tensor.place}.sparsity"
    order, blocks, levels = sparsity.traversal_order.tolist(), sparsity.block_map.tolist(), sparsity.dim_metadata
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order) or not rank:
        raise ReadError("the traversal order does not fit the shape", where=place)
    if any(not 0 <= dimension < rank for dimension in blocks):
        raise ReadError("a block belongs to no dimension", where=place)
    parents = 1
    coordinates: list[_Indices] = []
    for level, metadata in enumerate(levels):
        origin, child = _children(metadata, parents, count, f"{place}.dim_metadata[{level}]")
        coordinates = [c[origin] for c in coordinates] + [child]
        parents = child.size
    if parents != count:
        raise ReadError(f"{count} elements are stored, {parents} are described", where=place)
    by_level = {axis: coordinates[level] for level, axis in enumerate(order)}
    sizes = {axis: levels[level].dense_size for level, axis in enumerate(order)}
    position = [by_level[axis] for axis in range(rank)]
    for k, dimension in enumerate(blocks):
        position[dimension] = position[dimension] * sizes[rank + k] + by_level[rank + k]
    for axis, index in enumerate(position):
        if index.size and (index.min() < 0 or index.max() >= tensor.shape[axis]):
            raise ReadError(f"an element lies outside dimension {axis}", where=place)
    return position


def _children(metadata: Table, parents: int, count: int, place: str) -> tuple[_Indices, _Indices]:
    """For each child at this level: which parent it has, and its coordinate."""
    if metadata.format == DimensionType.DENSE:
        size = metadata.dense_size
        # A dense level multiplies; nothing may become more than the elements that are stored, or the segments below.
        if size < 0 or parents * size > MAX_EXPANSION * (count + 1024):
            raise ReadError(f"a dimension of {size}", where=place)
        return np.repeat(np.arange(parents), size), np.tile(np.arange(size), parents)
    if any(part is None or part.kind not in _VECTORS for part in (metadata.array_segments, metadata.array_indices)):
        raise ReadError("a compressed dimension lacks its indices", where=place)
    segments = metadata.array_segments.values.astype(np.int64)
    indices = metadata.array_indices.values.astype(np.int64)
    lengths = np.diff(segments)
    if segments.size != parents + 1 or segments[0] != 0 or segments[-1] != indices.size or np.any(lengths < 0):
        raise ReadError("the segments do not fit the indices", where=place)
    return np.repeat(np.arange(parents), lengths), indices
