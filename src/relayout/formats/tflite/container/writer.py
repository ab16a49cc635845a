"""A model's values as a file: the way back from `loading`, so that `load(to_bytes(model))` equals `model`.

The file is written front to back: the flatbuffer's tables, and then all buffers, each at a multiple of 16 bytes. One
piece of one weight is in memory at a time.

1. A flatbuffer ends at 2 GB. Up to there the buffers are vectors inside it; a larger file has them behind it, and
   states offset and size of each.
2. Buffer 0 is empty: tensors without data refer to it. Tensors that have the same data object share a buffer.
3. What the reader leaves out cannot be written: minima and maxima of quantized tensors, debug metadata.
4. The file says what the model says, and no more. `versions.finished` adds the versions that runtimes ask for.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from relayout.errors import ReadError, RelayoutError, WriteError
from relayout.formats.archive import archive, files
from relayout.formats.bundle import TFL3
from relayout.formats.flatbuffer import Table
from relayout.formats.flatbuffer_writer import LIMIT, Bytes, Field, Flatbuffer, next_multiple, stream, table
from relayout.formats.onnx.atomic import Replacement
from relayout.formats.onnx.parts import one_line
from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS
from relayout.formats.tflite.container.loading import load, open_source
from relayout.formats.tflite.container.model import BlockScales, Model, Operator, Signature, Subgraph, Tensor
from relayout.formats.tflite.container.schema import SCHEMA
from relayout.graph.facts import Identity

ALIGNMENT = 16  # of weights in a file; runtimes use them where they lie

VERSION = 3  # of the schema

_PRESENT: frozenset[Field] = frozenset(  # vectors and strings that runtimes take to be there
    (kind, field)
    for kind, fields in {
        "Model": "operator_codes subgraphs buffers",
        "SubGraph": "tensors inputs outputs operators",
        "Tensor": "shape",
        "Operator": "inputs outputs",
        "SignatureDef": "inputs outputs signature_key",
        "TensorMap": "name",
        "Metadata": "name",
    }.items()
    for field in fields.split()
)

_LAST: frozenset[Field] = frozenset({("Buffer", "data")})

_LARGEST_BYTE = 127
"""Operators from here on are numbered in the second field, which old runtimes do not read; the first one has this."""


def write(model: Model, file: BinaryIO, *, limit: int = LIMIT) -> None:
    """Write a model as a `.tflite` file.

    Args:
        model: the model; its places and indices of tensors are not looked at.
        file: what is written to, from where it is.
        limit: the most bytes of a flatbuffer. The buffers of a larger model are behind its flatbuffer.

    Raises:
        WriteError: the model says something that a file cannot say.
    """
    for chunk in file_chunks(model, limit):
        file.write(chunk)


def to_bytes(model: Model, *, limit: int = LIMIT) -> bytes:
    """Return the bytes of a `.tflite` file; arguments and errors as of `write`."""
    file = io.BytesIO()
    write(model, file, limit=limit)
    return file.getvalue()


def save(model: Model, path: str | Path, *, sources: Collection[Identity] = (), limit: int = LIMIT) -> None:
    """Write a model to a file, or nothing. The verified reader reads the result back before it appears.

    Args:
        model: the model.
        path: the file; an existing one is replaced when the new one is complete.
        sources: files that may not be replaced, under whatever name.
        limit: as of `write`.

    Raises:
        WriteError: the file cannot be written, would not be sound, or would not say what the model says.
    """
    target = Path(path)
    if not target.name or os.fspath(path).endswith(("/", os.sep)):
        raise WriteError(f"cannot write '{path}': it is not the name of a file")
    try:
        with Replacement(sources) as files:
            _check(model, files.write(target, file_chunks(model, limit)))
    except RelayoutError:
        raise
    except OSError as error:
        raise WriteError(f"cannot write '{target}': {error.strerror or error}") from error
    except Exception as error:  # contents run code of their own
        raise WriteError(f"cannot write '{target}': {one_line(error)}") from error


def _check(model: Model, written: Path) -> None:
    """Read the file back. Weights are compared by length only: to read all of them takes as long as to write them."""
    try:
        difference = first_difference(load(written), model)
        if not difference and model.files and tuple(files(open_source(written)).items()) != model.files:
            difference = "the files behind the model"
    except ReadError as error:
        raise WriteError(f"the model would not be a sound file: {error}") from error
    if difference:
        raise WriteError(f"the file would not say what the model says: {difference}")


def options(kind: str, /, **fields: Any) -> Table:
    """Make an operator's options; fields that are not named have their defaults.

    Raises:
        ValueError: the schema has no such table, or the table no such field.

    ```python
    options("Conv2DOptions", padding=Padding.VALID, stride_w=1, stride_h=1)
    ```
    """
    return table(SCHEMA, kind, **fields)


def file_chunks(model: Model, limit: int = LIMIT) -> Iterator[bytes | memoryview]:
    """Yield the file's bytes in order; arguments and errors as of `write`."""
    length = 0
    for chunk in _model_chunks(model, limit):
        yield chunk
        length += len(chunk) if isinstance(chunk, bytes) else chunk.nbytes
    if model.files:
        yield archive(model.files, length)


