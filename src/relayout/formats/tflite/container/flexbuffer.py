"""Read FlexBuffers, in which custom operators keep their options, from untrusted bytes.

A FlexBuffer describes itself: a byte tells the type of a value and the width of what it refers to, offsets point
backwards, and a map is a vector of values beside a sorted vector of keys. Every read is checked against the length; the
number of values is bounded by it too, since several offsets may name one place.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from relayout.errors import ReadError

FlexValue = None | bool | int | float | str | bytes | list["FlexValue"] | dict[str, "FlexValue"]

MAX_DEPTH = 16

_INTS, _FLOATS = {1: "b", 2: "h", 4: "i", 8: "q"}, {2: "e", 4: "f", 8: "d"}
_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING, _MAP, _VECTOR, _BLOB, _BOOL = 0, 1, 2, 3, 4, 5, 9, 10, 25, 26
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_TYPED = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, 36: _BOOL}
_FIXED_FIRST, _FIXED_LAST = 16, 24
"""Vectors of two, three and four numbers: the element type and the length are in the type."""


def parse(
    data: bytes,  # the whole buffer; the root is at its end
    place: str = "",  # where it stands in the file, for the error
) -> FlexValue:
    """Return the value that a FlexBuffer holds.

    Raises:
        ReadError: the bytes are no FlexBuffer.
    """
    return _Reader(data, place).root()


class _Reader:
    def __init__(self, data: bytes, place: str) -> None:
        self.data, self.place = data, place
        self.budget = len(data)

    def root(self) -> FlexValue:
        if len(self.data) < 3:
            raise self.damaged("is too short")
        width, packed = self.data[-1], self.data[-2]
        return self.value(len(self.data) - 2 - width, width, packed, 0)

    def damaged(self, how: str) -> ReadError:
        return ReadError(f"a FlexBuffer {how}", where=self.place, hint="the file is damaged")

    def raw(self, at: int, size: int) -> bytes:
        if at < 0 or size < 0 or at + size > len(self.data):
            raise self.damaged("points outside itself")
        return self.data[at : at + size]

    def uint(self, at: int, width: int) -> int:
        if width not in _INTS:
            raise self.damaged(f"has a value of {width} bytes")
        return int.from_bytes(self.raw(at, width), "little")

    def number(self, at: int, width: int, kind: int) -> int | float | bool:
        if kind == _UINT:
            return self.uint(at, width)
        if kind == _BOOL:
            return bool(self.uint(at, width))
        code = (_FLOATS if kind == _FLOAT else _INTS).get(width)
        if code is None:
            raise self.damaged(f"has a number of {width} bytes")
        value: int | float = struct.unpack(f"<{code}", self.raw(at, width))[0]
        return value

    def follow(self, at: int, width: int) -> int:
        offset = self.uint(at, width)
        if offset > at:  # 0 is where an empty vector begins
            raise self.damaged("points outside itself")
        return at - offset

    def value(self, at: int, width: int, packed: int, depth: int) -> FlexValue:
        kind, inner = packed >> 2, 1 << (packed & 3)
        self.budget -= 1
        if self.budget < 0 or depth > MAX_DEPTH:
            raise self.damaged("says more than its bytes can")
        if kind == _NULL:
            return None
        if kind in (_INT, _UINT, _FLOAT, _BOOL):
            return self.number(at, width, kind)
        target = self.follow(at, width)
        if kind in _INDIRECT:
            return self.number(target, inner, _INDIRECT[kind])
        if kind == _KEY:
            return self.key(target)
        if kind in (_STRING, _BLOB):
            content = self.raw(target, self.uint(target - inner, inner))
            return content if kind == _BLOB else _text(content)
        if kind == _MAP:
            return self.map(target, inner, depth)
        if kind == _VECTOR:
            size = self.size(target, inner)
            types = self.raw(target + size * inner, size)
            return [self.value(target + i * inner, inner, types[i], depth + 1) for i in range(size)]
        if kind in _TYPED:
            count, element = self.size(target, inner), _TYPED[kind]
        elif _FIXED_FIRST <= kind <= _FIXED_LAST:
            count, element = (kind - _FIXED_FIRST) // 3 + 2, (kind - _FIXED_FIRST) % 3 + 1
        else:
            raise self.damaged(f"has a value of type {kind}")
        packed_element = element << 2
        return [self.value(target + i * inner, inner, packed_element, depth + 1) for i in range(count)]

    def size(self, target: int, width: int) -> int:
        size = self.uint(target - width, width)
        if size > len(self.data):
            raise self.damaged("has a vector longer than itself")
        return size

    def key(self, at: int) -> str:
        end = self.data.find(b"\0", at)
        if end < 0:
            raise self.damaged("has a key without an end")
        self.budget -= (end - at) // 8
        return self.data[at:end].decode("utf-8", "replace")

    def map(self, target: int, width: int, depth: int) -> dict[str, FlexValue]:
        size = self.size(target, width)
        keys_at = self.follow(target - 3 * width, width)
        keys_width = self.uint(target - 2 * width, width)
        if keys_width not in _INTS or self.size(keys_at, keys_width) != size:
            raise self.damaged("has a map whose keys and values differ in number")
        types = self.raw(target + size * width, size)
        entries: dict[str, FlexValue] = {}
        for i in range(size):
            place = keys_at + i * keys_width
            entries[self.key(self.follow(place, keys_width))] = self.value(
                target + i * width, width, types[i], depth + 1
            )
        return entries


def _text(content: bytes) -> str | bytes:
    """Return a text; what is none, such as a message that a writer put into one, stays as bytes."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


