"""The nodes that a builtin was spelled out in, and digests of them: after a change a description counts for nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.formats.tflite.spelled_out import BUILTIN, DIGEST, SMALL, VIEWS, Builtin
from relayout.graph.source_names import SOURCE
from relayout.graph.subgraphs import all_graphs
from relayout.layout.stored_as import Holds

REORDERED = re.compile(r"(.*)__p(\d+)")
"""The name of a value that is stored in another order of axes: the source's name, and the order."""
SHORT = 32
"""Hexadecimal digits of a digest."""


class Spellings:
    """The nodes of a graph by the operator of a `.tflite` that they were made of, with the views between them."""

    def __init__(self, graph: ir.Graph) -> None:
        self._nodes: dict[str, list[ir.Node]] = {}
        owner: dict[ir.Node | None, str] = {}
        for node in graph:
            source = node.metadata_props.get(SOURCE)
            if source is not None:
                owner[node] = source
        before: dict[ir.Node | None, str] = {}
        """View of no operator -> the operator that gives what it views, over other views."""
        for node in graph:
            if node.op_type in VIEWS and node not in owner and node.inputs[0] is not None:
                producer = node.inputs[0].producer()
                if (source := owner.get(producer) or before.get(producer)) is not None:
                    before[node] = source
        for view, source in reversed(before.items()):
            users = [use.node for output in view.outputs for use in output.uses()] if view is not None else []
            if users and all(owner.get(user) == source for user in users):
                owner[view] = source
        for node in graph:
            if node in owner:
                self._nodes.setdefault(owner[node], []).append(node)

    def of(self, node: ir.Node) -> list[ir.Node]:
        """Return all nodes of the operator that a node was made of, in order."""
        return self._nodes.get(node.metadata_props.get(SOURCE, ""), [])


def stamp_builtins(model: ir.Model) -> None:
    """Say of each builtin that is spelled out what its nodes are now, in place."""
    for node, _, current in _digests(model):
        node.metadata_props[DIGEST] = current


@contextmanager
def restamping(model: ir.Model) -> Iterator[None]:
    """Change nodes so that each builtin that they spell out is the same: what was true of it before is said again.

    Constants that the description alone holds may follow from extents: where the nodes change, it counts for nothing.
    """
    before = {node: current for node, _, current in _digests(model)}
    true = {node for node, current in before.items() if node.metadata_props.get(DIGEST, current) == current}
    yield
    for node, builtin, current in _digests(model) if before else ():
        if node not in true or (builtin.counts_elements and current != before[node]):
            del node.metadata_props[BUILTIN]
        elif DIGEST in node.metadata_props:
            node.metadata_props[DIGEST] = current


def _digests(model: ir.Model) -> Iterator[tuple[ir.Node, Builtin, str]]:
    """Yield the nodes that describe a builtin, each with it and the digest of the nodes that spell it out."""
    for graph in all_graphs(model.graph):
        described = [node for node in graph if BUILTIN in node.metadata_props]
        spellings = Spellings(graph) if described else None
        for node in described:
            builtin = Builtin.parse(node.metadata_props[BUILTIN])
            if builtin is not None and spellings is not None:
                yield node, builtin, digest(spellings.of(node), builtin)


def digest(nodes: Iterable[ir.Node], builtin: Builtin) -> str:
    """Return a digest of nodes: their operators, attributes, names, and constants that they read.

    Constants that the builtin reads itself may change, and so may large ones; but no others where the description
    holds constants that they may follow from.
    """
    import hashlib  # few models need it

    found = hashlib.sha256()
    most = None if builtin.has_numbers else SMALL
    for node in nodes:
        for part in _parts(node, builtin.names, most):
            found.update(part + b"\0")
    return found.hexdigest()[:SHORT]


def name_and_order(name: str) -> tuple[str, list[int] | None]:
    """Return the name of the source's value, and the order of axes in which it is stored, if it is another one."""
    found = REORDERED.fullmatch(name)
    return (name, None) if found is None else (found[1], [int(digit) for digit in found[2]])


def _may_change(value: ir.Value, size: int, operands: Collection[str], most: int | None) -> bool:
    """Return whether a constant is an operand, which the builtin reads as it is, or larger than those that count."""
    if name_and_order(value.name or "")[0] in operands:
        return True
    return size > SMALL and (most is not None or tensor_in(value, operands) is not None)


def tensor_in(value: ir.Value, names: Collection[str]) -> Holds | None:
    """Return which tensor of a file a value holds, of some, and how; None where it holds none of them."""
    if value.name in names and value.shape is not None:
        return Holds.as_is(value.name or "", value.shape)
    return next((each for each in holdings(value) if each.name in names), None)


def holdings(value: ir.Value) -> list[Holds]:
    """Return what the metadata of a value says that it holds."""
    text = value.metadata_props.get(Holds.KEY)
    try:
        return [] if text is None else Holds.load(text)
    except LayoutError:
        return []


def _parts(node: ir.Node, operands: Collection[str], most: int | None) -> Iterator[bytes]:
    yield f"{node.domain}:{node.op_type}".encode()
    for value in node.inputs:
        yield b"" if value is None else (value.name or "").encode()
        # What extents give is known after inference alone.
        constant = None if value is None or value.producer() is not None else value.const_value
        if value is not None and constant is not None and not _may_change(value, constant.size, operands, most):
            yield constant.numpy().tobytes()
    yield b">"
    yield from ((value.name or "").encode() for value in node.outputs)
    for value in (*node.inputs, *node.outputs):
        yield b"" if value is None else value.metadata_props.get(Holds.KEY, "").encode()
    for name, attribute in sorted(node.attributes.items()):
        yield name.encode()
        if attribute.type == ir.AttributeType.GRAPH:
            body = attribute.as_graph()
            yield from ((value.name or "").encode() for value in (*body.inputs, *body.outputs))
            for inner in body:
                yield from _parts(inner, operands, most)
        else:
            yield ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True)
