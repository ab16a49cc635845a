"""Transposes that a model runs, measured by running it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from counting import moves, run_time_nodes, units
from numpy.typing import NDArray

from running import run


def left(model: onnx.ModelProto, feed: Mapping[str, NDArray[np.generic]]) -> tuple[int, int]:
    """Count the Transposes outside bodies that move more than axes of extent 1, and the bytes they give in a run."""
    nodes = [node for node in run_time_nodes(model.graph) if node.op_type == "Transpose"]
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    watched.graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in nodes)
    given = run(watched, feed) if nodes else []
    integers = units(model.graph)
    pairs = zip(nodes, given, strict=True)
    moving = [a.size * integers.get(node.output[0], a.itemsize) for node, a in pairs if moves(node, a)]
    return len(moving), sum(moving)
