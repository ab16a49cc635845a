"""Read the attributes of an operator of TensorFlow that the converter left to the Flex delegate, from untrusted bytes.

Its options are a FlexBuffer of two: the operator's name, and TensorFlow's NodeDef, a message of Protocol Buffers. Of
that only attributes are read that are texts, numbers, truth values, or lists of whole numbers (field 5: a name, and a
value, of which field 2 is the text, 3 the whole number, 4 the real one, 5 the truth value, and 1 the list).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from relayout.errors import ReadError
from relayout.formats.onnx.wire import VARINT, fields, varint_at
from relayout.formats.tflite.container.flexbuffer import parse

_ATTRIBUTES, _NAME, _VALUE, _LIST, _TEXT, _NUMBER, _REAL, _FLAG = 5, 1, 2, 1, 2, 3, 4, 5


class NodeDef:
    """The attributes of an operator of TensorFlow.

    Args:
        options: the operator's custom options.
        place: where it stands in the file, for errors.

    Raises:
        ReadError: the options are none of TensorFlow's.
    """

    def __init__(self, options: bytes, place: str) -> None:
        self.place = place
        parts = parse(options, place)
        if not (isinstance(parts, list) and len(parts) == 2 and isinstance(parts[1], str | bytes)):
            raise ReadError(
                "the options are none of an operator of TensorFlow", where=place, hint="the file is damaged"
            )
        content = parts[1] if isinstance(parts[1], bytes) else parts[1].encode()
        self.attributes: dict[bytes, dict[int, int | bytes]] = {}
        for entry in _messages(content, _ATTRIBUTES, place):
            names, values = (list(_messages(entry, field, place)) for field in (_NAME, _VALUE))
            if names and values:
                self.attributes[names[-1]] = dict(_fields(values[-1], place))

    def number(self, name: str) -> int:
        """Return a whole number, or a truth value; 0 where there is none."""
        value = self.attributes.get(name.encode(), {})
        number = value.get(_NUMBER, value.get(_FLAG, 0))
        return _signed(number) if isinstance(number, int) else 0

    def numbers(self, name: str) -> list[int]:
        """Return a list of whole numbers; an empty one where there is none."""
        listed = self.attributes.get(name.encode(), {}).get(_LIST, b"")
        numbers: list[int] = []
        for number, value in _fields(listed, self.place) if isinstance(listed, bytes) else ():
            if number == _NUMBER:
                numbers += [_signed(value)] if isinstance(value, int) else _packed(value, self.place)
        return numbers

    def real(self, name: str) -> float:
        """Return a real number; 0 where there is none."""
        content = self.attributes.get(name.encode(), {}).get(_REAL)
        return float(struct.unpack("<f", content)[0]) if isinstance(content, bytes) and len(content) == 4 else 0.0

    def text(self, name: str) -> str:
        """Return a text; none is an error."""
        content = self.attributes.get(name.encode(), {}).get(_TEXT)
        if not isinstance(content, bytes):
            raise ReadError(f"there is no {name}", where=self.place, hint="the file is damaged")
        return content.decode("utf-8", "replace")


def _messages(data: bytes, field_number: int, place: str) -> Iterator[bytes]:
    return (value for number, value in _fields(data, place) if number == field_number and isinstance(value, bytes))


def _fields(data: bytes, place: str) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: number, and content."""
    with _placed(place):
        for field in fields(data, 0, len(data)):
            content = data[field.start : field.stop]
            yield field.number, varint_at(content, 0, len(content))[0] if field.kind == VARINT else content


def _packed(data: bytes, place: str) -> Iterator[int]:
    at = 0
    with _placed(place):
        while at < len(data):
            value, at = varint_at(data, at, len(data))
            yield _signed(value)


@contextmanager
def _placed(place: str) -> Iterator[None]:
    try:
        yield
    except ReadError as error:
        raise ReadError(f"a NodeDef is damaged: {error.what}", where=place, hint="the file is damaged") from error


def _signed(value: int) -> int:
    """Return a number of 64 bits whose highest one is the sign."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
