"""Passes over the graph of a model as it was read, for results of any format, and what runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.formats.onnx.folding import bytes_of_weights, fold
from relayout.formats.onnx.qonnx import define_quantizers
from relayout.formats.tflite.spelled_out import RESTORED
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_graphs

if TYPE_CHECKING:
    from relayout.formats.tflite.spelled_out import Builtin

ROUNDS = 12


@dataclass
class UnpreparedModel:
    """A model before its layouts are chosen: what passes over it see and change.

    Args:
        model: the model.
        complete: what infers types and shapes of what is new.
        from_tflite: whether it was just read from a `.tflite`.
        is_restored: whether the result may have a builtin that nodes say that they were.
        is_decomposed: whether a node becomes others later, before layouts are chosen.
        is_looped: whether a recurrent node of many steps may be a loop.
    """

    model: ir.Model
    complete: Callable[[ir.Model], None]
    from_tflite: bool = False
    is_restored: Callable[[Builtin], bool] = lambda _: True
    is_decomposed: Callable[[ir.Node], bool] = lambda _: False
    is_looped: Callable[[ir.Node], bool] = lambda _: True

    names: Names = field(default_factory=lambda: Names(set()))
    """Of all values; they grow."""
    weight_bytes: int = 0
    """Of the constants before any was computed."""


SourcePass = Callable[[UnpreparedModel], object]
"""Rewrites a model in place; one that repeats returns whether it changed anything."""


def prepare(
    source: UnpreparedModel,
    passes: Mapping[str, SourcePass],
    once_before: Sequence[str],
    repeated: Sequence[str],
    once_after: Sequence[str],
) -> bool:
    """Run passes over a model in place: some once, some until nothing changes any more, some once again.

    Args:
        source: the model.
        passes: name -> pass.
        once_before: names of those that run first.
        repeated: names of those that run until none of them changes anything.
        once_after: names of those that run last.

    Returns:
        Whether one of those that repeat changed anything.
    """
    source.names = Names.of(source.model)
    for name in once_before:
        passes[name](source)
    source.weight_bytes = bytes_of_weights(source.model)
    is_changed = False
    for _ in range(ROUNDS):
        source.names = Names.of(source.model)
        changes = [passes[name](source) for name in repeated]  # all of them, whether or not one changed anything
        if not any(changes):
            break
        is_changed = True
        source.complete(source.model)
    source.names = Names.of(source.model)
    for name in once_after:
        passes[name](source)
    return is_changed


def branch(model: ir.Model) -> bool:
    """Replace each If whose condition is constant by its branch, in place; return whether there were any."""
    found = False
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            condition = node.inputs[0] if node.op_type == "If" and not node.domain and node.inputs else None
            if condition is None or condition.const_value is None or condition.is_graph_input():
                continue
            chosen = "then_branch" if condition.const_value.numpy().reshape(-1)[0] else "else_branch"
            _inline(graph, node, node.attributes[chosen].as_graph(), Names.of(model))
            found = True
    return found


def _inline(graph: ir.Graph, node: ir.Node, body: ir.Graph, names: Names) -> None:
    """Put the nodes of a branch in the place of its If."""
    outputs = list(body.outputs)
    body.outputs.clear()
    for value in list(body.initializers.values()):
        body.initializers.pop(value.name or "")
        value.name = names.unique(f"{node.name or 'If'}/{value.name}")
        graph.register_initializer(value)
    nodes = list(body)
    for each in nodes:
        for value in each.outputs:
            if value.name:
                value.name = names.unique(f"{node.name or 'If'}/{value.name}")
    body.remove(nodes)
    graph.insert_before(node, nodes)
    for given, value in zip(node.outputs, outputs, strict=True):
        copied = ir.Node("", "Identity", [value], name=f"{node.name or 'If'}/Identity")
        copied.outputs[0].shape, copied.outputs[0].type = value.shape or given.shape, value.type or given.type
        graph.insert_before(node, copied)
        name, given.name = given.name, None
        given.replace_all_uses_with(copied.outputs[0], replace_graph_outputs=True)
        copied.outputs[0].name = name
    graph.remove(node, safe=True)


def remove_unread(graph: ir.Graph) -> None:
    """Remove nodes whose results nobody reads."""
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs) and RESTORED not in node.meta:
            graph.remove(node, safe=True)


def _define_quantizers(source: UnpreparedModel) -> None:
    if define_quantizers(source.model, source.names):
        source.complete(source.model)


ANY_RESULT: Mapping[str, SourcePass] = {
    "define-quantizers": _define_quantizers,
    "fold-constants": lambda source: fold(source.model, source.weight_bytes),
    "inline-branches": lambda source: branch(source.model),
    "remove-unread": lambda source: remove_unread(source.model.graph),
}
"""Name -> pass over a model that has a result of any format."""
