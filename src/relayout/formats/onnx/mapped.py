"""Arrays that stay in their file until they are read, and leave memory when they are dropped.

Nothing is mapped: a page of a mapping whose file has become shorter meanwhile ends the process (`SIGBUS`); reading it
ends in an error.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.errors import ReadError

CHUNK = 1 << 20
"""Bytes read at a time."""

WINDOW = 1 << 16
"""Bytes of a file that are held while it is looked through."""


class MappedFile:
    """A file that is open for reading for as long as an array refers to it.

    The open descriptor stands for the file that was checked: renaming another file over its name, as writing a model
    over its own source does, changes nothing for those who still read.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor, self.name = descriptor, name
        self.size = os.fstat(descriptor).st_size
        self._seek = threading.Lock()
        weakref.finalize(self, os.close, descriptor)

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes at `offset`; ReadError if the file has become shorter."""
        if length > CHUNK:
            data = bytearray(length)
            self.read_into(offset, memoryview(data))
            return bytes(data)
        return self._whole(self._some(offset, length), offset, length)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill the memory with the bytes from `offset` on; ReadError if the file has become shorter."""
        for start in range(0, len(target), CHUNK):
            length = min(CHUNK, len(target) - start)
            target[start : start + length] = self.read(offset + start, length)

    def _some(self, offset: int, length: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self.descriptor, length, offset)
        with self._seek:  # Windows
            os.lseek(self.descriptor, offset, os.SEEK_SET)
            return os.read(self.descriptor, length)

    def _whole(self, data: bytes, offset: int, length: int) -> bytes:
        if len(data) != length:
            raise ReadError(f"only {len(data)} of {length} bytes could be read", where=f"{self.name}, byte {offset}")
        return data


class Window:
    """The bytes of a file as a sequence, for reading forwards: a piece of it is in memory."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self._start, self._held = 0, b""

    def __len__(self) -> int:
        return self.file.size

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> bytes: ...
    def __getitem__(self, place: int | slice) -> int | bytes:
        start, stop, _ = place.indices(self.file.size) if isinstance(place, slice) else (place, place + 1, 1)
        if start < self._start or stop > self._start + len(self._held):
            if stop - start > WINDOW:
                return self.file.read(start, stop - start)
            self._start = start
            self._held = self.file.read(start, min(WINDOW, self.file.size - start))
        if isinstance(place, slice):
            return self._held[start - self._start : stop - self._start]
        return self._held[start - self._start]


class MappedArray:
    """An array in a file, little-endian, as the array-like that `ir.Tensor` and `ir.PackedTensor` take.

    Every call of `__array__` reads it anew. So weights that were used once do not stay in memory.
    """

    def __init__(self, file: MappedFile, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.file, self.offset, self.dtype, self.shape = file, offset, dtype.newbyteorder("<"), shape
        self.nbytes = dtype.itemsize * math.prod(shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The elements, which nobody may change.

        Raises:
            ReadError: the file has become shorter.
        """
        buffer = np.empty(self.nbytes, np.uint8)
        self.file.read_into(self.offset, buffer.data)
        buffer.flags.writeable = False
        array: NDArray[Any] = buffer.view(self.dtype).reshape(self.shape)
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"MappedArray({self.file.name!r}, {self.offset}, {self.dtype}, {self.shape})"

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a piece at a time, without mapping anything."""
        for start in range(0, self.nbytes, CHUNK):
            yield self.file.read(self.offset + start, min(CHUNK, self.nbytes - start))


def mapped_tensor(
    file: MappedFile, offset: int, dtype: ir.DataType, shape: tuple[int, ...], name: str | None
) -> ir.TensorProtocol:
    """The tensor of that type and shape in the file. The caller has checked that its bytes are there."""
    if dtype.bitwidth < 8:
        packed = MappedArray(file, offset, np.dtype(np.uint8), (nbytes(dtype, shape),))
        return ir.PackedTensor(packed, dtype, shape=shape, name=name)
    return ir.Tensor(MappedArray(file, offset, dtype.numpy(), shape), dtype, shape=ir.Shape(shape), name=name)


def nbytes(dtype: ir.DataType, shape: Sequence[int]) -> int:
    """Bytes of the raw data of such a tensor; types below a byte are packed."""
    return -(-dtype.bitwidth * math.prod(shape) // 8)
