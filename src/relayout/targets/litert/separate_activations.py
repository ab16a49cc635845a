"""A Relu behind a quantized transposed convolution is a unit of its own.

    ConvTranspose ─ Relu ─ QuantizeLinear    becomes
    ConvTranspose ─ QuantizeLinear ─ DequantizeLinear ─ Relu ─ QuantizeLinear

The scale is the same, so the numbers are. TRANSPOSE_CONV could apply the Relu, but the integer kernels of TensorFlow
Lite Micro leave it out.
"""

import onnx_ir as ir

from relayout.graph.quantized_unit import DEQUANTIZE
from relayout.targets.litert.integer_scales import QUANTIZING, scale_of

SEPARATE = frozenset({"ConvTranspose"})
"""Operators whose integer kernels leave the activation to another operator."""
ACTIVATIONS = frozenset({"Relu"})


def separate_activations(graph: ir.Graph) -> None:
    """Quantize what is between such an operator and its activation, in place."""
    for node in list(graph):
        value = node.inputs[0] if node.op_type in ACTIVATIONS and not node.domain else None
        before = None if value is None else value.producer()
        if value is None or before is None or before.op_type not in SEPARATE or len(value.uses()) != 1:
            continue
        readers = [use.node for use in node.outputs[0].uses()]
        quantize = readers[0] if len(readers) == 1 and readers[0].op_type in QUANTIZING else None
        scale = None if quantize is None else scale_of(quantize)
        if quantize is None or scale is None or not scale.is_one or value.is_graph_output():
            continue
        first = ir.Node("", quantize.op_type, [value, *quantize.inputs[1:]], quantize.attributes.values())
        again = ir.Node("", DEQUANTIZE, [first.outputs[0], *quantize.inputs[1:]])
        for made, like in ((first, quantize), (again, before)):
            result, known = made.outputs[0], like.outputs[0]
            result.name = f"{value.name}/{made.op_type.lower()}"
            result.shape, result.type = value.shape, known.type
        graph.insert_before(node, [first, again])
        node.replace_input_with(0, again.outputs[0])
