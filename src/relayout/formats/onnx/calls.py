"""Calls of model-local functions, spelled out for the analysis and put back where nothing came of it.

A call is a barrier: nothing is known of the axes of what it reads and gives. Its body is none: operators of the
standard, and other calls. So each call is replaced by a copy of its function's body before layouts are decided.
Afterwards every call whose nodes are still those of its body, joined as the body joins them, is the call that it was.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

import onnx_ir as ir

from relayout.graph.subgraphs import bodies
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
    """A call that was spelled out.

    Args:
        node: the call, taken out of its graph.
        inputs: what it read.
        body: the nodes in its place, but for Identities.
        results: output -> the value that took its place.
        sources: output -> the value of the body that is behind it; the first of several, and none for an input that is
            handed on.
        identities: Identities in its place: the body's own, and those that hand on what is no value of the body.
    """

    node: ir.Node
    inputs: tuple[ir.Value | None, ...]
    body: tuple[InlinedNode, ...]
    results: dict[int, ir.Value] = field(default_factory=dict)
    sources: dict[int, ir.Value] = field(default_factory=dict)
    identities: dict[ir.Node, None] = field(default_factory=dict)


@dataclass(eq=False)
class Calls:
    """The calls of a model that were spelled out, outer ones before those in their bodies.

    Args:
        calls: the calls.
        imports: domains that the model did not import before.
        constants: constants of bodies, which became initializers.
    """

    calls: list[Call] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    constants: list[ir.Value] = field(default_factory=list)


def body_nodes(graph: ir.Graph, formals: Mapping[ir.Value, int]) -> Iterator[InlinedNode]:
    """The nodes of a body (or of a subgraph in it) as they are, but for Identities, through which one looks."""

    def read(value: ir.Value | None) -> Read:
        source = source_of(value)
        return source if source is None else formals.get(source, source)

    for node in graph:
        if not is_identity(node):
            inner = tuple((tuple(body_nodes(each, formals)), tuple(map(read, each.outputs))) for each in bodies(node))
            reads = tuple(map(read, node.inputs))
            yield InlinedNode(node, node.op_identifier(), dict(node.attributes.items()), reads, inner)


def source_of(value: ir.Value | None) -> ir.Value | None:
    """The value that Identities hand on."""
    while value is not None and (node := value.producer()) is not None and is_identity(node):
        value = node.inputs[0]
    return value


def is_identity(node: ir.Node) -> bool:
    """Whether a node hands on what it reads."""
    return node.op_type == "Identity" and not node.domain and len(node.inputs) == 1


def holds_graph(attribute: ir.Attr) -> bool:
    """Whether an attribute is a graph, or several."""
    return attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def take_over(value: ir.Value, other: ir.Value, but: Collection[ir.Node] = ()) -> None:
    """Let a value take the place of another: its name, what is known of it, and its readers, `but` some nodes."""
    value.name, value.doc_string = other.name, other.doc_string or value.doc_string
    value.type = other.type if other.type is not None else value.type
    value.shape = other.shape if other.shape is not None else value.shape
    value.metadata_props.update(other.metadata_props)
    value.meta.update(other.meta)
    if other.is_graph_output() and (graph := other.graph) is not None:
        for slot, given in enumerate(graph.outputs):
            if given is other:
                graph.outputs[slot] = value
    for use in list(other.uses()):
        if use.node not in but:
            use.node.replace_input_with(use.idx, value)


def names_of(node: ir.Node) -> Iterator[str]:
    """The names of what a node gives."""
    return (value.name for value in node.outputs if value.name)
