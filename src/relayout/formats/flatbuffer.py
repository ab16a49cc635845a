"""Read FlatBuffers from untrusted bytes, driven by schema rows: every offset, length and index is checked first.

A FlatBuffers table is a position whose first four bytes point back at a vtable; the vtable says where each field lies.
Nothing stops a damaged file from pointing anywhere, from sharing one table a million times, or from declaring a vector
longer than the file. Three rules keep the work inside the file's size:

1. Every read is preceded by a check of its bounds; what fails raises `ReadError` with the field's path and byte.
2. Vectors of numbers are numpy views, never copies of what is in memory, and raw bytes stay where they are; tables,
   strings and vectors of tables are decoded once per place.
3. What is described is counted, with all that it holds, at every mention, raw bytes (constants) excepted. A sound file
   says little twice, so `OVERLAP` times the file's length is the limit, and whoever walks over all fields later does no
   more work than that.
"""

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from relayout.errors import ReadError
from relayout.formats.stored import HELD, FileWindow, StoredArray

MAX_DEPTH = 32  # tables inside tables; the TFLite schema needs seven

OVERLAP = 4
"""How often a file's bytes may be described: writers may share equal names and shapes, so once would be too strict."""

DAMAGED = "the file is damaged or cut short"

SCALARS = {  # how each number is written
    "bool": struct.Struct("<?"),
    "int8": struct.Struct("<b"),
    "uint8": struct.Struct("<B"),
    "int16": struct.Struct("<h"),
    "uint16": struct.Struct("<H"),
    "int32": struct.Struct("<i"),
    "uint32": struct.Struct("<I"),
    "int64": struct.Struct("<q"),
    "uint64": struct.Struct("<Q"),
    "float32": struct.Struct("<f"),
}

TEXTS: dict[str, str | bytes] = {"string": "", "bytes": b""}
"""A string of FlatBuffers, as text, or as the bytes that some writers put there -> what it is when absent."""

_I32, _U32, _TWO_U16 = SCALARS["int32"], SCALARS["uint32"], struct.Struct("<HH")


Source = memoryview | FileWindow  # a file's bytes: in memory, or in the file

Raw = npt.NDArray[np.uint8] | StoredArray
"""Bytes that something else than the schema gives a meaning: a view of them, or where in the file they are."""


def raw(data: Source, start: int, length: int) -> Raw:
    """Return some bytes of a file, which is known to have them."""
    if isinstance(data, FileWindow):
        cached_bytes = data[start : start + length] if length < HELD else None
        return StoredArray(data.file, start, np.dtype(np.uint8), (length,), cached_bytes)
    return np.frombuffer(data, np.uint8, length, start)


class FieldRow(NamedTuple):
    """One field of a table: its slot in the vtable, its name, its type, and the value it has when absent."""

    slot: int
    name: str
    type: str
    default: bool | int | float = 0


def rows(text: str) -> tuple[FieldRow, ...]:
    """Return the rows of a table from the words that describe it."""
    field_rows = []
    for slot, word in enumerate(text.split()):
        if word == "_":
            continue
        name, _, kind = word.partition(":")
        kind, _, default = kind.partition("=")
        field_rows.append(FieldRow(slot, name, kind, _default(kind, default)))
    return tuple(field_rows)


def _default(kind: str, text: str) -> bool | int | float:
    """Return what a field holds that is absent: a number of its own type."""
    if kind == "bool":
        return text == "True"
    return float(text or 0) if kind.startswith("float") else int(text or 0)


class TypedField(NamedTuple):
    """A field of a table, with what is known of its type."""

    row: FieldRow
    scalar: struct.Struct | None  # how its number is written, if it is one
    element: str  # of a vector the type of its elements; else empty

    @staticmethod
    def of(row: FieldRow, enums: Mapping[str, str]) -> "TypedField":
        """Return a table's row with its type; `enums` has the integer under each enum."""
        return TypedField(row, SCALARS.get(enums.get(row.type, row.type)), row.type[1:-1] if row.type[0] == "[" else "")


