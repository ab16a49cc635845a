"""Files that relayout wrote: it may replace them without being asked, as it can make them again.

A `.tflite` says so in its description, an ONNX model as its producer, or in its metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relayout.errors import ReadError
from relayout.formats.bundle import TFL3
from relayout.formats.flatbuffer import Schema, read_root, rows
from relayout.formats.onnx.wire import LENGTH, fields
from relayout.formats.stored import FileWindow, open_stored

PRODUCER = "relayout"
"""What a `.tflite` has as its description, and an ONNX model that was made of one as its producer's name."""
SOURCE_FORMAT = "relayout.source_format"
"""The key of a result's metadata that says what it was made of: `tflite` or `onnx`."""
PRODUCER_NAME, METADATA_PROPS, PROPERTY_KEY = 2, 14, 1
"""Field numbers of onnx.proto: two of `ModelProto`, and `StringStringEntryProto.key`."""
MOST_TEXT = 1 << 10
"""Bytes of a text that could be one of these."""
DESCRIPTION = Schema({"Model": rows("_ _ _ description:string")}, {}, {})
"""As much of a `.tflite` as the question needs, so that a large one is not read."""


def was_tflite(metadata: Mapping[str, str]) -> bool:
    """Tell by a model's metadata whether it was made of a `.tflite`: that one's operators come back as they were."""
    return metadata.get(SOURCE_FORMAT) == "tflite"


def is_own_result(path: Path) -> bool:
    """Tell whether relayout wrote a file. A few pieces of it are read, whatever its size."""
    try:
        data = FileWindow(open_stored(path))
        if data[4:8] == TFL3:
            return bool(read_root(data, DESCRIPTION, "Model", TFL3).description == PRODUCER)
        return _is_own_onnx(data)
    except ReadError:
        return False


def _is_own_onnx(data: FileWindow) -> bool:
    for each in fields(data, 0, len(data)):
        if each.kind != LENGTH or each.stop - each.start > MOST_TEXT:
            continue
        if each.number == PRODUCER_NAME and data[each.start : each.stop] == PRODUCER.encode():
            return True
        if each.number == METADATA_PROPS and _key(data, each.start, each.stop) == SOURCE_FORMAT.encode():
            return True
    return False


def _key(data: FileWindow, start: int, stop: int) -> bytes:
    return next((data[e.start : e.stop] for e in fields(data, start, stop) if e.number == PROPERTY_KEY), b"")
