"""An activation that a quantized operator's kernel does not apply is a unit of its own.

    ConvTranspose ─ Relu ─ QuantizeLinear    becomes
    ConvTranspose ─ QuantizeLinear ─ DequantizeLinear ─ Relu ─ QuantizeLinear

The scale is the same, so the numbers are. TRANSPOSE_CONV could apply it, but the integer kernels of TensorFlow Lite
Micro leave it out. So it does where it did in the `.tflite` that a model was, and the target is LiteRT.
"""

import onnx_ir as ir

from relayout.formats.tflite.container.enums import ActivationFunctionType
from relayout.graph.quantized_unit import unit_of
from relayout.targets.litert.insertion import Insertion
from relayout.targets.litert.integer_scales import BYTES, QUANTIZING
from relayout.targets.litert.quantized_units import ROWS, applies
from relayout.targets.litert.unit_activations import BOUNDS, fused_activation


def separate_activations(graph: ir.Graph, *, as_source: bool) -> None:
    """Quantize what is between an operator and an activation that it does not apply, in place.

    Args:
        graph: its layouts are chosen.
        as_source: whether one builtin of a `.tflite` that was both is one again.
    """
    for node in list(graph):
        value = node.inputs[0] if node.op_type in BOUNDS and not node.domain else None
        operator = None if value is None else value.producer()
        readers = [use.node for use in node.outputs[0].uses()]
        if value is None or operator is None or operator.op_type not in ROWS or len(readers) != 1:
            continue
        unit = unit_of(operator)
        if unit is not None and node in unit.members and _stands_alone(operator, node, readers[0], as_source):
            _quantize_before(graph, node, value, readers[0])


def _stands_alone(operator: ir.Node, activation: ir.Node, quantize: ir.Node, as_source: bool) -> bool:
    """Tell whether a kernel of integers computes an activation, and not with the operator before it."""
    bounds = BOUNDS[activation.op_type](activation)
    if bounds is None or quantize.op_type not in QUANTIZING or quantize.domain:
        return False
    fused = fused_activation(bounds, quantize)
    has_kernel = fused == ActivationFunctionType.RELU or quantize.outputs[0].dtype in BYTES
    return fused is not None and has_kernel and not applies(operator, fused, activation if as_source else None)


def _quantize_before(graph: ir.Graph, node: ir.Node, value: ir.Value, quantize: ir.Node) -> None:
    """Let a node read a value as the integers that a QuantizeLinear behind it gives."""
    before = Insertion(graph, node)
    node.replace_input_with(0, before.quantized(value, quantize.inputs[1:], quantize.outputs[0].type))
