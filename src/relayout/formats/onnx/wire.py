"""The protobuf wire format, as much of it as reading and writing weights in place needs.

A message is a run of fields in any order; a field is a tag (`number << 3 | wire type`, a varint) and its payload. A
message cut into two runs of fields that follow each other is the same message, and an embedded message is its length
and its fields: so weights can be left out on reading, and spliced in on writing, with sums over lengths alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import onnx

from relayout.errors import ReadError

if TYPE_CHECKING:
    from relayout.formats.stored import FileWindow

# The graphs inside of a graph, as protobuf.


def graphs_in(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """Return the graphs that an attribute holds."""
    return (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs


def bodies_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of nodes, but not those within them."""
    for node in nodes:
        attributes = node.attribute
        if attributes:  # to ask takes half as long as to begin a loop over none
            for attribute in attributes:
                yield from graphs_in(attribute)


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph or function, and of all bodies in it, outer ones first."""
    for node in nodes:
        yield node
        for body in bodies_of((node,)):
            yield from all_nodes(body.node)


def nested_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph, and all bodies in it, outer ones first."""
    yield graph
    for body in bodies_of(graph.node):
        yield from nested_graphs(body)


VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_RAW_DATA = 7, 5, 9
"""Field numbers of onnx.proto: `ModelProto.graph`, `GraphProto.initializer`, `TensorProto.raw_data`."""

LIMIT = 2**31 - 1  # the most bytes protobuf's own readers accept for one message


class Field(NamedTuple):
    """One field: where its tag begins, where its payload begins and ends."""

    number: int
    kind: int
    begin: int
    start: int
    stop: int


def varint(value: int) -> bytes:
    """Return a non-negative integer, seven bits a byte, least significant first: `300 -> ac 02`."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def opening(number: int, length: int) -> bytes:
    """Tag and length of an embedded message or string of `length` bytes."""
    return varint(number << 3 | LENGTH) + varint(length)


def fields(buffer: "bytes | FileWindow", start: int, stop: int) -> Iterator[Field]:
    """Yield the fields of the message in `buffer[start:stop]`; ReadError where the bytes are not a message."""
    position = start
    while position < stop:
        begin = position
        tag, position = varint_at(buffer, position, stop)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            _, end = varint_at(buffer, position, stop)
        elif kind == LENGTH:
            length, position = varint_at(buffer, position, stop)
            end = position + length
        elif kind in (FIXED64, FIXED32):
            end = position + (8 if kind == FIXED64 else 4)
        else:
            raise ReadError(f"a field of wire type {kind}", where=f"byte {begin}")
        if number == 0:
            raise ReadError("field number 0", where=f"byte {begin}")
        if end > stop:
            raise ReadError(
                f"field {number} ends at byte {end}, behind the end of what holds it ({stop})", where=f"byte {begin}"
            )
        yield Field(number, kind, begin, position, end)
        position = end


def varint_at(buffer: "bytes | FileWindow", position: int, stop: int) -> tuple[int, int]:
    """Return the integer at a position, and where it ends; ReadError where it does not end before `stop`."""
    value = shift = 0
    begin = position
    while position < stop and shift < 70:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ReadError("an integer that does not end", where=f"byte {begin}")
