"""Rewrites of a graph before layouts are chosen for a `.tflite`, until nothing changes any more.

0. What a builtin was spelled out in is that builtin again, and what was a resource variable is one.
1. Constants of few bits are signed integers of 4 bits.
2. A node of small constants is computed: `.tflite` files hold shapes and indices, not what computes them. So are
   weights that follow from others.
3. An If whose condition is constant is its branch.
4. Sequences are the tensors that they hold.
5. A recurrent operator of open length is a Scan; a Scan is a Loop, and a short Loop is its body again and again.
6. An operator that has no export becomes the body by which the standard defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from relayout.formats.onnx.spelling import spell_out
from relayout.formats.tflite.exporting.blocks import sign_few_bits
from relayout.formats.tflite.exporting.coordinates_first import list_coordinates_first
from relayout.formats.tflite.exporting.folding import bytes_of_weights, fold, fold_weights
from relayout.formats.tflite.exporting.loops import inline_sequences, write_out
from relayout.formats.tflite.exporting.recurrent_operands import drop_zero_states, is_recurrent
from relayout.formats.tflite.exporting.registry import is_written
from relayout.formats.tflite.exporting.restoring import restore_builtins, restore_variables
from relayout.formats.tflite.spelled_out import Builtin
from relayout.formats.tflite.states import RESTORED
from relayout.graph.domains import MICROSOFT
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE
from relayout.graph.subgraphs import all_graphs, all_nodes
from relayout.graph.value_names import Names

ROUNDS = 12
DEFINED = frozenset(["CastLike"])
"""Operators with an export of which the definition tells more: a Cast can be computed here."""
STANDARDIZED = frozenset([QUANTIZE, DEQUANTIZE, "GridSample"])
"""Operators of com.microsoft that the standard took over as they are."""
BODIES = "relayout.definition"
"""The domain of the standard's definitions while they are spelled out."""


def prepare(
    model: ir.Model,
    complete: Callable[[ir.Model], None],
    *,
    from_tflite: bool = False,
    is_restored: Callable[[Builtin], bool] = lambda _: True,
    is_decomposed: Callable[[ir.Node], bool] = lambda _: False,
    is_looped: Callable[[ir.Node], bool] = lambda _: True,
) -> None:
    """Rewrite a model, in place.

    Args:
        model: the model.
        complete: what infers types and shapes of what is new.
        from_tflite: whether it was just read from a `.tflite`.
        is_restored: whether the result may have a builtin that nodes say that they were.
        is_decomposed: whether a node becomes others later, before layouts are chosen.
        is_looped: whether a recurrent node of many steps may be a loop.
    """
    name_standard_operators(model)
    restore_builtins(model, trusted=from_tflite, is_restored=is_restored)
    restore_variables(model)
    _replace_empty_inputs(model.graph)
    sign_few_bits(model, _names(model))
    size = bytes_of_weights(model)
    for _ in range(ROUNDS):
        _rank_reductions(model.graph)
        changed = [
            inline_sequences(model, names := _names(model)),
            fold(model, size),
            fold_weights(model, size),
            branch(model),
            _recurrences(model, names, is_looped),
            write_out(model, names),
            define(model, is_decomposed),
        ]
        if not any(changed):
            break
        complete(model)
    _remove_unread(model.graph)
    list_coordinates_first(model, _names(model))
    if _has_recurrences(model):
        from relayout.formats.tflite.exporting.operators.sequence_lstm import mark_batch_first

        mark_batch_first(model)


def name_standard_operators(model: ir.Model) -> None:
    """Give operators of com.microsoft that the standard has, too, the standard's domain, in place.

    Quantizers write theirs for 16 bits, which the standard's have from opset 21 on: a `.tflite` says nothing of opsets.
    """
    for node in all_nodes(model.graph):
        if node.domain == MICROSOFT and node.op_type in STANDARDIZED:
            node.domain = ""


def _has_recurrences(model: ir.Model) -> bool:
    return any(map(is_recurrent, all_nodes(model.graph)))


def _recurrences(model: ir.Model, names: Names, is_looped: Callable[[ir.Node], bool]) -> bool:
    """Decide how recurrent operators are written, in place; return whether any is a Scan now."""
    if not _has_recurrences(model):
        return False
    from relayout.formats.tflite.exporting.open_recurrences import scan_open_recurrences
    from relayout.formats.tflite.exporting.operators.recurrent_loop import mark_loops
    from relayout.formats.tflite.exporting.rows_without_steps import clear_states_without_steps

    changed = [drop_zero_states(model), clear_states_without_steps(model, names)]
    mark_loops(model, is_looped)
    return scan_open_recurrences(model, names) or any(changed)


