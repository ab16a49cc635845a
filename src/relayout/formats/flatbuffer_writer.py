"""Write FlatBuffers front to back, driven by the schema rows that the reader reads them by.

A table comes before what it refers to, and its vtable before it, unless an equal one is there already. Some vectors of
bytes (weights) come last, behind all tables. So a file is a head, which is small, and a row of vectors, which are
streamed:

    root offset, identifier | vtable, root table, its children, ... | padding, length, bytes | padding, length, bytes

Equal tables give equal bytes. Scalars with the default value are absent, and so are empty strings and vectors, unless
the caller names their fields: there are readers that refuse a table without them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from relayout.errors import WriteError
from relayout.formats.flatbuffer import DTYPES, SCALARS, TEXTS, FieldRow, Schema, Table, path_of
from relayout.formats.stored import CHUNK, Content

LIMIT = (1 << 31) - 1  # the most bytes that a flatbuffer may have

Field = tuple[str, str]  # a table's kind, and the name of one of its fields

_U32, _F32 = SCALARS["uint32"], SCALARS["float32"]
_OFFSET = bytes(4)


def table(schema: Schema, kind: str, /, **fields: Any) -> Table:
    """Make a table as the reader gives it: fields that are not named, or None, have their defaults.

    Vectors of numbers may be given as any sequence. The type of a union follows from the table that is given for it.

    Raises:
        ValueError: the schema has no such table, or the table no such field.
        WriteError: a number does not fit its field.

    ```python
    table(SCHEMA, "Conv2DOptions", padding=Padding.VALID, stride_w=1, stride_h=1)
    ```
    """
    if kind not in schema.tables:
        raise ValueError(f"there is no table {kind!r}")
    values, named = schema.absent(kind), schema.by_name(kind)
    for name, value in fields.items():
        if name not in named:
            raise ValueError(f"{kind} has no field {name!r}; it has {', '.join(named) or 'none'}")
        row = named[name]
        if value is None:
            continue
        if row.type in schema.unions:
            values[f"{name}_type"] = _member(schema, row, value)
        values[name] = _as_read(row, value, kind)
    return Table(kind, 0, values)


def _member(schema: Schema, row: FieldRow, member: Table) -> int:
    try:
        return schema.unions[row.type].index(member.kind)
    except ValueError:
        raise ValueError(f"{member.kind} is no member of {row.type}") from None


def _as_read(row: FieldRow, value: Any, path: str) -> Any:
    """The value as the reader would give it: numbers rounded to those of the file."""
    if row.type == "float32":
        (rounded,) = _F32.unpack(_packed(_F32, value, path, row))
        return rounded
    if row.type == "[uint8]":
        return _bytes(value, path_of(path, row.name))
    is_vector = row.type.startswith("[") and row.type[1:-1] in SCALARS
    return _numbers(row.type[1:-1], value, path_of(path, row.name)) if is_vector else value


class Flatbuffer:
    """A root table in the form of a file.

    Raises:
        WriteError: a value does not fit its field; the message has the field's path.
    """

    def __init__(
        self,
        root: Table,
        schema: Schema,  # its rows
        identifier: bytes = b"",  # the four bytes at position 4 by which a file shows what it is; b"": it has none
        *,
        present: Collection[Field] = (),  # strings and vectors that are there although they are empty
        # vectors of bytes that are streamed behind all tables. Each may also be any `Content`.
        last: Collection[Field] = (),
        alignment: int = 16,  # the file position of each of these is a multiple of it
    ) -> None:
        encoder = _Encoder(schema, present, last)
        encoder.root(root, identifier)
        self._head = encoder.out
        self._streamed: list[tuple[int, Bytes]] = []  # where the vector's length is, and its bytes
        self._places: list[int] = []  # where the head refers to these vectors
        end = len(self._head)
        for place, content in encoder.streamed:
            start = next_multiple(end + 4, alignment)
            self._places.append(place)
            self._streamed.append((start - 4, content))
            end = start + content.nbytes
        self.size = end

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the file's bytes in order.

        Raises:
            WriteError: they are too many, or a content does not have as many as it says.
        """
        if self.size > LIMIT:
            raise WriteError(f"the flatbuffer would have {self.size} bytes, and may have {LIMIT}")
        for place, (start, _) in zip(self._places, self._streamed, strict=True):
            _U32.pack_into(self._head, place, start - place)
        yield bytes(self._head)
        end = len(self._head)
        for start, content in self._streamed:
            yield bytes(start - end) + _U32.pack(content.nbytes)
            yield from stream(content)
            end = start + 4 + content.nbytes


