"""What a model says of itself to people: its metadata buffers, and the files zipped behind it, as ONNX metadata.

Nothing here is needed to compute: what is damaged is left out, with a note that says what and where.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from relayout.errors import ReadError
from relayout.formats.archive import files
from relayout.formats.flatbuffer import FieldRow, Raw, Schema, Source, Table, read_root, rows
from relayout.formats.stored import StoredArray
from relayout.formats.tflite.container.model import Model
from relayout.light_dataclass import dataclass

# The schema of `TFLITE_METADATA` as rows, as `schema.py` has the model's: what a model says of itself to people.

IDENTIFIER = b"M001"

_TABLES = {
    "ModelMetadata": (
        "name:string description:string version:string subgraph_metadata:[SubGraphMetadata] author:string "
        "license:string associated_files:[AssociatedFile] min_parser_version:string"
    ),
    "SubGraphMetadata": (
        "name:string description:string input_tensor_metadata:[TensorMetadata] "
        "output_tensor_metadata:[TensorMetadata] associated_files:[AssociatedFile] input_process_units:[ProcessUnit] "
        "output_process_units:[ProcessUnit] input_tensor_groups:[TensorGroup] output_tensor_groups:[TensorGroup] "
        "custom_metadata:[CustomMetadata]"
    ),
    "TensorMetadata": (
        "name:string description:string dimension_names:[string] content:Content process_units:[ProcessUnit] "
        "stats:Stats associated_files:[AssociatedFile]"
    ),
    "TensorGroup": "name:string tensor_names:[string]",
    "AssociatedFile": "name:string description:string type:AssociatedFileType locale:string version:string",
    "Content": "content_properties_type:uint8 content_properties:ContentProperties range:ValueRange",
    "ValueRange": "min:int32 max:int32",
    "FeatureProperties": "",
    "ImageProperties": "color_space:ColorSpaceType default_size:ImageSize",
    "ImageSize": "width:uint32 height:uint32",
    "BoundingBoxProperties": "index:[uint32] type:BoundingBoxType coordinate_type:CoordinateType",
    "AudioProperties": "sample_rate:uint32 channels:uint32",
    "Stats": "max:[float32] min:[float32]",
    "ProcessUnit": "options_type:uint8 options:ProcessUnitOptions",
    "NormalizationOptions": "mean:[float32] std:[float32]",
    "ScoreCalibrationOptions": "score_transformation:ScoreTransformationType default_score:float32",
    "ScoreThresholdingOptions": "global_score_threshold:float32",
    "BertTokenizerOptions": "vocab_file:[AssociatedFile]",
    "SentencePieceTokenizerOptions": "sentencePiece_model:[AssociatedFile] vocab_file:[AssociatedFile]",
    "RegexTokenizerOptions": "delim_regex_pattern:string vocab_file:[AssociatedFile]",
    "CustomMetadata": "name:string data:[uint8]",
}

_NAMES = {
    "AssociatedFileType": (
        "UNKNOWN DESCRIPTIONS TENSOR_AXIS_LABELS TENSOR_VALUE_LABELS TENSOR_AXIS_SCORE_CALIBRATION VOCABULARY "
        "SCANN_INDEX_FILE"
    ),
    "BoundingBoxType": "UNKNOWN BOUNDARIES UPPER_LEFT CENTER",
    "ColorSpaceType": "UNKNOWN RGB GRAYSCALE",
    "CoordinateType": "RATIO PIXEL",
    "ScoreTransformationType": "IDENTITY LOG INVERSE_LOGISTIC",
}

ENUMS = {name: text.split() for name, text in _NAMES.items()}  # names behind the numbers

_CONTENT = "Feature Image BoundingBox Audio"
_PROCESSING = "Normalization ScoreCalibration ScoreThresholding BertTokenizer SentencePieceTokenizer RegexTokenizer"
SCHEMA = Schema(
    tables={name: rows(text) for name, text in _TABLES.items()},
    unions={
        "ContentProperties": ("NONE", *(f"{kind}Properties" for kind in _CONTENT.split())),
        "ProcessUnitOptions": ("NONE", *(f"{kind}Options" for kind in _PROCESSING.split())),
    },
    enums=dict.fromkeys(ENUMS, "int8"),
)


METADATA = "TFLITE_METADATA"  # the metadata buffer that has a schema of its own

BUFFERS, FILES, BASE64 = "tflite.metadata.", "tflite.file.", ";base64"
"""Prefixes of metadata keys, for buffers and for files behind a model; the suffix marks bytes that are no text."""

WHOLE = f"{BUFFERS}{METADATA}{BASE64}"  # the key of `TFLITE_METADATA` as it is, for whoever writes a `.tflite` again

OWN = "relayout"  # the metadata buffer that relayout writes; see `provenance`

MOST_OPAQUE = 1 << 16  # bytes of any other metadata buffer that are carried over


@dataclass
class Metadata:
    """The part of a file that goes into the ONNX model."""

    properties: dict[str, str] = field(default_factory=dict)  # for `metadata_props`; docs/metadata.md lists the keys
    description: str = ""  # for the model's `doc_string`
    texts: dict[int, str] = field(default_factory=dict)  # tensor index -> the description of that input or output
    notes: list[str] = field(default_factory=list)  # what could not be read


def metadata(
    model: Model,  # the file
    index: int,  # the subgraph that is read
    data: Source,  # the file's bytes
) -> Metadata:
    """Read everything that a file says of itself."""
    file_metadata = Metadata(description=model.description)
    if model.description:
        file_metadata.properties["tflite.description"] = model.description
    for name, buffer in model.metadata:
        if buffer is None:
            file_metadata.notes.append(f"metadata {name[:80]!r} is left out: there is no such buffer")
        elif name == OWN:
            continue  # it speaks of the file that this one was made of, and not of what is made of this one
        elif name == METADATA:
            _tolerant(file_metadata, name, partial(_described, file_metadata, model, index, buffer, data))
        else:
            _tolerant(file_metadata, name, partial(_opaque, file_metadata, name, buffer))
    _tolerant(file_metadata, "files behind the model", partial(_files, file_metadata, data))
    return file_metadata


def _tolerant(file_metadata: Metadata, name: str, reading: Callable[[], None]) -> None:
    try:
        reading()
    except ReadError as error:
        file_metadata.notes.append(f"metadata left out ({name[:80]}): {error}")


def _described(file_metadata: Metadata, model: Model, index: int, buffer: Raw, data: Source) -> None:
    content = np.asarray(buffer)
    root = read_root(content.data, SCHEMA, "ModelMetadata", IDENTIFIER, _place(buffer, data))
    if index == 0 and len(root.subgraph_metadata) <= 1 and content.size <= MOST_OPAQUE:
        file_metadata.properties[WHOLE] = base64.b64encode(content.tobytes()).decode()
    for name in ("name", "version", "author", "license"):
        if text := getattr(root, name):
            file_metadata.properties[f"tflite.{name}"] = text
    if root.description:
        file_metadata.description = root.description
        file_metadata.properties["tflite.description"] = root.description
    if root.associated_files:
        file_metadata.properties["tflite.files"] = _json(_plain(root)["associated_files"])
    if index >= len(root.subgraph_metadata):
        return
    graph, subgraph = root.subgraph_metadata[index], model.subgraphs[index]
    for side, ends, tables in (
        ("inputs", subgraph.inputs, graph.input_tensor_metadata),
        ("outputs", subgraph.outputs, graph.output_tensor_metadata),
    ):
        if len(tables) != len(ends):
            if tables:
                file_metadata.notes.append(
                    f"metadata left out: it describes {len(tables)} {side}, the model has {len(ends)}"
                )
            continue
        listed = [
            {"tensor": model.subgraphs[index].tensors[i].name} | _plain(t) for i, t in zip(ends, tables, strict=True)
        ]
        file_metadata.properties[f"tflite.{side}"] = _json(listed)
        file_metadata.texts |= {i: t.description for i, t in zip(ends, tables, strict=True) if t.description}
    rest = {k: v for k, v in _plain(graph).items() if k not in ("input_tensor_metadata", "output_tensor_metadata")}
    if rest:
        file_metadata.properties["tflite.graph"] = _json(rest)


def _place(buffer: Raw, data: Source) -> int:
    """Return where in the file a buffer begins."""
    if isinstance(buffer, StoredArray):
        return buffer.offset
    assert isinstance(data, memoryview)  # what is in memory is a part of it
    begin: int = buffer.ctypes.data - np.frombuffer(data, np.uint8).ctypes.data
    return begin


def _opaque(file_metadata: Metadata, name: str, buffer: Raw) -> None:
    if buffer.size > MOST_OPAQUE:
        raise ReadError(f"{buffer.size} bytes that nothing here knows the meaning of")
    content = np.asarray(buffer).tobytes()
    text = content.rstrip(b"\0")  # texts are filled up with zeros
    _put(file_metadata, f"{BUFFERS}{name}", content if b"\0" in text else text)


def _files(file_metadata: Metadata, data: Source) -> None:
    for name, content in files(data).items():
        _put(file_metadata, f"{FILES}{name}", content)


def _put(file_metadata: Metadata, key: str, content: bytes) -> None:
    """Text as it is; anything else as base64, under a key that says so."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        key, text = f"{key}{BASE64}", base64.b64encode(content).decode()
    file_metadata.properties[key] = text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _plain(table: Table) -> dict[str, Any]:
    """Return a table as JSON types, without what is absent; a union as its member's name and fields."""
    fields: dict[str, Any] = {}
    for row in SCHEMA.tables.get(table.kind, ()):
        value = _value(row, table.fields[row.name])
        if value not in ("", None, [], {}) and not row.name.endswith("_type"):
            fields[row.name] = value
    return fields


def _value(row: FieldRow, value: Any) -> Any:
    if row.type in ENUMS:
        names = ENUMS[row.type]
        return names[value] if 0 <= value < len(names) else int(value)
    if row.type in SCHEMA.unions:
        return None if value is None else {"kind": value.kind} | _plain(value)
    if isinstance(value, Table):
        return _plain(value)
    if isinstance(value, np.ndarray):
        return base64.b64encode(value.tobytes()).decode() if value.dtype == np.uint8 else _numbers(value.tolist())
    if isinstance(value, tuple):
        return [_plain(item) if isinstance(item, Table) else item for item in value]
    return _numbers([value])[0] if isinstance(value, float) else value


def _numbers(values: Sequence[float]) -> list[float | int | None]:
    """Numbers as short as 32 bits need; JSON has no infinity."""
    return [
        value if isinstance(value, int) else float(str(np.float32(value))) if math.isfinite(value) else None
        for value in values
    ]
