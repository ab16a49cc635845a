"""Values in the order of axes that a file has them in, and back: new nodes and constants, which no graph has yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.variables import ValuesByTensor
from relayout.graph.subgraphs import all_nodes
from relayout.layout import Extent
from relayout.layout import perm as perms
from relayout.layout.extents import product
from relayout.layout.perm import transposes_of_few_axes
from relayout.layout.stored_as import ELEMENT_BITS, Holds, restore

LARGEST_RANK = 6  # axes up to which every kernel takes a TRANSPOSE


def transposes_of_graph(model: ir.Model) -> tuple[list[int], list[int]]:
    """Return the bytes of each Transpose of a graph that moves data, and of each further step that one takes.

    Open extents count as 1.
    """
    sizes, further = [], []
    for node in all_nodes(model.graph):
        value = node.inputs[0] if node.op_type == "Transpose" and not node.domain and node.inputs else None
        if value is None or value.shape is None or (value.const_value is not None and not value.is_graph_input()):
            continue
        dims = [dim if isinstance(dim, int) else str(dim) for dim in value.shape]
        order = node.attributes.get_ints("perm", tuple(range(len(dims)))[::-1])
        bits = int(value.meta.get(ELEMENT_BITS) or (value.dtype or ir.DataType.FLOAT).bitwidth)
        size = product(map(Extent.of, dims)).number * bits // 8
        steps = len(list(transposes_of_few_axes(dims, order, LARGEST_RANK)))
        sizes += [size] * min(steps, 1)
        further += [size] * (steps - 1)
    return sizes, further


IN_FILE = re.compile(r"(/(as_in_file|stored)_*)+$")  # the ending of a name that an export gave


class FileOrder:
    """New nodes and constants, by which a value of the graph becomes a tensor as the file has it, or the other way."""

    def __init__(
        self,
        values: ValuesByTensor,  # those of the graph, whose names are taken
    ) -> None:
        self.values = values
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []

    def constant(self, array: NDArray[Any], name: str) -> ir.Value:
        """Return a new constant."""
        tensor = ir.Tensor(array, name=self.values.unique(name))
        return self._constant(tensor)

    def as_in_file(self, value: ir.Value, source_value: Holds) -> ir.Value | None:
        """Return what a value holds in the order of the file; None where several of its extents are not known."""
        # The name has the ending once, also if the file that was read has it.
        constant, name = value.const_value, f"{IN_FILE.sub('', source_value.name)}/as_in_file"
        if constant is None or value.is_graph_input():
            way = (
                perms.permute(source_value.perm, source_value.factors),
                perms.inverse(source_value.perm),
                source_value.shape,
            )
            return self._moved(value, *way, name)
        if value.shape is not None and source_value == Holds.as_is(source_value.name, value.shape):
            return value
        tensor = ir.LazyTensor(
            lambda: ir.Tensor(np.ascontiguousarray(restore(constant.numpy(), source_value))),
            dtype=constant.dtype,
            shape=ir.Shape(source_value.shape),
            name=self.values.unique(name),
        )
        return self._constant(tensor)

    def as_stored(self, file_value: ir.Value, value: ir.Value, source_value: Holds) -> ir.Value | None:
        """Return what a value is, from a new one that holds the same in the order of the file.

        None where the extents are not known. The new one gets its type and its extents.
        """
        dims = _dims_of_source(value, source_value)
        if dims is None or value.shape is None:
            return None
        file_value.shape, file_value.type = ir.Shape(dims), value.type
        stored = [dim if isinstance(dim, int) else -1 for dim in value.shape]
        return self._moved(
            file_value, source_value.factors, source_value.perm, stored, f"{IN_FILE.sub('', source_value.name)}/stored"
        )

    def _constant(self, tensor: ir.TensorProtocol) -> ir.Value:
        value = ir.val(tensor.name, const_value=tensor)
        self.constants.append(value)
        return value

    def _moved(
        self, value: ir.Value, before: Sequence[int], perm: Sequence[int], after: Sequence[int], name: str
    ) -> ir.Value | None:
        """Return a value that is reshaped, transposed and reshaped; None where a shape has several unknown extents."""
        first = self._reshaped(value, before, name)
        if first is None or first.shape is None:
            return None
        if not perms.is_identity(perm):
            node = ir.Node("", "Transpose", [first], [ir.AttrInt64s("perm", list(perm))])
            first = self._add(node, perms.permute(perm, list(first.shape)), value, name)
        return self._reshaped(first, after, name)

    def _reshaped(self, value: ir.Value, shape: Sequence[int], name: str) -> ir.Value | None:
        assert value.shape is not None
        unknown = [dim for dim in value.shape if not isinstance(dim, int)]
        if [dim if isinstance(dim, int) else -1 for dim in value.shape] == list(shape):
            return value
        if len(unknown) > 1 or list(shape).count(-1) > 1:
            return None
        target = self.constant(np.array(shape, np.int64), f"{name}/shape")
        return self._add(ir.Node("", "Reshape", [value, target]), _filled(shape, unknown), value, name)

    def _add(self, node: ir.Node, dims: Sequence[int | ir.SymbolicDim], like: ir.Value, name: str) -> ir.Value:
        value = node.outputs[0]
        value.name, value.shape, value.type = self.values.unique(name), ir.Shape(dims), like.type
        self.nodes.append(node)
        return value


def _filled(shape: Sequence[int], unknown: Sequence[int | ir.SymbolicDim]) -> list[int | ir.SymbolicDim]:
    return [unknown[0] if dim == -1 and unknown else dim for dim in shape]


def _dims_of_source(value: ir.Value, source_value: Holds) -> list[int | ir.SymbolicDim] | None:
    """Return the extents of what a value holds, in the source's order; None where they are not known by name."""
    if value.shape is None:
        return None
    unknown = [dim for dim in value.shape if not isinstance(dim, int)]
    if len(unknown) < 2:
        return _filled(source_value.shape, unknown)
    plain = len(source_value.shape) == len(source_value.factors) == len(value.shape)
    return list(perms.permute(perms.inverse(source_value.perm), list(value.shape))) if plain else None
