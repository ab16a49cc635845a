"""The graphs inside of a graph, as protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx


def graphs_in(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    return (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs


def bodies_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The bodies of nodes, but not those within them."""
    for node in nodes:
        attributes = node.attribute
        if attributes:  # to ask takes half as long as to begin a loop over none
            for attribute in attributes:
                yield from graphs_in(attribute)


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph or function, and of all bodies in it, outer ones first."""
    for node in nodes:
        yield node
        for body in bodies_of((node,)):
            yield from all_nodes(body.node)