def _replace_empty_inputs(graph: ir.Graph) -> None:
    """Let nodes read a constant in place of an input without elements: what it holds is known."""
    for value in graph.inputs:
        shape, kind = value.shape, value.dtype
        if shape is None or kind is None or not value.uses() or value.is_graph_output():
            continue
        if 0 in shape and all(isinstance(dim, int) for dim in shape):
            tensor = ir.tensor(np.zeros(shape.numpy(), kind.numpy()), name=f"{value.name}/empty")
            made = ir.Value(name=tensor.name, shape=shape, type=ir.TensorType(kind), const_value=tensor)
            value.replace_all_uses_with(made)
            graph.register_initializer(made)


def _rank_reductions(graph: ir.Graph) -> None:
    """Give the result of a reduction over computed axes its rank, where their number tells it."""
    for node in graph:
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


def branch(model: ir.Model) -> bool:
    """Replace each If whose condition is constant by its branch, in place; return whether there were any."""
    found = False
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            condition = node.inputs[0] if node.op_type == "If" and not node.domain and node.inputs else None
            if condition is None or condition.const_value is None or condition.is_graph_input():
                continue
            chosen = "then_branch" if condition.const_value.numpy().reshape(-1)[0] else "else_branch"
            _inline(graph, node, node.attributes[chosen].as_graph(), _names(model))
            found = True
    return found


def _names(model: ir.Model) -> Names:
    graphs = list(all_graphs(model.graph))
    values = (
        value
        for graph in graphs
        for value in (*graph.inputs, *graph.initializers.values(), *(out for node in graph for out in node.outputs))
    )
    return Names({value.name for value in values if value.name})


def _inline(graph: ir.Graph, node: ir.Node, body: ir.Graph, names: Names) -> None:
    """Put the nodes of a branch in the place of its If."""
    outputs = list(body.outputs)
    body.outputs.clear()
    for value in list(body.initializers.values()):
        body.initializers.pop(value.name or "")
        value.name = names.unique(f"{node.name or 'If'}/{value.name}")
        graph.register_initializer(value)
    nodes = list(body)
    for each in nodes:
        for value in each.outputs:
            if value.name:
                value.name = names.unique(f"{node.name or 'If'}/{value.name}")
    body.remove(nodes)
    graph.insert_before(node, nodes)
    for given, value in zip(node.outputs, outputs, strict=True):
        copied = ir.Node("", "Identity", [value], name=f"{node.name or 'If'}/Identity")
        copied.outputs[0].shape, copied.outputs[0].type = value.shape or given.shape, value.type or given.type
        graph.insert_before(node, copied)
        name, given.name = given.name, None
        given.replace_all_uses_with(copied.outputs[0], replace_graph_outputs=True)
        copied.outputs[0].name = name
    graph.remove(node, safe=True)


def define(model: ir.Model, is_decomposed: Callable[[ir.Node], bool]) -> bool:
    """Replace operators that have no export by what defines them, in place; return whether there were any.

    Args:
        model: the model.
        is_decomposed: whether a node becomes others later.
    """
    found: dict[Any, tuple[ir.Node, str, str]] = {}
    for node in _nodes(model):
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
        if (is_written(key) and node.op_type not in DEFINED) or is_decomposed(node):
            continue
        definition = _definition(model, node)
        if definition is None:
            continue
        name = f"{node.op_type}.{len(found)}"
        definition.domain, definition.name = BODIES, name
        model.functions[definition.identifier()] = definition
        found[definition.identifier()] = (node, node.domain, node.op_type)
        node.domain, node.op_type, node.overload = BODIES, name, ""
    if not found:
        return False
    spell_out(model, lambda node: node.domain != BODIES)
    for name, (node, domain, op_type) in found.items():
        model.functions.pop(name, None)
        if node.graph is not None:  # it could not be spelled out
            node.domain, node.op_type = domain, op_type
    return any(node.graph is None for node, _, _ in found.values())


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in list(all_graphs(model.graph)):
        yield from list(graph)


def _definition(model: ir.Model, node: ir.Node) -> ir.Function | None:
    """Return the function by which the standard defines an operator, for a node's types and attributes."""
    if node.domain:  # of another domain: whoever has none needs no definitions of theirs
        from relayout.formats.tflite.exporting import fused_definitions, ml_definitions

        for known in (fused_definitions, ml_definitions):
            if (defined := known.definition_of(node, model.opset_imports)) is not None:
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
        types = [b"" if value is None else _type_of(value) for value in node.inputs]
        proto.ParseFromString(
            schema.get_context_dependent_function(ir.serde.serialize_node(node).SerializeToString(), types)
        )
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
    given = {name for node in proto.node for name in node.output} | set(proto.input)
    for name in proto.output:
        if name not in given:
            proto.node.add(op_type="Identity", input=[proto.input[0]], output=[name])


def _type_of(value: ir.Value) -> bytes:
    found = onnx.TypeProto()
    if value.type is not None:
        ir.serde.serialize_type_into(found, value.type)
        if value.shape is not None:
            ir.serde.serialize_shape_into(found, value.shape)
    content: bytes = found.SerializeToString()
    return content


def _remove_unread(graph: ir.Graph) -> None:
    """Remove nodes whose results nobody reads."""
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs) and RESTORED not in node.meta:
            graph.remove(node, safe=True)
