"""Write FlexBuffers: the options of a custom operator, as a map.

Every number, length and offset takes eight bytes, so that one rule gives every place. `flexbuffer` reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

FlexOption = int | float | str | bytes | Sequence[int] | Sequence[float] | Sequence[str]

WIDTH = 8
_EIGHT_BYTES = 3
"""The code of that width, in the lower bits of a type."""
_INT, _FLOAT, _STRING, _MAP, _VECTOR, _INTS, _FLOATS, _KEYS, _BLOB = 1, 3, 5, 9, 10, 11, 13, 14, 25


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
    keys_at = writer.vector([(_KEYS, at) for at in keys], types=False)
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
        typed = {_INT: _INTS, _FLOAT: _FLOATS}.get(kinds.pop(), _VECTOR) if len(kinds) == 1 else _VECTOR
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
