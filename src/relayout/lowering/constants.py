"""Constants of a model, also under the names of Identities, and new ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.source_names import Names
from relayout.rules import Facts, Permuted, Regrouped
from relayout.rules.facts import operator_of

SIGN = 128  # what lies between the same bits as int8 and as uint8


def as_unsigned(integers: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Integers of int8, 128 higher: with a zero point that moves as well they mean the same."""
    return integers.astype(np.int8, copy=False).view(np.uint8) ^ np.uint8(SIGN)


class Constants:
    """The constants of a model that is being rewritten in place."""

    def __init__(self, model: ir.Model) -> None:
        self.model, self.facts = model, Facts()

    @cached_property
    def names(self) -> Names:
        """Names that the model does not have; most rewritings need none."""
        return Names.of(self.model, nodes=True)

    def of(self, value: ir.Value | None) -> ir.Value | None:
        """Return the value that holds a constant, or that what stands for it is the same as; None: it is not known."""
        while value is not None and value.const_value is None:
            node = value.producer()
            fact = None if node is None else self.facts.of(operator_of(self.model, node))
            same = isinstance(fact, Permuted) and fact.perm == tuple(range(len(fact.perm)))
            value = node.inputs[0] if node is not None and same else None
        return None if value is None or value.is_graph_input() else value

    def array(self, value: ir.Value | None) -> NDArray[np.generic] | None:
        """Return a constant, or None where it is not known."""
        tensor = self.tensor(value)
        return None if tensor is None else tensor.numpy()

    def tensor(self, value: ir.Value | None) -> ir.TensorProtocol | None:
        """Return a constant that need not be read yet, or None where it is not known."""
        constant = self.of(value)
        return None if constant is None else constant.const_value

    def behind(self, value: ir.Value | None) -> NDArray[np.generic] | None:
        """Return a constant behind Transposes and Reshapes, as it lies there; None where it is not known."""
        node = None if value is None else value.producer()
        if value is None or node is None or value.const_value is not None:
            return self.array(value)
        fact = self.facts.of(operator_of(self.model, node))
        if not isinstance(fact, Permuted | Regrouped) or (array := self.behind(node.inputs[0])) is None:
            return None
        if isinstance(fact, Permuted):
            return array.transpose(fact.perm)
        return array.reshape(value.shape.numpy()) if value.shape is not None and value.shape.is_static() else None

    def new(self, stem: str, array: NDArray[np.generic]) -> ir.Value:
        """Return a new initializer."""
        return self.put(stem, ir.Tensor(array))

    def put(self, stem: str, tensor: ir.TensorProtocol) -> ir.Value:
        """Return a new initializer that has a tensor."""
        tensor.name = self.names.unique(stem)
        value = ir.val(tensor.name, const_value=tensor)
        self.model.graph.register_initializer(value)
        return value

    def insert(
        self,
        before: ir.Node,  # the node that stands behind the new one
        op_type: str,  # the operator
        inputs: Sequence[ir.Value | None],  # what it reads
        result: ir.Value,  # what it gives; the stem of its name
        *attributes: ir.Attr,  # the operator's
    ) -> ir.Value:
        """Put a node before another one, and return its result, by a name of its own."""
        assert before.graph is not None
        result.name = self.names.unique(result.name or op_type)
        name = self.names.unique(f"{result.name}/{op_type}")
        before.graph.insert_before(before, ir.Node("", op_type, inputs, attributes, outputs=[result], name=name))
        return result
