"""Changes of a node by its rule: attributes, constants, parameters that follow their axis, extents that it gives."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.apply.value_store import Storage
from relayout.infer.graph_sites import Sites, entered
from relayout.infer.sites import Root
from relayout.rules import Attribute, Changes, Step


def operands_of_step(
    step: Step,
    value_of: Mapping[int | str, ir.Value | None],
    constant: Callable[[str, NDArray[Any]], ir.Value],
    stem: str | None,
) -> list[ir.Value | None]:
    """Return what a step reads of its node and of steps before it, by `value_of`; names begin with `stem`."""
    return [
        value_of[each] if isinstance(each, int | str) else constant(f"{stem}/{step.name}", each) for each in step.inputs
    ]


# Where nodes stand: in order, and conversions that only a body wants in a branch, or a loop that may not run.


def place_inside(
    sites: Sites,  # the source graph
    nodes: dict[ir.Graph, list[ir.Node]],  # graph -> the nodes of the result; graphs come before those inside of them
    conversions: Mapping[ir.Node, Root],  # node that brings a value into another form -> that value
    graph_inputs: Container[ir.Value],  # the values that graphs give: they stay
) -> None:
    """Move conversions into the one body that reads what they give, in place, as far in as that goes."""
    owner = {node: graph for graph, members in nodes.items() for node in members}
    for graph in list(nodes):
        staying: list[ir.Node] = []
        for node in reversed(nodes[graph]):
            bodies: set[ir.Graph | None] = set()  # right in its graph, in which its readers are
            for use in (use for value in node.outputs for use in value.uses()) if node in conversions else ():
                *_, outermost = (None, *entered(sites.inners, owner.get(use.node), graph))
                bodies.add(outermost)
            body = (
                bodies.pop() if len(bodies) == 1 and not any(value in graph_inputs for value in node.outputs) else None
            )
            if body is None or not _may_enter(sites, body, node, conversions):
                staying.append(node)
            else:
                nodes[body].insert(0, node)
                owner[node] = body
        nodes[graph] = staying[::-1]


def _may_enter(sites: Sites, body: ir.Graph, node: ir.Node, conversions: Mapping[ir.Node, Root]) -> bool:
    """Tell whether a conversion may stand in a body: a branch, or a loop that may not run, if it is priced so or the
    source moves the value there.
    """
    inner, root = sites.inners[body], conversions[node]
    if inner.runs == 1:
        return not inner.surely
    moving = [other for other, before, _ in sites.viewing if before.root is root and other in sites.permuting]
    there = any(body in (*entered(sites.inners, other.graph, root.graph),) for other in moving)
    return not inner.surely and (root in sites.repeats or there)


def arrange(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    """Let a graph have these nodes, in this order, in place. What stays where it is is not touched: that is most."""
    staying = set(nodes)
    graph.remove([node for node in graph if node not in staying])
    place = {node: number for number, node in enumerate(graph)}
    last, before, coming = -1, None, list[ir.Node]()
    for node in nodes:
        if place.get(node, -1) <= last:  # new, or of a place behind: to insert it is to move it
            coming.append(node)
            continue
        if coming:
            graph.insert_before(node, coming)
            coming = []
        last, before = place[node], node
    if before is None:
        graph.extend(coming)
    elif coming:
        graph.insert_after(before, coming)


class NodeChanges:
    """Carries out changes."""

    def __init__(
        self,
        storage: Storage,  # the values of the result, and its nodes so far
    ) -> None:
        self.storage = storage

    @staticmethod
    def set(node: ir.Node, attributes: Mapping[str, Attribute | None]) -> None:
        """Give a node attributes; None takes one away."""
        for name, attribute in attributes.items():
            node.attributes.pop(name, None)
            if attribute is not None:
                node.attributes.add(ir.convenience.convert_attribute(name, attribute))

    def change(self, graph: ir.Graph, node: ir.Node, changes: Changes) -> None:
        """Carry out on a node what its rule says, in the graph where it stands."""
        self.set(node, changes.attributes)
        if changes.exchanged:
            first, second, *_ = node.inputs
            node.replace_input_with(0, second)
            node.replace_input_with(1, first)
        if changes.op_type is not None:
            node.op_type = changes.op_type
        if changes.domain is not None:
            node.domain = changes.domain
            self.storage.sites.graph.opset_imports.setdefault(changes.domain, 1)
        for slot, array in changes.inputs.items():
            if slot >= len(node.inputs):
                node.resize_inputs(slot + 1)
            stem = f"{node.name or node.outputs[0].name}/{slot}"
            node.replace_input_with(slot, None if array is None else self.storage.constant(stem, array))
        for slot, (axis, indices) in changes.gathered.items():
            self._follow(graph, node, slot, indices, axis)
        for slot, table in changes.looked_up.items():
            self._follow(graph, node, slot, table, None)
        while changes.inputs and node.inputs[-1] is None:
            node.resize_inputs(len(node.inputs) - 1)

    def _follow(self, graph: ir.Graph, node: ir.Node, slot: int, items: tuple[int, ...], axis: int | None) -> None:
        """Let a parameter have its items along an axis in another order, or without one look its axes up in a table.

        It is folded, or a Gather, which takes negative axes, too.
        """
        value = node.inputs[slot]
        assert value is not None
        stem = f"{node.name or node.outputs[0].name}/{slot}"
        table = np.array(items, np.int64 if value.dtype is None else value.dtype.numpy())
        if value.const_value is not None and not value.is_graph_input():
            array = value.const_value.numpy()
            followed = self.storage.constant(stem, table[array] if axis is None else np.take(array, items, axis))
        else:
            followed = ir.Value(name=self.storage.names.unique(stem), type=value.type, shape=value.shape)
            if axis is None:
                name = self.storage.names.unique(f"{stem}/Gather")
                operands = [self.storage.constant(f"{stem}/table", table), value]
            else:
                operands = [value, self._indices(followed.name or "", items)]
                name = self.storage.names.unique(f"{followed.name}/Gather")
            along = [ir.AttrInt64("axis", axis or 0)]
            self.storage.nodes[graph].append(ir.Node("", "Gather", operands, along, outputs=[followed], name=name))
        node.replace_input_with(slot, followed)

    def multiplied(self, graph: ir.Graph, stored: ir.Value, groups: Sequence[tuple[int, ...]]) -> ir.Value:
        """Return the source's extents as products of the stored ones, under the source's name."""
        stem, kind, shape = stored.name or "", stored.type, stored.shape
        stored.name, stored.shape = self.storage.names.unique(f"{stem}__stored"), None
        most = max([1, *map(len, groups)])
        items = stored
        if any(len(group) != most for group in groups):
            one = self.storage.constant(f"{stem}/one", np.ones(1, np.int64))
            items = self._small(graph, "Concat", [stored, one], f"{stem}__and_one", axis=0)
        pieces = []
        for place in range(most):
            indices = [group[place] if place < len(group) else -1 for group in groups]
            pieces.append(self._small(graph, "Gather", [items, self._indices(stem, indices)], f"{stem}__piece", axis=0))
        result = pieces[0]
        for piece in pieces[1:]:
            result = self._small(graph, "Mul", [result, piece], f"{stem}__product")
        result.name, result.type, result.shape = stem, kind, shape
        return result

    def _small(self, graph: ir.Graph, op_type: str, inputs: Sequence[ir.Value], name: str, **integers: int) -> ir.Value:
        """Return the result of a new node on a few integers."""
        output = ir.Value(name=self.storage.names.unique(name), type=ir.TensorType(ir.DataType.INT64))
        attributes = [ir.AttrInt64(key, number) for key, number in integers.items()]
        named = self.storage.names.unique(f"{name}/{op_type}")
        self.storage.nodes[graph].append(ir.Node("", op_type, inputs, attributes, outputs=[output], name=named))
        return output

    def _indices(self, stem: str, indices: Sequence[int]) -> ir.Value:
        return self.storage.constant(f"{stem}/items", np.array(indices, np.int64))
