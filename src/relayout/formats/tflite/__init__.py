"""TensorFlow Lite models: a checked reader and a literal import to ONNX.

`read(path)` gives an `onnx_ir.Model`. The parts, each on top of the one before it:
`flatbuffer` (bytes -> tables), `schema` and `enums` (the rows), `model` and `loading` (tables -> checked values),
`builder`, `tensors`, `emission` and `operation` (the ONNX graph under construction), `operators/` (one function for
each operator), `importer` (all of it in order).
"""

from relayout.formats.tflite.importing.importer import NOTES, read
from relayout.formats.tflite.importing.registry import coverage

__all__ = ["NOTES", "coverage", "read"]
