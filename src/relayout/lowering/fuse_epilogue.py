"""Sums and activations into the operator before them, as a target has it, before any layout is chosen.

`y = Relu(Add(Conv(x, w, b), z))` becomes `y = com.microsoft:FusedConv(x, w, b, z)`. The last node becomes the fused
one, in place: the value that it gives, and its name, stay.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes, become
from relayout.lowering.conditions import Condition, is_about
from relayout.rules import Operator
from relayout.rules.facts import operator_of

# What a target runs as a part of a kernel: a sum and an activation after a convolution.

Parameters = Callable[[Operator], tuple[float, ...] | None]
"""The parameters of an activation, as the kernel wants them; None where it cannot run it."""


class Fusion(NamedTuple):
    """An operator that takes in what alone reads it: a sum with another operand, then an activation."""

    op_type: str  # the operator, of ONNX's own domain
    limits: tuple[Condition, ...]  # what must hold of its nodes
    domain: str  # the domain of the node that runs it all
    written: str  # its operator
    sums: tuple[str, ...]  # operators whose other operand it takes in
    slot: int  # the input that takes that operand
    # operator -> its parameters, for the attributes `activation` and `activation_params`
    activations: Mapping[str, Parameters]

    def takes(self, operator: Operator) -> bool:
        """Return whether it is about a node."""
        return is_about(operator, self.op_type, self.limits)


def fuse_kernels(model: ir.Model, fusions: Sequence[Fusion]) -> dict[str, int]:
    """Let a target's kernels take in what alone reads them, in place.

    Returns:
        Operator that was taken in -> how many.
    """
    counts: Counter[str] = Counter()
    named = {fusion.op_type for fusion in fusions}
    for node in [node for node in all_nodes(model.graph) if node.op_type in named]:
        if node.graph is not None:
            operator = operator_of(model, node)
            fusion = next((each for each in fusions if each.takes(operator)), None)
            if fusion is not None:
                counts.update(_Chain(model, fusion, node).fuse())
    return dict(sorted(counts.items()))


def only_reader(node: ir.Node) -> ir.Node | None:
    """Return the one node, a standard operator in the same graph, that reads what a node gives."""
    value = node.outputs[0]
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output() or uses[0].node.domain not in ("", "ai.onnx"):
        return None
    return uses[0].node if uses[0].node.graph is node.graph else None


class _Chain:
    """An operator and what alone follows it, as far as it takes that in."""

    def __init__(self, model: ir.Model, fusion: Fusion, node: ir.Node) -> None:
        self.model, self.fusion, self.node = model, fusion, node
        self.taken: list[ir.Node] = []
        self.other: ir.Value | None = None
        self.attributes: list[ir.Attr] = []

    def fuse(self) -> list[str]:
        """Write the chain as one node; the operators that it takes in."""
        self._sum()
        self._activation()
        if not self.taken:
            return []
        names, last = [node.op_type for node in self.taken], self.taken[-1]
        inputs = list(self.node.inputs)
        if self.other is not None:
            inputs += [None] * (self.fusion.slot - len(inputs)) + [self.other]
        attributes = [*self.node.attributes.values(), *self.attributes]
        for node in (self.node, *self.taken):
            node.resize_inputs(0)
        for node in (self.node, *self.taken[:-1]):
            assert node.graph is not None
            node.graph.remove(node, safe=True)
        become(last, self.fusion.domain, self.fusion.written, inputs, attributes)
        self.model.opset_imports.setdefault(self.fusion.domain, 1)
        return names

    def _sum(self) -> None:
        node = only_reader((self.node, *self.taken)[-1])
        if node is None or node.op_type not in self.fusion.sums or len(node.inputs) != 2:
            return
        own = self.node.outputs[0]
        other = node.inputs[1] if node.inputs[0] is own else node.inputs[0]
        shapes = operator_of(self.model, node).inputs  # dimensions without a name are no two alike
        if other is None or shapes[0] is None or shapes[0] != shapes[1] or other.dtype != own.dtype:
            return
        producer = other.producer()
        if producer is None and not other.is_graph_input():
            return
        self.taken.append(node)
        self.other = other

    def _activation(self) -> None:
        node = only_reader((self.node, *self.taken)[-1])
        parameters_of = None if node is None else self.fusion.activations.get(node.op_type)
        if node is None or parameters_of is None:
            return
        parameters = parameters_of(operator_of(self.model, node))
        if parameters is None:
            return
        self.taken.append(node)
        self.attributes.append(ir.AttrString("activation", node.op_type))
        if parameters:
            self.attributes.append(ir.AttrFloat32s("activation_params", parameters))
