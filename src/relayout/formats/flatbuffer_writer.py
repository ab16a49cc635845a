"""Write FlatBuffers front to back, driven by the schema rows that the reader reads them by.

A table comes before what it refers to, and its vtable before it, unless an equal one is there already. Some vectors of
bytes (weights) come last, behind all tables. So a file is a head, which is small, and a row of vectors, which are
streamed:

    root offset, identifier | vtable, root table, its children, ... | padding, length, bytes | padding, length, bytes

Equal tables give equal bytes. Scalars with the default value are absent, and so are empty strings and vectors, unless
the caller names their fields: there are readers that refuse a table without them.
"""

import math
import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from relayout.errors import WriteError
from relayout.formats.flatbuffer import DTYPES, SCALARS, TEXTS, FieldPath, FieldRow, Schema, Table, TypedField, in_words
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
        if value is None:
            continue
        typed = named[name]
        if typed.row.type in schema.unions:
            values[f"{name}_type"] = _member(schema, typed.row, value)
        values[name] = _as_read(typed, value, kind)
    return Table(kind, 0, values)


def _member(schema: Schema, row: FieldRow, member: Table) -> int:
    try:
        return schema.unions[row.type].index(member.kind)
    except ValueError:
        raise ValueError(f"{member.kind} is no member of {row.type}") from None


