"""Products of integers in full, also where ONNX Runtime's saturate (x64 without VNNI)."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from relayout.rewrite.unsigned import KERNELS, unsigned_kernels
from relayout.verification.saturation import OPTION, saturates


def settings() -> onnxruntime.SessionOptions:
    """Options of a session that computes products in full, if it optimizes."""
    made = onnxruntime.SessionOptions()
    made.add_session_config_entry(OPTION, "1")
    made.log_severity_level = 4
    return made


def by_default(model: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


SATURATES = saturates(by_default)
EXACT_CPU = pytest.mark.skipif(SATURATES, reason="ONNX Runtime's products of integers saturate on this CPU")


def in_full(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that gives the same without optimizations, too: its kernels of int8 are uint8, where int8 saturates."""
    if not SATURATES or not any((node.domain, node.op_type) in KERNELS for node in model.graph.node):
        return model
    made = ir.from_proto(model)
    return ir.to_proto(made) if unsigned_kernels(made) else model
