"""Calls of model-local functions, spelled out for the analysis and put back where nothing came of it.

A call is a barrier: nothing is known of the axes of what it reads and gives. Its body is none: operators of the
standard, and other calls. So each call is replaced by a copy of its function's body before layouts are decided.
Afterwards every call whose nodes are still those of its body, joined as the body joins them, is the call that it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import onnx_ir as ir

from relayout.graph.facts import add_facts, facts_of
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_graphs, all_nodes, bodies, graph_values, take_over
from relayout.graph.walks import behind, reached
from relayout.light_dataclass import dataclass

Key = tuple[str, str, str]
Read = int | ir.Value | None
"""What a node of a body reads: an input of the function by number, a value of the body, or nothing."""


class InlinedNode(NamedTuple):
    """A node of a body as it was put in the call's place."""

    node: ir.Node
    operator: Key
    attributes: Mapping[str, ir.Attr]
    reads: tuple[Read, ...]
    bodies: "tuple[tuple[tuple[InlinedNode, ...], tuple[Read, ...]], ...]"
    """Of each of its subgraphs: its nodes, and what it gives."""


@dataclass(eq=False)
class Call:
    """A call that was spelled out."""

    node: ir.Node  # the call, taken out of its graph
    inputs: tuple[ir.Value | None, ...]  # what it read
    body: tuple[InlinedNode, ...]  # the nodes in its place, but for Identities
    results: dict[int, ir.Value] = field(default_factory=dict)  # output -> the value that took its place
    # output -> the value of the body that is behind it; the first of several, and none for an input that is handed on
    sources: dict[int, ir.Value] = field(default_factory=dict)
    # the Identities in its place: the body's own, and others for values from outside of the body
    identities: dict[ir.Node, None] = field(default_factory=dict)


@dataclass(eq=False)
class Calls:
    """The calls of a model that were spelled out, outer ones before those in their bodies."""

    calls: list[Call] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)  # domains that the model did not import before
    constants: list[ir.Value] = field(default_factory=list)  # constants of bodies, which became initializers


def body_nodes(graph: ir.Graph, formals: Mapping[ir.Value, int]) -> Iterator[InlinedNode]:
    """Yield the nodes of a body (or of a subgraph in it) as they are, but for Identities, through which one looks."""

    def read(value: ir.Value | None) -> Read:
        source = source_of(value)
        return source if source is None else formals.get(source, source)

    for node in graph:
        if not is_identity(node):
            inner = tuple((tuple(body_nodes(each, formals)), tuple(map(read, each.outputs))) for each in bodies(node))
            reads = tuple(map(read, node.inputs))
            yield InlinedNode(node, node.op_identifier(), dict(node.attributes.items()), reads, inner)


def source_of(value: ir.Value | None) -> ir.Value | None:
    """Return the value that Identities hand on."""
    return behind(value, is_identity)


def is_identity(node: ir.Node) -> bool:
    """Tell whether a node hands on what it reads."""
    return node.op_type == "Identity" and not node.domain and len(node.inputs) == 1


def holds_graph(attribute: ir.Attr) -> bool:
    """Tell whether an attribute is a graph, or several."""
    return attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def names_of(node: ir.Node) -> Iterator[str]:
    """Return the names of what a node gives."""
    return (value.name for value in node.outputs if value.name)


# Calls that were spelled out, put back where their nodes are still what their functions say.


def restore_calls(model: ir.Model) -> None:
    """Put back the calls of a model whose nodes are what their functions say, in place; forget the others.

    Functions that no node calls any longer are removed.
    """
    inlined_calls = facts_of(model).calls
    if not isinstance(inlined_calls, Calls):
        return
    add_facts(model, calls=None)
    graphs = set(all_graphs(model.graph))
    restored = [call.node for call in reversed(inlined_calls.calls) if _restored(call, graphs)]
    if restored:
        model.graph.sort()
        _name_unread(model, restored)
    for value in inlined_calls.constants:
        graph = value.graph
        if graph is not None and value.is_initializer() and not value.uses() and not value.is_graph_output():
            del graph.initializers[value.name or ""]
    _forget(model, inlined_calls)


def _restored(call: Call, graphs: set[ir.Graph]) -> bool:
    """Put a call back, if its nodes are what its function says."""
    actual: dict[int, ir.Value | None] = {}
    graph = call.body[0].node.graph if call.body else None
    if graph not in graphs or any(inlined_node.node.graph is not graph for inlined_node in call.body):
        return False
    if not all(_is_as_made(inlined_node, call.identities, actual) for inlined_node in call.body):
        return False
    inside = {node for inlined_node in call.body for node in _nodes(inlined_node)}
    shown = {*call.sources.values(), *call.results.values()}
    gone = inside.union(call.identities)
    if any(_escapes(value, gone) for node in inside for value in node.outputs if value not in shown):
        return False
    inputs = [actual.get(slot, value) for slot, value in enumerate(call.inputs)]
    if not all(value is None or _is_alive(value) for value in inputs):
        return False
    _put_back(call, graph, inputs, gone)
    return True