class Schema:
    """The facts a reader needs: the rows of each table, the members of each union, the integer under each enum."""

    def __init__(
        self,
        tables: Mapping[str, tuple[FieldRow, ...]],
        unions: Mapping[str, tuple[str, ...]],
        enums: Mapping[str, str],
    ) -> None:
        self.tables, self.unions, self.enums = tables, unions, enums
        self._absent: dict[str, dict[str, Any]] = {}
        self._typed: dict[str, tuple[TypedField, ...]] = {}
        self._by_name: dict[str, dict[str, TypedField]] = {}

    def typed(self, kind: str) -> tuple[TypedField, ...]:
        """Return the fields of a table by slot."""
        if kind not in self._typed:
            self._typed[kind] = tuple([TypedField.of(row, self.enums) for row in self.tables[kind]])
        return self._typed[kind]

    def by_name(self, kind: str) -> dict[str, TypedField]:
        """Return the fields of a table by name."""
        if kind not in self._by_name:
            self._by_name[kind] = {typed.row.name: typed for typed in self.typed(kind)}
        return self._by_name[kind]

    def absent(self, kind: str) -> dict[str, Any]:
        """Return the fields of a table in which every one is absent: a new dictionary of the same few values."""
        if kind not in self._absent:
            self._absent[kind] = {row.name: _absent(row, self) for row in self.tables[kind]}
        return self._absent[kind].copy()


class Table:
    """A decoded table: its fields are its attributes, absent ones at their defaults.

    Absent vectors and strings are empty, absent tables and unions are None. The dictionary of fields is the object's
    own, so that a field is found as fast as any attribute.
    """

    __slots__ = ("__dict__", "byte", "kind")

    def __init__(self, kind: str, byte: int, fields: dict[str, Any]) -> None:
        self.kind, self.byte, self.__dict__ = kind, byte, fields

    @property
    def fields(self) -> dict[str, Any]:
        """The fields by name."""
        return self.__dict__

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.kind} has no field {name!r}")


def empty_table(schema: Schema, kind: str) -> Table:
    """Return a table in which every field is absent."""
    return Table(kind, 0, schema.absent(kind))


def read_root(
    data: Source,  # the whole file
    schema: Schema,  # the rows
    kind: str,  # the root table's name
    identifier: bytes = b"",  # the four bytes at position 4 by which a file shows what it is; b"": it has none
    base: int = 0,  # where in the file `data` begins, for messages
    repeated: int = 0,  # bytes that the file may describe beyond `OVERLAP` times its length, where writers share more
) -> Table:
    """Decode the root table of a file, or of a flatbuffer inside one."""
    return _Reader(data, schema, base, repeated).root(kind, identifier)


def _absent(row: FieldRow, schema: Schema) -> Any:
    if row.type in SCALARS or row.type in schema.enums:
        return row.default
    if row.type in TEXTS:
        return TEXTS[row.type]
    if row.type.startswith("["):
        element = row.type[1:-1]
        return np.empty(0, DTYPES[element]) if element in SCALARS else ()
    return None


FieldPath = tuple[Any, ...]
"""Where a value is in a file, for messages: the path of the table or vector around it, and its name or index in that.

The root's path is empty. Paths are put into words only where there is something to say.
"""


def in_words(path: FieldPath) -> str:
    """Return a path as messages have it: `subgraphs[0].tensors[3].shape`."""
    if not path:
        return ""
    outer, last = in_words(path[0]), path[1]
    if isinstance(last, int):
        return f"{outer}[{last}]"
    return f"{outer}.{last}" if outer else str(last)


DTYPES = {scalar: np.dtype(scalar).newbyteorder("<") for scalar in SCALARS}  # the elements of vectors of numbers


