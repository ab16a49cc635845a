"""A TFLite model as values. `loading` makes them, with every index, shape and length proved to fit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import ReadError, WriteError
from relayout.formats.flatbuffer import Raw, Table
from relayout.formats.onnx.parts import raw_chunks
from relayout.formats.stored import Content, StoredArray, nbytes
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.importing.registry import Unsupported

MAX_RANK = 32  # as many dimensions as numpy of any supported version takes

MAX_NAME = 200  # characters of a name that go into messages and into the names of values made from it

_TYPES_OF = {
    2: "INT2",
    4: "INT4 UINT4",
    8: "FLOAT8_E4M3FN FLOAT8_E5M2 INT8 UINT8 BOOL",
    16: "FLOAT16 BFLOAT16 INT16 UINT16",
    32: "FLOAT32 INT32 UINT32",
    64: "FLOAT64 COMPLEX64 INT64 UINT64",
    128: "COMPLEX128",
}
BITS = {TensorType[name]: bits for bits, names in _TYPES_OF.items() for name in names.split()}
"""Bits per element; types without a fixed width (strings, resources, variants) are not listed."""


NO_BYTES: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
SIGNED_AND_NOT = {TensorType.INT8: TensorType.UINT8, TensorType.UINT8: TensorType.INT8}
"""Each type of 8 bits -> the other one."""


class Quantization(NamedTuple):
    """`real = scale * (stored - zero_point)`, one pair for the tensor or one per index of `axis`."""

    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.int64]
    axis: int

    @property
    def per_channel(self) -> bool:
        """Tell whether there is one scale per index of `axis`."""
        return self.scale.size > 1

    def equals(self, other: "Quantization | None") -> bool:
        """Tell whether the same integer means the same number in both."""
        return (
            other is not None
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
            and (self.axis == other.axis or not self.per_channel)
        )


class BlockScales(NamedTuple):
    """A scale for each run of elements along the last axis of a matrix; the integers lie around 0."""

    scales: int  # index of the tensor that holds them, `rows (columns / size)`, in half or single precision
    size: int  # elements that share a scale
    unknown: str = ""  # what else the file says of them that has no meaning here; else empty


@dataclass(frozen=True)  # the standard's, whose instances are made in half the time: a file has thousands
class Tensor:
    """One tensor of a subgraph. `signature` has -1 for dimensions known only at run time, else equals `shape`.

    The reader gives `data` as `Raw`; any other `Content` is for the writer, which streams it.
    """

    index: int
    name: str
    type: TensorType
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    data: Raw | Content | None = field(default=None, repr=False)
    quantization: Quantization | None = None
    is_variable: bool = False
    sparsity: Table | None = None
    place: str = ""
    shifted: bool = False
    """Whether it is the other type of 8 bits in the file, where integers and zero point are 128 lower or higher."""
    listed: bool = False
    """Whether it is a list of tensors in the file (see `lists`): extents that nobody knows are 0 until it has a row."""
    blocks: BlockScales | None = None
    beside: int = -1  # the index of the tensor of the file beside which it was added, if it was (see `rewriting`)

    @property
    def content(self) -> npt.NDArray[np.uint8]:
        """A constant's bytes, which are read now where they are in a file."""
        return np.asarray(self.raw)

    @property
    def raw(self) -> Raw:
        """A constant's bytes; they stay in the file if they are in one."""
        if isinstance(self.data, np.ndarray | StoredArray):
            return self.data
        return np.frombuffer(b"".join(self.data.chunks()), np.uint8) if self.data is not None else NO_BYTES

    @property
    def stated(self) -> TensorType:
        """The element type that the file states."""
        return SIGNED_AND_NOT[self.type] if self.shifted else self.type


class Operator(NamedTuple):
    """One operator. `inputs` may hold -1 for an operand left out."""

    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...] = ()
    options: Table | None = None
    custom_options: Raw = NO_BYTES
    place: str = ""


class Subgraph(NamedTuple):
    """One graph: tensors, and operators in the order in which they run."""

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]
    place: str = ""


class Signature(NamedTuple):
    """The names that a user gave to a subgraph's inputs and outputs: (name, tensor index)."""

    key: str
    subgraph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


class Model(NamedTuple):
    """A whole file. `metadata` is (name, bytes) of each metadata buffer, None where there is no such buffer.

    `files` is (name, bytes) of each file in the archive behind the model, for the writer; the reader leaves it empty.
    """

    description: str
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...]
    metadata: tuple[tuple[str, Raw | None], ...] = ()
    files: tuple[tuple[str, bytes], ...] = ()


# Constants that are texts: a count, the offset of each, the bytes.


def packed_texts(encoded: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    """Return the data of a constant of strings."""
    starts = np.cumsum([4 * (len(encoded) + 2), *map(len, encoded)])
    return np.frombuffer(np.array([len(encoded), *starts], "<i4").tobytes() + b"".join(encoded), np.uint8)


def texts(tensor: Tensor) -> list[str]:
    """Return the elements of a constant of strings, which ONNX wants as UTF-8.

    Raises:
        ReadError: the offsets do not fit the bytes, or their number not the shape.
        Unsupported: the bytes are no UTF-8.
    """
    data = tensor.content
    count = int(data[:4].view("<i4")[0]) if data.size >= 4 else -1
    if count != math.prod(tensor.shape) or data.size < 4 * (count + 2):
        raise ReadError(f"{count} texts do not make shape {list(tensor.shape)}", where=tensor.place)
    offsets = data[4 : 4 * (count + 2)].view("<i4").astype(np.int64)
    if np.any(np.diff(offsets) < 0) or offsets[0] < 4 * (count + 2) or offsets[-1] > data.size:
        raise ReadError("the offsets of its texts point outside its buffer", where=tensor.place)
    content = data.tobytes()
    try:
        return [content[a:b].decode() for a, b in pairwise(offsets.tolist())]
    except UnicodeDecodeError:
        raise Unsupported("texts that are not UTF-8") from None


# Constants as contents of a `.tflite` file. Those of an ONNX graph are evaluated, or read, when they are written.


class TensorContent:
    """The raw data of a tensor. Both formats store it alike: little-endian, types below a byte packed, the first low.

    Args:
        tensor: a tensor, which may be lazy.

    Raises:
        WriteError: it is one of strings (see `packed_texts`).
    """

    def __init__(self, tensor: ir.TensorProtocol) -> None:
        if tensor.dtype == ir.DataType.STRING:
            raise WriteError(f"constant {tensor.name!r} has strings, which are no raw data")
        self.tensor = tensor
        self.nbytes = nbytes(tensor.dtype, tuple(tensor.shape.numpy()))

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes; a lazy tensor is evaluated anew for each call."""
        return raw_chunks(self.tensor, self.nbytes)


def array_content(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array as a constant's data: little-endian, in C order, copied only if they are not so."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
