"""Transposes that a model runs, measured by running it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray

from running import run, units


def run_time_transposes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The Transposes of values that depend on an input; subgraphs and functions are not looked at."""
    constants = {tensor.name for tensor in graph.initializer} | {""}
    found = []
    for node in graph.node:
        if all(name in constants for name in node.input) and not any(a.HasField("g") for a in node.attribute):
            constants.update(node.output)
        elif node.op_type == "Transpose":
            found.append(node)
    return found


def left(model: onnx.ModelProto, feed: Mapping[str, NDArray[np.generic]]) -> tuple[int, int]:
    """How many Transposes move more than axes of extent 1 in a run, and how many bytes they give."""
    nodes = run_time_transposes(model.graph)
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    watched.graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in nodes)
    given = run(watched, feed) if nodes else []
    integers = units(model.graph)
    pairs = zip(nodes, given, strict=True)
    moving = [a.size * integers.get(node.output[0], a.itemsize) for node, a in pairs if _moves(node, a)]
    return len(moving), sum(moving)


def _moves(node: onnx.NodeProto, given: NDArray[np.generic]) -> bool:
    perms = [list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"]
    perm = perms[0] if perms else list(reversed(range(given.ndim)))
    large = [axis for axis, extent in zip(perm, given.shape, strict=True) if extent != 1]
    return large != sorted(large)
