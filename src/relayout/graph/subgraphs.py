"""Subgraphs of nodes: what they hold, and what they read of the graphs around them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import onnx_ir as ir

GRAPH, GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS


def all_nodes(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """The nodes of a graph and of the graphs in them, each before those inside: onnx-ir's, in a third of the time."""
    for node in graph:
        yield node
        for attribute in node.attributes.data.values():
            if attribute.type is GRAPH or attribute.type is GRAPHS:
                for body in _graphs_of(attribute):
                    yield from all_nodes(body)


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yield a graph, and the graphs in its nodes, at any depth, each before those inside."""
    yield graph
    for node in graph:
        for body in bodies(node) if node.attributes.data else ():
            yield from all_graphs(body)


def graph_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the values of a graph without its bodies: its inputs, its initializers, and what its nodes give."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def bodies(node: ir.Node) -> list[ir.Graph]:
    """Return the graphs in a node's attributes, in order."""
    graph_attributes = [each for each in node.attributes.data.values() if each.type is GRAPH or each.type is GRAPHS]
    return [body for attribute in graph_attributes for body in _graphs_of(attribute)]


def _graphs_of(attribute: ir.Attr) -> Sequence[ir.Graph]:
    return [attribute.as_graph()] if attribute.type is GRAPH else attribute.as_graphs()


def nested(node: ir.Node) -> Iterator[ir.Node]:
    """Yield all nodes inside a node's subgraphs, at any depth."""
    for graph in bodies(node):
        yield from all_nodes(graph)


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """The values that a node reads, and that its subgraphs do, their results included; some of them more than once."""
    yield from (value for value in node.inputs if value is not None)
    for graph in bodies(node):
        for inner in all_nodes(graph):
            yield from (value for value in inner.inputs if value is not None)
        yield from graph.outputs


def captured(node: ir.Node) -> list[ir.Value]:
    """Values of the outer graphs that a node's subgraphs read, in the order of first use."""
    return list(dict.fromkeys(value for graph in bodies(node) for value in _free(graph)))


def _free(graph: ir.Graph) -> list[ir.Value]:
    inner: set[ir.Value] = set(graph.inputs) | set(graph.initializers.values())
    free: dict[ir.Value, None] = {}
    for node in graph:
        used = [value for value in node.inputs if value is not None] + captured(node)
        free.update(dict.fromkeys(value for value in used if value not in inner))
        inner.update(node.outputs)
    free.update(dict.fromkeys(value for value in graph.outputs if value not in inner))
    return list(free)


def inline_body(
    graph: ir.Graph,  # the graph of the node
    node: ir.Node,
    body: ir.Graph,  # the body, whose outputs nobody reads as such any longer
    rename: Callable[[str], str],  # what names of values become
    *,
    deep: bool,  # whether values in bodies of the nodes get other names, too: the body is a copy
) -> None:
    """Move the initializers and nodes of a body to where a node stands, in place: before it."""
    body.outputs.clear()
    for value in list(body.initializers.values()):
        body.initializers.pop(value.name or "")
        value.name = rename(value.name or "")
        graph.register_initializer(value)
    nodes = list(body)
    for each in all_nodes(body) if deep else nodes:
        for value in each.outputs:
            if value.name:
                value.name = rename(value.name)
    body.remove(nodes)
    graph.insert_before(node, nodes)


def become(
    node: ir.Node,
    domain: str,  # of the operator
    op_type: str,  # the operator
    inputs: Sequence[ir.Value | None],  # what it reads
    attributes: Iterable[ir.Attr] = (),  # all that it has
) -> None:
    """Make another operator of a node, in place: the values that it gives stay, and its name."""
    new_attributes = list(attributes)
    node.domain, node.op_type, node.version = domain, op_type, None
    node.attributes.clear()
    for attribute in new_attributes:
        node.attributes.add(attribute)
    node.resize_inputs(len(inputs))
    for slot, value in enumerate(inputs):
        node.replace_input_with(slot, value)


def take_over(value: ir.Value, other: ir.Value, but: Collection[ir.Node] = ()) -> None:
    """Let a value take the place of another: its name, what is known of it, and its readers, `but` some nodes."""
    value.name, value.doc_string = other.name, other.doc_string or value.doc_string
    value.type = other.type if other.type is not None else value.type
    value.shape = other.shape if other.shape is not None else value.shape
    value.metadata_props.update(other.metadata_props)
    value.meta.update(other.meta)
    if other.is_graph_output() and (graph := other.graph) is not None:
        for slot, output in enumerate(graph.outputs):
            if output is other:
                graph.outputs[slot] = value
    for use in list(other.uses()):
        if use.node not in but:
            use.node.replace_input_with(use.idx, value)
