"""ArgMax and ArgMin read integers, which lie in the order of the numbers that they mean.

    DequantizeLinear ─ ArgMax    becomes    ArgMax

Others that read the numbers still do.
"""

import onnx_ir as ir

from relayout.targets.litert.integer_scales import BYTES, DEQUANTIZING, scale_of

ORDERED = frozenset({"ArgMax", "ArgMin"})
"""Operators whose results depend on the order of elements alone, and whose kernels take bytes."""


def read_integers(graph: ir.Graph) -> None:
    """Let operators that compare the elements of one operand read its integers, in place."""
    for node in graph:
        value = node.inputs[0] if node.op_type in ORDERED and not node.domain else None
        dequantize = None if value is None else value.producer()
        if dequantize is None or dequantize.op_type not in DEQUANTIZING or dequantize.domain:
            continue
        scale = scale_of(dequantize)
        if scale is not None and scale.is_one and scale.dtype in BYTES and scale.scale[0] > 0:
            node.replace_input_with(0, dequantize.inputs[0])
