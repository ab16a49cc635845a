"""The files that are zipped behind a model: read with every length bounded before anything is unpacked."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from relayout.errors import ReadError
from relayout.formats.tflite.flatbuffer import Source

MOST_FILES = 256
MOST_BYTES = 1 << 24
"""Of all files together, unpacked: labels and vocabularies are far below."""

_TAIL = 22 + 0xFFFF
"""The archive's last record lies in the last bytes of the file: itself, and a comment of at most 64 KB."""
_END = struct.Struct("<4s4H2IH")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 1


@dataclass(frozen=True)
class _Entry:
    """One file in the archive's directory."""

    name: str
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    place: str


def files(data: Source) -> dict[str, bytes]:
    """Name -> content of the files in the archive that a model's file ends with; none if there is no archive.

    Raises:
        ReadError: the archive is damaged, larger than the bounds, encrypted, or packed in a way that is not deflate.
    """
    entries = list(_directory(data))
    if sum(entry.size for entry in entries) > MOST_BYTES:
        raise ReadError(f"the files behind the model are above {MOST_BYTES} bytes", where=entries[0].place)
    found: dict[str, bytes] = {}
    for entry in entries:
        if entry.name in found:
            raise ReadError(f"two files are called {entry.name[:80]!r}", where=entry.place)
        found[entry.name] = _unpacked(data, entry)
    return found


def _directory(data: Source) -> Iterator[_Entry]:
    start = max(0, len(data) - _TAIL)
    found = bytes(data[start:]).rfind(b"PK\x05\x06")
    if found < 0 or start + found + _END.size > len(data):
        return
    end = start + found
    _, disk, first, here, count, size, offset, _ = _END.unpack(data[end : end + _END.size])
    where = f"byte {end}"
    if disk or first or here != count:
        raise ReadError("the archive behind the model is in several parts", where=where)
    if count > MOST_FILES:
        raise ReadError(f"{count} files are behind the model, more than {MOST_FILES}", where=where)
    # Offsets count from where the archive begins, which is the file's beginning or the archive's own.
    begin = end - (offset + size)
    if begin < 0:
        raise ReadError("the archive's directory lies outside of the file", where=where)
    place = begin + offset
    for _ in range(count):
        if place + _ENTRY.size > end:
            raise ReadError("the archive's directory is cut short", where=f"byte {place}")
        magic, _, _, flags, method, _, _, crc, packed, unpacked, name, extra, comment, _, _, _, at = _ENTRY.unpack(
            data[place : place + _ENTRY.size]
        )
        text = place + _ENTRY.size
        if magic != b"PK\x01\x02" or text + name + extra + comment > end:
            raise ReadError("the archive's directory is damaged", where=f"byte {place}")
        if flags & _ENCRYPTED or method not in (_STORED, _DEFLATED):
            raise ReadError("a file behind the model is encrypted or packed in an unknown way", where=f"byte {place}")
        called = bytes(data[text : text + name]).decode("utf-8", "replace")
        if not called.endswith("/"):
            yield _Entry(called, method, crc, packed, unpacked, begin + at, f"byte {place}")
        place = text + name + extra + comment


def _unpacked(data: Source, entry: _Entry) -> bytes:
    start = entry.offset
    where = f"byte {start}"
    if start + _LOCAL.size > len(data):
        raise ReadError("a file behind the model lies outside of it", where=entry.place)
    local = _LOCAL.unpack(data[start : start + _LOCAL.size])
    start += _LOCAL.size + local[9] + local[10]
    if local[0] != b"PK\x03\x04" or start + entry.packed > len(data):
        raise ReadError("a file behind the model is damaged or cut short", where=where)
    packed = data[start : start + entry.packed]
    if entry.method == _STORED:
        content = bytes(packed)
    else:
        unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            # One byte more than is declared shows a file that goes on, without unpacking all of it.
            content = unpacking.decompress(packed, entry.size + 1)
        except zlib.error as error:
            raise ReadError(f"a file behind the model cannot be unpacked ({error})", where=where) from None
    if len(content) != entry.size or zlib.crc32(content) != entry.crc:
        raise ReadError(f"the content of {entry.name[:80]!r} is not what its checksum says", where=where)
    return content
