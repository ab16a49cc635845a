"""Operators that a target runs as others, before any layout is chosen.

The node becomes the last of them, in place: the value that it gives, and its name, stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir

from relayout.apply.node_changes import operands_of_step
from relayout.formats.onnx.inferring import SHORT, infer_node
from relayout.formats.recognition import was_tflite
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE, unit_of
from relayout.graph.source_names import added, stands_for
from relayout.graph.subgraphs import all_nodes, become
from relayout.layout import Dim
from relayout.lowering.constants import Constants
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Facts, Operator, Permuted, Signature, Step, facts
from relayout.rules.alike import Alike
from relayout.rules.facts import operator_of

# Expands whose readers broadcast by themselves: these read what was expanded.
#
#     m -> Expand -> Div(x, ·)    becomes    m -> Div(x, ·)
#
# Which operators broadcast, and which operands, is what their rules say.

EXPAND = "Expand"


def drop_expand(model: ir.Model) -> dict[str, int]:
    """Let operators read what an Expand reads, in place, where they broadcast it to the same shape.

    Returns:
        `Expand` -> how many operands are no longer expanded before they are read.
    """
    facts, count = Facts(), 0
    for expand in [node for node in all_nodes(model.graph) if (node.op_type, node.domain) == (EXPAND, "")]:
        before = operator_of(model, expand).shape(0)
        for reader, slot in list(expand.outputs[0].uses()):
            operator = operator_of(model, reader)
            if before is not None and _broadcasts(operator, facts.of(operator), slot, before):
                reader.replace_input_with(slot, expand.inputs[0])
                count += 1
    return {EXPAND: count} if count else {}


def _broadcasts(operator: Operator, fact: object, slot: int, shape: Sequence[Dim]) -> bool:
    """Tell whether an operator gives the same with an operand of another shape."""
    if not isinstance(fact, Signature) or not fact.broadcast or (fact.unidirectional and not slot):
        return False
    result, letters = operator.outputs[0], fact.outputs[0] or ()
    aligned = all(each is None or each == letters[len(letters) - len(each) :] for each in fact.inputs)
    shapes = [shape if place == slot else operator.shape(place) for place in range(len(operator.inputs))]
    return aligned and fact.inputs[slot] is not None and result is not None and _broadcast(shapes) == result


def _broadcast(shapes: Sequence[Sequence[Dim] | None]) -> tuple[Dim, ...] | None:
    """Return the shape that operands are broadcast to; None where it is not known."""
    rank = max((len(shape) for shape in shapes if shape is not None), default=0)
    result: list[Dim] = []
    for place in range(-rank, 0):
        extents = {1 if -place > len(shape) else shape[place] for shape in shapes if shape is not None} - {1}
        if len(extents) > 1:
            return None
        result.append(extents.pop() if extents else 1)
    return None if None in shapes else tuple(result)


WORDS_FROM = 21  # the opset from which the standard quantizes to 16 bits


def expand(
    model: ir.Model,
    expansions: Sequence[Expansion],  # of those of an operator the first that fits and gives steps is taken
    among: Sequence[ir.Node] | None = None,  # the nodes to look at; None: all
) -> dict[str, int]:
    """Write operators as those that a target runs in less time, in place.

    Returns:
        Operator -> how many nodes are others now.
    """
    counts: Counter[str] = Counter()
    if was_tflite(model.metadata_props):
        expansions = [expansion for expansion in expansions if expansion.of_tflite]
    named = {expansion.op_type for expansion in expansions}
    nodes = [node for node in (all_nodes(model.graph) if among is None else among) if node.op_type in named]
    if not nodes:
        return {}
    constants = Constants(model)
    fitting = Alike(lambda operator: [each for each in expansions if each.takes(operator)])
    for node in nodes:
        operator = operator_of(model, node)
        step_lists = (each.of(operator, list(map(constants.behind, node.inputs))) for each in fitting(operator))
        steps: Sequence[Step] = next(filter(None, step_lists), ())
        if steps:
            counts[node.op_type] += 1
            _write(constants, node, steps)
    return dict(sorted(counts.items()))


def _write(constants: Constants, node: ir.Node, steps: Sequence[Step]) -> None:
    graph, output, rounded = node.graph, node.outputs[0], _rounded(node, steps)
    assert graph is not None
    value_of: dict[int | str, ir.Value | None] = dict(enumerate(node.inputs))
    stem = node.name or output.name or node.op_type
    for step in steps:
        read = operands_of_step(step, value_of, constants.new, stem)
        attributes = [ir.convenience.convert_attribute(name, value) for name, value in step.attributes.items()]
        if step is steps[-1]:
            become(node, "", step.op_type, read, attributes)
            step_node = node
        else:
            value = value_of[step.name] = ir.Value(name=constants.names.unique(f"{output.name}__{step.name}"))
            stands_for(value, output)
            name = constants.names.unique(f"{stem}/{step.name}")
            step_node = ir.Node("", step.op_type, read, attributes, outputs=[value], name=name)
            _infer(step_node, constants.model.opset_imports.get("", 1))
            step_node.metadata_props.update(node.metadata_props)
            stands_for(step_node, node)
            graph.insert_before(node, step_node)
        if isinstance(facts(operator_of(constants.model, step_node)), Permuted):
            added(step_node)
    for value in rounded:  # it is another number than the source's: it has another name
        stands_for(value, value)
        value.name = constants.names.unique(f"{value.name}/kernel")


def _rounded(node: ir.Node, steps: Sequence[Step]) -> list[ir.Value]:
    """Return the real numbers before the quantizers of a unit, where steps round."""
    if not any(step.op_type in (QUANTIZE, DEQUANTIZE) for step in steps):
        return []
    unit = unit_of(node)
    members = [node] if unit is None else [each for each in unit.members if each.op_type not in (QUANTIZE, DEQUANTIZE)]
    values = [value for each in members for value in each.outputs if not value.is_graph_output()]
    return sorted(values, key=lambda value: value.name or "")


def _infer(node: ir.Node, version: int) -> None:
    """Give what a step gives its type and its shape."""
    read = [value for value in node.inputs if value is not None]
    types = {value.name or "": ir.serde.serialize_value(value).type for value in read}
    known = {value.name or "": value.const_value for value in read if value.const_value is not None}
    data = {name: ir.serde.serialize_tensor(tensor) for name, tensor in known.items() if tensor.size <= SHORT}
    (value,) = node.outputs
    if node.op_type in (QUANTIZE, DEQUANTIZE):
        version = max(version, WORDS_FROM)  # earlier ones infer no type of 16 bits
    type_proto = infer_node(ir.serde.serialize_node(node), types, data, version).get(value.name or "")
    if type_proto is not None:
        value.type = ir.serde.deserialize_type_proto_for_type(type_proto)
        value.shape = ir.serde.deserialize_type_proto_for_shape(type_proto)
