"""ONNX files: read safely with weights left on disk, checked, written as a stream and atomically."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relayout.formats.onnx.atomic import known_files, refuse_sources, write_text
from relayout.formats.onnx.checking import check
from relayout.formats.onnx.parts import to_proto
from relayout.formats.onnx.writing import copy, write
from relayout.lazy_exports import loaded_later

if TYPE_CHECKING:
    from relayout.formats.onnx.calls import restore_calls
    from relayout.formats.onnx.completing import complete
    from relayout.formats.onnx.parts import cut
    from relayout.formats.onnx.reading import read
    from relayout.formats.onnx.spelling import lift_constants, spell_out

__all__ = [
    "check",
    "complete",
    "copy",
    "cut",
    "known_files",
    "lift_constants",
    "read",
    "refuse_sources",
    "restore_calls",
    "spell_out",
    "to_proto",
    "write",
    "write_text",
]

__getattr__ = loaded_later(  # what only a source in ONNX needs
    __name__,
    {
        "complete": f"{__name__}.completing",
        "cut": f"{__name__}.parts",
        "lift_constants": f"{__name__}.spelling",
        "read": f"{__name__}.reading",
        "restore_calls": f"{__name__}.calls",
        "spell_out": f"{__name__}.spelling",
    },
)
