"""The graphs inside of a graph, as protobuf."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx


def graphs_in(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    return (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of all bodies in it, outer ones first."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in graphs_in(attribute):
                yield from all_nodes(body)
