"""Read FlexBuffers, in which custom operators keep their options, from untrusted bytes.

A FlexBuffer describes itself: a byte tells the type of a value and the width of what it refers to, offsets point
backwards, and a map is a vector of values beside a sorted vector of keys. Every read is checked against the length; the
number of values is bounded by it too, since several offsets may name one place.
"""

from __future__ import annotations

import struct

from relayout.errors import ReadError

FlexValue = None | bool | int | float | str | bytes | list["FlexValue"] | dict[str, "FlexValue"]

MAX_DEPTH = 16

_INTS, _FLOATS = {1: "b", 2: "h", 4: "i", 8: "q"}, {2: "e", 4: "f", 8: "d"}
_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING, _MAP, _VECTOR, _BLOB, _BOOL = 0, 1, 2, 3, 4, 5, 9, 10, 25, 26
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_TYPED = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, 36: _BOOL}
_FIXED_FIRST, _FIXED_LAST = 16, 24
"""Vectors of two, three and four numbers: the element type and the length are in the type."""


def parse(data: bytes, place: str = "") -> FlexValue:
    """The value that a FlexBuffer holds.

    Args:
        data: the whole buffer; the root is at its end.
        place: where it stands in the file, for the error.

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
        found: dict[str, FlexValue] = {}
        for i in range(size):
            place = keys_at + i * keys_width
            found[self.key(self.follow(place, keys_width))] = self.value(target + i * width, width, types[i], depth + 1)
        return found


def _text(content: bytes) -> str | bytes:
    """A text; what is none, such as a message that a writer put into one, stays as bytes."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
