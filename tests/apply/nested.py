"""Operators of a graph with those in its subgraphs."""

from __future__ import annotations

import onnx


def operators(graph: onnx.GraphProto) -> list[str]:
    found = []
    for node in graph.node:
        found.append(node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += operators(attribute.g)
    return found
