"""Make a model's values from its tables, and prove that every index, shape and length in them fits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from relayout.errors import ReadError
from relayout.formats.bundle import TFL3, open_model
from relayout.formats.flatbuffer import Raw, Source, Table, raw, read_root
from relayout.formats.stored import FileWindow, content_of
from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS, DimensionType, TensorType
from relayout.formats.tflite.container.model import (
    BITS,
    MAX_NAME,
    MAX_RANK,
    BlockScales,
    Model,
    Operator,
    Quantization,
    Signature,
    Subgraph,
    Tensor,
)
from relayout.formats.tflite.container.places import places_in_words
from relayout.formats.tflite.container.schema import SCHEMA

# Sparse constants: expand what `SparsityParameters` describes to a dense array.
#
# The elements lie along a tree, one level for each entry of the traversal order. A dense level has the same number of
# children everywhere; a compressed one has, for parent p, the children `indices[segments[p]:segments[p + 1]]`. Levels
# numbered from the rank on are positions inside a block of the dimension that the block map names.

MAX_EXPANSION = 256
"""How many elements one stored element may stand for: beyond that a file is damaged, or means to fill the memory."""

_DTYPES = {TensorType.FLOAT32: "<f4", TensorType.FLOAT16: "<f2", TensorType.INT8: "i1", TensorType.INT32: "<i4"}

_VECTORS = ("Int32Vector", "Uint16Vector", "Uint8Vector")

_Indices = npt.NDArray[np.int64]


def dense(tensor: Tensor) -> npt.NDArray[Any]:
    """Return the elements of a sparse constant with the zeros written out."""
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
    """Return where each stored element belongs: an index for each dimension."""
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


_QUANTIZED_RANGE = {
    TensorType.INT8: (-128, 127),
    TensorType.UINT8: (0, 255),
    TensorType.INT16: (-32768, 32767),
    TensorType.INT4: (-8, 7),
    TensorType.UINT4: (0, 15),
    TensorType.INT2: (-2, 1),
}


MOST_READ = 1 << 22
"""Bytes of a file that are read into memory, once, and that tensors are views of. A larger file is read in pieces."""


def load(source: Path | bytes | memoryview | FileWindow) -> Model:
    """Read and check a file or its bytes; constants stay views into it.

    Raises:
        ReadError: the bytes are not a sound TFLite model.
    """
    checker = _Checker(open_source(source))
    with places_in_words(checker.root.subgraphs, checker.kind):
        return checker.model()


def open_source(source: Path | bytes | memoryview | FileWindow) -> Source:
    """Return the bytes of a file: in memory up to `MOST_READ`, above it what is looked at.

    Raises:
        ReadError: it cannot be opened, is empty, or is written to while it is read.
    """
    if isinstance(source, FileWindow):
        return source
    if not isinstance(source, Path):
        return memoryview(source)
    return content_of(open_model(source), MOST_READ)


class _Checker:
    def __init__(self, data: Source) -> None:
        self.data = data
        self.root = read_root(data, SCHEMA, "Model", TFL3)

    def model(self) -> Model:
        self.buffers = [self.buffer(table, f"buffers[{i}]") for i, table in enumerate(self.root.buffers)]
        self.codes = [_operator_name(table) for table in self.root.operator_codes]
        subgraphs = tuple(self.subgraph(table, f"subgraphs[{i}]") for i, table in enumerate(self.root.subgraphs))
        if not subgraphs:
            raise ReadError("the model has no subgraph", where="subgraphs")
        signatures = tuple(
            self.signature(table, subgraphs, f"signature_defs[{i}]") for i, table in enumerate(self.root.signature_defs)
        )
        metadata = tuple(
            (table.name, self.buffers[table.buffer] if table.buffer < len(self.buffers) else None)
            for table in self.root.metadata
        )
        return Model(self.root.description, subgraphs, signatures, metadata)

    def kind(self, operator: Table) -> str:
        """Return which operator one is; "" if it names none."""
        return self.codes[operator.opcode_index] if operator.opcode_index < len(self.codes) else ""

    def buffer(self, table: Table, place: str) -> Raw:
        # Offsets 0 and 1 are what writers leave when the data lies in the table itself.
        if table.offset <= 1:
            inside: Raw = table.data
            return inside
        return self.outside(table.offset, table.size, place)

    def outside(self, offset: int, size: int, place: str) -> Raw:
        if offset + size > len(self.data):
            raise ReadError(
                f"the file ends at byte {len(self.data)}, and {place} points to bytes {offset} to {offset + size}",
                hint="the file is damaged or cut short",
            )
        return raw(self.data, offset, size)

    def subgraph(self, table: Table, place: str) -> Subgraph:
        tensors = tuple(self.tensor(t, i, f"{place}.tensors[{i}]") for i, t in enumerate(table.tensors))
        for tensor in tensors:
            _check_blocks(tensor, tensors)
        operators = tuple(
            self.operator(o, len(tensors), f"{place}.operators[{i}]") for i, o in enumerate(table.operators)
        )
        return Subgraph(
            name=table.name,
            tensors=tensors,
            inputs=_indices(table.inputs, len(tensors), f"{place}.inputs"),
            outputs=_indices(table.outputs, len(tensors), f"{place}.outputs"),
            operators=operators,
            place=place,
        )

    def tensor(self, table: Table, index: int, place: str) -> Tensor:
        kind = _enum(TensorType, table.type, f"{place}.type, byte {table.byte}")
        shape = _shape(table.shape, 0, f"{place}.shape, byte {table.byte}")
        signature = _shape(table.shape_signature, -1, f"{place}.shape_signature, byte {table.byte}")
        if signature and len(signature) != len(shape):
            raise ReadError("shape and shape_signature differ in rank", where=f"{place}, byte {table.byte}")
        if table.buffer >= max(len(self.buffers), 1):
            raise ReadError(f"there is no buffer {table.buffer}", where=f"{place}.buffer, byte {table.byte}")
        if table.external_buffer:
            raise ReadError("its data is in another file", where=place, hint="merge the weights into the model")
        data = self.buffers[table.buffer] if self.buffers else np.empty(0, np.uint8)
        constant = data.size > 0
        if constant and table.sparsity is None and kind in BITS:
            expected = (math.prod(shape) * BITS[kind] + 7) // 8
            if expected != data.size:
                raise ReadError(
                    f"shape {list(shape)} of {kind.name} needs {expected} bytes, its buffer has {data.size}",
                    where=f"{place}, byte {table.byte}",
                )
        return Tensor(
            index=index,
            name=table.name,
            type=kind,
            shape=shape,
            signature=signature if signature and not constant else shape,
            data=data if constant else None,
            quantization=_quantization(table.quantization, kind, shape, f"{place}.quantization"),
            is_variable=table.is_variable,
            sparsity=table.sparsity,
            place=place,
            blocks=_blocks(table.quantization),
        )

    def operator(self, table: Table, tensors: int, place: str) -> Operator:
        if table.opcode_index >= len(self.codes):
            raise ReadError(f"there is no operator code {table.opcode_index}", where=f"{place}.opcode_index")
        custom = table.custom_options
        if table.large_custom_options_offset > 1:
            custom = self.outside(table.large_custom_options_offset, table.large_custom_options_size, place)
        options = table.builtin_options_2 if table.builtin_options is None else table.builtin_options
        return Operator(
            name=self.codes[table.opcode_index],
            version=self.root.operator_codes[table.opcode_index].version,
            inputs=_indices(table.inputs, tensors, f"{place}.inputs", absent=True),
            outputs=_indices(table.outputs, tensors, f"{place}.outputs"),
            intermediates=_indices(table.intermediates, tensors, f"{place}.intermediates", absent=True),
            options=options,
            custom_options=custom,
            place=place,
        )

    def signature(self, table: Table, subgraphs: tuple[Subgraph, ...], place: str) -> Signature:
        if table.subgraph_index >= len(subgraphs):
            raise ReadError(f"there is no subgraph {table.subgraph_index}", where=f"{place}.subgraph_index")
        count = len(subgraphs[table.subgraph_index].tensors)

        def names(maps: tuple[Table, ...], side: str) -> Iterator[tuple[str, int]]:
            for i, entry in enumerate(maps):
                if entry.tensor_index >= count:
                    raise ReadError(f"there is no tensor {entry.tensor_index}", where=f"{place}.{side}[{i}]")
                yield entry.name, entry.tensor_index

        return Signature(
            table.signature_key,
            table.subgraph_index,
            tuple(names(table.inputs, "inputs")),
            tuple(names(table.outputs, "outputs")),
        )


def _operator_name(code: Table) -> str:
    # The first field is a byte; operators numbered above 127 are in the second.
    number = max(code.builtin_code, code.deprecated_builtin_code)
    if not 0 <= number < len(BUILTIN_OPERATORS):
        return f"builtin {number}"
    name = BUILTIN_OPERATORS[number]
    return f"CUSTOM {code.custom_code[:MAX_NAME]}" if name == "CUSTOM" else name


def _enum(kind: type[TensorType], number: int, place: str) -> TensorType:
    try:
        return kind(number)
    except ValueError:
        raise ReadError(f"there is no {kind.__name__} {number}", where=place) from None


def _indices(vector: npt.NDArray[Any], count: int, place: str, *, absent: bool = False) -> tuple[int, ...]:
    low, indices = -1 if absent else 0, tuple(vector.tolist())
    if indices and not low <= min(indices) <= max(indices) < count:
        i, wrong = next((i, index) for i, index in enumerate(indices) if not low <= index < count)
        raise ReadError(f"there is no tensor {wrong} (the subgraph has {count})", where=f"{place}[{i}]")
    return indices


def _shape(vector: npt.NDArray[Any], low: int, place: str) -> tuple[int, ...]:
    if vector.size > MAX_RANK:
        raise ReadError(f"rank {vector.size} is above {MAX_RANK}", where=place)
    shape = tuple(vector.tolist())
    if shape and min(shape) < low:
        raise ReadError(f"a dimension is {min(shape)}", where=place)
    return shape


def _quantization(table: Table | None, kind: TensorType, shape: tuple[int, ...], place: str) -> Quantization | None:
    if table is None or table.scale.size == 0:
        return None
    scale, zero_point = table.scale, table.zero_point
    # Early converters say the kernel's axis of a bias, too.
    axis = table.quantized_dimension if len(shape) != 1 else 0
    if not np.all(np.isfinite(scale)) or np.any(scale < 0):
        raise ReadError("a scale is negative or not a number", where=f"{place}.scale, byte {table.byte}")
    if scale.size > 1 and (not 0 <= axis < len(shape) or shape[axis] != scale.size):
        raise ReadError(
            f"{scale.size} scales do not fit axis {axis} of shape {list(shape)}", where=f"{place}, byte {table.byte}"
        )
    if zero_point.size not in (0, 1, scale.size):
        raise ReadError(
            f"{zero_point.size} zero points do not fit {scale.size} scales",
            where=f"{place}.zero_point, byte {table.byte}",
        )
    low, high = _QUANTIZED_RANGE.get(kind, (0, 0) if kind in (TensorType.INT32, TensorType.INT64) else (None, None))
    if low is not None and zero_point.size and (zero_point.min() < low or zero_point.max() > high):
        raise ReadError(f"a zero point lies outside {kind.name}", where=f"{place}.zero_point, byte {table.byte}")
    if zero_point.size != scale.size:
        zero_point = np.broadcast_to(zero_point[0] if zero_point.size else np.int64(0), scale.shape)
    return Quantization(scale, zero_point, axis)


def _blocks(table: Table | None) -> BlockScales | None:
    details = None if table is None else table.details
    if details is None or details.kind == "CustomQuantization":
        return None
    if details.kind != "BlockwiseQuantization":
        return BlockScales(-1, 0, "scales along several axes")
    unknown = "zero points of blocks" if details.zero_points >= 0 else ""
    return BlockScales(
        details.scales, details.block_size, "blocks of several axes" if details.block_shape.size else unknown
    )


def _check_blocks(tensor: Tensor, tensors: Sequence[Tensor]) -> None:
    blocks = tensor.blocks
    if blocks is None or blocks.unknown:
        return
    place = f"{tensor.place}.quantization.details"
    if not 0 <= blocks.scales < len(tensors):
        count = len(tensors)
        raise ReadError(f"there is no tensor {blocks.scales} (the subgraph has {count})", where=f"{place}.scales")
    scales, last = tensors[blocks.scales], tensor.shape[-1] if tensor.shape else 0
    if blocks.size < 1 or last % blocks.size:
        raise ReadError(f"blocks of {blocks.size} do not make up {last} elements", where=f"{place}.block_size")
    scales_shape = (*tensor.shape[:-1], last // blocks.size)
    if (
        scales.shape != scales_shape
        or scales.data is None
        or scales.type not in (TensorType.FLOAT16, TensorType.FLOAT32)
    ):
        raise ReadError(f"the scales are no constant floats of shape {list(scales_shape)}", where=f"{place}.scales")
