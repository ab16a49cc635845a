"""The graphs inside of a graph, as protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx


def graphs_in(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    return (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph or function, and of all bodies in it, outer ones first."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for body in graphs_in(attribute):
                yield from all_nodes(body.node)
