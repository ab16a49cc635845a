"""The nodes of a definition of an operator by those of the standard, under construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.draft import known
from relayout.formats.tflite.exporting.node import NodeReading
from relayout.formats.tflite.exporting.registry import Unwritable

AXES_ARE_OPERANDS = {"ReduceSum": 13, "ReduceMax": 18, "ReduceL1": 18, "ReduceL2": 18, "ReduceMin": 18}
"""Reduction -> the version from which on its axes are an operand."""
FIRST = 9  # the first version of the standard that has all operators below
SCALE_PER_PLACE = 13  # the version from which on a DequantizeLinear has a scale for each place along an axis
SLICE_READS_ENDS = 10  # the version of the standard from which on the ends of a Slice are operands
TO_FLOAT = (ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT32)
"""Types of data that are computed in single precision."""


class Undefined(Unwritable):
    """Raised by a definition: no operators are known that compute this one, as it is used here."""

    def __init__(self) -> None:
        super().__init__("no operators are known that compute it with these attributes, types and ranks")


class DefinitionBody(NodeReading):
    """The nodes of a definition under construction."""

    def __init__(
        self,
        node: ir.Node,  # the node that it defines
        imports: Mapping[str, int],  # the model's: domain -> version
    ) -> None:
        self.node, self.imports = node, imports
        self.nodes: list[onnx.NodeProto] = []
        value = node.inputs[0]
        self.kind = None if value is None else value.dtype
        self.shape = None if value is None or value.shape is None else tuple(value.shape)
        """The extents of the first operand."""
        self.rank = -1 if self.shape is None else len(self.shape)  # of the first operand; -1 where it is not known
        self.version = imports.get("", FIRST)  # of the standard that the model imports

    def require_opset(self, first: int) -> None:
        """Refuse an operator of a model whose version of the standard lacks what defines it."""
        if self.version < first:
            raise Unwritable(f"opset {self.version}: from {first} on it has a definition")

    def add(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return its result."""
        result = f"t{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op_type, inputs, [result], domain=domain, **attributes))
        return result

    def take_attributes(self, *others: str) -> None:
        """Give the last node the attributes of the one that is defined, but for some others."""
        own = [each for name, each in self.node.attributes.items() if name not in others]
        self.nodes[-1].attribute.extend(map(ir.serde.serialize_attribute, own))

    def give(self, result: str, slot: int = 0) -> None:
        """Let a result be an output; nothing where the node has no such output."""
        if slot < len(self.node.outputs):
            self.nodes.append(onnx.helper.make_node("Identity", [result], [f"y{slot}"]))

    def reshape(self, tensor: str, *extents: int) -> str:
        """Add a Reshape; 0 is the operand's own extent."""
        return self.add("Reshape", tensor, self.const(np.array(extents, np.int64)))

    def transpose(self, tensor: str, *perm: int) -> str:
        """Add a Transpose."""
        return self.add("Transpose", tensor, perm=perm)

    def part(self, tensor: str, axis: int, begin: int, size: int) -> str:
        """Add a Slice along one axis."""
        if self.version < SLICE_READS_ENDS:
            return self.add("Slice", tensor, axes=[axis], starts=[begin], ends=[begin + size])
        ends = (self.const(np.array([each], np.int64)) for each in (begin, begin + size, axis))
        return self.add("Slice", tensor, *ends)

    def const(self, array: NDArray[Any]) -> str:
        """Add a constant."""
        if array.dtype == object:
            tensor = onnx.helper.make_tensor("texts", onnx.TensorProto.STRING, array.shape, array.tolist())
            return self.add("Constant", value=tensor)
        return self.add("Constant", value=onnx.numpy_helper.from_array(array))

    def single(self, number: float) -> str:
        """Add a number in single precision."""
        return self.const(np.array(number, np.float32))

    def reduce(self, op_type: str, operand: str, axis: int) -> str:
        """Add a reduction that keeps its axis."""
        if self.version >= AXES_ARE_OPERANDS[op_type]:
            return self.add(op_type, operand, self.const(np.array([axis])), keepdims=1)
        return self.add(op_type, operand, axes=[axis], keepdims=1)

    def data(self) -> str:
        """Return the first operand in single precision."""
        return "x0" if self.kind == ir.DataType.FLOAT else self.add("Cast", "x0", to=onnx.TensorProto.FLOAT)

    def real_numbers(self, integers: str, scale: int, zero: int) -> str:
        """Add the real numbers of integers, by operands that hold one scale and zero point, or one for each column."""
        real = self.add("Cast", integers, to=onnx.TensorProto.FLOAT)
        if self.has(zero):
            real = self.add("Sub", real, self.add("Cast", f"x{zero}", to=onnx.TensorProto.FLOAT))
        return self.add("Mul", real, f"x{scale}")

    def weights(self, slot: int, scale: int, zero: int) -> str:
        """Add the real numbers of an operand, of one scale or one for each column; a constant stays integers."""
        operands = [each for each in (slot, scale, zero) if self.has(each)]
        sizes = {prod(known(self.dims(each))) for each in operands[1:]}
        has_one_scale = sizes == {1}
        values = [self.value(each) for each in operands]
        is_constant = all(value.const_value is not None and not value.is_graph_input() for value in values)
        is_by_column = self.version >= SCALE_PER_PLACE and len(self.dims(scale)) == 1 and len(sizes) == 1
        if not is_constant or not (has_one_scale or is_by_column):
            return self.real_numbers(f"x{slot}", scale, zero)
        others = [f"x{each}" for each in operands[1:]]
        if has_one_scale:
            return self.add("DequantizeLinear", f"x{slot}", *(self.reshape(each) for each in others))
        return self.add("DequantizeLinear", f"x{slot}", *others, axis=len(self.dims(slot)) - 1)

    def rows(self) -> str:
        """Return the first operand in single precision, as rows: a vector is one row."""
        data = self.data()
        return self.add("Reshape", data, self.const(np.array([1, -1]))) if self.rank == 1 else data

    def floats(self, name: str) -> NDArray[np.float32]:
        """Return an attribute that is a list of numbers."""
        return np.array(self.node.attributes.get_floats(name, []), np.float32)

    def labels(self, integers: str) -> NDArray[Any]:
        """Return the names of the classes: texts, or the int64 of an attribute of that name."""
        attributes = self.node.attributes
        texts = attributes.get_strings("classlabels_strings", [])
        return np.array([*texts, None], object)[:-1] if texts else np.array(attributes.get_ints(integers, []), np.int64)

    def fits(self, *arrays: NDArray[Any]) -> bool:
        """Return whether lists have one number, or each of them one for every element of a row."""
        sizes = {array.size for array in arrays}
        return sizes == {1} or (self.rank in (1, 2) and self.shape is not None and sizes == {self.shape[-1]})

    def function(self) -> onnx.FunctionProto:
        """Return the definition, whose operands are `x0`, `x1`, … and whose results `y0`, `y1`, …"""
        ends = ("x", self.node.inputs), ("y", self.node.outputs)
        inputs, outputs = ([f"{letter}{slot}" for slot in range(len(values))] for letter, values in ends)
        names = {name for node in self.nodes for name in node.input}
        for slot in sorted(int(name[1:]) for name in names if name.startswith("x") and name[1:].isdecimal()):
            self.value(slot)  # it must be there
        opsets = [
            onnx.helper.make_opsetid(domain, version) for domain, version in ({"": FIRST} | {**self.imports}).items()
        ]
        return onnx.helper.make_function("", "", inputs, outputs, self.nodes, opsets)


Body = TypeVar("Body", bound=DefinitionBody)
Definition = Callable[[ir.Node, Mapping[str, int]], onnx.FunctionProto | None]
"""A node and the model's imports, domain -> version -> the function that the node is; None where it is none."""


def definition_by(
    domains: Sequence[str],  # the domains of the operators, of which any is meant
    definitions: Mapping[str, Callable[[Body], None]],  # operator -> what adds the nodes that compute it
    start: Callable[..., Body],  # makes an empty body for a node and the model's imports
    first: int = FIRST,  # the first version of the standard with which they are defined
) -> Definition:
    """Return a definition that raises `Unwritable` of an operator that it cannot define as it is used."""

    def definition(node: ir.Node, imports: Mapping[str, int]) -> onnx.FunctionProto | None:
        define = definitions.get(node.op_type) if node.domain in domains else None
        if define is None:
            return None
        body = start(node, imports)
        body.require_opset(first)
        if body.shape is None:
            raise Unwritable("the rank of an operand is not known")
        define(body)
        return body.function()

    return definition
