"""ONNX files: read safely with weights left on disk, checked, written as a stream and atomically."""

from relayout.formats.onnx.checking import check
from relayout.formats.onnx.parts import to_proto
from relayout.formats.onnx.reading import read
from relayout.formats.onnx.writing import write

__all__ = ["check", "read", "to_proto", "write"]
