"""The nodes of a definition of an operator of ai.onnx.ml, under construction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

AXES_ARE_OPERANDS = {"ReduceSum": 13, "ReduceMax": 18, "ReduceL1": 18, "ReduceL2": 18, "ReduceMin": 18}
"""Reduction -> the version from which on its axes are an operand."""
FIRST = 9
"""The first version of the standard that has all operators below."""
TO_FLOAT = (ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT32)
"""Types of data that are computed in single precision."""


class DefinitionBody:
    """The nodes of a definition under construction.

    Args:
        node: the node that it defines.
        imports: the model's: domain -> version.
    """

    def __init__(self, node: ir.Node, imports: Mapping[str, int]) -> None:
        self.node, self.imports = node, imports
        self.nodes: list[onnx.NodeProto] = []
        value = node.inputs[0]
        self.kind = None if value is None else value.dtype
        self.shape = None if value is None or value.shape is None else tuple(value.shape)
        """The extents of the first operand."""

    @property
    def rank(self) -> int:
        """The rank of the first operand; -1 where it is not known."""
        return -1 if self.shape is None else len(self.shape)

    def add(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return its result."""
        result = f"t{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op_type, inputs, [result], domain=domain, **attributes))
        return result

    def give(self, result: str, name: str = "y") -> None:
        """Let a result be an output."""
        self.nodes.append(onnx.helper.make_node("Identity", [result], [name]))

    def constant(self, array: NDArray[Any]) -> str:
        """Add a constant."""
        if array.dtype == object:
            tensor = onnx.helper.make_tensor("texts", onnx.TensorProto.STRING, array.shape, array.tolist())
            return self.add("Constant", value=tensor)
        return self.add("Constant", value=onnx.numpy_helper.from_array(array))

    def reduce(self, op_type: str, operand: str, axis: int) -> str:
        """Add a reduction that keeps its axis."""
        if self.imports.get("", FIRST) >= AXES_ARE_OPERANDS[op_type]:
            return self.add(op_type, operand, self.constant(np.array([axis])), keepdims=1)
        return self.add(op_type, operand, axes=[axis], keepdims=1)

    def data(self) -> str:
        """Return the first operand in single precision."""
        return "x0" if self.kind == ir.DataType.FLOAT else self.add("Cast", "x0", to=onnx.TensorProto.FLOAT)

    def rows(self) -> str:
        """Return the first operand in single precision, as rows: a vector is one row."""
        data = self.data()
        return self.add("Reshape", data, self.constant(np.array([1, -1]))) if self.rank == 1 else data

    def numbers(self, name: str) -> NDArray[np.float32]:
        """Return an attribute that is a list of numbers."""
        return np.array(self.node.attributes.get_floats(name, []), np.float32)

    def labels(self, integers: str) -> NDArray[Any]:
        """Return the names of the classes, text or int64.

        Args:
            integers: the attribute that holds them where they are numbers.
        """
        attributes = self.node.attributes
        texts = attributes.get_strings("classlabels_strings", [])
        return np.array([*texts, None], object)[:-1] if texts else np.array(attributes.get_ints(integers, []), np.int64)

    def fits(self, *arrays: NDArray[Any]) -> bool:
        """Return whether lists have one number, or each of them one for every element of a row."""
        sizes = {array.size for array in arrays}
        return sizes == {1} or (self.rank in (1, 2) and self.shape is not None and sizes == {self.shape[-1]})