def _model_chunks(model: Model, limit: int) -> Iterator[bytes | memoryview]:
    plan = _Plan(model)
    whole = plan.flatbuffer()
    if whole.size <= limit:
        yield from whole.chunks()
        return
    # Numbers have the same length whatever they are, so this flatbuffer is as long as the one that is written.
    length = plan.flatbuffer(behind=LIMIT).size
    yield from plan.flatbuffer(behind=length).chunks()
    for start, content in plan.places(length):
        yield bytes(start - length)
        yield from stream(content)
        length = start + content.nbytes


class _Plan:
    """The tables of a file, but for where its buffers are."""

    def __init__(self, model: Model) -> None:
        self.contents: list[Bytes] = []  # of each buffer but the first
        self._buffers: dict[int, int] = {}
        self._codes: dict[tuple[str, int], int] = {}
        subgraphs = tuple(map(self.subgraph, model.subgraphs))
        metadata = tuple(
            table(SCHEMA, "Metadata", name=name, buffer=self.buffer(content))
            for name, content in model.metadata
            if content is not None
        )
        self.fields = {
            "version": VERSION,
            "operator_codes": tuple(_code(name, version) for name, version in self._codes),
            "subgraphs": subgraphs,
            "description": model.description,
            "metadata": metadata,
            "signature_defs": tuple(map(_signature, model.signatures)),
        }

    def flatbuffer(self, behind: int = 0) -> Flatbuffer:
        """Return the flatbuffer with the buffers inside, or behind a flatbuffer of so many bytes."""
        if behind:
            buffers = [_buffer_behind(start, content.nbytes) for start, content in self.places(behind)]
        else:
            buffers = [table(SCHEMA, "Buffer", data=content) for content in self.contents]
        root = table(SCHEMA, "Model", buffers=(table(SCHEMA, "Buffer"), *buffers), **self.fields)
        return Flatbuffer(root, SCHEMA, TFL3, present=_PRESENT, last=_LAST, alignment=ALIGNMENT)

    def places(self, length: int) -> Iterator[tuple[int, Bytes]]:
        """Return where each buffer begins behind a flatbuffer of that length."""
        for content in self.contents:
            start = next_multiple(length, ALIGNMENT)
            yield start, content
            length = start + content.nbytes

    def buffer(self, content: Bytes | None) -> int:
        """Return the buffer of some bytes; 0 if there are none."""
        if content is None:
            return 0
        if id(content) not in self._buffers:
            self.contents.append(content)
            self._buffers[id(content)] = len(self.contents)
        return self._buffers[id(content)]

    def subgraph(self, subgraph: Subgraph) -> Table:
        return table(
            SCHEMA,
            "SubGraph",
            name=subgraph.name,
            tensors=tuple(map(self.tensor, subgraph.tensors)),
            inputs=subgraph.inputs,
            outputs=subgraph.outputs,
            operators=tuple(map(self.operator, subgraph.operators)),
        )

    def tensor(self, tensor: Tensor) -> Table:
        if tensor.shifted or tensor.listed:
            raise WriteError(f"tensor {tensor.name!r} is not as files have it: import changed it")
        return table(
            SCHEMA,
            "Tensor",
            name=tensor.name,
            type=tensor.type,
            shape=tensor.shape,
            shape_signature=tensor.signature if tensor.signature != tensor.shape else (),
            has_rank=True,
            buffer=self.buffer(tensor.data),
            quantization=_quantization(tensor),
            is_variable=tensor.is_variable,
            sparsity=tensor.sparsity,
        )

    def operator(self, operator: Operator) -> Table:
        code = self._codes.setdefault((operator.name, operator.version), len(self._codes))
        slot = "builtin_options"
        if operator.options is not None and operator.options.kind in SCHEMA.unions["BuiltinOptions2"]:
            slot = "builtin_options_2"
        elif operator.options is not None and operator.options.kind not in SCHEMA.unions["BuiltinOptions"]:
            raise WriteError(f"{operator.name} has options that the schema does not have: {operator.options.kind}")
        return table(
            SCHEMA,
            "Operator",
            opcode_index=code,
            inputs=operator.inputs,
            outputs=operator.outputs,
            intermediates=operator.intermediates,
            custom_options=operator.custom_options,
            **{slot: operator.options},
        )


def _buffer_behind(start: int, size: int) -> Table:
    return table(SCHEMA, "Buffer", offset=start, size=size) if size else table(SCHEMA, "Buffer")