class _Form(NamedTuple):
    """The layout that all tables of one kind with one vtable have."""

    size: int  # bytes of such a table itself
    price: int  # what one takes of the budget
    present: tuple[tuple[TypedField, int], ...]  # the fields that are there, and where in the table each lies


class _Reader:
    def __init__(self, data: Source, schema: Schema, base: int = 0, repeated: int = 0) -> None:
        self.data, self.schema, self.size, self.base = data, schema, len(data), base
        self.budget = OVERLAP * self.size + repeated
        self.done: dict[tuple[str, int], tuple[Any, int]] = {}
        self.forms: dict[tuple[str, int], _Form] = {}

    def root(self, kind: str, identifier: bytes) -> Table:
        if self.size < 8:
            raise ReadError(f"the file has {self.size} bytes, too few for a model", where=f"byte {self.base}")
        file_identifier = bytes(self.data[4:8])
        if identifier and file_identifier != identifier:
            raise ReadError(
                f"the file is no {identifier.decode()} flatbuffer (its identifier is {file_identifier!r})",
                where=f"byte {self.base + 4}",
            )
        position = self.number(_U32, 0)
        self.check(position, 4, ((), "the root"))
        return self.table(kind, position, (), 0)

    def number(self, scalar: struct.Struct, position: int) -> Any:
        """Return the number at a position that has been checked."""
        return scalar.unpack(self.data[position : position + scalar.size])[0]

    def check(self, position: int, length: int, path: FieldPath) -> None:
        """See that the file has so many bytes at a position."""
        if position < 0 or length < 0 or position + length > self.size:
            first, end = self.base + position, self.base + self.size
            place = f"byte {first}" if position >= self.size or length <= 0 else f"bytes {first} to {first + length}"
            what = f"the file ends at byte {end}, and {in_words(path) or 'its root'} points to {place}"
            raise ReadError(what, hint=DAMAGED)

    def error(self, what: str, path: FieldPath, byte: int) -> ReadError:
        return ReadError(f"{in_words(path) or 'the model'} {what}", where=f"byte {self.base + byte}", hint=DAMAGED)

    def spend(self, amount: int, path: FieldPath, byte: int) -> None:
        self.budget -= amount
        if self.budget < 0:
            raise self.error("describes more than the file holds: its parts overlap", path, byte)

    def again(self, kind: str, position: int, path: FieldPath) -> Any:
        """Return the object that was decoded here before, and spend its price again; None if it is new."""
        decoded, price = self.done.get((kind, position), (None, 0))
        self.spend(price, path, position)
        return decoded

    def keep(self, kind: str, position: int, decoded: Any, before: int) -> None:
        """Remember what was decoded, and what it took of the budget."""
        self.done[kind, position] = (decoded, before - self.budget)

    # Values, each at a position that the file has at least four bytes at.

    def table(self, kind: str, position: int, path: FieldPath, depth: int) -> Table:
        if (kind, position) in self.done:
            seen: Table = self.again(kind, position, path)
            return seen
        before = self.budget
        if depth > MAX_DEPTH:
            raise self.error(f"is nested deeper than {MAX_DEPTH} tables", path, position)
        vtable: int = position - self.number(_I32, position)
        form = self.forms.get((kind, vtable))
        if form is None:
            form = self.forms[kind, vtable] = self.form(kind, vtable, path, position)
        self.check(position, form.size, path)
        self.spend(form.price, path, position)
        fields, own = self.schema.absent(kind), self.data[position : position + form.size]
        for typed, offset in form.present:
            row, scalar, _ = typed
            if scalar is not None:
                (fields[row.name],) = scalar.unpack_from(own, offset)
                continue
            here, target = (path, row.name), position + offset + _U32.unpack_from(own, offset)[0]
            if target + 4 > self.size:
                self.check(target, 4, here)
            fields[row.name] = self.value(typed, target, fields, here, depth)
        decoded = Table(kind, position, fields)
        self.keep(kind, position, decoded, before)
        return decoded

    def form(self, kind: str, vtable: int, path: FieldPath, position: int) -> _Form:
        """Read a vtable: the layout of tables of a kind. One of them is at `position`, for messages."""
        self.check(vtable, 4, path)
        data = self.data
        vtable_size, table_size = _TWO_U16.unpack(data[vtable : vtable + 4])
        if vtable_size < 4 or vtable_size % 2 or table_size < 4:
            raise self.error(f"has an impossible vtable ({vtable_size} and {table_size} bytes)", path, vtable)
        self.check(vtable, vtable_size, path)
        self.check(position, table_size, path)
        known = self.schema.typed(kind)
        slots = min(vtable_size // 2 - 2, known[-1].row.slot + 1 if known else 0)
        offsets = struct.unpack(f"<{slots}H", data[vtable + 4 : vtable + 4 + 2 * slots])
        present = []
        for typed in known:
            row, scalar, _ = typed
            offset = offsets[row.slot] if row.slot < slots else 0
            if offset and (offset < 4 or offset + (scalar or _U32).size > table_size):
                what = f"lies outside its table ({offset} of {table_size} bytes)"
                raise self.error(what, (path, row.name), position + offset)
            if offset:
                present.append((typed, offset))
        return _Form(table_size, 4 + slots - offsets.count(0), tuple(present))

    def value(self, typed: TypedField, target: int, fields: dict[str, Any], path: FieldPath, depth: int) -> Any:
        row, kind = typed.row, typed.row.type
        if typed.element:
            return self.vector(typed.element, target, path, depth)
        if kind in TEXTS:
            return self.text(kind, target, path)
        if kind in self.schema.unions:
            return self.union(row, target, fields, path, depth)
        return self.table(kind, target, path, depth + 1)

    def union(self, row: FieldRow, target: int, fields: dict[str, Any], path: FieldPath, depth: int) -> Table | None:
        members, chosen = self.schema.unions[row.type], fields[f"{row.name}_type"]
        if chosen == 0:
            return None
        if chosen >= len(members):
            # A newer schema's member: its operator says what it lacks, so the file as a whole stays readable.
            return Table(f"{row.type} {chosen}", target, {})
        return self.table(members[chosen], target, path, depth + 1)

    def text(self, kind: str, position: int, path: FieldPath) -> str | bytes:
        seen: str | bytes | None = self.again(kind, position, path)
        if seen is not None:
            return seen
        before = self.budget
        start, length = position + 4, self.number(_U32, position)
        self.check(start, length, path)
        self.spend(4 + length, path, position)
        data = bytes(self.data[start : start + length])
        try:
            text = data.decode("utf-8") if kind == "string" else data
        except UnicodeDecodeError:
            raise self.error("is not UTF-8 text", path, start) from None
        self.keep(kind, position, text, before)
        return text

    def vector(self, element: str, position: int, path: FieldPath, depth: int) -> Any:
        start, length = position + 4, self.number(_U32, position)
        scalar = SCALARS.get(element)
        width = scalar.size if scalar else 4
        if length * width > self.size - start:
            raise self.error(f"declares {length} elements, more than the file has room for", path, position)
        if element == "uint8":
            return raw(self.data, start, length)
        if scalar:
            self.spend(4 + width * length, path, position)
            return np.frombuffer(self.data[start : start + width * length], DTYPES[element])
        seen = self.again(f"[{element}]", position, path)
        if seen is not None:
            return seen
        before = self.budget
        self.spend(4 + 4 * length, path, position)
        items = []
        offsets = np.frombuffer(self.data[start : start + 4 * length], DTYPES["uint32"]).tolist()
        for index, offset in enumerate(offsets):
            here, target = (path, index), start + 4 * index + offset
            self.check(target, 4, here)
            is_text = element in TEXTS
            items.append(self.text(element, target, here) if is_text else self.table(element, target, here, depth + 1))
        self.keep(f"[{element}]", position, tuple(items), before)
        return tuple(items)