Bytes = npt.NDArray[np.uint8] | Content  # bytes in memory, or a way to have them a piece at a time


def stream(content: Bytes) -> Iterator[bytes | memoryview]:
    """Yield the bytes a piece at a time, none copied.

    Raises:
        WriteError: there are not as many as it says.
    """
    length = 0
    for chunk in _pieces(content):
        length += chunk.nbytes if isinstance(chunk, memoryview) else len(chunk)
        yield chunk
    if length != content.nbytes:
        raise WriteError(f"a constant of {content.nbytes} bytes gave {length} when it was written")


def _pieces(content: Bytes) -> Iterator[bytes | memoryview]:
    if isinstance(content, np.ndarray):
        flat = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        for start in range(0, flat.size, CHUNK):
            yield flat[start : start + CHUNK].data
    else:
        yield from content.chunks()


def next_multiple(position: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-position // alignment) * alignment


class _Encoder:
    """The head of a file under construction.

    References to streamed vectors are left open: `streamed` has the place of each, and what it refers to.
    """

    def __init__(self, schema: Schema, present: Collection[Field], last: Collection[Field]) -> None:
        self.schema, self.present, self.last = schema, present, last
        self.out = bytearray()
        self.streamed: list[tuple[int, Bytes]] = []
        self.vtables: dict[bytes, int] = {}
        self.defaults: dict[str, tuple[bytes | None, ...]] = {}

    def root(self, root: Table, identifier: bytes) -> None:
        self.out += _OFFSET + identifier
        self.refer(0, self.table(root, ""))

    def refer(self, place: int, target: int) -> None:
        """Fill in a reference."""
        if target > LIMIT:
            raise WriteError(f"the flatbuffer would have more than {LIMIT} bytes without its weights")
        _U32.pack_into(self.out, place, target - place)

    def pad(self, alignment: int, ahead: int = 0) -> None:
        """Make the position `ahead` bytes further on a multiple of the alignment."""
        self.out += bytes(-(len(self.out) + ahead) % alignment)

    def table(self, table: Table, path: str) -> int:
        """Write a table with all that it refers to; its position."""
        inline, references = self.fields(table, path)
        # The largest fields first: behind the four bytes that lead to the vtable nothing is padded then.
        order = sorted(inline, key=lambda slot: (-len(inline[slot]), slot))
        offsets, end = [0] * (max(inline, default=-1) + 1), 4
        for slot in order:
            offsets[slot] = end
            end += len(inline[slot])
        vtable = self.vtable(struct.pack(f"<{2 + len(offsets)}H", 4 + 2 * len(offsets), end, *offsets))
        if order and len(inline[order[0]]) == 8:
            self.pad(8, ahead=4)
        else:
            self.pad(4)
        position = len(self.out)
        self.out += struct.pack("<i", position - vtable)
        for slot in order:
            self.out += inline[slot]
        for row, value in references:
            self.reference(row, value, (table.kind, row.name), position + offsets[row.slot], path_of(path, row.name))
        return position

    def vtable(self, vtable: bytes) -> int:
        """The position of an equal vtable, written now if there was none."""
        if vtable not in self.vtables:
            self.pad(2)
            self.vtables[vtable] = len(self.out)
            self.out += vtable
        return self.vtables[vtable]

    def fields(self, table: Table, path: str) -> tuple[dict[int, bytes], list[tuple[FieldRow, Any]]]:
        """The fields that are present: by slot what the table holds itself, and what it refers to."""
        if table.kind not in self.schema.tables:
            raise WriteError(f"{path} is of a kind that the schema does not have: {table.kind}")
        inline: dict[int, bytes] = {}
        references: list[tuple[FieldRow, Any]] = []
        for (row, scalar), default in zip(
            self.schema.places(table.kind), self.packed_defaults(table.kind), strict=True
        ):
            value = table.fields.get(row.name)
            if value is None or (scalar is not None and value is row.default):
                continue
            if scalar is not None:
                packed = _packed(scalar, value, path, row)
                if packed != default:
                    inline[row.slot] = packed
            elif isinstance(value, Table) or _size(value) or (table.kind, row.name) in self.present:
                inline[row.slot] = _OFFSET
                references.append((row, value))
        return inline, references

    def packed_defaults(self, kind: str) -> tuple[bytes | None, ...]:
        """The bytes of each field's default; None for a field that is no scalar."""
        if kind not in self.defaults:
            places = self.schema.places(kind)
            self.defaults[kind] = tuple(scalar.pack(row.default) if scalar else None for row, scalar in places)
        return self.defaults[kind]

    def reference(self, row: FieldRow, value: Any, field: Field, place: int, path: str) -> None:
        """Write what a field refers to, or leave it for later."""
        if field in self.last:
            self.streamed.append((place, _bytes(value, path)))
        elif row.type in TEXTS:
            self.refer(place, self.text(row.type, value, path))
        elif row.type.startswith("["):
            self.refer(place, self.vector(row.type[1:-1], value, path))
        else:
            self.refer(place, self.table(_table(value, row.type, self.schema, path), path))

    def text(self, kind: str, text: Any, path: str) -> int:
        """Write a string, or the bytes of one; its position. A zero behind it is not counted."""
        try:
            encoded: bytes = text if kind == "bytes" else text.encode()
        except (UnicodeEncodeError, AttributeError):
            raise WriteError(f"{path} cannot be written as UTF-8: {text!r}") from None
        self.pad(4)
        position = len(self.out)
        self.out += _U32.pack(len(encoded)) + encoded + b"\0"
        return position

    def vector(self, element: str, items: Any, path: str) -> int:
        """Write a vector with all that it refers to; its position."""
        if element in SCALARS:
            return self.numbers(element, items, path)
        self.pad(4)
        position = len(self.out)
        self.out += _U32.pack(len(items)) + _OFFSET * len(items)
        for i, item in enumerate(items):
            here, place = f"{path}[{i}]", position + 4 + 4 * i
            if element in TEXTS:
                self.refer(place, self.text(element, item, here))
            else:
                self.refer(place, self.table(_table(item, element, self.schema, here), here))
        return position

    def numbers(self, element: str, items: Any, path: str) -> int:
        """Write a vector of numbers; its position."""
        array = _numbers(element, items, path)
        self.pad(math.lcm(4, array.itemsize), ahead=4)
        position = len(self.out)
        self.out += _U32.pack(array.size)
        self.out += array.data
        return position


def _table(value: Any, kind: str, schema: Schema, path: str) -> Table:
    """The value, which must be a table of that kind, or a member of that union."""
    if not isinstance(value, Table) or value.kind not in schema.unions.get(kind, (kind,)):
        raise WriteError(f"{path} is no {kind}: {getattr(value, 'kind', value)}")
    return value


def _size(value: Any) -> int:
    size: int = value.nbytes if hasattr(value, "nbytes") else len(value)
    return size


def _packed(scalar: struct.Struct, value: Any, path: str, row: FieldRow) -> bytes:
    """The number as it is in the file, in a field of the table at a path."""
    try:
        return scalar.pack(value)
    except (struct.error, OverflowError, TypeError):
        raise WriteError(f"{path_of(path, row.name)} cannot be {value!r}") from None


def _bytes(value: Any, path: str) -> Bytes:
    """A vector of bytes; what is streamed stays as it is."""
    if hasattr(value, "chunks"):
        content: Content = value
        return content
    return _numbers("uint8", value, path)


def _numbers(element: str, items: Any, path: str) -> npt.NDArray[Any]:
    """The numbers as they are in the file, if all of them fit."""
    dtype, kind = DTYPES[element], SCALARS[element].format[-1]
    if hasattr(items, "chunks"):
        items = b"".join(stream(items))
    if element == "uint8" and isinstance(items, bytes | bytearray | memoryview):
        return np.frombuffer(items, dtype)
    if isinstance(items, np.ndarray) and items.dtype == dtype:
        return np.ascontiguousarray(items).reshape(-1)
    try:
        packed = struct.pack(f"<{len(items)}{kind}", *items)
    except (struct.error, OverflowError, TypeError):
        raise WriteError(f"{path} does not fit {element}") from None
    return np.frombuffer(packed, dtype)