def _code(name: str, version: int) -> Table:
    """Return an operator's number, name and version. `builtin 300` is one that the schema does not name."""
    kind, _, rest = name.partition(" ")
    if kind == "builtin" and rest.isdecimal():
        number = int(rest)
    elif kind in BUILTIN_OPERATORS:
        number = BUILTIN_OPERATORS.index(kind)
    else:
        raise WriteError(f"there is no operator {name!r}")
    first = min(number, _LARGEST_BYTE)
    return table(
        SCHEMA,
        "OperatorCode",
        deprecated_builtin_code=first,
        builtin_code=number,
        version=version,
        custom_code=rest if kind == "CUSTOM" else "",
    )


def _quantization(tensor: Tensor) -> Table | None:
    fields: dict[str, Any] = {}
    if tensor.quantization is not None:
        scale, zero_point, axis = tensor.quantization
        fields.update(scale=scale, zero_point=zero_point, quantized_dimension=axis)
    if tensor.blocks is not None:
        fields.update(details=_details(tensor.blocks, tensor.name))
    return table(SCHEMA, "QuantizationParameters", **fields) if fields else None


def _details(blocks: BlockScales, name: str) -> Table:
    if blocks.unknown:
        raise WriteError(f"tensor {name!r} cannot be written: it has {blocks.unknown}")
    return table(SCHEMA, "BlockwiseQuantization", scales=blocks.scales, zero_points=-1, block_size=blocks.size)


def _signature(signature: Signature) -> Table:
    inputs, outputs = (
        tuple(table(SCHEMA, "TensorMap", name=name, tensor_index=index) for name, index in side)
        for side in (signature.inputs, signature.outputs)
    )
    return table(
        SCHEMA,
        "SignatureDef",
        signature_key=signature.key,
        subgraph_index=signature.subgraph,
        inputs=inputs,
        outputs=outputs,
    )


# Compare two models, and say where they differ first.


_UNSAID = {"place", "byte", "index", "beside"}
"""Where something is in its file or its subgraph: where it stands says as much."""


def first_difference(
    model: Model,  # one
    other: Model,  # the other. Metadata without a buffer counts for nothing, nor do files behind the model.
    *,
    bytewise: bool = False,  # whether constants are compared by their bytes; if not, by their lengths
) -> str:
    """Return the path of the first difference with both values, or "" if there is none."""
    one, two = (
        m._replace(metadata=tuple((name, content) for name, content in m.metadata if content is not None), files=())
        for m in (model, other)
    )
    return difference(one, two, bytewise=bytewise)


def difference(one: Any, two: Any, *, bytewise: bool = False) -> str:
    """Return the first difference of two values of any kind, with its path; "" if there is none."""
    return _difference(one, two, bytewise).removeprefix(".")


def _difference(one: Any, two: Any, bytewise: bool) -> str:
    """Return the rest of the path, a colon, and both values."""
    if one is two or (type(one) in _WHOLE and one == two):
        return ""
    if type(one) is type(two) is tuple and one and type(one[0]) is int and one == two:  # extents, places of tensors
        return ""
    if _is_content(one) and _is_content(two):
        return _difference_of_contents(one, two, bytewise)
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        same = np.array_equal(one, two, equal_nan=one.dtype.kind == two.dtype.kind == "f")
        return "" if same else f": {_short(one.tolist())} and {_short(two.tolist())}"
    parts, others = _parts(one), _parts(two)
    if parts is None or others is None:
        return "" if _equal(one, two) else f": {_short(one)} and {_short(two)}"
    if len(parts) != len(others):
        return f": {len(parts)} and {len(others)}"
    for (name, first), second in zip(parts.items(), others.values(), strict=True):
        if first is not second and (difference := _difference(first, second, bytewise)):
            return f".{name}{difference}"
    return ""


_WHOLE = {str, int, bool}  # types without parts, of most values


def _equal(one: Any, two: Any) -> bool:
    """Tell whether two values without parts are equal; NaN equals NaN."""
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return False
    return bool(one == two) or bool(one != one and two != two)


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a value by their names or places; None if it has none."""
    if isinstance(value, Table):
        return {"kind": value.kind, **value.fields}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return dict(enumerate(value))
    if isinstance(value, tuple) or is_dataclass(value):
        return {name: getattr(value, name) for name in _said(value.__class__)}
    return None


@cache
def _said(kind: type) -> tuple[str, ...]:
    """Return the fields of a record that the file says."""
    names = getattr(kind, "_fields", None) or [field.name for field in fields(kind)]
    return tuple(name for name in names if name not in _UNSAID)


def _is_content(value: Any) -> bool:
    return hasattr(value, "chunks") or (isinstance(value, np.ndarray) and value.dtype == np.uint8)


def _difference_of_contents(one: Any, two: Any, bytewise: bool) -> str:
    if one.nbytes != two.nbytes:
        return f": {one.nbytes} and {two.nbytes} bytes"
    if bytewise and b"".join(stream(one)) != b"".join(stream(two)):
        return ": other bytes"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
