"""Messages between two processes: some byte strings at a time. Child processes run this file's functions, too."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import IO

MOST_PARTS = 1 << 24
"""Byte strings of one message: a broken child process must not make this one reserve more."""


def send(stream: IO[bytes], parts: Sequence[bytes | memoryview]) -> None:
    """Write one message."""
    stream.write(struct.pack(f"<{len(parts) + 1}Q", len(parts), *map(len, parts)))
    for part in parts:
        stream.write(part)
    stream.flush()


def receive(stream: IO[bytes]) -> list[bytes]:
    """Read one message.

    Raises:
        EOFError: the other process has closed the stream, or ended.
    """
    (count,) = struct.unpack("<Q", _exactly(stream, 8))
    if count > MOST_PARTS:
        raise EOFError
    lengths = struct.unpack(f"<{count}Q", _exactly(stream, 8 * count))
    return [_exactly(stream, length) for length in lengths]


def _exactly(stream: IO[bytes], length: int) -> bytes:
    found = stream.read(length)
    if len(found) < length:
        raise EOFError
    return found
