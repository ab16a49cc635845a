"""Models that are given as something else than a path: bytes of any kind, open files, other libraries' paths."""

from __future__ import annotations

import os
from io import TextIOBase
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import onnx
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.bundle import TFL3
from relayout.formats.recognition import ORTM

ModelSource = str | Path | bytes | onnx.ModelProto | ir.Model
"""A source that readers take: a path, the bytes of a `.tflite`, or an ONNX model in memory."""


class PyTorchSource(Protocol):
    """A `torch.nn.Module` or a `torch.export.ExportedProgram`, of which types know no more without PyTorch."""

    @property
    def state_dict(self) -> Any:
        """Its weights by name."""


AnySource = ModelSource | os.PathLike[str] | bytearray | memoryview | BinaryIO | PyTorchSource
"""A source as a user passes it."""
THERE = "the given bytes"
REMEDY = "open it with mode 'rb', or give its path"
LEAST = 8  # bytes of the shortest text that says which format it has: of fewer a reader says that they are too few


def model_source(source: Any) -> ModelSource:
    """Return a source as readers take it: bytes of a `.tflite` as bytes, those of an ONNX model as its proto.

    Args:
        source: a path of any kind, bytes, an open binary file, or a model, which is returned as it is; a result that is
            a `.tflite` is its file.

    Raises:
        ReadError: it is a file that is open as text or cannot be read, or bytes of something else than a model.
    """
    if isinstance(source, str | Path | onnx.ModelProto | ir.Model):
        return source
    if isinstance(source, os.PathLike):
        return Path(os.fsdecode(source))
    if not isinstance(source, bytes | bytearray | memoryview) and callable(getattr(source, "read", None)):
        source = "" if isinstance(source, TextIOBase) else _content(source)  # bytes that are no text would be an error
        if isinstance(source, str):
            raise ReadError("the file is open as text", hint=REMEDY)
    if getattr(source, "format", "") == "tflite" and isinstance(content := getattr(source, "tflite", None), bytes):
        return content  # a result stands for its file, and not for what that was written from
    if not isinstance(source, bytes | bytearray | memoryview):
        return source  # type: ignore[no-any-return]  # a reader says what it is
    return _of_bytes(bytes(source))


def _content(file: Any) -> Any:
    try:
        content = file.read()
        if not content and getattr(file, "seekable", bool)() and file.tell():
            raise ReadError("the file was read to its end before", hint="call .seek(0) on it, or give its path")
        return content
    except (OSError, ValueError) as error:  # ValueError: it is closed
        why = "it is open for writing" if str(error) == "read" else error  # all that Python says of it
        raise ReadError(f"the file cannot be read: {why}", hint=REMEDY) from error


def _of_bytes(content: bytes) -> bytes | onnx.ModelProto:
    if content[4:8] == ORTM:
        raise ReadError("an ORT-format model in memory is not read", where=THERE, hint="give its path")
    if content[4:8] == TFL3 or len(content) < LEAST:
        return content
    proto = _proto(content)
    if proto is None:
        raise ReadError("neither a .tflite nor a serialized ONNX model, or one that is cut short", where=THERE)
    return proto


def _proto(content: bytes) -> onnx.ModelProto | None:
    if content[0] not in ONNX_BEGINS:
        return None
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError:
        return None
    return proto if proto.HasField("graph") else None


ONNX_BEGINS = frozenset(number << 3 | kind for number in (1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25) for kind in (0, 2))
"""First bytes that a serialized ONNX model can have: the number of one of its fields, and how that is stored."""
