"""Inferred types and shapes of protobuf, given to the values of a graph."""

from __future__ import annotations

from copy import deepcopy

import onnx
import onnx_ir as ir

from relayout.formats.onnx.extent_names import ExtentNames
from relayout.formats.onnx.parts import holds_map
from relayout.formats.onnx.value_shapes import better_shape, is_known_value
from relayout.graph.subgraphs import bodies


def give_inferred(graph: ir.Graph, inferred: onnx.GraphProto, names: ExtentNames) -> None:
    """Give the values of a graph and of its bodies the types and shapes that inference found, in place."""
    types = _Types(names)
    found = {value.name: value.type for value in (*inferred.value_info, *inferred.output)}
    for node in graph:
        for value in node.outputs:
            declared = found.get(value.name or "")
            if declared is not None and not holds_map(declared) and not is_known_value(value):
                types.give(value, declared)
    nested = {node.outputs[0].name: node for node in graph if node.attributes and node.outputs and bodies(node)}
    for proto in inferred.node if nested else ():
        outer = nested.get(proto.output[0]) if proto.output else None
        for attribute in proto.attribute:
            if outer is not None and attribute.HasField("g"):
                body = outer.attributes[attribute.name].as_graph()
                for value, declared in zip(body.inputs, attribute.g.input, strict=True):
                    if value.shape is None:
                        types.give(value, declared.type)
                give_inferred(body, attribute.g, names)


class _Types:
    """Types and shapes as protobuf has them: a graph of thousands of values has few."""

    def __init__(self, names: ExtentNames) -> None:
        self._names = names
        self._known: dict[bytes, tuple[ir.TypeProtocol | None, ir.Shape | None]] = {}

    def give(self, value: ir.Value, declared: onnx.TypeProto) -> None:
        """Give a value a type, if it has none, and a shape, or extents that its own leaves open."""
        key = declared.SerializeToString()
        if key not in self._known:
            self._known[key] = (
                ir.serde.deserialize_type_proto_for_type(declared),
                ir.serde.deserialize_type_proto_for_shape(declared),
            )
        made, shape = self._known[key]
        if value.type is None:  # each value its own: a type can be changed
            plain = type(made) is ir.TensorType
            value.type = ir.TensorType(made.dtype, denotation=made.denotation) if plain and made else deepcopy(made)
        before = value.shape
        value.shape = better_shape(before, None if shape is None else shape.copy(), kept=value.is_graph_output())
        if before is not None and value.shape is not None:
            self._names.learn(before, tuple(value.shape))
