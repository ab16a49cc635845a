"""What the layout engine expects of a model and a file may leave out: types, shapes, constants as initializers."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from relayout.formats.onnx.checking import without_weights


def lift_constants(model: ir.Model) -> None:
    """Make the outputs of Constant nodes initializers, in place: a constant is stored as its readers want it."""
    if any(node.op_type == "Constant" for node in model.graph.all_nodes()):
        from onnx_ir.passes.common import LiftConstantsToInitializersPass

        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)


def complete_shapes(model: ir.Model) -> None:
    """Give every value the type and shape that ONNX infers for it, in place; those that a file states stay.

    Nothing is done where all values have both. What cannot be inferred stays unknown.
    """
    if all(_is_known(value) for node in model.graph.all_nodes() for value in node.outputs):
        return
    try:
        light = without_weights(model)
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except Exception:  # onnx raises types of its own; what is wrong is said when the result is checked
        return
    _complete(model.graph, inferred.graph)


def _is_known(value: ir.Value) -> bool:
    return value.type is not None and value.shape is not None


def _complete(graph: ir.Graph, inferred: onnx.GraphProto) -> None:
    found = {value.name: value.type for value in (*inferred.value_info, *inferred.output)}
    for node, proto in zip(graph, inferred.node, strict=True):
        for value in node.outputs:
            declared = found.get(value.name or "")
            if declared is None or _is_known(value):
                continue
            known = ir.serde.deserialize_type_proto_for_type(declared)
            value.type = value.type or known
            value.shape = value.shape or ir.serde.deserialize_type_proto_for_shape(declared)
        for attribute in proto.attribute:
            if attribute.HasField("g"):
                _complete(node.attributes[attribute.name].as_graph(), attribute.g)
