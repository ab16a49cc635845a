"""Damage to models, made with knowledge of their structure: what a fuzzer changes, and where.

A `.tflite` is damaged at its fields: vtable entries, offsets, lengths, numbers and their sizes, found by walking the
schema. An `.onnx` is damaged as a message, any field of any message inside it, so that what reaches the reader still
parses; and as bytes. Everything follows from a seeded generator.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from relayout.formats.tflite.flatbuffer import _SCALARS
from relayout.formats.tflite.schema import SCHEMA

Damage = Callable[[random.Random], bytes]

RUN = 16
"""Of a vector of bytes, so many of the first count as fields: buffers have no structure that a reader looks at."""

MASKS = {1: 0xFF, 2: 0xFFFF, 4: 0xFFFFFFFF, 8: 0xFFFFFFFFFFFFFFFF}


@dataclass(frozen=True, order=True)
class Field:
    """An integer of a file: where it lies and how many bytes it has."""

    byte: int
    width: int


def fields_of(data: bytes) -> list[Field]:
    """Every number, offset, length and vtable entry of a sound `.tflite`, in the order of the file.

    Raises:
        Exception: of any kind, where the file is not sound.
    """
    found: set[Field] = set()
    seen: set[tuple[str, int]] = set()

    def at(place: int, form: str) -> int:
        found.add(Field(place, struct.calcsize(form)))
        return int(struct.unpack_from("<" + form, data, place)[0])

    def vector(element: str, place: int) -> None:
        count = at(place, "I")
        scalar = _SCALARS.get(element)
        if count * (scalar.size if scalar else 4) > len(data) - place:
            raise ValueError("not a sound file")
        for index in range(min(count, RUN) if element == "uint8" else count):
            if scalar:
                found.add(Field(place + 4 + index * scalar.size, scalar.size))
            else:
                start = place + 4 + 4 * index
                target = start + at(start, "I")
                at(target, "I") if element == "string" else table(element, target)

    def table(kind: str, place: int) -> None:
        if (kind, place) in seen:
            return
        seen.add((kind, place))
        vtable = place - at(place, "i")
        size = at(vtable, "H")
        at(vtable + 2, "H")
        numbers: dict[str, int] = {}
        for row in SCHEMA.tables[kind]:
            entry = vtable + 4 + 2 * row.slot
            offset = at(entry, "H") if entry + 2 <= vtable + size else 0
            if not offset:
                continue
            here = place + offset
            scalar = _SCALARS.get(SCHEMA.enums.get(row.type, row.type))
            if scalar:
                found.add(Field(here, scalar.size))
                numbers[row.name] = scalar.unpack_from(data, here)[0]
                continue
            target = here + at(here, "I")
            if row.type == "string":
                at(target, "I")
            elif row.type.startswith("["):
                vector(row.type[1:-1], target)
            elif row.type in SCHEMA.unions:
                members, chosen = SCHEMA.unions[row.type], numbers.get(f"{row.name}_type", 0)
                if 0 < chosen < len(members):
                    table(members[chosen], target)
            else:
                table(row.type, target)

    table("Model", at(0, "I"))
    return sorted(found)


def flatbuffers(data: bytes) -> Damage:
    """Damage to a `.tflite`: one to three of its fields, sometimes bytes, cuts and moved pieces."""
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


def every_field(data: bytes) -> Iterator[bytes]:
    """Each field of two bytes and more at each of its extreme and nearest values, one at a time."""
    for field in fields_of(data):
        if field.width == 1:
            continue
        old = int.from_bytes(data[field.byte : field.byte + field.width], "little")
        mask = MASKS[field.width]
        for new in {0, 1, mask, mask >> 1, (mask >> 1) + 1, old + 1 & mask, old - 1 & mask, len(data) & mask} - {old}:
            yield data[: field.byte] + new.to_bytes(field.width, "little") + data[field.byte + field.width :]


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


def messages(data: bytes) -> Damage:
    """Damage to an `.onnx`: one to four fields of the messages in it; one time in ten, bytes of the file."""
    model = onnx.ModelProto.FromString(data)

    def damaged(rng: random.Random) -> bytes:
        if rng.random() < 0.1:
            return bytes(_bytes_changed(bytearray(data), rng))
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        for _ in range(rng.choice((1, 1, 2, 4))):
            inside = list(_inside(copy))
            _change(rng.choice(inside), inside, rng)
        return bytes(copy.SerializeToString())

    return damaged


def _inside(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for each in value if _repeated(field, message) else (value,):
                yield from _inside(each)


def _repeated(field: FieldDescriptor, message: Message) -> bool:
    return hasattr(getattr(message, field.name), "extend")


def _change(message: Message, others: list[Message], rng: random.Random) -> None:
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
        same = [other for other in others if type(other) is type(message)]
        new = getattr(rng.choice(same), field.name) if rng.random() < 0.4 else _scalar(field, value, rng)
        setattr(message, field.name, new)


def _change_message(message: Message, field: FieldDescriptor, others: list[Message], rng: random.Random) -> None:
    same = [other for other in others if other.DESCRIPTOR is field.message_type]
    value = getattr(message, field.name)
    donor = None
    if same:
        donor = type(same[0])()
        donor.CopyFrom(rng.choice(same))  # a copy: the donor may hold the place that it goes to
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
    if field.type == FieldDescriptor.TYPE_UINT64:
        return number & MASKS[8]
    if field.type == FieldDescriptor.TYPE_INT32:
        return max(-(2**31), min(2**31 - 1, number))
    return max(-(2**63), min(2**63 - 1, number))
