"""Types and shapes that a graph states of its values: what is stated alike is read once.

A graph has far more values than types, and onnx-ir reads a type for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import onnx
import onnx_ir as ir

Types = Mapping[str, tuple[ir.TensorType, ir.Shape | None]]
"""Value -> its type and its shape."""


def take_types(graph: onnx.GraphProto) -> Types:
    """Take out of a graph what it states of values that are tensors, where it states nothing else of them."""
    known: dict[bytes, tuple[ir.TensorType, ir.Shape | None]] = {}
    types, others = {}, []
    for value in graph.value_info:
        kind = value.type
        if value.doc_string or value.metadata_props or not kind.HasField("tensor_type"):
            others.append(value)
            continue
        key = kind.SerializeToString()
        if key not in known:
            tensor = ir.serde.deserialize_type_proto_for_type(kind)
            assert isinstance(tensor, ir.TensorType)
            known[key] = tensor, ir.serde.deserialize_type_proto_for_shape(kind)
        types[value.name] = known[key]
    if types:
        graph.ClearField("value_info")
        graph.value_info.extend(others)
    return types


def give_types(graph: ir.Graph, types: Types) -> None:
    """Give values the types that were taken out of the graph's proto; an input and an output state their own."""
    if not types:
        return
    stated = {*graph.inputs, *graph.outputs}
    for value in chain(graph.initializers.values(), *(node.outputs for node in graph)):
        known = types.get(value.name or "")
        if known is not None and value not in stated:
            tensor, shape = known
            value.type, value.shape = ir.TensorType(tensor.dtype, denotation=tensor.denotation), shape
