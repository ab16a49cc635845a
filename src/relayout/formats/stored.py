"""Files that are read where it is wanted: arrays stay in them until they are used, and leave memory when dropped.

Nothing is mapped: a page of a mapping whose file has become shorter meanwhile ends the process (`SIGBUS`); reading it
ends in an error.
"""

from __future__ import annotations

import math
import os
import re
import stat
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.errors import ReadError

CHUNK = 1 << 18  # bytes read at a time

PIECE, PIECES = 1 << 16, 64
"""Bytes of a file that are read at once while it is looked through, and how many such pieces are held."""

HELD = 1 << 12  # arrays of fewer bytes are read at once, those of others when they are wanted


MOST_NAMES = 2_000  # names in a directory among which one that resembles a missing file's is looked for


class Content(Protocol):
    """Bytes of a known number that are made, or read, a piece at a time: what a writer streams."""

    @property
    def nbytes(self) -> int:
        """The number of bytes that all chunks have together."""

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in order, anew at every call."""


def open_stored(path: Path) -> StoredFile:
    """Open a model's file: a regular one that is not empty.

    Raises:
        ReadError: it is none, or cannot be opened.
    """
    origin = os.fspath(path)
    if os.path.isdir(path):  # of a path that cannot be asked about it says no, where `Path` raises
        if os.path.isfile(path / "saved_model.pb"):
            raise ReadError(f"{origin} is TensorFlow's SavedModel", hint="tf.lite.TFLiteConverter makes it a .tflite")
        raise ReadError(f"{origin} is a directory", hint="give a file")
    try:
        # Without waiting for a pipe's other end.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        advice = "standard input is not read: give a file" if origin == "-" else _nearest_file(path)
        if re.match(r"[a-z]+:/", origin):
            advice = "relayout does not download: fetch the file first"
        raise ReadError(f"{origin} does not exist", hint=advice) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ReadError(f"cannot be opened: {reason}", where=origin) from None
    file = StoredFile(descriptor, origin)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ReadError(f"{origin} is not a regular file")
    if not file.size:
        raise ReadError(f"{origin} is empty")
    return file


def _nearest_file(path: Path) -> str:
    """Return the question whether a file beside a missing one was meant, if a name there is much alike."""
    from difflib import SequenceMatcher, get_close_matches

    try:
        names = sorted(os.listdir(path.parent))[:MOST_NAMES]
    except (OSError, ValueError):
        return ""
    alike = [name for name in names if SequenceMatcher(None, path.stem, Path(name).stem).ratio() > 0.6]
    nearest_names = get_close_matches(path.name, alike, n=1, cutoff=0.8)
    return f"did you mean {os.fspath(path.parent / nearest_names[0])}?" if nearest_names else ""


class StoredFile:
    """A file that is open for reading for as long as an array refers to it.

    The open descriptor stands for the file that was checked: renaming another file over its name, as writing a model
    over its own source does, changes nothing for those who still read. Writing into the file itself does: what is read
    then may not belong to what was read before, so that it is an error.
    """

    def __init__(
        self,
        descriptor: int,  # the open file, closed with this object
        name: str,  # its path, for messages
        start: int = 0,  # where in it what this object stands for begins
        size: int | None = None,  # how long that is; None: to the file's end
        written: int | None = None,  # when the file was last written to, in nanoseconds; None: as it is now
    ) -> None:
        self.descriptor, self.name, self.start = descriptor, name, start
        now = os.fstat(descriptor)
        self.size = now.st_size - start if size is None else size
        self.written = now.st_mtime_ns if written is None else written
        self._seek = threading.Lock()
        weakref.finalize(self, os.close, descriptor)

    def part(self, begin: int, end: int, name: str) -> StoredFile:
        """Return a file inside of this one, from one byte to another."""
        return StoredFile(os.dup(self.descriptor), name, self.start + begin, end - begin, self.written)

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes at `offset`.

        Raises:
            ReadError: the file has been written to since it was opened, or has become shorter.
        """
        if length > CHUNK:
            whole = bytearray(length)
            self.read_into(offset, memoryview(whole))
            return bytes(whole)
        data = self._some(offset, length)
        if len(data) != length:
            raise ReadError(f"only {len(data)} of {length} bytes could be read", where=f"{self.name}, byte {offset}")
        if os.fstat(self.descriptor).st_mtime_ns != self.written:
            raise ReadError("the file has been written to since it was opened", where=self.name, hint="read it again")
        return data

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill the memory with the bytes from `offset` on; errors as of `read`."""
        for start in range(0, len(target), CHUNK):
            length = min(CHUNK, len(target) - start)
            target[start : start + length] = self.read(offset + start, length)

    def _some(self, offset: int, length: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self.descriptor, length, self.start + offset)
        with self._seek:  # Windows
            os.lseek(self.descriptor, self.start + offset, os.SEEK_SET)
            return os.read(self.descriptor, length)


class FileWindow:
    """The bytes of a file as a sequence: pieces of it are in memory, those that were looked at last."""

    def __init__(self, file: StoredFile) -> None:
        self.file = file
        self._pieces: dict[int, bytes] = {}
        self._last, self._end, self._piece = 0, 0, b""

    def __len__(self) -> int:
        return self.file.size

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> bytes: ...
    def __getitem__(self, place: int | slice) -> int | bytes:
        if isinstance(place, int):
            return self._at(place // PIECE)[place % PIECE]
        begin = self._last * PIECE
        if place.start is not None and place.stop is not None and begin <= place.start <= place.stop <= self._end:
            return self._piece[place.start - begin : place.stop - begin]
        start, stop, _ = place.indices(self.file.size)
        if stop - start > PIECE:
            return self.file.read(start, stop - start)
        first, last = start // PIECE, (stop - 1) // PIECE
        if last <= first:
            return self._at(first)[start % PIECE : start % PIECE + stop - start]
        return self._at(first)[start % PIECE :] + self._at(last)[: stop - last * PIECE]

    def _at(self, number: int) -> bytes:
        if number != self._last or not self._piece:
            piece = self._pieces.pop(number, None)
            if piece is None:
                if len(self._pieces) == PIECES:
                    del self._pieces[next(iter(self._pieces))]
                start = number * PIECE
                piece = self.file.read(start, min(PIECE, self.file.size - start))
            self._pieces[number] = self._piece = piece
            self._last, self._end = number, number * PIECE + len(piece)
        return self._piece


def content_of(file: StoredFile, most: int) -> memoryview | FileWindow:
    """Return the bytes of a file: in memory, read once, up to `most`; of a larger file those that are looked at.

    Nothing is mapped: a page of a mapping whose file is cut short meanwhile ends the process (`SIGBUS`).

    Raises:
        ReadError: it is written to while it is read.
    """
    if file.size > most:
        return FileWindow(file)
    data = np.empty(file.size, np.uint8)
    file.read_into(0, data.data)
    return data.data.toreadonly()


class StoredArray:
    """An array in a file, little-endian, as the array-like that `ir.Tensor` and `ir.PackedTensor` take.

    Every call of `__array__` reads it anew. So weights that were used once do not stay in memory.
    """

    def __init__(
        self,
        file: StoredFile,
        offset: int,  # where it begins there
        dtype: np.dtype[Any],  # of its elements
        shape: tuple[int, ...],  # its shape; the caller has checked that the file has its bytes
        cached_bytes: bytes | None = None,  # its bytes, where they have been read already
    ) -> None:
        self.file, self.offset, self.dtype, self.shape = file, offset, dtype.newbyteorder("<"), shape
        self.cached_bytes = cached_bytes
        self.size = math.prod(shape)
        self.nbytes = dtype.itemsize * self.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the elements, which nobody may change.

        Raises:
            ReadError: the file has been written to since it was opened, or has become shorter.
        """
        if self.cached_bytes is not None:
            buffer = np.frombuffer(self.cached_bytes, np.uint8)
        else:
            buffer = np.empty(self.nbytes, np.uint8)
            self.file.read_into(self.offset, buffer.data)
            buffer.flags.writeable = False
        array: NDArray[Any] = buffer.view(self.dtype).reshape(self.shape)
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"StoredArray({self.file.name!r}, {self.offset}, {self.dtype}, {self.shape})"

    def cast(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> StoredArray:
        """Return an array of the same bytes, as elements of another type."""
        return StoredArray(self.file, self.offset, dtype, shape, self.cached_bytes)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes, a piece at a time."""
        if self.cached_bytes is not None:
            yield self.cached_bytes
            return
        for start in range(0, self.nbytes, CHUNK):
            yield self.file.read(self.offset + start, min(CHUNK, self.nbytes - start))


def stored_tensor(
    file: StoredFile, offset: int, dtype: ir.DataType, shape: tuple[int, ...], name: str | None
) -> ir.TensorProtocol:
    """The tensor of that type and shape in the file, read when it is wanted. The caller has checked its length."""
    return tensor_of(StoredArray(file, offset, np.dtype(np.uint8), (nbytes(dtype, shape),)), dtype, shape, name)


def tensor_of(
    data: NDArray[np.uint8] | StoredArray, dtype: ir.DataType, shape: tuple[int, ...], name: str | None = None
) -> ir.TensorProtocol:
    """Return the tensor whose raw data, little-endian, these bytes are: a view of them, or read when it is wanted."""
    if dtype.bitwidth < 8:
        return ir.PackedTensor(data, dtype, shape=shape, name=name)
    kind = dtype.numpy().newbyteorder("<")
    array = data.cast(kind, shape) if isinstance(data, StoredArray) else data.view(kind).reshape(shape)
    return ir.Tensor(array, dtype, shape=ir.Shape(shape), name=name)


def nbytes(dtype: ir.DataType, shape: Sequence[int]) -> int:
    """Bytes of the raw data of such a tensor; types below a byte are packed."""
    return -(-dtype.bitwidth * math.prod(shape) // 8)
