"""ONNX Runtime's CPU provider on x64 without VNNI, where products of uint8 by int8 saturate.

MLAS multiplies uint8 by int8 with `vpmaddubsw` there, which adds two products up in 16 bits: 255 * 127 + 255 * 127 is
32767. Of uint8 by uint8 it is exact (ONNX Runtime, "Quantize ONNX Models", "When and why do I need to try U8U8?").
The session option `session.x64quantprecision` stores kernels so when it loads a model, but not those of
`com.microsoft.QLinearConv` with channels last (seen by running 1.32: `tests/verification/test_saturation.py`).
"""

from __future__ import annotations

from dataclasses import replace

from relayout.targets.onnxruntime import cpu as plain
from relayout.targets.onnxruntime.import_list import without_vnni

TARGET = replace(
    plain.TARGET,
    name="onnxruntime-cpu-avx2",
    line="ONNX Runtime's CPU provider on x64 without VNNI: as onnxruntime-cpu, kernels of uint8, which do not saturate",
    lowering=("int8-weights-to-uint8", *plain.TARGET.lowering),
    tflite=without_vnni,
)
