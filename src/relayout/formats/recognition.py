"""What a file is, by its first bytes: a `.tflite`, or something else that is often given in the place of a model."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from relayout.errors import ReadError
from relayout.formats.bundle import HEAD, TFL3, open_model
from relayout.formats.flatbuffer import Schema, read_root, rows
from relayout.formats.onnx.wire import LENGTH, fields
from relayout.formats.stored import FileWindow, open_stored

# Files that relayout wrote: it may replace them without being asked, as it can make them again.
#
# A `.tflite` says so in its description, an ONNX model as its producer, or in its metadata.

PRODUCER = "relayout"
"""What a `.tflite` has as its description, and an ONNX model that was made of one as its producer's name."""
SOURCE_FORMAT = "relayout.source_format"
"""The key of a result's metadata that says what it was made of: `tflite` or `onnx`."""
PRODUCER_NAME, METADATA_PROPS, PROPERTY_KEY = 2, 14, 1
"""Field numbers of onnx.proto: two of `ModelProto`, and `StringStringEntryProto.key`."""
MOST_TEXT = 1 << 10  # bytes of a text that could be one of these
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


ORTM = b"ORTM"  # bytes 4 to 8 of every ORT-format model
EXPORT = "export it to ONNX (PyTorch: torch.onnx.export) or TensorFlow Lite (tf.lite.TFLiteConverter) first"
IN_PYTHON = "give the module to relayout.convert(module, args=(image,)) in Python (docs/how-to/pytorch.md)"
DOWNLOAD = "the download went wrong: fetch the file itself"


class Foreign(NamedTuple):
    """A kind of file that is no model here: how it begins, what it is, what to do with it."""

    begins: str
    what: str
    advice: str


FOREIGN = (  # the first that fits holds
    Foreign(r"version https://git-lfs", "a pointer of Git LFS", "run `git lfs pull`"),
    Foreign(r"(?i)\s*<(!doctype|html)", "an HTML page", DOWNLOAD),
    Foreign(r"PK\x03\x04.{26}[^/]+/(data|archive_format|byteorder|version|extra)\b", "a file of PyTorch", IN_PYTHON),
    Foreign(r"PK\x03\x04", "a ZIP archive without a .tflite (.keras files are such)", EXPORT),
    Foreign(r"LITERTLM", "a LiteRT-LM container without a .tflite", "give one that has a model"),
    Foreign(r"\x89HDF", "an HDF5 file (.h5 files of Keras are such)", EXPORT),
    Foreign(r"\x80[\x02-\x05]", "a Python pickle (older .pt files are such)", IN_PYTHON),
    Foreign(r"\x08\x01\x12", "a SavedModel of TensorFlow", EXPORT),
    Foreign(r"\n.{1,3}\n[\x01-\x7f]\w", "a graph of TensorFlow", EXPORT),
    Foreign(r".{8}\{\"", "a file of safetensors, which has weights and no graph", EXPORT),
    Foreign(r"GGUF", "a GGUF file, which has weights and no graph", EXPORT),
    Foreign(r"....ORTM", "an ORT-format model of ONNX Runtime", "give it the ending .ort"),
    Foreign(r"....TFL3", "a TensorFlow Lite model", "`relayout convert` makes it ONNX"),
    Foreign(r"\x1f\x8b", "a gzip archive", "unpack it first"),
    Foreign(r"\x93NUMPY", "an array of NumPy", "give a model"),
    Foreign(r"\s*<\?xml", "an XML file (OpenVINO's models are such)", "give the model that it was made from"),
    Foreign(r"\s*<\s*ir_version", "ONNX in its text form", "onnx.parser.parse_model makes a model of it"),
    Foreign(r"[\t\n\r -~]+$", "text", "give an .onnx or a .tflite file"),
)


def foreign(head: bytes) -> Foreign | None:
    """Return the kind of a file that is no model here, if its first bytes tell; else None."""
    text = head[:HEAD].decode("latin-1")
    return next((kind for kind in FOREIGN if re.match(kind.begins, text, re.DOTALL)), None)


def refuse_foreign(path: Path) -> None:
    """Refuse a file that is certainly no model here, before anything else is asked about it.

    Raises:
        ReadError: there is no such file, it is empty, or another tool's model.
    """
    file = open_model(path)
    head = file.read(0, min(HEAD, file.size))
    kind = foreign(head)
    if kind is not None and kind.advice in (EXPORT, IN_PYTHON):
        raise not_a("an ONNX model", head, "").within(str(path))


def not_a(expected_format: str, head: bytes, detail: str, where: str = "") -> ReadError:
    """The error that a file is no model of the wanted format: what it is instead, or else what is wrong, and where."""
    kind = foreign(head)
    if kind is None:
        return ReadError(f"not {expected_format}, or a damaged one: {detail}", where=where)
    return ReadError(f"not {expected_format} but {kind.what}", hint=kind.advice)


def is_tflite(path: str | Path) -> bool:
    """Tell whether a file is a `.tflite`, or a path leads to one in a bundle.

    Raises:
        ReadError: there is no such file, it is empty, its name says that it is a `.tflite` and it is none, or it is a
            bundle of several.
    """
    file = open_model(Path(path))
    head = file.read(0, min(HEAD, file.size))
    if head[4:8] == TFL3:
        return True
    if Path(path).suffix.lower() == ".tflite":
        detail = "bytes 4 to 8 are not TFL3 (an ONNX model has the ending .onnx)"
        raise not_a("a TensorFlow Lite model", head, detail).within(str(path))
    return False
