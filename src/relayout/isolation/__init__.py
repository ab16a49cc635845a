"""ONNX's own C++ code, asked such that no model can end this process."""

from relayout.isolation.calls import (
    NativeCrashError,
    check_model,
    doubt_of_model,
    doubt_of_node,
    infer_node_outputs,
    infer_shapes,
    propagate,
)
from relayout.isolation.process import DiedError, Process

__all__ = [
    "DiedError",
    "NativeCrashError",
    "Process",
    "check_model",
    "doubt_of_model",
    "doubt_of_node",
    "infer_node_outputs",
    "infer_shapes",
    "propagate",
]
