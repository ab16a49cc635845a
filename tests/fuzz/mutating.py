"""Damage to models, made with knowledge of their structure: what a fuzzer changes, and where.

A `.tflite` or `.ort` is damaged at its fields: vtable entries, offsets, lengths, numbers and their sizes, found by
walking the schema. An `.onnx` is damaged as a message, any field of any message inside it, so that what reaches the
reader still parses; and as bytes. Everything follows from a seeded generator.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from relayout.formats.flatbuffer import SCALARS
from relayout.formats.flatbuffer import TEXTS as STRINGS
from relayout.formats.ort.loading import SCHEMA as ORT_SCHEMA
from relayout.formats.tflite.container.schema import SCHEMA

Damage = Callable[[random.Random], bytes]

ROOTS = {b"TFL3": (SCHEMA, "Model"), b"ORTM": (ORT_SCHEMA, "InferenceSession")}
"""Bytes 4 to 8 of a file -> its schema, and its root table."""

RUN = 16
"""Of a vector of bytes, so many of the first count as fields: buffers have no structure that a reader looks at."""

SHORT = range(4, 33, 4)
"""Bytes of a buffer that may hold axes, or a shape."""

MASKS = {1: 0xFF, 2: 0xFFFF, 4: 0xFFFFFFFF, 8: 0xFFFFFFFFFFFFFFFF}


@dataclass(frozen=True, order=True)
class Field:
    """An integer of a file: where it lies and how many bytes it has."""

    byte: int
    width: int


def fields_of(data: bytes, names: dict[Field, str] | None = None) -> list[Field]:
    """Every number, offset, length and vtable entry of a sound FlatBuffer, in the order of the file.

    Args:
        data: the file.
        names: what the schema calls the numbers is put here, of vectors each element, and of short buffers each word.

    Raises:
        Exception: of any kind, where the file is not sound.
    """
    found: set[Field] = set()
    seen: set[tuple[str, int]] = set()
    names = {} if names is None else names
    schema, root = ROOTS[data[4:8]]

    def at(place: int, form: str) -> int:
        found.add(Field(place, struct.calcsize(form)))
        return int(struct.unpack_from("<" + form, data, place)[0])

    def vector(element: str, place: int, name: str) -> None:
        count = at(place, "I")
        if name == "data" and count in SHORT:
            names.update((Field(place + 4 + 4 * index, 4), name) for index in range(count // 4))
        scalar = SCALARS.get(element)
        if count * (scalar.size if scalar else 4) > len(data) - place:
            raise ValueError("not a sound file")
        for index in range(min(count, RUN) if element == "uint8" else count):
            if scalar:
                found.add(Field(place + 4 + index * scalar.size, scalar.size))
                names.setdefault(Field(place + 4 + index * scalar.size, scalar.size), name)
            else:
                start = place + 4 + 4 * index
                target = start + at(start, "I")
                at(target, "I") if element in STRINGS else table(element, target)

    def table(kind: str, place: int) -> None:
        if (kind, place) in seen:
            return
        seen.add((kind, place))
        vtable = place - at(place, "i")
        size = at(vtable, "H")
        at(vtable + 2, "H")
        numbers: dict[str, int] = {}
        for row in schema.tables[kind]:
            entry = vtable + 4 + 2 * row.slot
            offset = at(entry, "H") if entry + 2 <= vtable + size else 0
            if not offset:
                continue
            here = place + offset
            scalar = SCALARS.get(schema.enums.get(row.type, row.type))
            if scalar:
                found.add(Field(here, scalar.size))
                names[Field(here, scalar.size)] = row.name
                numbers[row.name] = scalar.unpack_from(data, here)[0]
                continue
            target = here + at(here, "I")
            if row.type in STRINGS:
                at(target, "I")
            elif row.type.startswith("["):
                vector(row.type[1:-1], target, row.name)
            elif row.type in schema.unions:
                members, chosen = schema.unions[row.type], numbers.get(f"{row.name}_type", 0)
                if 0 < chosen < len(members):
                    table(members[chosen], target)
            else:
                table(row.type, target)

    table(root, at(0, "I"))
    return sorted(found)


def flatbuffers(data: bytes) -> Damage:
    """Damage to a FlatBuffer: one to three of its fields, sometimes bytes, cuts and moved pieces."""
    wide = [field for field in fields_of(data) if field.width > 1]
    narrow = [field for field in fields_of(data) if field.width == 1]

    def damaged(rng: random.Random) -> bytes:
        copy = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if rng.random() < 0.08:
                copy = _bytes_changed(copy, rng)
                continue
            field = rng.choice(wide if rng.random() < 0.85 or not narrow else narrow)
            other = rng.choice(wide)
            if max(field.byte + field.width, other.byte + other.width) > len(copy):
                continue
            old = int.from_bytes(copy[field.byte : field.byte + field.width], "little")
            borrowed = int.from_bytes(copy[other.byte : other.byte + other.width], "little")
            new = _number(old, borrowed, field.width, len(copy), rng) & MASKS[field.width]
            copy[field.byte : field.byte + field.width] = new.to_bytes(field.width, "little")
        return bytes(copy)

    return damaged


def field_edits(data: bytes) -> Iterator[tuple[Field, int]]:
    """Each field of a sound FlatBuffer with each of its extreme and nearest values, and two that change its sign."""
    for field in fields_of(data):
        old, mask = int.from_bytes(data[field.byte : field.byte + field.width], "little"), MASKS[field.width]
        top = (mask >> 1) + 1
        values = {0, 1, mask, mask >> 1, top, old + 1 & mask, old - 1 & mask, old ^ top, len(data) & mask}
        yield from ((field, new) for new in sorted(values - {old}))


def field_edited(data: bytes, field: Field, new: int) -> bytes:
    """The file with another number in one field."""
    return data[: field.byte] + new.to_bytes(field.width, "little") + data[field.byte + field.width :]


AXES = (-1, 0, 1, 2, 3, 4, 5, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63))
"""What every axis is set to: among them the rank, and numbers that lose bits where they are made shorter."""
AXIS_LIKE = (
    "axes",
    "axis",
    "batch_dims",
    "blocksize",
    "block_size",
    "data",
    "dim",
    "group",
    "num",
    "perm",
    "shape",
    "size",
)
"""Parts of names of numbers that count axes, or extents."""


def axis_edits(data: bytes) -> Iterator[Callable[[], bytes]]:
    """A sound model with each axis of attributes, options and short constants at each of `AXES`, not made yet."""
    if data[4:8] in ROOTS:
        names: dict[Field, str] = {}
        fields_of(data, names)
        for field in sorted(field for field, name in names.items() if any(part in name for part in AXIS_LIKE)):
            for new in sorted({axis & MASKS[field.width] for axis in AXES}):
                yield partial(field_edited, data, field, new)
        return
    model = onnx.ModelProto.FromString(data)
    for path, message in _inside(model):
        if isinstance(message, onnx.AttributeProto) and any(part in message.name for part in AXIS_LIKE):
            places = (
                [("i", -1)] if message.type == message.INT else [("ints", index) for index in range(len(message.ints))]
            )
            edits = [Edit(path, name, "set", index, axis) for name, index in places for axis in AXES]
            edits += [Edit(path, "ints", "add", value=axis) for axis in AXES if message.type == message.INTS]
        elif isinstance(message, onnx.TensorProto) and message.data_type in (6, 7) and len(message.raw_data) in SHORT:
            width = 8 if message.data_type == onnx.TensorProto.INT64 else 4
            edits = [
                Edit(path, "raw_data", "set", value=_word_set(message.raw_data, place, width, axis))
                for place in range(0, len(message.raw_data), width)
                for axis in AXES
            ]
        else:
            continue
        yield from (partial(message_edited, data, edit) for edit in edits)


def _word_set(data: bytes, place: int, width: int, value: int) -> bytes:
    return data[:place] + (value & MASKS[width]).to_bytes(width, "little") + data[place + width :]


def every_field(data: bytes) -> Iterator[bytes]:
    """A `.tflite` with each of its fields at each of its extreme and nearest values, one at a time."""
    return (field_edited(data, field, new) for field, new in field_edits(data))


def _number(old: int, borrowed: int, width: int, size: int, rng: random.Random) -> int:
    mask = MASKS[width]
    return rng.choice(
        (
            0,
            1,
            mask,
            mask >> 1,
            (mask >> 1) + 1,
            size,
            size - old,
            borrowed,
            old + rng.choice((-4, -2, -1, 1, 2, 4)),
            old ^ 1 << rng.randrange(8 * width),
            rng.randrange(300),
            rng.getrandbits(8 * width),
        )
    )


def _bytes_changed(data: bytearray, rng: random.Random) -> bytearray:
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.choice((1, 2, 4, 8, 16, 64)))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:start] or data
    if kind == 1:
        return data[:start] + data[stop:] or data
    if kind == 2:
        return data[:stop] + data[start:stop] + data[stop:]
    data[start:stop] = bytes(rng.getrandbits(8) for _ in range(stop - start))
    return data


# ONNX: any field of any message.

NUMBERS = (0, 1, -1, 2, 3, 7, 127, 255, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))
REALS = (0.0, -1.0, 1e-30, 3e38, float("inf"), float("nan"))
TEXTS = ("", "x", "\0", "é" * 300, "../x", "/etc/passwd", "If", "Loop", "Transpose", "Reshape", "ai.onnx", "\n")


Path = tuple[tuple[str, int], ...]
"""From the model to a message inside it: field after field, each with its position (-1 where it is not repeated)."""


@dataclass(frozen=True)
class Edit:
    """One change to one field of one message: `do` is drop, repeat, add, clear or set."""

    path: Path
    field: str
    do: str
    index: int = -1
    value: object = None


def messages(data: bytes) -> Damage:
    """Damage to an `.onnx`: one to four fields of the messages in it; one time in ten, bytes of the file."""
    model = onnx.ModelProto.FromString(data)
    inside = list(_inside(model))
    others: dict[str, list[Message]] = {}
    for _, message in inside:
        others.setdefault(message.DESCRIPTOR.full_name, []).append(message)

    def damaged(rng: random.Random) -> bytes:
        if rng.random() < 0.1:
            return bytes(_bytes_changed(bytearray(data), rng))
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        chosen = [_at(copy, rng.choice(inside)[0]) for _ in range(rng.choice((1, 1, 2, 4)))]
        for message in chosen:
            _change(message, others, rng)
        return bytes(copy.SerializeToString())

    return damaged


def message_edits(data: bytes) -> Iterator[Edit]:
    """For each field of each message of a sound `.onnx`, whether it is set or not: every kind of change, one by one."""
    model = onnx.ModelProto.FromString(data)
    for path, message in _inside(model):
        for field in message.DESCRIPTOR.fields:
            extremes = () if field.type == FieldDescriptor.TYPE_MESSAGE else _extremes(field)
            if not _repeated(field, message):
                if message.HasField(field.name):
                    yield Edit(path, field.name, "clear")
                elif not extremes:
                    yield Edit(path, field.name, "add")
                yield from (Edit(path, field.name, "set", value=value) for value in extremes)
                continue
            yield Edit(path, field.name, "add", value=extremes[-1] if extremes else None)
            for index in range(min(len(getattr(message, field.name)), RUN)):
                yield Edit(path, field.name, "drop", index)
                yield Edit(path, field.name, "repeat", index)
                yield from (Edit(path, field.name, "set", index, value) for value in extremes)


def message_edited(data: bytes, edit: Edit) -> bytes:
    """The model with one change."""
    model = onnx.ModelProto.FromString(data)
    message = _at(model, edit.path)
    value = getattr(message, edit.field)
    if edit.do == "clear":
        message.ClearField(edit.field)
    elif edit.do == "drop":
        del value[edit.index]
    elif edit.do == "repeat":
        value.add().CopyFrom(value[edit.index]) if isinstance(value[0], Message) else value.append(value[edit.index])
    elif edit.do == "add" and edit.value is not None:
        value.append(edit.value)
    elif edit.do == "add":
        value.add() if hasattr(value, "add") else value.SetInParent()
    elif edit.index < 0:
        setattr(message, edit.field, edit.value)
    else:
        value[edit.index] = edit.value
    return bytes(model.SerializeToString())


def _at(model: Message, path: Path) -> Message:
    for name, index in path:
        inner = getattr(model, name)
        model = inner if index < 0 else inner[index]
    return model


def _inside(message: Message, path: Path = ()) -> Iterator[tuple[Path, Message]]:
    yield path, message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            repeated = _repeated(field, message)
            for index, each in enumerate(value) if repeated else ((-1, value),):
                yield from _inside(each, (*path, (field.name, index)))


def _extremes(field: FieldDescriptor) -> tuple[object, ...]:
    if field.type == FieldDescriptor.TYPE_STRING:
        return TEXTS
    if field.type == FieldDescriptor.TYPE_BYTES:
        return (b"", b"\0", b"\xff" * 9)
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return REALS
    if field.type == FieldDescriptor.TYPE_ENUM:
        return tuple(value.number for value in field.enum_type.values)
    return tuple(dict.fromkeys(_fitting(field, number) for number in NUMBERS))


def _repeated(field: FieldDescriptor, message: Message) -> bool:
    return hasattr(getattr(message, field.name), "extend")


def _change(message: Message, others: dict[str, list[Message]], rng: random.Random) -> None:
    set_fields = [field for field, _ in message.ListFields()]
    every = list(message.DESCRIPTOR.fields)
    field = rng.choice(set_fields if set_fields and rng.random() < 0.8 else every)
    value = getattr(message, field.name)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        _change_message(message, field, others, rng)
    elif _repeated(field, message):
        kind = rng.randrange(4)
        if kind == 0 or not value:
            value.append(_scalar(field, None, rng))
        elif kind == 1:
            del value[rng.randrange(len(value))]
        elif kind == 2:
            value[rng.randrange(len(value))] = _scalar(field, rng.choice(value), rng)
        else:
            place = rng.randrange(len(value))
            value[place] = rng.choice(value)
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        # The same field of another message of this kind fits best of all wrong values.
        same = others[message.DESCRIPTOR.full_name]
        new = getattr(rng.choice(same), field.name) if rng.random() < 0.4 else _scalar(field, value, rng)
        setattr(message, field.name, new)


def _change_message(
    message: Message, field: FieldDescriptor, others: dict[str, list[Message]], rng: random.Random
) -> None:
    value = getattr(message, field.name)
    same = others.get(field.message_type.full_name)
    donor = rng.choice(same) if same else None
    if not _repeated(field, message):
        if rng.random() < 0.4 or donor is None:
            message.ClearField(field.name)
        elif donor.ByteSize() < 1 << 16:
            value.CopyFrom(donor)
        return
    kind = rng.randrange(4)
    if value and kind == 0:
        del value[rng.randrange(len(value))]
    elif len(value) > 1 and kind == 1:
        first, second = rng.randrange(len(value)), rng.randrange(len(value))
        value[first].CopyFrom(value[second])
    elif donor is not None and donor.ByteSize() < 1 << 16:
        value.add().CopyFrom(donor)
    else:
        value.add()


def _scalar(field: FieldDescriptor, old: object, rng: random.Random) -> object:
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        changed = bytearray(old) if isinstance(old, bytes) and old else bytearray(rng.randrange(1, 9))
        return bytes(_bytes_changed(changed, rng))
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return rng.choice(REALS)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    number = rng.choice(NUMBERS) if rng.random() < 0.6 or not isinstance(old, int) else old + rng.choice((-1, 1, 3))
    return _fitting(field, number)


def _fitting(field: FieldDescriptor, number: int) -> int:
    if field.type == FieldDescriptor.TYPE_UINT64:
        return number & MASKS[8]
    if field.type == FieldDescriptor.TYPE_INT32:
        return max(-(2**31), min(2**31 - 1, number))
    return max(-(2**63), min(2**63 - 1, number))
