"""The descriptions of a source `.tflite` for people, written into a `.tflite` again, where they are still true.

The ONNX model has it as metadata (`tflite.metadata.NAME`, `tflite.file.NAME`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.archive import MOST_BYTES, MOST_FILES
from relayout.formats.flatbuffer import read_root
from relayout.formats.tflite.container.metadata import BASE64, BUFFERS, FILES, IDENTIFIER, METADATA, OWN, SCHEMA
from relayout.formats.tflite.container.versions import MIN_RUNTIME_VERSION
from relayout.layout.stored_as import CUT, INTERFACE

UNTRUE = frozenset(
    [
        OWN,  # it speaks of the source of the file that it is in
        MIN_RUNTIME_VERSION,  # it is found anew
        "OfflineMemoryAllocation",  # it counts tensors, which have other numbers now
        "LiteRtStamp",  # it says for which processor the operators were compiled
    ]
)
"""Buffers that are not true of another file."""


def buffers(model: ir.Model) -> Mapping[str, bytes]:
    """Return the metadata buffers that are true of a result: name -> bytes."""
    found = {name: content for name, content in _contents(model, BUFFERS) if name not in UNTRUE}
    if METADATA in found and not _describes(model, found[METADATA]):
        del found[METADATA]
    return found


def files(model: ir.Model) -> tuple[tuple[str, bytes], ...]:
    """Return the files behind the model: name and bytes of each; none where they are above the reader's bounds."""
    found = tuple(_contents(model, FILES))
    fits = len(found) <= MOST_FILES and sum(len(content) for _, content in found) <= MOST_BYTES
    return found if fits else ()


def _contents(model: ir.Model, prefix: str) -> Iterator[tuple[str, bytes]]:
    for key, text in model.metadata_props.items():
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or not name.removesuffix(BASE64):
            continue
        try:
            content = base64.b64decode(text, validate=True) if name.endswith(BASE64) else text.encode()
        except binascii.Error:
            continue
        yield name.removesuffix(BASE64), content


def _describes(model: ir.Model, content: bytes) -> bool:
    """Return whether descriptions are of a model's inputs and outputs: as many, each stored as in the source."""
    try:
        root = read_root(memoryview(content), SCHEMA, "ModelMetadata", IDENTIFIER)
    except ReadError:
        return False
    if any(key in model.metadata_props for key in (CUT, INTERFACE)) or len(root.subgraph_metadata) > 1:
        return False
    for graph in root.subgraph_metadata:
        counts = len(graph.input_tensor_metadata), len(graph.output_tensor_metadata)
        ends = len(model.graph.inputs), len(model.graph.outputs)
        if any(count not in (0, end) for count, end in zip(counts, ends, strict=True)):
            return False
    return True