def _put_back(call: Call, graph: ir.Graph, inputs: Sequence[ir.Value | None], gone: set[ir.Node]) -> None:
    """Put a call with these inputs in the place of its nodes; what is gone reads none of its results."""
    handing = [node for node in call.identities if node.graph is graph]
    for slot, value in enumerate(inputs):
        call.node.replace_input_with(slot, value)
    graph.insert_after(call.body[-1].node, call.node)
    for slot, result in call.results.items():
        source, output = call.sources.get(slot), call.node.outputs[slot]
        if source is not None:
            take_over(output, source, but=gone)
        if result is not source and (producer := result.producer()) is not None and producer.graph is graph:
            take_over(output, result)
    for node in [*handing, *(inlined_node.node for inlined_node in call.body)]:
        for slot in range(len(node.inputs)):
            node.replace_input_with(slot, None)
        graph.remove(node)


def _name_unread(model: ir.Model, calls: Sequence[ir.Node]) -> None:
    """Give outputs of calls that nobody reads any longer other names where theirs are another value's by now."""
    unread = {
        value: value.name
        for node in calls
        for value in node.outputs
        if value.name and not value.uses() and not value.is_graph_output()
    }
    values = (value for graph in all_graphs(model.graph) for value in graph_values(graph))
    names = Names({value.name or "" for value in values if value not in unread})
    for value, name in unread.items():
        value.name = names.unique(name)


def _is_as_made(
    inlined_node: InlinedNode,  # what it was
    through: Mapping[ir.Node, None],  # Identities through which one looks
    actual: dict[int, ir.Value | None],  # what is read for the function's inputs, noted as it is found
) -> bool:
    """Tell whether a node is what it was, and reads what it did."""
    node = inlined_node.node
    if (
        node.graph is None
        or node.op_identifier() != inlined_node.operator
        or len(node.inputs) != len(inlined_node.reads)
    ):
        return False
    if node.attributes.keys() != inlined_node.attributes.keys():
        return False
    if not all(_equal(node.attributes[name], attribute) for name, attribute in inlined_node.attributes.items()):
        return False
    if not all(
        _is_read(expected_read, value, through, actual)
        for expected_read, value in zip(inlined_node.reads, node.inputs, strict=True)
    ):
        return False
    return all(
        _is_body(graph, *body, through, actual) for graph, body in zip(bodies(node), inlined_node.bodies, strict=True)
    )


def _is_body(
    graph: ir.Graph,
    nodes: tuple[InlinedNode, ...],
    gives: tuple[Read, ...],
    through: Mapping[ir.Node, None],
    actual: dict[int, ir.Value | None],
) -> bool:
    through = {**through, **dict.fromkeys(node for node in graph if is_identity(node))}
    return (
        {node for node in graph if node not in through} == {inlined_node.node for inlined_node in nodes}
        and all(_is_as_made(inlined_node, through, actual) for inlined_node in nodes)
        and all(
            _is_read(expected_read, value, through, actual)
            for expected_read, value in zip(gives, graph.outputs, strict=True)
        )
    )


def _is_read(
    expected_read: Read, value: ir.Value | None, through: Mapping[ir.Node, None], actual: dict[int, ir.Value | None]
) -> bool:
    value = behind(value, through.__contains__)
    if isinstance(expected_read, int):
        return actual.setdefault(expected_read, value) is value
    return value is expected_read


def _nodes(inlined_node: InlinedNode) -> Iterator[ir.Node]:
    yield inlined_node.node
    for nodes, _ in inlined_node.bodies:
        for inner in nodes:
            yield from _nodes(inner)


def _equal(one: ir.Attr, other: ir.Attr) -> bool:
    return one is other or (one.type == other.type and not holds_graph(one) and one.value == other.value)


def _escapes(value: ir.Value, inside: set[ir.Node]) -> bool:
    """Tell whether anything outside of a body reads one of its values."""
    outputs = value.is_graph_output() and not any(value in graph.outputs for node in inside for graph in bodies(node))
    return outputs or any(use.node not in inside and use.node.graph is not None for use in value.uses())


def _is_alive(value: ir.Value) -> bool:
    producer = value.producer()
    return producer.graph is not None if producer is not None else value.is_graph_input() or value.is_initializer()


def _forget(model: ir.Model, inlined_calls: Calls) -> None:
    """Remove functions that were called and are not any longer, and imports of domains that nothing needs."""

    def calls(graph: ir.Graph | ir.Function) -> list[Key]:
        return [node.op_identifier() for node in all_nodes(graph) if node.op_identifier() in model.functions]

    called = reached(calls(model.graph), lambda key: calls(model.functions[key]))
    gone = dict.fromkeys(call.node.op_identifier() for call in inlined_calls.calls)
    for key in [key for key in gone if key not in called]:
        del model.functions[key]
    used = {node.domain for node in all_nodes(model.graph)} | {domain for domain, _, _ in model.functions}
    used |= {node.domain for function in model.functions.values() for node in all_nodes(function)}
    for domain in dict.fromkeys([*inlined_calls.imports, *(key[0] for key in gone)]):
        if domain and domain not in used:
            model.opset_imports.pop(domain, None)
