"""Walks through a graph: what can be reached from where, what a value holds, and what nobody reads any longer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

import onnx_ir as ir

T = TypeVar("T", bound=Hashable)


def reached(starts: Iterable[T], ahead: Callable[[T], Iterable[T]]) -> dict[T, None]:
    """Return all things that can be reached from some, these included, each once."""
    seen: dict[T, None] = {}
    waiting = list(starts)
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen[each] = None
            waiting += ahead(each)
    return seen


def producers(values: Iterable[ir.Value | None]) -> Iterator[ir.Node]:
    """Yield the nodes that give values."""
    return (node for value in values if value is not None and (node := value.producer()) is not None)


def behind(value: ir.Value | None, through: Callable[[ir.Node], bool]) -> ir.Value | None:
    """Return what a value is before it goes through some nodes, of each of which it is the first operand."""
    while value is not None and (node := value.producer()) is not None and through(node):
        value = node.inputs[0] if node.inputs else None  # a damaged file
    return value


def readers_behind(value: ir.Value, through: Callable[[ir.Node], bool]) -> list[ir.Node | None]:
    """Return the nodes that read a value behind some nodes; None among them where a graph gives what one would read."""

    def results(value: ir.Value) -> list[ir.Value]:
        return [use.node.outputs[0] for use in value.uses() if through(use.node)]

    values = reached([value], results)
    readers = [use.node for each in values for use in each.uses() if not through(use.node)]
    return [*readers, *(None for each in values if each.is_graph_output())]


def known_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor that a value holds in every run; None where it is computed, or an input may override it."""
    return None if value is None or value.is_graph_input() else value.const_value


def drop_unread(values: Iterable[ir.Value]) -> list[ir.Value]:
    """Remove values that nobody reads any longer, with what only they read; return the initializers among them."""
    dropped: list[ir.Value] = []
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        node, graph = value.producer(), value.graph
        if value.uses() or value.is_graph_output():
            continue
        if node is not None and node.graph is not None:
            waiting += [operand for operand in node.inputs if operand is not None]
            node.graph.remove(node, safe=True)
        elif graph is not None and graph.initializers.get(value.name or "") is value:
            del graph.initializers[value.name or ""]
            dropped.append(value)
    return dropped
