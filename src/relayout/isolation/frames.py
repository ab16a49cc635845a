"""Messages between two processes: some byte strings at a time. Child processes run this file's functions, too.

`python frames.py SERVER` answers the questions of another process by the function `answer` of the file SERVER. It is
run as a file of its own, so that what it answers may end it. Its questions are the function's arguments, pickled.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any

MOST_PARTS = 1 << 24  # byte strings of one message: a broken child process must not make this one reserve more


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


def pack(what: Any) -> list[bytes | memoryview]:
    """Return an object as a message; its arrays are not copied."""
    import pickle

    views: list[pickle.PickleBuffer] = []
    head = pickle.dumps(what, protocol=5, buffer_callback=views.append)
    return [head, *(view.raw() for view in views)]


def unpack(parts: Sequence[bytes]) -> Any:
    """Return the object that `pack` made a message of; its arrays may be written to."""
    import pickle

    head, *buffers = parts
    return pickle.loads(head, buffers=[bytearray(buffer) for buffer in buffers])


def serve(answer: Callable[..., Any]) -> None:
    """Answer until standard input ends. What libraries print goes nowhere: that stream is for answers."""
    import os

    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        try:
            parts = receive(questions)
        except EOFError:
            return
        send(answers, pack(answer(*unpack(parts))))


def _exactly(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content


if __name__ == "__main__":
    del sys.path[0]  # this file's folder: what lies there is not for others to import
    from runpy import run_path

    serve(run_path(sys.argv[1])["answer"])
