"""ONNX files: read safely with weights left on disk, checked, written as a stream and atomically."""

from relayout.formats.onnx.atomic import SOURCES, identity, refuse_sources, write_text
from relayout.formats.onnx.calls import CALLS
from relayout.formats.onnx.checking import check
from relayout.formats.onnx.completing import complete, lift_constants
from relayout.formats.onnx.cutting import cut
from relayout.formats.onnx.parts import CONTRADICTED, SILENT, to_proto
from relayout.formats.onnx.reading import EXTERNAL_DATA, read
from relayout.formats.onnx.restoring import restore_calls
from relayout.formats.onnx.spelling import spell_out
from relayout.formats.onnx.writing import copy, write

__all__ = [
    "CALLS",
    "CONTRADICTED",
    "EXTERNAL_DATA",
    "SILENT",
    "SOURCES",
    "check",
    "complete",
    "copy",
    "cut",
    "identity",
    "lift_constants",
    "read",
    "refuse_sources",
    "restore_calls",
    "spell_out",
    "to_proto",
    "write",
    "write_text",
]
