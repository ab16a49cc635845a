"""ONNX's own C++ code, asked such that no model can end this process."""

from relayout.isolation.calls import (
    check_model,
    doubt_of_model,
    doubt_of_node,
    infer_node_outputs,
    infer_shapes,
    propagate,
)

__all__ = [
    "check_model",
    "doubt_of_model",
    "doubt_of_node",
    "infer_node_outputs",
    "infer_shapes",
    "propagate",
]
