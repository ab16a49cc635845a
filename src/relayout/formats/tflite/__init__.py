"""TensorFlow Lite models: a checked reader and a literal import to ONNX.

`read(path)` gives an `onnx_ir.Model`. The parts, each on top of the one before it:
`flatbuffer` (bytes -> tables), `schema` and `enums` (the rows), `model` and `loading` (tables -> checked values),
`builder`, `tensors`, `emission` and `operation` (the ONNX graph under construction), `operators/` (one function for
each operator), `importer` (all of it in order).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relayout.lazy_exports import loaded_later

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.importer import read

__all__ = ["read"]

__getattr__ = loaded_later(__name__, {"read": "relayout.formats.tflite.importing.importer"})
