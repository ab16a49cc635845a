"""Passes over the graph of a model that becomes a `.tflite`, as it was read.

`.tflite` files hold shapes and indices, not what computes them: nodes of small constants are computed, and so are
weights that follow from others. What has no export becomes what the standard defines it by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from relayout.formats.onnx.replacing import Writing
from relayout.formats.onnx.spelling import spell_out
from relayout.formats.tflite.exporting.blocks import folded
from relayout.formats.tflite.exporting.recurrent_operands import drop_zero_states, is_recurrent
from relayout.formats.tflite.exporting.registry import REFUSAL, Key, Unwritable, is_written
from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.graph.domains import MICROSOFT
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE
from relayout.graph.source_names import Names, added, stands_for
from relayout.graph.subgraphs import all_graphs, all_nodes, become

# NonZero as the builtin that lists coordinates row by row, before layouts are chosen.
#
# NonZero(x)  ->  Transpose(tflite:WHERE(Cast<bool>(x)))
#
# The Transpose is a view then, as any other: one behind it cancels out, and one that remains is in the report.


def list_coordinates_first(model: ir.Model, names: Names) -> None:
    """Write each NonZero as the builtin that lists coordinates row by row, in place."""
    for node in list(all_nodes(model.graph)):
        operand = node.inputs[0] if node.op_type == "NonZero" and node.domain in ("", "ai.onnx") else None
        if operand is None or operand.shape is None or operand.dtype is None or not len(operand.shape):
            continue
        assert node.graph is not None
        _Coordinates(node.graph, node, names, model.opset_imports.get("", 1)).run(operand)


class _Coordinates(Writing):
    """A NonZero as a list of coordinates."""

    def run(self, operand: ir.Value) -> None:
        (result,), shape = self.node.outputs, operand.shape
        count = None if result.shape is None else result.shape[1]
        if operand.dtype != ir.DataType.BOOL:
            operand = self.add("Cast", [operand], to=int(ir.DataType.BOOL))
            operand.shape, operand.type = shape, ir.TensorType(ir.DataType.BOOL)
            stands_for(operand, result)
        rows = self.add("WHERE", [operand])
        rows.shape, rows.type = ir.Shape([count, len(shape or ())]), ir.TensorType(ir.DataType.INT64)
        stands_for(rows, result)
        where = rows.producer()
        assert where is not None
        where.domain = DOMAIN
        become(self.node, "", "Transpose", [rows], [ir.AttrInt64s("perm", [1, 0])])
        added(self.node)


DEFINED = frozenset(["CastLike"])
"""Operators with an export of which the definition tells more: a Cast can be computed here."""
STANDARDIZED = frozenset([QUANTIZE, DEQUANTIZE, "GridSample"])
"""Operators of com.microsoft that the standard took over as they are."""
BODIES = "relayout.definition"  # the domain of the standard's definitions while they are spelled out


def name_standard_operators(model: ir.Model) -> None:
    """Give operators of com.microsoft that the standard has, too, the standard's domain, in place.

    Quantizers write theirs for 16 bits, which the standard's have from opset 21 on: a `.tflite` says nothing of opsets.
    """
    for node in all_nodes(model.graph):
        if node.domain == MICROSOFT and node.op_type in STANDARDIZED:
            node.domain = ""


def mark_batch_first(model: ir.Model) -> None:
    """Mark recurrent operators that may take the batch first, in place."""
    if any(map(is_recurrent, all_nodes(model.graph))):
        from relayout.formats.tflite.exporting.operators import recurrent_loop

        recurrent_loop.mark_batch_first(model)


def open_recurrences(
    model: ir.Model,
    names: Names,
    is_looped: Callable[[ir.Node], bool],
    element_bytes: int,
    *,
    steps_are_faster: bool,
    joins_recurrences: bool,
) -> bool:
    """Decide how recurrent operators are written, in place; return whether any has other operands now."""
    if not any(map(is_recurrent, all_nodes(model.graph))):
        return False
    from relayout.formats.tflite.exporting.joined_recurrences import join_recurrences
    from relayout.formats.tflite.exporting.operators.recurrent_loop import mark_loops
    from relayout.formats.tflite.exporting.recurrent_operands import read_last_states

    changed = [drop_zero_states(model), read_last_states(model, names)]
    mark = partial(mark_loops, model, is_looped, element_bytes, steps_are_faster=steps_are_faster)
    mark()
    if joins_recurrences and join_recurrences(model, names):
        mark()
        return True
    return any(changed)


def replace_empty_inputs(model: ir.Model) -> None:
    """Let nodes read a constant in place of an input without elements: what it holds is known."""
    for value in model.graph.inputs:
        shape, kind = value.shape, value.dtype
        if shape is None or kind is None or not value.uses() or value.is_graph_output():
            continue
        if 0 in shape and all(isinstance(dim, int) for dim in shape):
            tensor = ir.tensor(np.zeros(shape.numpy(), kind.numpy()), name=f"{value.name}/empty")
            constant = ir.val(tensor.name, const_value=tensor)
            value.replace_all_uses_with(constant)
            model.graph.register_initializer(constant)


def rank_reductions(model: ir.Model) -> None:
    """Give the result of a reduction over computed axes its rank, where their number tells it."""
    for node in model.graph:
        if node.domain or not node.op_type.startswith("Reduce") or node.outputs[0].shape is not None:
            continue
        operand, axes = (node.inputs[slot] if slot < len(node.inputs) else None for slot in (0, 1))
        if operand is None or operand.shape is None:
            continue
        rank = len(operand.shape)
        if not node.attributes.get_int("keepdims", 1):
            if axes is None or axes.shape is None or not isinstance(count := axes.shape[0], int) or not count:
                continue
            rank -= count
        node.outputs[0].shape = ir.Shape([f"{node.outputs[0].name}.{axis}" for axis in range(rank)])
        node.outputs[0].type = node.outputs[0].type or operand.type


def define(
    model: ir.Model,
    needs_no_definition: Callable[[Key, ir.Node], bool],  # whether a node of an operator needs no definition
) -> bool:
    """Replace operators that have no export by what defines them, in place; return whether there were any."""
    replacements: dict[Any, tuple[ir.Node, str, str, list[ir.Attr]]] = {}
    if any(node.domain == "ai.onnx.ml" for node in _nodes(model)):
        from relayout.formats.tflite.exporting.ml_definitions import raise_opset

        raise_opset(model)
    for node in _nodes(model):
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
        if (is_written(key) and node.op_type not in DEFINED) or needs_no_definition(key, node):
            continue
        try:
            definition = _definition(model, node)
        except Unwritable as refusal:
            node.meta[REFUSAL] = refusal
            continue
        if definition is None:
            continue
        name = f"{node.op_type}.{len(replacements)}"
        definition.domain, definition.name = BODIES, name
        model.functions[definition.identifier()] = definition
        graphs = [each for each in node.attributes.values() if each.type == ir.AttributeType.GRAPH]
        replacements[definition.identifier()] = (node, node.domain, node.op_type, graphs)
        node.domain, node.op_type, node.overload = BODIES, name, ""
        for each in graphs:  # the definition has them in it
            node.attributes.pop(each.name)
    if not replacements:
        return False
    spell_out(model, lambda node: node.domain != BODIES)
    for name, (node, domain, op_type, graphs) in replacements.items():
        model.functions.pop(name, None)
        if node.graph is not None:  # it could not be spelled out
            node.domain, node.op_type = domain, op_type
            node.attributes.update({each.name: each for each in graphs})
    return any(node.graph is None for node, *_ in replacements.values())


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in list(all_graphs(model.graph)):
        yield from list(graph)


def _definition(model: ir.Model, node: ir.Node) -> ir.Function | None:
    """Return the function by which the standard defines an operator, for a node's types and attributes."""
    from relayout.formats.tflite.exporting.attention_definitions import attention_definition_of
    from relayout.formats.tflite.exporting.fused_definitions import fused_definition_of, internal_definition_of
    from relayout.formats.tflite.exporting.ml_definitions import definition_of
    from relayout.formats.tflite.exporting.standard_definitions import standard_definition_of

    fused = (fused_definition_of, internal_definition_of, attention_definition_of)
    for definition in (*fused, definition_of, standard_definition_of):
        if (defined := definition(node, model.opset_imports)) is not None:
            _complete_outputs(defined)
            return ir.serde.deserialize_function(defined)
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, model.opset_imports.get(domain, 1), domain)
    except onnx.defs.SchemaError:
        return None
    for name, attribute in schema.attributes.items():
        if name not in node.attributes and attribute.default_value.type:
            node.attributes[name] = ir.serde.deserialize_attribute(attribute.default_value)
    _forget_heads(node)
    proto = onnx.FunctionProto()
    if schema.has_function:
        proto.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        typed = [None if value is None or value.type is None else value for value in node.inputs]
        types = [b"" if each is None else ir.serde.serialize_value(each).type.SerializeToString() for each in typed]
        proto.ParseFromString(
            schema.get_context_dependent_function(ir.serde.serialize_node(node).SerializeToString(), types)
        )
    if domain and all(each.domain for each in proto.opset_import):  # a preview's says nothing of the standard's version
        proto.opset_import.append(onnx.helper.make_opsetid("", model.opset_imports.get("", 1)))
    _complete_outputs(proto)
    return ir.serde.deserialize_function(proto) if proto.node else None