def _as_read(typed: TypedField, value: Any, kind: str) -> Any:
    """Return the value as the reader would give it: numbers rounded to those of the file."""
    row, element = typed.row, typed.element
    if element == "uint8":
        return _bytes(value, ((), f"{kind}.{row.name}"))
    if element in SCALARS:
        return _numbers(element, value, ((), f"{kind}.{row.name}"))
    if row.type == "float32":
        (value,) = _F32.unpack(_packed(_F32, value, ((), f"{kind}.{row.name}")))
    return value


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
    """Return the next multiple of the alignment."""
    return -(-position // alignment) * alignment


class _Form(NamedTuple):
    """The layout of all tables of one kind that have the same fields."""

    order: tuple[int, ...]  # the slots of these fields, as they lie in the table
    offsets: tuple[int, ...]  # slot -> where in the table it lies; 0: it is absent
    vtable: bytes
    alignment: int  # of what follows the four bytes that lead to the vtable

    @staticmethod
    def of(inline: Mapping[int, bytes]) -> "_Form":
        """Return the form of a table with such fields: slot -> what the table holds of it."""
        # The largest fields first: behind the four bytes that lead to the vtable nothing is padded then.
        order = sorted(inline, key=lambda slot: (-len(inline[slot]), slot))
        offsets, end = [0] * (max(inline, default=-1) + 1), 4
        for slot in order:
            offsets[slot] = end
            end += len(inline[slot])
        vtable = struct.pack(f"<{2 + len(offsets)}H", 4 + 2 * len(offsets), end, *offsets)
        return _Form(tuple(order), tuple(offsets), vtable, 8 if order and len(inline[order[0]]) == 8 else 4)


class _Encoder:
    """The head of a file under construction.

    References to streamed vectors are left open: `streamed` has the place of each, and what it refers to.
    """

    def __init__(self, schema: Schema, present: Collection[Field], last: Collection[Field]) -> None:
        self.schema, self.present, self.last = schema, present, last
        self.out = bytearray()
        self.streamed: list[tuple[int, Bytes]] = []
        self.vtables: dict[bytes, int] = {}
        self.forms: dict[tuple[str, tuple[int, ...]], _Form] = {}
        self.defaults: dict[str, tuple[bytes | None, ...]] = {}

    def root(self, root: Table, identifier: bytes) -> None:
        self.out += _OFFSET + identifier
        self.refer(0, self.table(root, ()))

    def refer(self, place: int, target: int) -> None:
        """Fill in a reference."""
        if target > LIMIT:
            raise WriteError(f"the flatbuffer would have more than {LIMIT} bytes without its weights")
        _U32.pack_into(self.out, place, target - place)

    def pad(self, alignment: int, ahead: int = 0) -> None:
        """Make the position `ahead` bytes further on a multiple of the alignment."""
        self.out += bytes(-(len(self.out) + ahead) % alignment)

    def table(self, table: Table, path: FieldPath) -> int:
        """Write a table with all that it refers to; its position."""
        inline, references = self.fields(table, path)
        key = table.kind, tuple(inline)
        if key not in self.forms:
            self.forms[key] = _Form.of(inline)
        form = self.forms[key]
        vtable = self.vtable(form.vtable)
        self.pad(form.alignment, ahead=4)
        position = len(self.out)
        self.out += struct.pack("<i", position - vtable)
        self.out += b"".join([inline[slot] for slot in form.order])
        for typed, value in references:
            row = typed.row
            self.reference(typed, value, (table.kind, row.name), position + form.offsets[row.slot], (path, row.name))
        return position

    def vtable(self, vtable: bytes) -> int:
        """Return the position of an equal vtable, written now if there was none."""
        if vtable not in self.vtables:
            self.pad(2)
            self.vtables[vtable] = len(self.out)
            self.out += vtable
        return self.vtables[vtable]

    def fields(self, table: Table, path: FieldPath) -> tuple[dict[int, bytes], list[tuple[TypedField, Any]]]:
        """Return the fields that are present: by slot what the table holds itself, and what it refers to."""
        kind, values = table.kind, table.fields
        if kind not in self.schema.tables:
            raise WriteError(f"{in_words(path)} is of a kind that the schema does not have: {kind}")
        inline: dict[int, bytes] = {}
        references: list[tuple[TypedField, Any]] = []
        for typed, default in zip(self.schema.typed(kind), self.packed_defaults(kind), strict=True):
            row, scalar, _ = typed
            value = values.get(row.name)
            if value is None or (scalar is not None and value is row.default):
                continue
            if scalar is not None:
                packed = _packed(scalar, value, (path, row.name))
                if packed != default:
                    inline[row.slot] = packed
            elif isinstance(value, Table) or _size(value) or (kind, row.name) in self.present:
                inline[row.slot] = _OFFSET
                references.append((typed, value))
        return inline, references

    def packed_defaults(self, kind: str) -> tuple[bytes | None, ...]:
        """Return the bytes of each field's default; None for a field that is no scalar."""
        if kind not in self.defaults:
            known = self.schema.typed(kind)
            self.defaults[kind] = tuple(scalar.pack(row.default) if scalar else None for row, scalar, _ in known)
        return self.defaults[kind]

    def reference(self, typed: TypedField, value: Any, field: Field, position: int, path: FieldPath) -> None:
        """Write what a field refers to, or leave it for later."""
        kind = typed.row.type
        if field in self.last:
            self.streamed.append((position, _bytes(value, path)))
        elif typed.element:
            self.refer(position, self.vector(typed.element, value, path))
        elif kind in TEXTS:
            self.refer(position, self.text(kind, value, path))
        else:
            self.refer(position, self.table(_table(value, kind, self.schema, path), path))

    def text(self, kind: str, text: Any, path: FieldPath) -> int:
        """Write a string, or the bytes of one; its position. A zero behind it is not counted."""
        try:
            encoded: bytes = text if kind == "bytes" else text.encode()
        except (UnicodeEncodeError, AttributeError):
            raise WriteError(f"{in_words(path)} cannot be written as UTF-8: {text!r}") from None
        self.pad(4)
        position = len(self.out)
        self.out += _U32.pack(len(encoded)) + encoded + b"\0"
        return position

    def vector(self, element: str, items: Any, path: FieldPath) -> int:
        """Write a vector with all that it refers to; its position."""
        if element in SCALARS:
            return self.numbers(element, items, path)
        self.pad(4)
        position = len(self.out)
        self.out += _U32.pack(len(items)) + _OFFSET * len(items)
        for i, item in enumerate(items):
            here, place = (path, i), position + 4 + 4 * i
            if element in TEXTS:
                self.refer(place, self.text(element, item, here))
            else:
                self.refer(place, self.table(_table(item, element, self.schema, here), here))
        return position

    def numbers(self, element: str, items: Any, path: FieldPath) -> int:
        """Write a vector of numbers; its position."""
        array = _numbers(element, items, path)
        self.pad(math.lcm(4, array.itemsize), ahead=4)
        position = len(self.out)
        self.out += _U32.pack(array.size)
        self.out += array.data
        return position


def _table(value: Any, kind: str, schema: Schema, path: FieldPath) -> Table:
    """Return the value, which must be a table of that kind, or a member of that union."""
    if not isinstance(value, Table) or value.kind not in schema.unions.get(kind, (kind,)):
        raise WriteError(f"{in_words(path)} is no {kind}: {getattr(value, 'kind', value)}")
    return value


def _size(value: Any) -> int:
    size: int = value.nbytes if hasattr(value, "nbytes") else len(value)
    return size


def _packed(scalar: struct.Struct, value: Any, path: FieldPath) -> bytes:
    """Return the number of a field as it is in the file."""
    try:
        return scalar.pack(value)
    except (struct.error, OverflowError, TypeError):
        raise WriteError(f"{in_words(path)} cannot be {value!r}") from None


def _bytes(value: Any, path: FieldPath) -> Bytes:
    """Return a vector of bytes; what is streamed stays as it is."""
    if hasattr(value, "chunks"):
        content: Content = value
        return content
    return _numbers("uint8", value, path)


def _numbers(element: str, items: Any, path: FieldPath) -> npt.NDArray[Any]:
    """Return the numbers as they are in the file, if all of them fit."""
    dtype = DTYPES[element]
    if isinstance(items, np.ndarray) and items.dtype == dtype:
        return np.ascontiguousarray(items).reshape(-1)
    if hasattr(items, "chunks"):
        items = b"".join(stream(items))
    if element == "uint8" and isinstance(items, bytes | bytearray | memoryview):
        return np.frombuffer(items, dtype)
    try:
        packed = struct.pack(f"<{len(items)}{SCALARS[element].format[-1]}", *items)
    except (struct.error, OverflowError, TypeError):
        raise WriteError(f"{in_words(path)} does not fit {element}") from None
    return np.frombuffer(packed, dtype)
