"""What a user knows values and nodes as: by the source's names, also where layouts are decided on something else.

For a target, kernels and numbers are brought into its forms first. The values that are made then have names of their
own, since they are others than the source's; reports speak of the value of the source that they stand for.
"""

from __future__ import annotations

from dataclasses import field

import onnx_ir as ir

from relayout.graph.subgraphs import all_graphs, all_nodes, graph_values
from relayout.light_dataclass import dataclass

# Names of values and nodes, each given once.


@dataclass
class Names:
    """Names that are taken; every new one is made unique."""

    taken: set[str]  # the names
    # a name that was wanted again -> the last number that was put behind it
    numbered: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(model: ir.Model | ir.Function, *, nodes: bool = False) -> Names:
        """Return the names of all values of a model or function, also in bodies, and of its nodes if asked for."""
        names = {value.name for graph in all_graphs(model.graph) for value in graph_values(graph)}
        names |= {node.name for node in all_nodes(model.graph)} if nodes else set()
        return Names({name for name in names if name})

    def unique(self, name: str) -> str:
        """`name`, or `name_2` and so on where it is taken."""
        result, number = name, 1
        if name in self.taken:
            number = self.numbered.get(name, 1)
            while result in self.taken:
                number += 1
                result = f"{name}_{number}"
            self.numbered[name] = number
        self.taken.add(result)
        return result


SOURCE = "relayout.source"  # metadata of each node: the operator of the `.tflite` that it was made of
STANDS_FOR = "relayout.stands_for"
"""In the metadata of a value or a node, until reports are made: the name by which the source has it. (Of `meta`, each
object that is asked has a store of its own from then on; metadata is there anyway.)"""


def stands_for(replacement: ir.Value | ir.Node, what: ir.Value | ir.Node) -> None:
    """Say what of the source something is in the place of, before it gets another name."""
    replacement.metadata_props[STANDS_FOR] = known_as(what) if isinstance(what, ir.Value) else label(what)


def is_made(value: ir.Value) -> bool:
    """Tell whether a value is in the place of one of the source, and has another name."""
    return STANDS_FOR in value.metadata_props


def known_as(value: ir.Value) -> str:
    """Return the name by which a user knows a value."""
    return value.metadata_props.get(STANDS_FOR) or value.name or ""


def label(node: ir.Node) -> str:
    """Return a node's name in reports: its own, that of its first output, or its operator."""
    return node.metadata_props.get(STANDS_FOR) or node.name or known_as(node.outputs[0]) or node.op_type


ADDED = "relayout.added"
"""In the metadata, likewise, of a Transpose that a target's form of an operator needs where the source has none."""


def added(node: ir.Node) -> None:
    """Say of a node that the source has nothing of the kind there."""
    node.metadata_props[ADDED] = ""


def is_added(node: ir.Node) -> bool:
    """Tell whether the source has nothing of the kind there."""
    return ADDED in node.metadata_props


COPIED = "relayout.copied"  # in the metadata, likewise, of a node that the source has once, for all of its readers


def copied(node: ir.Node, of: ir.Node) -> None:
    """Mark a node as one more copy of a node of the source."""
    stands_for(node, of)
    node.metadata_props[COPIED] = ""


def is_copied(node: ir.Node) -> bool:
    """Tell whether a node is one more copy of a node that the source has once."""
    return COPIED in node.metadata_props


def forget(graph: ir.Graph) -> None:
    """Take all of it out again: whoever reads the result knows its names."""
    for node in all_nodes(graph):
        node.metadata_props.pop(STANDS_FOR, None)
        node.metadata_props.pop(ADDED, None)
        node.metadata_props.pop(COPIED, None)
        for value in node.outputs:
            value.metadata_props.pop(STANDS_FOR, None)
