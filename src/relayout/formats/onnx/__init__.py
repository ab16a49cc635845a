"""ONNX files: read safely with weights left on disk, checked, written as a stream and atomically."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relayout.formats.onnx.atomic import SOURCES, identity, refuse_sources, write_text
from relayout.formats.onnx.checking import check
from relayout.formats.onnx.parts import CALLS, CONTRADICTED, EXTERNAL_DATA, SILENT, to_proto
from relayout.formats.onnx.writing import copy, write

if TYPE_CHECKING:
    from relayout.formats.onnx.completing import complete, lift_constants
    from relayout.formats.onnx.cutting import cut
    from relayout.formats.onnx.reading import read
    from relayout.formats.onnx.restoring import restore_calls
    from relayout.formats.onnx.spelling import spell_out

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

_HOMES = {
    "complete": "completing",
    "cut": "cutting",
    "lift_constants": "completing",
    "read": "reading",
    "restore_calls": "restoring",
    "spell_out": "spelling",
}


def __getattr__(name: str) -> Any:
    """Load what only a source in ONNX needs when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
