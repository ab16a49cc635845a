"""Nodes that are put before another one, in a graph whose layouts are chosen."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE
from relayout.graph.subgraphs import take_over

OPEN = -1  # an extent that is known only at run time


def shape_from(dims: Sequence[int]) -> ir.Shape:
    """Return a shape of which some extents may be OPEN."""
    return ir.Shape([None if extent == OPEN else extent for extent in dims])


def integers_of(node: ir.Node, slot: int) -> list[int] | None:
    """Return the integers of a list that a node reads; None where it is absent or computed."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    tensor = None if value is None or value.is_graph_input() else value.const_value
    return None if tensor is None else tensor.numpy().tolist()


class Insertion(NamedTuple):
    """A place in a graph: before a node."""

    graph: ir.Graph
    node: ir.Node  # the node that the others are put before

    def constant(self, array: NDArray[Any], name: str) -> ir.Value:
        """Add an initializer; a name that is taken gets a longer one."""
        while name in self.graph.initializers:
            name = f"{name}/other"
        value = ir.val(name, const_value=ir.Tensor(array, name=name))
        self.graph.register_initializer(value)
        return value

    def add(
        self,
        op_type: str,  # the operator
        inputs: Sequence[ir.Value | None],  # what it reads
        shape: ir.Shape | None,  # the result's
        kind: ir.TypeProtocol | None,  # the result's type
        attributes: Mapping[str, Any] | None = None,  # the operator's
        *,
        domain: str = "",  # the operator's
        name: str = "",  # the result's; "": one after the first operand
    ) -> ir.Value:
        """Add a node, and return its only result."""
        node = ir.node(op_type, inputs, attributes or {}, domain=domain)
        (result,) = node.outputs
        result.name = name or f"{'' if inputs[0] is None else inputs[0].name}/{op_type.lower()}"
        result.shape, result.type = shape, kind
        self.graph.insert_before(self.node, node)
        return result

    def reshaped(self, value: ir.Value, dims: Sequence[int], name: str) -> ir.Value:
        """Add a Reshape."""
        shape = self.constant(np.array(dims, np.int64), f"{name}/shape")
        return self.add("Reshape", [value, shape], shape_from(dims), value.type, name=name)

    # With attributes, as in old opsets: what is exported may have them in any.

    def part(self, value: ir.Value, bounds: Mapping[int, tuple[int, int]], name: str) -> ir.Value:
        """Add a Slice: axis -> its first element, and the one behind its last."""
        starts, ends = zip(*bounds.values(), strict=True)
        dims = [*(value.shape or ())]
        for axis, (begin, end) in bounds.items():
            dims[axis] = end - begin
        attributes = {"starts": [*starts], "ends": [*ends], "axes": [*bounds]}
        return self.add("Slice", [value], ir.Shape(dims), value.type, attributes, name=name)

    def bordered(self, value: ir.Value, sides: Mapping[int, tuple[int, int]], name: str) -> ir.Value:
        """Add a Pad: axis -> zeros before it and behind it."""
        dims = [*(value.shape or ())]
        pads = [sides.get(axis, (0, 0))[side] for side in (0, 1) for axis in range(len(dims))]
        for axis, side in sides.items():
            extent = dims[axis]
            dims[axis] = extent + sum(side) if isinstance(extent, int) else None
        return self.add("Pad", [value], ir.Shape(dims), value.type, {"pads": pads}, name=name)

    def quantized(
        self,
        value: ir.Value,  # real numbers
        parameters: Sequence[ir.Value | None],  # their scale and zero point
        integers: ir.TypeProtocol | None,  # the type of the integers
    ) -> ir.Value:
        """Add a QuantizeLinear and a DequantizeLinear."""
        between = self.add(QUANTIZE, [value, *parameters], value.shape, integers)
        return self.add(DEQUANTIZE, [between, *parameters], value.shape, value.type)

    def replace(self, result: ir.Value) -> None:
        """Let a value be what the node gives, and remove the node."""
        take_over(result, self.node.outputs[0])
        self.graph.remove(self.node, safe=True)
