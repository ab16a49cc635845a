"""Products of integers in full, also where ONNX Runtime's saturate (x64 without VNNI)."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from relayout.lowering.int8_weights_to_uint8 import KERNELS, unsigned_kernels
from relayout.verification.ort import saturates


def by_default(model: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


SATURATES = saturates(by_default)
EXACT_CPU = pytest.mark.skipif(SATURATES, reason="ONNX Runtime's products of integers saturate on this CPU")

NAMES = {name for _, name in KERNELS}


def in_full(model: onnx.ModelProto | bytes) -> bytes:
    """The bytes of a model that gives what it means: kernels of int8 are uint8, where products of int8 saturate."""
    proto = onnx.load_from_string(model) if SATURATES and isinstance(model, bytes) else model
    if not SATURATES or isinstance(proto, bytes):
        return model if isinstance(model, bytes) else model.SerializeToString()
    if not any(node.op_type in NAMES for node in proto.graph.node):
        return proto.SerializeToString()
    made = ir.from_proto(proto)
    return (ir.to_proto(made) if unsigned_kernels(made) else proto).SerializeToString()