# Write FlexBuffers: the options of a custom operator, as a map.
#
# Every number, length and offset takes eight bytes, so that one rule gives every place. `flexbuffer` reads them.

FlexOption = int | float | str | bytes | Sequence[int] | Sequence[float] | Sequence[str]

WIDTH = 8
_EIGHT_BYTES = 3  # the code of that width, in the lower bits of a type
_VECTOR_OF_INTS, _VECTOR_OF_FLOATS, _VECTOR_OF_KEYS = 11, 13, 14


def to_flexbuffer(options: Mapping[str, FlexOption]) -> bytes:
    """Return a map of numbers, texts, bytes, and lists of numbers or of texts as a FlexBuffer.

    >>> from relayout.formats.tflite.container.flexbuffer import parse
    >>> parse(to_flexbuffer({"size": 3, "axes": [1, 2], "mode": "same", "scale": 0.5}))
    {'axes': [1, 2], 'mode': 'same', 'scale': 0.5, 'size': 3}
    """
    writer = _Writer()
    items = sorted(options.items(), key=lambda item: item[0].encode())
    keys = [writer.add(name.encode() + b"\0") for name, _ in items]
    values = [writer.value(value) for _, value in items]
    keys_at = writer.vector([(_VECTOR_OF_KEYS, at) for at in keys], types=False)
    map_at = writer.vector(values, types=True, keys=keys_at)
    root = len(writer.data)
    writer.data += struct.pack("<Q", root - map_at)
    return bytes(writer.data) + bytes([_MAP << 2 | _EIGHT_BYTES, WIDTH])


class _Writer:
    """A buffer under construction. A value is (type, number) or (type, its place in the buffer)."""

    def __init__(self) -> None:
        self.data = bytearray()

    def align(self) -> None:
        self.data += bytes(-len(self.data) % WIDTH)

    def add(self, content: bytes) -> int:
        """Append bytes; their place."""
        at = len(self.data)
        self.data += content
        return at

    def value(self, value: FlexOption) -> tuple[int, int | float]:
        """Append what does not fit into a slot; the slot's type and content."""
        if isinstance(value, int):
            return _INT, int(value)
        if isinstance(value, float):
            return _FLOAT, value
        if isinstance(value, str | bytes):
            content = value.encode() if isinstance(value, str) else value
            self.align()
            self.data += struct.pack("<Q", len(content))
            return (_STRING, self.add(content + b"\0")) if isinstance(value, str) else (_BLOB, self.add(content))
        items = [self.value(item) for item in value]
        kinds = {kind for kind, _ in items}
        typed = (
            {_INT: _VECTOR_OF_INTS, _FLOAT: _VECTOR_OF_FLOATS}.get(kinds.pop(), _VECTOR) if len(kinds) == 1 else _VECTOR
        )
        return typed, self.vector(items, types=typed == _VECTOR)

    def vector(self, items: Sequence[tuple[int, int | float]], *, types: bool, keys: int | None = None) -> int:
        """Append a vector, or with the place of its `keys` a map; the place of its first slot."""
        self.align()
        if keys is not None:
            self.data += struct.pack("<QQ", len(self.data) - keys, WIDTH)
        self.data += struct.pack("<Q", len(items))
        first = len(self.data)
        for kind, content in items:
            if kind == _INT:
                self.data += struct.pack("<q", content)
            elif kind == _FLOAT:
                self.data += struct.pack("<d", content)
            else:
                self.data += struct.pack("<Q", len(self.data) - int(content))
        if types:
            self.data += bytes(kind << 2 | _EIGHT_BYTES for kind, _ in items)
        self.align()
        return first
