"""A DequantizeLinear for each of its readers while orders are chosen, and one again for those that read alike.

It belongs to who reads it. Where two readers want two orders, the integers before it are brought into both, at a
quarter of the bytes, and each reader has it right before itself, where runtimes look for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from relayout.apply.provenance import holds_itself
from relayout.graph.quantized_unit import is_dequantized_view, is_reshape
from relayout.graph.source_names import Names, copied, stands_for
from relayout.graph.subgraphs import all_nodes
from relayout.layout import segments
from relayout.rules import may_repeat

Shared = Sequence[Sequence[ir.Node]]  # nodes that a model had once: the source's own, then one for each other reader


def duplicate(
    model: ir.Model,
    # which other nodes each of their readers has of its own, too
    is_copied: Callable[[ir.Node], bool] = lambda _: False,
) -> Shared:
    """Give each reader of what is dequantized a node of its own, in place."""
    nodes = list(all_nodes(model.graph))
    views = [node for node in nodes if is_copied(node)]
    dequantizers = []
    for node in filter(may_repeat, nodes):  # where what is read has no more bytes than what is given
        read, written = node.inputs[0].dtype if node.inputs[0] is not None else None, node.outputs[0].dtype
        if read is not None and written is not None and read.bitwidth <= written.bitwidth:
            dequantizers.append(node)
    if not any(_others(node.outputs[0]) for node in (*views, *dequantizers)):
        return ()
    values = [*model.graph.inputs, *model.graph.initializers.values(), *(v for node in nodes for v in node.outputs)]
    names = Names({name for name in (*(v.name for v in values), *(node.name for node in nodes)) if name})

    def copies(node: ir.Node) -> list[ir.Node]:
        return [node, *(_copy(node, reader, slots, names) for reader, slots in _others(node.outputs[0]))]

    # The last view first, and all before what they read: a copy is one more reader of that. Merged the other way round.
    behind = [copies(node) for node in reversed(views)]
    groups = [*map(copies, dequantizers), *reversed(behind)]
    return [group for group in groups if len(group) > 1]


def merge(shared: Shared) -> None:
    """Let nodes that read the same be one again, in place; a copy whose result a graph gives stays.

    One that comes behind another moves before it: what read that one reads it.
    """
    spare: dict[ir.Graph, list[ir.Node]] = {}
    places: dict[ir.Graph, dict[ir.Node, int]] = {}
    for group in shared:
        alike: dict[object, list[ir.Node]] = {}
        for node in group:
            if node.graph is not None:
                alike.setdefault((node.graph, *node.inputs, *map(str, node.attributes.values())), []).append(node)
        for first, *others in alike.values():
            copies = [node for node in others if not node.outputs[0].is_graph_output()]
            graph = first.graph
            if not copies or graph is None:
                continue
            if graph not in places:
                places[graph] = {node: place for place, node in enumerate(graph)}
            place = places[graph]
            earliest = min(copies, key=place.__getitem__)
            if place[first] > place[earliest]:
                graph.remove(first)
                graph.insert_before(earliest, first)
                place[first] = place[earliest]
            for node in copies:
                node.outputs[0].replace_all_uses_with(first.outputs[0])
            spare.setdefault(graph, []).extend(copies)
    for graph, nodes in spare.items():
        graph.remove(nodes, safe=True)


def is_divided_view(node: ir.Node) -> bool:
    """Tell whether each reader of a view of what is dequantized gets its own."""
    if not is_dequantized_view(node):
        return False
    if not is_reshape(node):
        return True
    shapes = [value.shape for value in (node.inputs[0], node.outputs[0]) if value is not None]
    sides = [shape.numpy() for shape in shapes if shape is not None and shape.is_static()]
    parts = segments(*sides) if len(sides) == 2 else None
    return parts is not None and not any(segment.is_barrier for segment in parts)


def _others(value: ir.Value) -> list[tuple[ir.Node, list[int]]]:
    """Return the readers of a value, each with its operands' slots, but for the first that reads or gives it."""
    slots: dict[ir.Node, list[int]] = {}
    for use in value.uses():
        slots.setdefault(use.node, []).append(use.idx)
    readers = list(slots.items())
    return readers if value.is_graph_output() else readers[1:]


def _copy(node: ir.Node, reader: ir.Node, slots: Sequence[int], names: Names) -> ir.Node:
    assert node.graph is not None
    value = node.outputs[0]
    output = ir.Value(name=value.name, type=value.type, shape=value.shape)
    output.metadata_props.update(value.metadata_props)
    holds_itself(output)
    stands_for(output, value)
    output.name = names.unique(value.name or "")
    copy = ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        [ir.Attr(each.name, each.type, each.value) for each in node.attributes.values()],
        outputs=[output],
        name=names.unique(node.name) if node.name else None,
        version=node.version,
    )
    copied(copy, node)
    node.graph.insert_after(node, copy)
    for slot in slots:
        reader.replace_input_with(slot, output)
    return copy
