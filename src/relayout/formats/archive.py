"""ZIP archives, alone or behind a model: read with every length bounded before anything is unpacked.

Source: PKWARE's APPNOTE, with its 64-bit records.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from relayout.errors import ReadError
from relayout.formats.flatbuffer import Source
from relayout.formats.stored import PIECE

MOST_FILES = 256
MOST_BYTES = 1 << 24  # of all files together, unpacked: labels and vocabularies are far below

_TAIL = 22 + 0xFFFF
"""The archive's last record lies in the last bytes of the file: itself, and a comment of at most 64 KB."""
_END = struct.Struct("<4s4H2IH")
_END_64, _LOCATOR = struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 1
_IN_64 = 0xFFFFFFFF  # what a field of 32 bits says where the number is in one of 64


class Entry(NamedTuple):
    """One file in an archive's directory."""

    name: str  # its path
    stored: bool  # whether its bytes lie in the archive as they are
    crc: int  # the checksum of its content
    packed: int  # its bytes in the archive
    size: int  # its bytes
    offset: int  # where in the archive's file it begins
    place: str  # where its entry lies, for messages


def files(data: Source) -> dict[str, bytes]:
    """Name -> content of the files in the archive that a model's file ends with; none if there is no archive.

    Raises:
        ReadError: the archive is damaged, larger than the bounds, encrypted, or packed in a way that is not deflate.
    """
    all_entries = list(entries(data, MOST_FILES))
    if sum(entry.size for entry in all_entries) > MOST_BYTES:
        raise ReadError(f"the archive's files are above {MOST_BYTES} bytes", where=all_entries[0].place)
    contents: dict[str, bytes] = {}
    for entry in all_entries:
        if entry.name in contents:
            raise ReadError(f"two files are called {entry.name[:80]!r}", where=entry.place)
        contents[entry.name] = content(data, entry)
    return contents


def archive(
    contents: Sequence[tuple[str, bytes]],  # name and bytes of each
    begin: int,  # where the archive begins in the file: its directory counts from the file's beginning
) -> bytes:
    """Return an archive of files as they are, to be put behind so many bytes of another file."""
    buffer = _Behind(begin)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as zip_file:
        for name, data in contents:
            zip_file.writestr(zipfile.ZipInfo(name), data)  # whose date is always the same
    return buffer.getvalue()


class _Behind(io.BytesIO):
    """Bytes that are going to lie behind others, and count their places from the beginning of these."""

    def __init__(self, begin: int) -> None:
        super().__init__()
        self.begin = begin

    def tell(self) -> int:
        return super().tell() + self.begin

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return super().seek(offset - self.begin if whence == io.SEEK_SET else offset, whence) + self.begin


def entries(data: Source, most: int) -> Iterator[Entry]:
    """Yield the files in the archive that a file ends with; none if there is no archive.

    Raises:
        ReadError: the archive is damaged, holds more than `most` files, is encrypted, or packed in an unknown way.
    """
    start = max(0, len(data) - _TAIL)
    index = bytes(data[start:]).rfind(b"PK\x05\x06")
    if index < 0 or start + index + _END.size > len(data):
        return
    end = start + index
    _, disk, first, here, count, size, offset, _ = _END.unpack(data[end : end + _END.size])
    where, record = f"byte {end}", end - _LOCATOR.size - _END_64.size
    located = end - _LOCATOR.size
    if record >= 0 and data[record : record + 4] == b"PK\x06\x06" and data[located : located + 4] == b"PK\x06\x07":
        end = record
        *_, disk, first, here, count, size, offset = _END_64.unpack(data[end : end + _END_64.size])
    if disk or first or here != count:
        raise ReadError("the archive is in several parts", where=where)
    if count > most:
        raise ReadError(f"the archive has {count} files, more than {most}", where=where)
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
            raise ReadError("a file of the archive is encrypted or packed in an unknown way", where=f"byte {place}")
        called = bytes(data[text : text + name]).decode("utf-8", "replace")
        if _IN_64 in (packed, unpacked, at):
            more = bytes(data[text + name : text + name + extra])
            unpacked, packed, at = _in_64_bits(more, [unpacked, packed, at], f"byte {place}")
        if not called.endswith("/"):
            yield Entry(called, method == _STORED, crc, packed, unpacked, begin + at, f"byte {place}")
        place = text + name + extra + comment


def _in_64_bits(extra: bytes, numbers: Sequence[int], where: str) -> tuple[int, ...]:
    """An entry's numbers, those that 32 bits do not hold from its extra field, in which they come in this order."""
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, place)
        if kind == 1:
            field = extra[place + 4 : place + 4 + length // 8 * 8]
            wide = [number for (number,) in struct.iter_unpack("<Q", field)]
            if len(wide) >= numbers.count(_IN_64):
                return tuple([wide.pop(0) if number == _IN_64 else number for number in numbers])
        place += 4 + length
    raise ReadError("the archive's directory is damaged", where=where)


def extent(data: Source, entry: Entry) -> tuple[int, int]:
    """Return where the bytes of an archive's file begin and end, packed as they are.

    Raises:
        ReadError: they lie outside of the archive.
    """
    start = entry.offset
    if start + _LOCAL.size > len(data):
        raise ReadError("a file of the archive lies outside of it", where=entry.place)
    local = _LOCAL.unpack(data[start : start + _LOCAL.size])
    begin = start + _LOCAL.size + local[9] + local[10]
    if local[0] != b"PK\x03\x04" or begin + entry.packed > len(data):
        raise ReadError("a file of the archive is damaged or cut short", where=f"byte {start}")
    return begin, begin + entry.packed


def head(data: Source, entry: Entry, length: int) -> bytes:
    """Return the first bytes of an archive's file, at most `length`.

    Raises:
        ReadError: they lie outside of the archive, or cannot be unpacked.
    """
    return next(_contents(data, entry), b"")[:length]


def content(data: Source, entry: Entry) -> bytes:
    """Return the bytes of an archive's file.

    Raises:
        ReadError: they lie outside of the archive, cannot be unpacked, or are not what its checksum says.
    """
    return b"".join(pieces(data, entry))


def pieces(data: Source, entry: Entry) -> Iterator[bytes]:
    """Yield the bytes of an archive's file in pieces, never more than its entry declares.

    Raises:
        ReadError: they lie outside of the archive, cannot be unpacked, or are not what its checksum says.
    """
    size = checksum = 0
    for piece in _contents(data, entry):
        size, checksum = size + len(piece), zlib.crc32(piece, checksum)
        if size > entry.size:
            break
        yield piece
    if size != entry.size or checksum != entry.crc:
        where = f"byte {extent(data, entry)[0]}"
        raise ReadError(f"the content of {entry.name[:80]!r} is not what its checksum says", where=where)


def _contents(data: Source, entry: Entry) -> Iterator[bytes]:
    """Yield an archive's file in pieces, as long as there is more of it."""
    begin, end = extent(data, entry)
    unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
    for place in range(begin, end, PIECE):
        packed = bytes(data[place : min(end, place + PIECE)])
        if entry.stored:
            yield packed
            continue
        while packed:
            try:
                yield unpacking.decompress(packed, PIECE)
            except zlib.error as error:
                raise ReadError(f"a file of the archive cannot be unpacked ({error})", where=f"byte {begin}") from None
            packed = unpacking.unconsumed_tail
    yield unpacking.flush()
