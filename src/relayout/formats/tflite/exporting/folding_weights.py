"""Weights that follow from others are computed: standardized and normalized kernels, a part of an embedding.

    w -> Sub(mean) -> Div(std) -> Conv    becomes    w' -> Conv

A runtime of ONNX computes such a kernel once, when it loads a model. One of `.tflite` does so in each run, and its fast
kernels take constants alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.folding import COMPUTED, VIEWS, bytes_of, replace_by_constants, run_node
from relayout.graph.subgraphs import all_graphs

GROWTH = 3
"""Times the bytes of a model's weights that all may have, with those that are computed."""

MOST_VIEWS = 8
"""Views between a constant and the node that reads it: networks have one or two."""

MOST_IN_MEMORY = 1 << 29
"""Bytes of computed weights, which stay in memory until they are written; the others are read from the file then."""


def bytes_of_weights(model: ir.Model) -> int:
    """Return the bytes of all constants of a model."""
    graphs = list(all_graphs(model.graph))
    return sum(bytes_of(value) or 0 for graph in graphs for value in graph.initializers.values())


def fold_weights(model: ir.Model, size_at_first: int) -> bool:
    """Compute nodes that make constants of constants, none of them larger than its operands, in place.

    Args:
        model: the model.
        size_at_first: the bytes that its constants had before any was computed.

    Returns:
        Whether there were any.
    """
    graphs = list(all_graphs(model.graph))
    room: int | None = None
    views: dict[ir.Value, int] = {}
    changed = False
    for graph in graphs:
        for node in list(graph):
            _note_view(node, views)
            size = _size_of_results(node, views)
            if size is None:
                continue
            room = _room(model, size_at_first) if room is None else room
            if size > room:
                continue
            results = _computed(model, node)
            if results is None:
                continue
            operands = [value for value in node.inputs if value is not None]
            replace_by_constants(graph, node, results)
            room += _drop_unread(graph, operands) - size
            changed = True
    return changed


def _room(model: ir.Model, size_at_first: int) -> int:
    """Return how many bytes of weights may still be computed."""
    values = [value for graph in all_graphs(model.graph) for value in graph.initializers.values()]
    in_memory = sum(bytes_of(value) or 0 for value in values if _is_made(value))
    return min(GROWTH * size_at_first - bytes_of_weights(model), MOST_IN_MEMORY - in_memory)


def _note_view(node: ir.Node, views: dict[ir.Value, int]) -> None:
    """Enter the result of a view of constants, and how many views lie between it and them, where these are few."""
    operands = [value for value in node.inputs if value is not None]
    if node.domain or node.op_type not in VIEWS or not all(_is_known(value, views) for value in operands):
        return
    depth = 1 + max((views.get(value, 0) for value in operands), default=0)
    if depth <= MOST_VIEWS:
        views[node.outputs[0]] = depth


def _size_of_results(node: ir.Node, views: Mapping[ir.Value, int]) -> int | None:
    """Return the bytes of a node's results; None where it is not computed.

    It is where its operands are constants, or views of them, and have as many bytes.
    """
    if node.domain or node.op_type not in COMPUTED or any(value.is_graph_output() for value in node.outputs):
        return None
    operands = [value for value in node.inputs if value is not None]
    if not operands or not all(_is_known(value, views) for value in operands):
        return None
    read, made = list(map(bytes_of, operands)), [bytes_of(value) for value in node.outputs if value.name]
    if None in read or None in made:
        return None
    size = sum(filter(None, made))
    return size if size <= sum(filter(None, read)) else None


def _is_known(value: ir.Value, views: Mapping[ir.Value, int]) -> bool:
    """Tell whether a value is a constant, or a view of constants."""
    return value in views or (value.const_value is not None and not value.is_graph_input())


def _computed(model: ir.Model, node: ir.Node) -> list[NDArray[Any]] | None:
    """Return what a node gives; None where it cannot be computed."""
    arrays: dict[str, NDArray[Any]] = {}
    for value in node.inputs:
        if value is not None:
            array = _array(model, value)
            if array is None:
                return None
            arrays[value.name or ""] = array
    return run_node(model, node, arrays)


def _array(model: ir.Model, value: ir.Value) -> NDArray[Any] | None:
    """Return what a constant holds, or what views make of one."""
    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    results = None if node is None else _computed(model, node)
    return None if results is None else results[0]


def _drop_unread(graph: ir.Graph, values: Iterable[ir.Value]) -> int:
    """Remove what nobody reads any longer, views with what they read; return the bytes of computed constants."""
    freed = 0
    for value in values:
        node = value.producer()
        if value.uses() or value.is_graph_output():
            continue
        if node is not None and node.graph is not None:
            operands = [operand for operand in node.inputs if operand is not None]
            node.graph.remove(node, safe=True)
            freed += _drop_unread(graph, operands)
        elif graph.initializers.get(value.name or "") is value:
            graph.initializers.pop(value.name or "")
            freed += (bytes_of(value) or 0) if _is_made(value) else 0
    return freed


def _is_made(value: ir.Value) -> bool:
    """Tell whether a constant was computed here: its array is in memory."""
    return type(value.const_value) is ir.Tensor
