"""Arrays that stay in their file until they are read, and leave memory when they are dropped."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.errors import ReadError

CHUNK = 1 << 20
"""Bytes read at a time; arrays up to this size are read whole rather than mapped."""


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
        if hasattr(os, "pread"):
            data = os.pread(self.descriptor, length, offset)
        else:  # Windows
            with self._seek:
                os.lseek(self.descriptor, offset, os.SEEK_SET)
                data = os.read(self.descriptor, length)
        if len(data) != length:
            raise ReadError(f"only {len(data)} of {length} bytes could be read", where=f"{self.name}, byte {offset}")
        return data


class MappedArray:
    """An array in a file, little-endian, as the array-like that `ir.Tensor` and `ir.PackedTensor` take.

    Every call of `__array__` makes a new view, whose mapping ends with it. So weights that were used once do not stay
    resident, and no descriptor is held for an array that nobody looks at.
    """

    def __init__(self, file: MappedFile, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.file, self.offset, self.dtype, self.shape = file, offset, dtype.newbyteorder("<"), shape
        self.nbytes = dtype.itemsize * math.prod(shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array: NDArray[Any] = np.frombuffer(self._buffer(), self.dtype).reshape(self.shape)
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"MappedArray({self.file.name!r}, {self.offset}, {self.dtype}, {self.shape})"

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a piece at a time, without mapping anything."""
        for start in range(0, self.nbytes, CHUNK):
            yield self.file.read(self.offset + start, min(CHUNK, self.nbytes - start))

    def _buffer(self) -> mmap.mmap | memoryview | bytes:
        if self.nbytes > CHUNK:
            start = self.offset % mmap.ALLOCATIONGRANULARITY
            # A mapping holds a descriptor; where there are no more of those, the array is read into memory instead.
            with contextlib.suppress(OSError):
                whole = mmap.mmap(
                    self.file.descriptor, start + self.nbytes, access=mmap.ACCESS_READ, offset=self.offset - start
                )
                return memoryview(whole)[start:]
        return b"".join(self.chunks())


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