def _forget_heads(node: ir.Node) -> None:
    """Let an Attention whose heads are an axis say no number of heads: it counts where they are packed alone."""
    queries = node.inputs[0] if node.op_type == "Attention" and not node.domain else None
    if queries is not None and queries.shape is not None and len(queries.shape) == 4:
        for name in ("q_num_heads", "kv_num_heads"):
            node.attributes.pop(name, None)


def _complete_outputs(proto: onnx.FunctionProto) -> None:
    """Let a definition give every output: those that its node does not ask for have no producer."""
    value_names = {name for node in proto.node for name in node.output} | set(proto.input)
    for name in proto.output:
        if name not in value_names:
            proto.node.add(op_type="Identity", input=[proto.input[0]], output=[name])


# Weights in bfloat16 and in floats of 8 or 4 bits, without kernels in LiteRT, as the real numbers that they stand for.
#
# DequantizeLinear(w: FLOAT8E4M3FN, scale)  ->  w': FLOAT


NARROW_FLOATS = tuple(kind for kind in ir.DataType if kind.name.startswith(("BFLOAT16", "FLOAT8", "FLOAT4")))
"""The types of such weights."""


def decode_narrow_floats(model: ir.Model, names: Names) -> None:
    """Replace weights in bfloat16 and in floats of 8 and 4 bits by the real numbers that they stand for, in place."""
    for graph in all_graphs(model.graph):
        for node in list(graph):
            numbers = _decoded(node)
            if numbers is None or node.outputs[0].is_graph_output():
                continue
            (result,) = node.outputs
            constant = ir.val(names.unique(f"{result.name}/decoded"), const_value=numbers)
            numbers.name = constant.name
            graph.register_initializer(constant)
            result.replace_all_uses_with(constant)
            graph.remove(node, safe=True)


def _decoded(node: ir.Node) -> ir.LazyTensor | None:
    """Return the real numbers that a node gives, computed when they are used; None of any other node."""
    if node.domain or node.op_type not in (DEQUANTIZE, "Cast"):
        return None
    value, kind = node.inputs[0], node.outputs[0].dtype
    weights = None if value is None or value.is_graph_input() else value.const_value
    if weights is None or weights.dtype not in NARROW_FLOATS or kind not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return None
    if node.op_type == DEQUANTIZE:
        return folded(node, kind)
    return ir.LazyTensor(lambda: ir.tensor(weights.numpy().astype(kind.numpy())), kind, ir.Shape(weights.shape.numpy()))
