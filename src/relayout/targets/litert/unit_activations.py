"""The activations that LiteRT's integer kernels apply, and the bounds of those in a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import ActivationFunctionType
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE, VIEWS, unit_of
from relayout.graph.subgraphs import take_over
from relayout.targets.litert.integer_scales import BYTES, scale_of, stored_reals

# Move Transposes and Reshapes out of quantized units: integers are moved, and the operator runs on integers.
#
#     DequantizeLinear ─ operator ─ Reshape ─ QuantizeLinear    becomes
#     DequantizeLinear ─ operator ─ QuantizeLinear ─ Reshape
#
# An activation behind the view stays with its operator.
#
# A view commutes with a scale for the whole tensor: it moves numbers, and looks at none. Where others read what the
# DequantizeLinear gives, each unit with a view of it gets one of its own.


def move_views_out(graph: ir.Graph) -> None:
    """Move views from between an operator and its QuantizeLinear or DequantizeLinear, in place."""
    for node in filter(_is_view, reversed(list(graph))):
        behind, operator = _only_reader(node), _producer(node)
        if operator is None or operator.op_type == DEQUANTIZE or _only_reader(operator) is not node:
            continue
        activation = behind if behind is not None and behind.op_type in BOUNDS and not behind.domain else None
        quantize = behind if activation is None else _only_reader(activation)
        if quantize is not None and _has_one_scale(quantize, QUANTIZE):
            view = node if activation is None else _exchange(graph, node, activation)
            _exchange(graph, view, quantize)
    for node in list(graph):
        dequantize = _producer(node)
        if not _is_view(node) or dequantize is None or not _has_one_scale(dequantize, DEQUANTIZE):
            continue
        reads_activation = dequantize.inputs[0] is not None and dequantize.inputs[0].const_value is None
        quantizes = any(use.node.op_type == QUANTIZE for use in node.outputs[0].uses())
        if reads_activation and not quantizes and (_only_reader(dequantize) is node or unit_of(node) is not None):
            _exchange(graph, dequantize, node)


def _exchange(graph: ir.Graph, first: ir.Node, second: ir.Node) -> ir.Node:
    """Let the second of two nodes run before the first, which stays for who else reads its result.

    Returns:
        What runs in place of the first now.
    """
    source, result = first.inputs[0], second.outputs[0]
    assert source is not None
    before = ir.Node(second.domain, second.op_type, [source, *second.inputs[1:]], second.attributes.values())
    inner = before.outputs[0]
    behind = ir.Node(first.domain, first.op_type, [inner, *first.inputs[1:]], first.attributes.values())
    before.name, behind.name = second.name, first.name
    is_view = second.op_type in VIEWS
    inner.name = f"{result.name}/exchanged"
    inner.shape, inner.type = (result.shape, source.type) if is_view else (source.shape, result.type)
    graph.insert_before(second, [before, behind])
    take_over(behind.outputs[0], result)
    graph.remove(second, safe=True)
    if not first.outputs[0].uses() and not first.outputs[0].is_graph_output():
        graph.remove(first, safe=True)
    return behind


def _is_view(node: ir.Node) -> bool:
    return node.op_type in VIEWS and not node.domain


def _producer(node: ir.Node) -> ir.Node | None:
    return None if not node.inputs or node.inputs[0] is None else node.inputs[0].producer()


def _only_reader(node: ir.Node) -> ir.Node | None:
    """Return the node that alone reads the only result of a node, as its first operand."""
    if len(node.outputs) != 1 or node.outputs[0].is_graph_output():
        return None
    uses = tuple(node.outputs[0].uses())
    return uses[0].node if len(uses) == 1 and uses[0].idx == 0 else None


def _has_one_scale(node: ir.Node, op_type: str) -> bool:
    """Tell whether a node changes between integers and numbers by one constant scale."""
    scale = node.inputs[1] if node.op_type == op_type and not node.domain and len(node.inputs) > 1 else None
    return scale is not None and scale.const_value is not None and scale.const_value.size == 1


def fused_activation(bounds: tuple[float, float], quantize: ir.Node) -> ActivationFunctionType | None:
    """Return the activation that keeps a result in bounds; NONE where the range of its integers does; None: no one."""
    scale = scale_of(quantize)
    if scale is None or not scale.is_one:
        return None
    least, most = (-128, 127) if scale.dtype in BYTES else (-32768, 32767)
    step, zero = float(scale.scale[0]), int(scale.zero[0])
    low, high = (bound if np.isinf(bound) else np.rint(bound / step) + zero for bound in bounds)
    if low <= least and high >= most:
        return ActivationFunctionType.NONE
    for kind, (floor, ceiling) in CLAMPS.items():
        if bounds[0] == floor and (bounds[1] == ceiling or (high >= most and np.isinf(ceiling))):
            return kind
    return None


def clamp_bounds(node: ir.Node) -> tuple[float, float] | None:
    """Return the least and the most that a Clip gives; None where they are computed."""
    found: list[float] = []
    for slot, name, default in ((1, "min", -np.inf), (2, "max", np.inf)):
        value = node.inputs[slot] if slot < len(node.inputs) else None
        array = stored_reals(value)
        if value is not None and array is None:
            return None
        found.append(node.attributes.get_float(name, default) if array is None else float(array.reshape(-1)[0]))
    return found[0], found[1]


BOUNDS: Mapping[str, Callable[[ir.Node], tuple[float, float] | None]] = {
    "Relu": lambda _: (0.0, float("inf")),
    "Clip": clamp_bounds,
}
"""Activation -> the bounds that it keeps its operand in; None where they are computed."""
CLAMPS: Mapping[ActivationFunctionType, tuple[float, float]] = {
    ActivationFunctionType.RELU: (0.0, float("inf")),
    ActivationFunctionType.RELU6: (0.0, 6.0),
    ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}
"""Activations that kernels of integers apply, and their bounds."""
