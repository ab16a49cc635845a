"""The metadata buffer `relayout` of a `.tflite` result: which values of its source each tensor holds, and how.

It is JSON, and says in a file what `relayout.holds`, `relayout.tensor`, `relayout.interface`, `relayout.cut` and
`relayout.steps_off` say in an ONNX result. `verify` reads it to undo layouts. docs/metadata.md lists the keys.

    {"schema": 1,
     "interface": {"x": "n c h w -> n h w c"},
     "part": {"inputs": ["x"], "outputs": ["conv_3"]},
     "signature": "encode",
     "initial": {"state": 0.0},
     "batch": {"inputs": {"x": 0}, "outputs": {"y": [0, 1]}},
     "normalize": {"image": {"mean": [127.5], "std": [127.5], "axis": null, "of": "x"}},
     "steps_off": {"sigmoid_1": 2},
     "tensors": {"y": {"names": ["conv_1"], "holds": [{"name": "y", "factors": …, "perm": …, "shape": …}]}}}

A tensor that is not listed holds the value of its own name as the source stores it, if there is one.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.errors import LayoutError, ReadError
from relayout.formats.archive import MOST_BYTES, MOST_FILES
from relayout.formats.flatbuffer import read_root
from relayout.formats.tflite.container.metadata import BASE64, BUFFERS, FILES, IDENTIFIER, METADATA, OWN
from relayout.formats.tflite.container.metadata import SCHEMA as METADATA_SCHEMA
from relayout.formats.tflite.container.model import Model
from relayout.formats.tflite.container.versions import MIN_RUNTIME_VERSION
from relayout.layout.normalization import NORMALIZE, Normalization
from relayout.layout.stored_as import (
    CUT,
    INITIAL,
    INTERFACE,
    OPENED_BATCH,
    SIGNATURE,
    STEPS_OFF,
    TENSOR,
    Holds,
    OpenedBatch,
    steps_off,
)

SCHEMA = 1  # the version of its form. A file with another one says nothing that this version understands.


class Holding(NamedTuple):
    """The part of the source that one tensor holds."""

    names: tuple[str, ...] = ()  # values that it holds as the source stores them, under another name
    holds: tuple[Holds, ...] = ()  # values that it holds in a layout of its own


class Provenance(NamedTuple):
    """The statements of a file about its source."""

    tensors: Mapping[str, Holding] = {}  # name of a tensor -> what it holds
    interface: Mapping[str, str] = {}  # input or output -> its layout in the source and here
    # the source's names of the inputs and outputs, where the file is a part of its source
    part: Mapping[str, list[str]] | None = None
    signature: str | None = None  # the key of the source's signature, where that is not of its first subgraph
    # input that is state from run to run -> what it begins with, as JSON, in the source's order of axes
    initial: Mapping[str, str] = {}
    # input that the file normalizes itself -> mean, standard deviation and axis, as JSON
    normalize: Mapping[str, str] = {}
    batch: OpenedBatch | None = None  # the batch that was opened
    steps_off: Mapping[str, int] = {}  # quantized value of the source -> the steps by which it may be off here

    def dump(self) -> bytes:
        """Return the buffer's content: the same facts give the same bytes."""
        data: dict[str, Any] = {"schema": SCHEMA}
        if self.interface:
            data["interface"] = dict(self.interface)
        if self.part:
            data["part"] = dict(self.part)
        if self.signature is not None:
            data["signature"] = self.signature
        if self.initial:
            data["initial"] = {name: json.loads(text) for name, text in self.initial.items()}
        if self.normalize:
            data["normalize"] = {name: json.loads(text) for name, text in self.normalize.items()}
        if self.batch is not None:
            data["batch"] = json.loads(self.batch.dump())
        if self.steps_off:
            data["steps_off"] = dict(self.steps_off)
        if self.tensors:
            data["tensors"] = {name: _to_json(holding) for name, holding in self.tensors.items()}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()

    def normalization(self, tensor: str, shape: Sequence[object]) -> Normalization | None:
        """Return what the file does to an input before anything else, with the axis as the file stores it."""
        source_values = self.tensors.get(tensor, Holding()).holds
        return Normalization.stored(self.normalize.get(tensor, ""), source_values, shape)

    def source_name(self, tensor: str) -> str:
        """Return the source's name of the value that a tensor holds; the tensor's own where nothing else is known."""
        holding = self.tensors.get(tensor, Holding())
        return next(iter((*(each.name for each in holding.holds), *holding.names, tensor)))

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to say: every tensor holds its namesake as it is."""
        return self == Provenance()


def provenance_of(
    model: ir.Model,  # the graph that is written, whose values say in their metadata what they hold
    tensors: Mapping[str, Iterable[ir.Value]],  # name of a tensor in the file -> the values of the graph that it is
) -> Provenance:
    """Return what a file should say of its source."""
    holdings = {name: _holding(name, values) for name, values in tensors.items()}
    notes = model.metadata_props
    return Provenance(
        {name: holding for name, holding in holdings.items() if holding != Holding()},
        json.loads(notes[INTERFACE]) if INTERFACE in notes else {},
        json.loads(notes[CUT]) if CUT in notes else None,
        notes.get(SIGNATURE),
        {v.name or "": v.metadata_props[INITIAL] for v in model.graph.inputs if INITIAL in v.metadata_props},
        {v.name or "": v.metadata_props[NORMALIZE] for v in model.graph.inputs if NORMALIZE in v.metadata_props},
        OpenedBatch.load(notes.get(OPENED_BATCH)),
        steps_off(notes.get(STEPS_OFF, "{}")),
    )


def load_provenance(model: Model) -> Provenance:
    """Return what a file says of its source; nothing where the buffer is missing, or is not as it is written here."""
    raw = next((buffer for name, buffer in model.metadata if name == OWN), None)
    if raw is None:
        return Provenance()
    try:
        data = json.loads(bytes(np.asarray(raw)))
        if data["schema"] != SCHEMA:
            return Provenance()
        part = data.get("part")
        return Provenance(
            {str(name): _from_json(entry) for name, entry in data.get("tensors", {}).items()},
            {str(name): str(layout) for name, layout in data.get("interface", {}).items()},
            None if part is None else {side: [str(name) for name in part[side]] for side in ("inputs", "outputs")},
            None if data.get("signature") is None else str(data["signature"]),
            {str(name): json.dumps(value) for name, value in data.get("initial", {}).items()},
            {str(name): json.dumps(value) for name, value in data.get("normalize", {}).items()},
            OpenedBatch.load(json.dumps(data.get("batch"))),
            steps_off(json.dumps(data.get("steps_off", {}))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, LayoutError):
        return Provenance()


def _holding(tensor: str, values: Iterable[ir.Value]) -> Holding:
    values = list(values)
    names: dict[str, None] = {}
    source_values: dict[Holds, None] = {}
    for value in values:
        notes = value.metadata_props
        own = Holds.of(notes)
        called = [name for name in (notes.get(TENSOR, ""), value.name or "") if name]
        names.update(dict.fromkeys(called))
        source_values.update(dict.fromkeys(own))
        if len(values) > 1:  # one of them in a layout of its own must not speak for the others
            elsewhere = {item.name for item in own}
            source_values.update(dict.fromkeys(Holds.as_is(n, value.shape or ()) for n in called if n not in elsewhere))
    names.pop(tensor, None)
    return Holding(tuple(names), tuple(source_values))


def _to_json(holding: Holding) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if holding.names:
        fields["names"] = list(holding.names)
    if holding.holds:
        fields["holds"] = [source_value.to_json() for source_value in holding.holds]
    return fields


def _from_json(entry: Mapping[str, Any]) -> Holding:
    holds = Holds.load(json.dumps(entry["holds"])) if "holds" in entry else []
    return Holding(tuple(str(name) for name in entry.get("names", ())), tuple(holds))


# The descriptions of a source `.tflite` for people, written into a `.tflite` again, where they are still true.
#
# The ONNX model has it as metadata (`tflite.metadata.NAME`, `tflite.file.NAME`).

UNTRUE = frozenset(  # buffers that are not true of another file
    [
        OWN,  # it speaks of the source of the file that it is in
        MIN_RUNTIME_VERSION,  # it is found anew
        "OfflineMemoryAllocation",  # it counts tensors, which have other numbers now
        "LiteRtStamp",  # it says for which processor the operators were compiled
    ]
)


def buffers(model: ir.Model) -> Mapping[str, bytes]:
    """Return the metadata buffers that are true of a result: name -> bytes."""
    content_of = {name: content for name, content in _contents(model, BUFFERS) if name not in UNTRUE}
    if METADATA in content_of and not _describes(model, content_of[METADATA]):
        del content_of[METADATA]
    return content_of


def files(model: ir.Model) -> tuple[tuple[str, bytes], ...]:
    """Return the files behind the model: name and bytes of each; none where they are above the reader's bounds."""
    contents = tuple(_contents(model, FILES))
    fits = len(contents) <= MOST_FILES and sum(len(content) for _, content in contents) <= MOST_BYTES
    return contents if fits else ()


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
        root = read_root(memoryview(content), METADATA_SCHEMA, "ModelMetadata", IDENTIFIER)
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
