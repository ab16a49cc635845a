"""The hint at ONNX Runtime's own target that a conversion without a target prints."""

from __future__ import annotations

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes

QUANTIZED = frozenset(("DequantizeLinear",))
FASTER = (
    "The result runs in any ONNX runtime. For ONNX Runtime's CPU alone add --target onnxruntime-cpu: quantized models"
    " then take as little as half the time."
)


def hint(model: ir.Model) -> str:
    """Return what to say of a result that ONNX Runtime's CPU would run faster if it was made for it; else nothing."""
    for_any = not any(domain.startswith("com.microsoft") for domain in model.opset_imports)
    return FASTER if for_any and any(node.op_type in QUANTIZED for node in all_nodes(model.graph)) else ""
