"""A model while it is written in an older opset, and the error of a node that needs a newer one."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.subgraphs import all_nodes
from relayout.graph.value_names import Names


class NewerError(Exception):
    """A fact of an operator that the older opset cannot state."""


def owners_of(model: ir.Model) -> tuple[ir.Graph | ir.Function, ...]:
    """Return the graph and the functions of a model."""
    return (model.graph, *model.functions.values())


class OlderModel:
    """A model that is written in an older opset: its names, and new constants.

    Args:
        model: the model.
        opset: the older version of ONNX's own domain.
    """

    def __init__(self, model: ir.Model, opset: int) -> None:
        self.model, self.opset = model, opset
        self.owner: ir.Graph | ir.Function = model.graph
        """The graph or function whose nodes, those of bodies among them, are rewritten."""
        owners = owners_of(model)
        nodes = [node for owner in owners for node in all_nodes(owner)]
        inputs = (value for owner in owners for value in owner.inputs)
        values = (*inputs, *model.graph.initializers.values(), *(v for node in nodes for v in node.outputs))
        self.names = Names({name for name in (*(v.name for v in values), *(node.name for node in nodes)) if name})

    def constant(self, name: str, array: NDArray[Any]) -> ir.Value:
        """Return a new constant: an initializer, in a function the result of a Constant."""
        value = ir.Value(
            name=self.names.unique(name),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array),
        )
        if isinstance(self.owner, ir.Function):
            attribute = ir.AttrTensor("value", ir.Tensor(array))
            self.owner.insert_before(self.owner[0], ir.Node("", "Constant", [], [attribute], outputs=[value]))
        else:
            self.model.graph.register_initializer(value)
        return value
