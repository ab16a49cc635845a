"""Random numbers. ONNX's generators draw another stream than TFLite's; what they draw from is the same."""

from __future__ import annotations

from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.slicing import extents_of
from relayout.formats.tflite.registry import Unsupported, operator


